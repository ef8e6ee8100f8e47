"""truth(): the exact neighbours of every query, from arrays, Vectors, files or many shards."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from semrecall.data import Run, Vectors
from semrecall.data.fitting import check_fitting
from semrecall.data.multivectors import MultiVectors
from semrecall.errors import InputError, SemrecallError
from semrecall.exact import query_reasons, search
from semrecall.exact.answer import as_run
from semrecall.exact.filters import Filter
from semrecall.exact.maxsim import search_documents
from semrecall.exact.search import Progress, machine_memory
from semrecall.exact.search import workers as cores
from semrecall.formats import read_ids, read_queries
from semrecall.formats.multivectors import documents_of
from semrecall.formats.remote import is_url
from semrecall.registry import did_you_mean
from semrecall.space import Space
from semrecall.space import space as space_named
from semrecall.systems import base_vectors
from semrecall.truth.before import Listed, OldFilter
from semrecall.truth.checkpoint import Checkpoint
from semrecall.truth.engines import ENGINES, by_processes, by_threads
from semrecall.truth.filtering import allowed_for, are_predicates, parquet_files
from semrecall.truth.rows import RowHashes
from semrecall.truth.scoring import Searched
from semrecall.truth.shards import Shards
from semrecall.truth.update import update_truth
from semrecall.truth.work import Job, Tally, id_order

__all__ = ["Base", "open_base", "open_queries", "truth"]


@dataclass(frozen=True)
class Base:
    """A base: its vectors, which may be a stream, and its shards, where it is one of files."""

    vectors: Vectors
    shards: Shards | None = None


def open_base(base: Any, *, dataset: str | None = None, ids: Any = None) -> Base:
    """What a base names, opened: Vectors, an array, files in any number, or a database's spec.

    base: a path, a URL, a pattern, a directory of shards, or a list of these, as in `truth`.
    dataset: the HDF5 data set or the parquet column. ids: of the rows, or the file that has them
    (a list of files, or a pattern: one for each shard).

    Raises FormatError and MismatchError naming the shard that is not what it claims to be, or
    does not fit the others.
    """
    if isinstance(base, Base):
        return base
    shards = Shards.of(base, dataset)
    if shards is None:
        return Base(base_vectors(base, dataset=dataset, ids=ids))
    return Base(shards.vectors(ids), shards)


def open_queries(queries: Any, *, dataset: str | None = None, ids: Any = None) -> Vectors:
    """Query vectors from Vectors, an array, the path of a file or a URL; held in memory."""
    if isinstance(queries, str | Path) and not is_url(str(queries)):
        return read_queries(queries, dataset=dataset, ids=ids)
    if not isinstance(queries, str):
        return Vectors.of(queries, ids=ids)
    shards = Shards.of(queries, dataset)
    if shards is None:
        raise InputError(f"{queries} is no file of vectors; expected one for the queries")
    matrix = np.concatenate([block for _, block in shards.vectors().blocks(1 << 16)])
    return Vectors.of(matrix, ids=shards.vectors(ids).given_ids)


def truth(
    base: Any,
    queries: Any,
    k: int,
    space: str | Space,
    *,
    filter: Any = None,  # noqa: A002
    columns: Any = None,
    query_columns: Mapping[str, Any] | Path | str | None = None,
    memory: int | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    engine: str = "threads",
    workers: int | None = None,
    address: str | None = None,
    checkpoint: Path | str | None = None,
    timings: dict[str, float] | None = None,
    update: Run | Path | str | None = None,
    was: Any = None,
    changed: Any = None,
    rows: RowHashes | Path | str | None = None,
    was_filter: Any = None,
    was_columns: Any = None,
    spare: int | None = None,
    keep_rows: Path | str | None = None,
    notes: list[str] | None = None,
    device: str | None = None,
) -> Run:
    """The exact k nearest neighbours of every query, the same on every machine.

    base, queries: Vectors, an array (n, d), or the path of a file of vectors. The base may also be
        the spec of a system that gives out what it holds ("pgvector://...?table=docs"), and many
        files: a pattern ("part-*.npy"), a directory, URLs (s3://, gs://, az://, https://), or a
        list of these. Row numbers run on over them, in natural order of their names or in that
        of the list. Files are read once, block by block, ahead of the arithmetic.
    k: how many neighbours; rows are longer where ties with the k-th continue, and shorter only
        where fewer neighbours exist.
    space: "ip", "cosine" or "l2"; "hamming" or "jaccard" of bits (uint8, eight a byte, or
        booleans); "maxsim" of documents of several vectors (MultiVectors, lists of matrices, or
        files of them), searched by threads, without checkpoint.
    filter: what each query may find: a mask (n,) or (n_queries, n), allowed ids per query
        ({query id: ids} or one list a query), `Allowed`, the path of a file of masks or ids, or a
        predicate over columns of the base ('lang == "th" and price < 20'): one for all, a list of
        one a query, or {query id: predicate}, None for a query without. Queries that share a filter
        are searched together. One whose filter allows nothing has an empty row and a reason.
    columns: those of the base, for predicates: parquet, another file of records, or a frame; the
        parquet files of the base when None. query_columns: those of the queries, in their order,
        or their file: `$name` in a predicate is the query's own value there.
    memory: bytes for blocks, results and survivors; a quarter of the machine's when None. It
        bounds what is held at a time, whatever the size of the base; processes share it, and on a
        cluster it is that of each node.
    threads: how many cores; all when None.
    progress: called with rows done and rows in all.
    engine: "threads" of this process, "processes" of this machine, or "ray", a cluster at
        `address` (this machine when None) whose nodes read the files themselves. The bits that
        come out are the same. workers: processes, or cores of the cluster, to use; all when None.
    checkpoint: a file to keep what was found in, every half minute and where the work ends before
        its end; the same call goes on from there. Remove it when the run is stored. For bases of
        files only.
    timings: filled with seconds spent waiting for "reading", and on "screening" and "settling".
    update: an older truth, or its .parquet file, to repair: only rows that are new or changed are
        scored, and only queries for which that does not suffice search the whole base. What comes
        out has the bits of a truth made anew. One of these tells what changed: was, the base it
        was made from; rows, the row hashes of that base (those kept beside the file by default);
        changed, the ids of all new and changed rows, on your word. A deleted row is one that the
        base no longer has. The filters of a filtered truth are given anew, as they are now.
    was_filter: the filter of the older truth, over the rows of its base. was_columns: the columns
        of that base, for predicates; those of `was` where it is parquet. Neither is needed with row
        hashes, which remember filters, or where no row was deleted and filters allow the same
        of the rows that were there before. Queries whose old filter is not known search anew.
    spare: how many neighbours more than k are kept, so that later deletions do not use them up;
        as in the older truth, or none.
    keep_rows: a file for hashes of the rows of base and queries, and for what filters allow, which
        tell a later update what changed.
    notes: gets a line of what an update did.
    device: where most of the arithmetic is done, for ip, cosine and l2: "cuda" (or "cuda:1"),
        "mps", or "auto", one of these where torch finds one; needs torch. "cpu" or None: the
        cores. The bits that come out are the same.

    Returns a Run with float64 scores in the natural unit of the space and the identity of the
    data. Raises InputError for k < 1, MismatchError for vectors of different dimension, shards
    that do not fit each other, a checkpoint of another search, and what cannot be an update.
    """
    geometry = space_named(space)
    shards = None
    opened: Any
    vectors: Searched
    asked: Searched
    if geometry.compares == "documents":
        _refuse_for_documents(engine, checkpoint, device)
        opened = vectors = documents_of(base)
        asked = documents_of(queries)
    else:
        opened, asked = open_base(base), open_queries(queries)
        vectors, shards = opened.vectors, opened.shards
        columns = _columns_of(opened, columns)
    filtered = Filter.of(
        allowed_for(filter, vectors, asked, columns, query_columns), vectors, asked
    )
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise InputError(f"k is {k!r}; expected a whole number of at least 1")
    if spare is not None and spare < 0:
        raise InputError(f"spare is {spare}; expected a whole number of at least 0")

    def search_all(some: Searched, depth: int, allowed: Filter | None) -> Run:
        if isinstance(some, MultiVectors):
            return search_documents(
                vectors, some, depth, allowed=allowed, memory=memory, threads=threads,
                progress=progress,
            )  # fmt: skip
        return _searched(
            opened, some, depth, space, allowed=allowed, memory=memory, threads=threads,
            progress=progress, engine=engine, workers=workers, address=address,
            checkpoint=checkpoint, timings=timings, device=device,
        )  # fmt: skip

    if update is None:
        given = {
            "was": was, "changed": changed, "rows": rows, "was_filter": was_filter,
            "was_columns": was_columns,
        }  # fmt: skip
        if any(value is not None for value in given.values()):
            raise InputError(f"{', '.join(given)} are for an update; give update=")
        run = search_all(asked, int(k) + (spare or 0), filtered)
        hashes = None
    else:
        before: Searched | None = None
        own_columns = None
        if was is not None and geometry.compares == "documents":
            before = documents_of(was)
        elif was is not None:
            opened_before = open_base(was)
            before, own_columns = opened_before.vectors, _columns_of(opened_before, None)
        old_filter = _old_filter(filter, was_filter, was_columns, own_columns, asked, query_columns)
        done = update_truth(
            update, vectors, asked, int(k), geometry, search=search_all, allowed=filtered,
            was=before, changed=read_ids(changed) if isinstance(changed, str | Path) else changed,
            rows=rows, old_filter=old_filter, spare=spare, memory=memory, threads=threads,
        )  # fmt: skip
        run, hashes, spare = _with_shards(done.run, shards), done.hashes, done.spare
        if notes is not None:
            notes.append(str(done))
    more: dict[str, Any] = {"k": int(k)} | ({"spare": spare} if spare else {})
    if keep_rows is not None:
        hashes = replace(
            hashes or RowHashes.of(vectors), queries=RowHashes.of(asked).hashes, filter=filtered
        )
        hashes.write(keep_rows)
        more["row_hashes"] = hashes.digest
        more["queries"] = {**run.identity["queries"], "hashes": hashes.queries_digest}
    return run.replace(k=int(k), identity={**run.identity, **more})


def _refuse_for_documents(engine: str, checkpoint: Any, device: str | None) -> None:
    given = {
        "engine": engine != "threads", "checkpoint": checkpoint,
        "device": device not in (None, "cpu", "auto"),
    }  # fmt: skip
    refused = [name for name, value in given.items() if value]
    if refused:
        raise InputError(
            f"maxsim knows no {' or '.join(refused)}: documents of several vectors are "
            "searched by the threads of one process, from the start"
        )


def _columns_of(base: Base, columns: Any) -> Any:
    """The columns given, or those of a base of parquet files."""
    if columns is None and base.shards is not None:
        return parquet_files(base.shards.files)
    return columns


def _old_filter(
    filter_: Any,
    was_filter: Any,
    was_columns: Any,
    own_columns: Any,
    queries: Searched,
    query_columns: Any,
) -> OldFilter:
    """How the filter of an older truth is found. own_columns: those of its base, where it has."""
    columns = own_columns if was_columns is None else was_columns

    def told(rows: Listed, asked: Listed) -> Filter | None:
        allowed = allowed_for(was_filter, rows, asked, columns, query_columns)
        return Filter.of(allowed, rows, asked)

    def guessed(rows: Listed) -> Filter | None:
        try:
            allowed = allowed_for(filter_, rows, queries, columns, query_columns)
            return Filter.of(allowed, rows, queries)
        except SemrecallError:
            if was_columns is not None:
                raise
            return None  # the old base has not the columns that the filter looks at

    guess: Callable[[Listed], Filter | None] | None = guessed
    if columns is None or not are_predicates(filter_):
        guess = None
    return OldFilter(None if was_filter is None else told, guess)


def _searched(
    base: Any,
    queries: Vectors,
    k: int,
    space: str | Space,
    *,
    allowed: Any,
    memory: int | None,
    threads: int | None,
    progress: Progress | None,
    engine: str,
    workers: int | None,
    address: str | None,
    checkpoint: Path | str | None,
    timings: dict[str, float] | None,
    device: str | None,
) -> Run:
    """The k nearest of all rows; see `truth`."""
    if engine not in ENGINES:
        raise InputError(f"unknown engine {engine!r}", hint=did_you_mean(engine, ENGINES))
    opened, asked = open_base(base), queries
    if opened.shards is None:
        if engine != "threads":
            raise InputError(
                f"the engine {engine} reads files; this base is none",
                hint="leave the engine out, or write the vectors to files",
            )
        return search(
            opened.vectors,
            asked,
            k,
            space,
            allowed=allowed,
            memory=memory,
            threads=threads,
            progress=progress,
            device=device,
        )
    if engine != "threads" and device not in (None, "cpu", "auto"):
        raise InputError(f"the engine {engine} uses cores; leave the device out")
    geometry, matrix = space_named(space), asked.require_matrix()
    check_fitting(geometry, opened.vectors, asked)
    reasons = query_reasons(matrix, geometry)
    usable = np.flatnonzero([not reason for reason in reasons])
    job = Job(
        opened.shards,
        matrix[usable],
        usable,
        geometry,
        int(k),
        Filter.of(allowed, opened.vectors, asked),
        machine_memory() // 4 if memory is None else memory,
        threads or cores(),
        device if engine == "threads" else None,
    )
    if job.memory < 1 << 20:
        raise InputError(f"memory is {job.memory:,} bytes; expected at least 1 MiB")
    ids = opened.vectors.given_ids
    kept = None if checkpoint is None else Checkpoint(checkpoint, _signature(job, opened, asked))
    tally = Tally(opened.shards.rows, progress or (lambda done, total: None), kept)
    if engine == "threads":
        answer = by_threads(job, tally, ids)
    elif engine == "processes":
        answer = by_processes(job, tally, id_order(ids), workers)
    else:
        from semrecall.truth.cluster import by_ray

        answer = by_ray(job, tally, id_order(ids), workers, address)
    run = as_run(
        answer,
        space=geometry,
        k=int(k),
        base=opened.vectors,
        rows=opened.shards.rows,
        queries=asked,
        reasons=reasons,
        allowed=job.allowed,
    )
    if timings is not None:
        timings.update(answer.seconds)
    return _with_shards(run, opened.shards)


def _with_shards(run: Run, shards: Shards | None) -> Run:
    """The run, its identity telling the order of the shards where there are several."""
    if shards is None or len(shards.files) == 1:
        return run
    files = [[name, shard.rows] for name, shard in zip(shards.names, shards.files, strict=True)]
    return replace(run, identity={**run.identity, "shards": files})


def _signature(job: Job, base: Base, queries: Vectors) -> Mapping[str, Any]:
    """What a search is of, for its checkpoint."""
    from importlib.metadata import version

    codes = None if base.vectors.given_ids is None else base.vectors.given_ids.codes
    return {
        "base": list(zip(job.shards.names, job.shards.versions, strict=True)),
        "base_rows": job.shards.rows,
        "base_ids": None if codes is None else hashlib.sha256(codes.tobytes()).hexdigest(),
        "queries": hashlib.sha256(job.queries.tobytes()).hexdigest(),
        "query_count": len(queries),
        "k": job.k,
        "space": job.space.name,
        "filter": None if job.allowed is None else job.allowed.fingerprint,
        "semrecall": version("semrecall"),
    }
