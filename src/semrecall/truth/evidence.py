"""What tells which rows of a base changed since a truth was made, and whether it can be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data import Run, Vectors
from semrecall.data.ids import codes_in, ids, unify
from semrecall.data.matching import difference
from semrecall.data.multivectors import MultiVectors
from semrecall.data.vectors import identity_difference, identity_of
from semrecall.errors import InputError, MismatchError
from semrecall.exact.answer import Answer, Sample
from semrecall.exact.maxsim import unsound_documents
from semrecall.exact.search import Scan
from semrecall.space import Space, space
from semrecall.truth.rows import Changes, Growing, RowHashes, places_before
from semrecall.truth.scoring import Searched

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "check_evidence",
    "compared",
    "hashes_of",
    "looked_over",
    "named_changes",
    "same_kind",
]

_BLOCK = 1 << 16
_FEW = 2048  # rows that stay in cache while they are compared
_NOTHING = np.empty(0, dtype=np.int64)


def same_kind(old: Run, base: Searched, queries: Searched, geometry: str | Space) -> Space:
    """The space asked for; raises where a truth of other vectors or of another kind is given."""
    wanted = space(geometry)
    if not {"base", "queries", "k"} <= set(old.identity) or old.scores_by != "exact":
        raise InputError(
            "the run to update does not know what it was made from",
            hint="only what semrecall truth wrote as .parquet can be updated",
        )
    _check_complete(old, wanted)
    if old.space != wanted:
        raise MismatchError(f"the truth to update is in space {old.space}; {wanted} was asked for")
    for what, vectors in (("base", base), ("queries", queries)):
        known = old.identity[what]
        if (known["dimension"], known["dtype"]) != (vectors.dimension, vectors.dtype.name):
            raise MismatchError(
                f"the {what} vectors are {vectors.dtype} of {vectors.dimension} dimensions; those "
                f"of the truth to update are {known['dtype']} of {known['dimension']}",
                hint="every score may be another: make the truth anew",
            )
    return wanted


def _check_complete(old: Run, geometry: Space) -> None:
    """Raise MismatchError where neighbours were taken out of a truth: the rest proves nothing."""
    assert old.flat_scores is not None
    known, filter_ = old.identity, old.identity.get("filter")
    rows: Any = known["base"]["rows"] if filter_ is None else filter_["allowed_rows"]
    if geometry.compares == "documents" or (isinstance(rows, list) and len(rows) != len(old)):
        return  # how many documents have vectors is not remembered
    scored = np.concatenate([[0], np.cumsum(~np.isnan(old.flat_scores))])
    counts = scored[old.offsets[1:]] - scored[old.offsets[:-1]]
    without = known.get("left_out_rows", 0) + known.get("zero_rows", 0)
    lacking = counts < np.minimum(known["k"], np.asarray(rows) - without)
    if old.reasons:
        lacking &= np.array([not reason for reason in old.reasons])
    if lacking.any():
        at = int(np.argmax(lacking))
        raise MismatchError(
            f"the truth to update lacks neighbours: query {old.queries[at]!r} has {counts[at]:,} "
            f"with a score, of {known['k']:,}",
            hint="were some taken out? update the truth as it was made",
        )


def check_evidence(was: Any, changed: Any, rows: Any) -> None:
    """Raise InputError where nothing tells what changed, or several things do."""
    given = [
        name
        for name, value in (("was", was), ("changed", changed), ("rows", rows))
        if value is not None
    ]
    if len(given) > 1:
        raise InputError(f"{given[0]} and {given[1]} both tell what changed; give one of them")
    if not given:
        raise InputError(
            "nothing tells which rows changed since the truth was made",
            hint="give the old base (--was FILE, was=), or the ids of all new and changed rows "
            "(--changed FILE, changed=); a truth made with --keep-rows knows by itself",
        )


def looked_over(
    base: Searched, geometry: Space, *, hashed: bool
) -> tuple[Answer, RowHashes | None]:
    """What an answer says of the rows of a base beside neighbours, and their hashes."""
    growing = Growing() if hashed else None
    if isinstance(base, MultiVectors):
        answer = _documents_looked_over(base, growing)
    else:
        with Scan(geometry, np.empty((0, base.dimension)), 1, threads=1) as scan:
            for start, block in base.blocks(_BLOCK):
                scan.over(start, block)
                if growing is not None:
                    growing.add(block)
                base.release()
            answer = scan.answer()
    return answer, None if growing is None else growing.finished(base.given_ids)


def _documents_looked_over(base: MultiVectors, growing: Growing | None) -> Answer:
    samples, left_out = [Sample(*base.part(0, 0).sample(0))], [_NOTHING]
    for start, documents in base.blocks(_BLOCK, _BLOCK):
        samples.append(Sample(*documents.sample(start)))
        left_out.append(start + unsound_documents(documents))
        if growing is not None:
            growing.add_documents(documents)
        base.release()
    return Answer(
        np.zeros(1, dtype=np.int64), _NOTHING, np.empty(0), None, np.empty(0, dtype=bool), 0.0,
        np.concatenate(left_out), _NOTHING, Sample.joined(samples),
    )  # fmt: skip


def hashes_of(was: Searched, old: Run, geometry: Space) -> RowHashes:
    """Row hashes of the base given as the old one; MismatchError where it is seen not to be it."""
    looked, hashes = looked_over(was, geometry, hashed=True)
    assert hashes is not None
    fingerprint = looked.sample.fingerprint(was.dtype, was.dimension)
    _check(old, was, len(hashes.hashes), fingerprint)
    return hashes


def compared(was: Searched, base: Searched, old: Run) -> Changes:
    """What changed since the older base `was`, a matrix: rows are compared byte by byte.

    Raises MismatchError where it is seen not to be the one that the truth was made from.
    """
    _check(old, was, len(was), was.fingerprint)
    at = places_before(was.given_ids, base.given_ids, len(was), len(base))
    fresh = np.ones(len(base), dtype=bool)
    if isinstance(base, MultiVectors):
        assert isinstance(was, MultiVectors)
        _compare_documents(was, base, at, fresh)
        return Changes.of(at, fresh, len(was))
    assert isinstance(was, Vectors)
    for start, block in base.blocks(_FEW):
        mine = at[start : start + len(block)]
        known = np.flatnonzero(mine >= 0)
        before, now = _words(was.take(mine[known])), _words(block[known])
        fresh[start + known] = (before != now).any(axis=1)
        base.release()
        was.release()
    return Changes.of(at, fresh, len(was))


def _compare_documents(
    was: MultiVectors, base: MultiVectors, at: NDArray[np.int64], fresh: NDArray[np.bool_]
) -> None:
    """Mark the documents as not fresh that have the same vectors as before."""
    lengths = was.lengths
    for start, documents in base.blocks(_BLOCK, _BLOCK):
        mine = at[start : start + len(documents)]
        known = np.flatnonzero(mine >= 0)
        known = known[lengths[mine[known]] == documents.lengths[known]]
        before = _words(was.matrix[was.rows_of(mine[known])])
        now = _words(documents.matrix[documents.rows_of(known)])
        owner = np.repeat(np.arange(len(known)), documents.lengths[known])
        differ = np.bincount(owner[(before != now).any(axis=1)], minlength=len(known))
        fresh[start + known] = differ > 0
        base.release()
        was.release()


def _words(rows: NDArray[Any]) -> NDArray[Any]:
    """The bytes of numbers as whole numbers: NaN is like itself, and 0 not like -0."""
    return np.ascontiguousarray(rows).view(np.dtype(f"u{rows.dtype.itemsize}"))


def _check(old: Run, was: Searched, rows: int, fingerprint: str) -> None:
    differs = identity_difference(old.identity["base"], identity_of(was, rows, fingerprint))
    if differs:
        raise MismatchError(
            f"the base given as the old one is not that of the truth to update: {differs}",
            hint="give the base that it was made from",
        )


def named_changes(changed: Any, base: Searched, old: Run) -> Changes:
    """What the user says is new or changed. Where rows were is known where they go by number."""
    names = ids(changed, what="changed ids")
    rows, before = len(base), int(old.identity["base"]["rows"])
    at = codes_in(*unify(names, base.ids))
    inside = np.unique(at[at >= 0])
    if len(names) and len(inside) == 0:
        found = difference(names, base.ids)
        raise MismatchError(
            f"none of the {len(names):,} changed ids is in the base, the first is {names[0]!r}",
            hint=str(found) if found else "ids of deleted rows need not be named",
        )
    if base.given_ids is None and rows < before:
        raise MismatchError(
            f"the base has {rows:,} rows, the truth was made from {before:,}, and rows go by "
            "number: after a deletion all numbers behind it are other rows",
            hint="give the rows ids (--base-ids), or show the old base (--was)",
        )
    if rows - before > len(inside):
        raise MismatchError(
            f"the base has {rows - before:,} rows more than the truth was made from, but only "
            f"{len(inside):,} are named as new or changed"
        )
    fresh = np.zeros(rows, dtype=bool)
    fresh[inside] = True
    places = None
    if base.given_ids is None:
        places = places_before(None, None, before, rows)
    return Changes(fresh, 0, 0, 0, places)
