"""What is checked, and what several checks need of it: scans, sampled queries, exact neighbours."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.check.scan import Scan, row_hashes, scan
from semrecall.data import Ids, Judgments, Run, Vectors
from semrecall.data.ids import codes_in, unify
from semrecall.errors import InputError, SemrecallWarning
from semrecall.exact import search
from semrecall.exact.settle import exact_pair_scores
from semrecall.formats import queries_of, read_judgments, read_run, vectors_of
from semrecall.space import COSINE, HAMMING, IP, JACCARD, L2, MAXSIM, Space, exact_norms
from semrecall.space import space as space_named

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Inputs", "Pairs", "Progress"]

#: Called with what is being done, rows done, and rows in all (None while it is not known).
Progress = Callable[[str, float, "int | None"], None]

#: Results per query that are rescored to find out what the scores are.
_PAIRS = 10
#: How deep a truth is recomputed: on a matrix, and on a stream, whose rows must be kept.
_DEPTH, _STREAM_DEPTH = 1000, 100


@dataclass(frozen=True)
class Pairs:
    """Some (query, result) pairs of a run: row numbers, stored scores, and the exact ones (m,)."""

    query_rows: NDArray[np.int64]
    base_rows: NDArray[np.int64]
    stored: NDArray[np.float64]
    query_norms: NDArray[np.float64]
    base_norms: NDArray[np.float64]
    exact: dict[str, NDArray[np.float64]]


@dataclass
class Inputs:
    """Everything that was given, and what is computed from it once.

    space: the space the user has in mind, which a truth or a run may contradict.
    sample: how many queries are looked at one by one.
    """

    base: Vectors | None
    queries: Vectors | None
    truth: Run | None
    run: Run | None
    judgments: Judgments | None
    space: Space | None
    sample: int
    seed: int
    memory: int | None
    progress: Progress
    sampled: list[str] = field(default_factory=list)
    _nearest: dict[str, Run] = field(default_factory=dict)
    _length: int | None = None  # of a stream, once it was read

    @classmethod
    def of(
        cls,
        *,
        base: Any,
        queries: Any,
        truth: Any,
        run: Any,
        judgments: Any,
        space: str | Space | None,
        sample: int | None,
        seed: int,
        memory: int | None,
        progress: Progress | None,
    ) -> Inputs:
        """Inputs from nouns, arrays and paths of files."""
        if all(part is None for part in (base, queries, truth, run, judgments)):
            raise InputError(
                "nothing to check; expected at least one of base, queries, truth, run, judgments"
            )
        if sample is not None and sample < 1:
            raise InputError(f"sample is {sample}; expected at least 1, or None for all queries")
        if isinstance(judgments, str | Path):
            judgments = read_judgments(judgments)
        stated = [part.space for part in (truth, run) if isinstance(part, Run)]
        stated += [] if space is None else [space_named(space)]
        if MAXSIM in stated and not (base is None and queries is None):
            raise InputError(
                "check does not look into documents of several vectors",
                hint="leave base and queries out: identifiers, lists and judgments are checked",
            )
        if not isinstance(judgments, Judgments | None):
            raise InputError(f"judgments are a {type(judgments).__name__}; expected Judgments")
        return cls(
            base=None if base is None else vectors_of(base),
            queries=None if queries is None else _in_memory(queries_of(queries)),
            truth=_run(truth, "truth"),
            run=_run(run, "run"),
            judgments=judgments,
            space=None if space is None else space_named(space),
            sample=2**63 - 1 if sample is None else sample,
            seed=seed,
            memory=memory,
            progress=progress or (lambda what, done, total: None),
        )

    def described(self) -> dict[str, str]:
        """Each input in one line."""
        parts = {
            "base": self.base,
            "queries": self.queries,
            "truth": self.truth,
            "run": self.run,
            "judgments": self.judgments,
        }
        lines = {}
        for name, part in parts.items():
            if part is not None:
                text = repr(part)
                lines[name] = text[text.index("(") + 1 : -1]
        if self.space is not None:
            lines["space"] = f"{self.space} (as stated)"
        return lines

    @property
    def bits(self) -> bool:
        """Whether the vectors are bits: by the space stated, or because they are booleans."""
        assert self.base is not None
        stated = self.stated_space
        return self.base.dtype == bool or (stated is not None and stated.compares == "bits")

    @cached_property
    def spaces(self) -> tuple[Space, ...]:
        """The spaces that such vectors can be compared in."""
        assert self.both is not None
        if self.bits:
            return HAMMING, JACCARD
        packed = all(vectors.dtype == np.uint8 for vectors in self.both)
        return (IP, COSINE, L2, HAMMING, JACCARD) if packed else (IP, COSINE, L2)

    def runs(self) -> Iterator[tuple[str, Run]]:
        """Truth and run, where given."""
        if self.truth is not None:
            yield "truth", self.truth
        if self.run is not None:
            yield "run", self.run

    @property
    def stated_space(self) -> Space | None:
        """The space that was stated: by the user, else by the truth, else by the run."""
        for known in (self.space, *(run.space for _, run in self.runs())):
            if known is not None:
                return known
        return None

    @property
    def k(self) -> int:
        """The k that numbers will be read at: of the run, else of the truth, else 10."""
        for run in (self.run, self.truth):
            if run is not None and run.depth:
                return run.depth
        return 10

    # -- vectors ----------------------------------------------------------------------------

    @property
    def both(self) -> tuple[Vectors, Vectors] | None:
        """Base and queries, where both are given and can be compared."""
        if self.base is None or self.queries is None:
            return None
        if self.base.dimension != self.queries.dimension:
            return None
        return self.base, self.queries

    @cached_property
    def _hashed_as(self) -> np.dtype[Any] | None:
        if self.both is None:
            return None
        return np.result_type(self.both[0].dtype, self.both[1].dtype)

    @cached_property
    def query_scan(self) -> Scan | None:
        """The scan of the queries."""
        if self.queries is None:
            return None
        return scan(self.queries, hashed_as=self._hashed_as)

    @cached_property
    def query_hashes(self) -> NDArray[np.uint64]:
        """A hash per query, (m,), comparable with those of the base."""
        assert self.queries is not None
        matrix = self.queries.require_matrix()
        return row_hashes(matrix.astype(self._hashed_as or matrix.dtype, copy=False))

    @cached_property
    def base_scan(self) -> Scan | None:
        """The scan of the base; of a stream it also gathers the rows that checks will need."""
        if self.base is None:
            return None
        looked_for = wanted = None
        if self.both is not None:
            looked_for = np.unique(self.query_hashes[self._usable])
            if self.base.matrix is None:
                wanted = self._stream_rows
        most = 1 << 24 if self.memory is None else max(1 << 12, self.memory // 64)
        found = scan(
            self.base,
            hashed_as=self._hashed_as,
            looked_for=looked_for,
            wanted=wanted,
            most_hashes=most,
            progress=lambda done, total: self.progress("reading the base", done, total),
        )
        self._length = found.rows
        if found.duplicates.halvings:
            self.sampled.append(
                f"equal rows were counted in {found.duplicates.share:.2%} of the base (whole "
                "groups, chosen by hash), to bound memory"
            )
        return found

    @cached_property
    def _usable(self) -> NDArray[np.int64]:
        """Rows of the queries that are finite and not zero."""
        assert self.queries is not None
        matrix = self.queries.require_matrix()
        return np.flatnonzero(np.isfinite(matrix).all(axis=1) & matrix.any(axis=1))

    def base_rows(self, documents: Ids) -> NDArray[np.int64]:
        """The row of the base of each document, -1 where it is not there."""
        assert self.base is not None
        if self.base.given_ids is not None:
            return codes_in(*unify(documents, self.base.given_ids))
        rows = documents.codes if documents.are_integers else _whole_numbers(documents)
        length = self._length if self.base.length is None else self.base.length
        return rows if length is None else np.where(rows < length, rows, -1)

    # -- sampled queries ----------------------------------------------------------------------

    @cached_property
    def chosen(self) -> NDArray[np.int64]:
        """Rows of the sampled queries, rising: usable ones, in the truth (else the run) if any."""
        assert self.queries is not None
        rows = self._usable
        first = next(self.runs(), None)
        if first is not None:
            inside = codes_in(*unify(self.queries.ids, first[1].queries)) >= 0
            rows = rows[inside[rows]] if inside[rows].any() else rows
        if len(rows) > self.sample:
            whole = len(rows)
            rng = np.random.default_rng(self.seed)
            rows = np.sort(rng.choice(rows, self.sample, replace=False))
            self.sampled.append(
                f"{len(rows):,} of {whole:,} queries (seed {self.seed}) were compared with exact "
                "search and rescored"
            )
        return rows

    def rows_in(self, run: Run) -> NDArray[np.int64]:
        """The row in a run of each sampled query, -1 where it is not there."""
        assert self.queries is not None
        return codes_in(*unify(self.queries.ids[self.chosen], run.queries))

    @property
    def depth(self) -> int:
        """How deep the truth is recomputed."""
        assert self.truth is not None
        assert self.base is not None
        most = _DEPTH if self.base.matrix is not None else _STREAM_DEPTH
        return min(self.truth.depth, most)

    @cached_property
    def _stream_rows(self) -> NDArray[np.int64]:
        """Rows of a stream that must be kept: those of all pairs that will be scored."""
        parts = [self.base_rows(run.documents[self._entries(run)]) for _, run in self.runs()]
        if self.truth is not None:
            parts.append(self.base_rows(self.truth.documents[self.truth_entries()[0]]))
        rows = np.unique(np.concatenate([np.empty(0, np.int64), *parts]))
        return rows[rows >= 0]

    def truth_entries(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Entries of the truth, down to `depth`, query by query as sampled, and how many each."""
        assert self.truth is not None
        rows = self.rows_in(self.truth)
        starts = np.where(rows < 0, 0, self.truth.offsets[rows])
        stops = np.where(rows < 0, 0, self.truth.offsets[rows + 1])
        lengths = np.minimum(stops - starts, self.depth)
        ends = np.cumsum(lengths)
        within = np.arange(int(ends[-1]) if len(ends) else 0)
        return within + np.repeat(starts - ends + lengths, lengths), lengths

    def _entries(self, run: Run) -> NDArray[np.int64]:
        """Up to `_PAIRS` results, spread over the ranks, of each sampled query."""
        rows = self.rows_in(run)
        rows = rows[rows >= 0]
        starts, lengths = run.offsets[rows], np.diff(run.offsets)[rows]
        steps = np.linspace(0, 1, _PAIRS)
        spread = starts[:, None] + np.rint(steps * np.maximum(lengths - 1, 0)[:, None]).astype(int)
        return np.unique(spread[lengths > 0])

    def pairs(self, run: Run) -> Pairs:
        """Some pairs of a run with known ids and real scores, rescored in every space."""
        assert self.queries is not None
        assert run.flat_scores is not None
        entries = self._entries(run)
        owner = np.searchsorted(run.offsets, entries, side="right") - 1
        query_of = np.full(len(run), -1)
        rows = self.rows_in(run)
        query_of[rows[rows >= 0]] = self.chosen[rows >= 0]
        base_rows, query_rows = self.base_rows(run.documents[entries]), query_of[owner]
        keep = (base_rows >= 0) & run.valid[entries] & np.isfinite(run.flat_scores[entries])
        base_rows, query_rows, entries = base_rows[keep], query_rows[keep], entries[keep]
        rows_of_base = self.take(base_rows)
        norms = exact_norms(rows_of_base) if len(entries) else np.empty(0)
        good = np.isfinite(norms)
        return Pairs(
            query_rows=query_rows[good],
            base_rows=base_rows[good],
            stored=run.flat_scores[entries][good],
            query_norms=exact_norms(self.queries.require_matrix()[query_rows[good]]),
            base_norms=norms[good],
            exact={
                name: self.scores(space_named(name), base_rows[good], query_rows[good])
                for name in (space.name for space in self.spaces)
            },
        )

    # -- exact scores and neighbours ----------------------------------------------------------

    def take(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Rows of the base; of a stream only those that were gathered."""
        matrix, places = self._where(rows)
        return matrix.take(places, axis=0)

    def scores(
        self, space: Space, rows: NDArray[np.int64], query_rows: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Exact scores (m,) of rows of the base against rows of the queries, pair by pair."""
        assert self.queries is not None
        matrix, places = self._where(rows)
        with np.errstate(invalid="ignore", over="ignore"):
            return exact_pair_scores(
                space, matrix, places, self.queries.require_matrix(), query_rows
            )

    def _where(self, rows: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        assert self.base is not None
        if self.base.matrix is not None:
            return self.base.matrix, rows
        assert self.base_scan is not None
        return self.base_scan.gathered, np.searchsorted(self._stream_rows, rows)

    @cached_property
    def can_search(self) -> bool:
        """Whether base and queries are there, and the base can be read again."""
        if self.both is None or len(self.chosen) == 0:
            return False
        assert self.base_scan is not None
        if self.base_scan.directed == 0:
            return False
        if self.both[0].matrix is None:
            try:
                next(iter(self.both[0].blocks(1)), None)
            except InputError:
                self.sampled.append(
                    "the base is a stream that can be read once: nothing was compared with exact "
                    "search"
                )
                return False
        return True

    def nearest(self, space: Space, k: int) -> Run:
        """The exact k nearest of the sampled queries, ties at rank k included, and maybe more."""
        assert self.both is not None
        known = self._nearest.get(space.name)
        if known is None or known.k is None or known.k < k:
            base, queries = self.both
            part = Vectors.of(queries.take(self.chosen), ids=queries.ids[self.chosen])
            with quiet():
                known = search(
                    base,
                    part,
                    k,
                    space,
                    memory=self.memory,
                    progress=lambda done, total: self.progress(
                        f"exact search, {space}", done, total
                    ),
                )
            self._nearest[space.name] = known
        return known


@contextmanager
def quiet() -> Iterator[None]:
    """Without the warnings that a check reports as findings itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SemrecallWarning)
        yield


def _in_memory(queries: Vectors | None) -> Vectors | None:
    """Queries as a matrix: there are few enough of them."""
    if queries is None or queries.matrix is not None:
        return queries
    blocks = [np.array(block) for _, block in queries.blocks(1 << 20)]
    return Vectors.of(np.concatenate(blocks), ids=queries.given_ids)


def _run(source: Any, what: str) -> Run | None:
    if source is None or isinstance(source, Run):
        return source
    if isinstance(source, str | Path):
        return read_run(source)
    if isinstance(source, np.ndarray | Iterable):
        return Run.from_arrays(source)
    raise InputError(f"the {what} is a {type(source).__name__}; expected a Run, ids or a path")


def _whole_numbers(documents: Ids) -> NDArray[np.int64]:
    """The value of each id that is a whole number in its plain form, -1 for all others."""
    distinct, position = np.unique(documents.codes, return_inverse=True)
    values = np.full(len(distinct), -1, dtype=np.int64)
    for at, name in enumerate(documents.array(distinct).tolist()):
        if name.isascii() and name.isdigit() and len(name) < 19 and str(int(name)) == name:
            values[at] = int(name)
    return np.asarray(values[position])
