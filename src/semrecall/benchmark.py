"""Build, warm up, search, time: from a system to a run and its cost."""

from __future__ import annotations

import hashlib
import json
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data import Cost, Run, Vectors
from semrecall.data.ids import ids as ids_of
from semrecall.errors import InputError, MismatchError, SemrecallWarning, SystemFault
from semrecall.exact import query_reasons, rescore
from semrecall.exact import search as exact_search
from semrecall.formats import queries_of, vectors_of
from semrecall.space import L2
from semrecall.systems import Counters, System, open_system
from semrecall.text import plural

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.space import Space

__all__ = ["build", "codes_truth", "search"]

_WARM_UP = 32
#: A batch is not repeated, and no further query searched alone, once this much time went by.
_ENOUGH_SECONDS = 10.0


def build(
    system: str | System, base: Any, space: str | Space, *, ids: Any = None, **knobs: Any
) -> System:
    """A system with these vectors in it.

    system: a spec for `open_system`, or a system. base: Vectors, an array (n, d) or a path.
    knobs: build knobs, e.g. seed.
    """
    opened = open_system(system) if isinstance(system, str) else system
    return opened.build(vectors_of(base), space, ids, **knobs)


def search(
    system: System,
    queries: Any,
    k: int,
    *,
    query_ids: Any = None,
    repeats: int = 3,
    latency_queries: int = 300,
    rescore_base: Any = None,
    name: str | None = None,
    filters: Sequence[Any] | Mapping[Any, Any] | None = None,
    texts: Sequence[str] | Mapping[Any, str] | None = None,
    **settings: Any,
) -> tuple[Run, Cost]:
    """Search a built system with one setting; what it found, and what that cost.

    queries: Vectors, an array (n, d) or a path; None for a system that is asked in text. query_ids:
        (n,), in place of those of `queries`.
    repeats: how often the batch is searched at most; times are the median.
    latency_queries: how many queries at most, spread evenly, are searched once more alone. Both
        stop early when 10 seconds have gone by.
    rescore_base: the base (Vectors, array or path); then scores are exact, recomputed in float64.
    filters: (n,) a filter for each query in the system's own language, or None. texts: (n,) the
        queries as text, for a system that is asked so. Both may be given by query id.
    settings: search knobs, for this search only.

    The run has one row per query; a query that cannot be searched (NaN, infinite, or zero under
    ip and cosine) has an empty row with a reason. Cost: distance computations and bytes as the
    system counts them; CPU time of this process over the batch, divided evenly, where no other
    process does the work; latency of one query at a time, NaN for those not timed. Cost is NaN for
    queries that were not searched, and None where the system does not tell.

    Raises InputError for unknown settings and k < 1, MismatchError for another dimension, and
    SystemFault when the system answers against its contract.
    """
    given = _Given(queries, query_ids, filters, texts)
    asked = _asked(system, given, k, settings)
    rows = np.flatnonzero([not reason for reason in asked.reasons])
    if len(rows) < len(asked.reasons):
        _warn(asked.reasons)
    times = _Times([], [])
    ids: NDArray[Any] = np.empty((0, 0), dtype=np.int64)
    scores: NDArray[Any] | None = None
    if len(rows):
        if system.timed:
            asked.search(rows[:_WARM_UP])
        ids, scores = times.measure(lambda: asked.search(rows))
        while system.timed and len(times.wall) < repeats and sum(times.wall) < _ENOUGH_SECONDS:
            times.measure(lambda: asked.search(rows))
    title = name if name is not None else _title(system, settings)
    run = _run(asked, rows, ids, scores, title)
    if rescore_base is not None:
        if queries is None:
            raise InputError("scores cannot be recomputed without query vectors")
        run = rescore(run, vectors_of(rescore_base), asked.queries, system.space)
    return run, _cost(asked, rows, times, latency_queries)


def codes_truth(system: System, queries: Any, k: int, *, query_ids: Any = None) -> Run:
    """The run of exact search over what the quantiser kept: the best the index could do.

    Its loss against the truth is that of quantisation; what the index loses against it is lost
    by the search. Scores are those of the codes. Raises InputError where nothing is quantised.
    """
    asked = _asked(system, _Given(queries, query_ids), k, {})
    codes = system.codes()
    if codes is None:
        raise InputError(
            f"{system.spec or 'the system'} keeps the vectors as they are: nothing is quantised",
            hint="all of its loss is lost by the search",
        )
    rows = np.flatnonzero([not reason for reason in asked.reasons])
    seen, space = system.view(asked.matrix[rows])
    found = exact_search(codes, Vectors.of(seen, ids=asked.queries.ids[rows]), k, space)
    lengths = np.zeros(len(asked.reasons), dtype=np.int64)
    lengths[rows] = np.diff(found.offsets)
    return found.replace(
        queries=asked.queries.ids,
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        space=system.space,
        name=f"exact search over the codes of {system.spec}",
        scores_by="index",
        reasons=asked.reasons if any(asked.reasons) else (),
        identity={},
    )


@dataclass(frozen=True)
class _Given:
    """The queries as they were given."""

    queries: Any
    query_ids: Any = None
    filters: Sequence[Any] | Mapping[Any, Any] | None = None
    texts: Sequence[str] | Mapping[Any, str] | None = None

    def vectors(self) -> Vectors:
        """The vectors with their ids; where there are none, one column that says nothing."""
        if self.queries is None:
            assert self.texts is not None  # of a system that is asked in text
            vectors = Vectors.of(np.ones((len(self.texts), 1), dtype=np.float32))
            if isinstance(self.texts, Mapping) and self.query_ids is None:
                vectors = Vectors.of(vectors, ids=list(self.texts))
        else:
            vectors = queries_of(self.queries)
        if self.query_ids is not None:
            vectors = Vectors.of(vectors, ids=ids_of(self.query_ids, what="query ids"))
        return vectors


@dataclass(frozen=True)
class _Asked:
    """One question to a system: queries, k, settings; and why some queries cannot be asked."""

    system: System
    queries: Vectors
    matrix: NDArray[np.float32]
    k: int
    settings: Mapping[str, Any]
    reasons: tuple[str, ...]
    filters: Sequence[Any] | None = None
    texts: Sequence[str] | None = None

    def search(self, rows: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any] | None]:
        return self.system.search(self.matrix[rows], self.k, **self.settings, **self._given(rows))

    def count(self, rows: NDArray[np.int64]) -> Counters | None:
        return self.system.count(self.matrix[rows], self.k, **self.settings, **self._given(rows))

    def _given(self, rows: NDArray[np.int64]) -> dict[str, Any]:
        """What a system is told of the queries beside their vectors."""
        given: dict[str, Any] = {}
        if self.system.by_query_id:
            given["query_ids"] = self.queries.ids[rows]
        if self.filters is not None:
            given["filters"] = [self.filters[row] for row in rows]
        if self.system.by_text and self.texts is not None:
            given["texts"] = [self.texts[row] for row in rows]
        return given


def _asked(system: System, given: _Given, k: int, settings: Mapping[str, Any]) -> _Asked:
    if not isinstance(system, System):
        raise InputError(
            f"found a {type(system).__name__} to search; expected a system",
            hint='build("faiss?factory=IVF256,SQ8", base, "ip")',
        )
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise InputError(f"k is {k!r}; expected a whole number of at least 1")
    if given.queries is None and not system.by_text:
        raise InputError(
            f"{system.spec or type(system).__name__} is asked with vectors",
            hint="give query vectors, or make them from texts: semrecall.embeddings.embed, --embed",
        )
    if given.texts is None and system.by_text:
        raise InputError(
            f"{system.spec or type(system).__name__} is asked in text",
            hint="give the texts of the queries: texts=[...], or --eval-set FILE",
        )
    vectors = given.vectors()
    matrix = np.ascontiguousarray(vectors.require_matrix(), dtype=np.float32)
    tells = system.tells_dimension and not system.by_query_id
    if tells and given.queries is not None and vectors.dimension != system.dimension:
        raise MismatchError(
            f"queries have {vectors.dimension} dimensions, the system has {system.dimension}",
            hint="were both made by the same model, and are these the right two files?",
        )
    system.turned("search", settings)
    filters = _by_row(given.filters, vectors, "filters")
    if filters is not None and not system.filtered:
        raise InputError(f"{system.spec or type(system).__name__} takes no filters")
    texts = _by_row(given.texts, vectors, "texts")
    reasons = [""] * len(matrix)
    if not system.by_text:
        reasons = query_reasons(matrix, system.score_space or L2)
    return _Asked(
        system, vectors, matrix, int(k), dict(settings), tuple(reasons), filters, texts
    )  # fmt: skip


def _by_row(
    given: Sequence[Any] | Mapping[Any, Any] | None, vectors: Vectors, what: str
) -> Sequence[Any] | None:
    """What belongs to each query, in the order of the vectors."""
    if isinstance(given, Mapping):
        known = {str(name): value for name, value in given.items()}
        lacking = [name for name in vectors.ids if str(name) not in known]
        if lacking and what == "texts":
            raise MismatchError(
                f"{plural(len(lacking), 'query', 'queries')} of {len(vectors):,} have no text, the "
                f"first is {lacking[0]!r}"
            )
        return [known.get(str(name)) for name in vectors.ids]
    if given is not None and len(given) != len(vectors):
        raise InputError(f"{len(given):,} {what} for {len(vectors):,} queries")
    return given


def _warn(reasons: Sequence[str]) -> None:
    for reason in dict.fromkeys(filter(None, reasons)):
        rows = [row for row, found in enumerate(reasons) if found == reason]
        shown = ", ".join(map(str, rows[:5])) + (", ..." if len(rows) > 5 else "")
        warnings.warn(
            f"{plural(len(rows), 'query', 'queries')} not searched ({reason}): {shown}",
            SemrecallWarning,
            stacklevel=3,
        )


def _title(system: System, settings: Mapping[str, Any]) -> str:
    return " ".join([system.spec, *(f"{name}={value}" for name, value in settings.items())])


def _run(
    asked: _Asked,
    rows: NDArray[np.int64],
    ids: NDArray[Any],
    scores: NDArray[Any] | None,
    name: str,
) -> Run:
    """Results of the searched `rows` as a run over all queries; the others have empty rows."""
    ids = np.asarray(ids)
    _check_answer(asked, len(rows), ids, scores)
    width = ids.shape[1] if len(rows) else 0
    lengths = np.zeros(len(asked.reasons), dtype=np.int64)
    lengths[rows] = width
    return Run(
        queries=asked.queries.ids,
        documents=ids_of(ids.reshape(-1), what="ids found"),
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        flat_scores=None if scores is None else np.asarray(scores, dtype=np.float64).reshape(-1),
        space=asked.system.score_space,
        k=asked.k,
        name=name,
        reasons=asked.reasons if any(asked.reasons) else (),
        identity=_filter_identity(asked),
    )


def _filter_identity(asked: _Asked) -> dict[str, Any]:
    """With which filters was asked, as a run remembers it; nothing of a system that takes none."""
    if not asked.system.filtered:
        return {}
    given = [None if one in (None, "") else one for one in asked.filters or ()]
    said = [json.dumps(one, default=str, ensure_ascii=False, sort_keys=True) for one in given]
    distinct = dict.fromkeys(text for text, one in zip(said, given, strict=True) if one is not None)
    if not distinct:
        return {"filter": None}
    whole = hashlib.sha256("\n".join(said).encode())
    return {
        "filter": {
            "fingerprint": whole.hexdigest()[:32],
            "filters": len(distinct),
            "queries": sum(one is not None for one in given),
            "says": list(distinct)[:20],
        }
    }


def _check_answer(asked: _Asked, n: int, ids: NDArray[Any], scores: NDArray[Any] | None) -> None:
    if n == 0:
        return
    name = asked.system.spec or type(asked.system).__name__
    if ids.ndim != 2 or len(ids) != n or ids.shape[1] > asked.k:
        raise SystemFault(
            f"{name} answered {n:,} queries with ids of shape {ids.shape}; "
            f"expected ({n}, at most {asked.k})"
        )
    if scores is not None and np.shape(scores) != ids.shape:
        raise SystemFault(
            f"{name} answered with ids of shape {ids.shape} and scores of shape {np.shape(scores)}"
        )


@dataclass(frozen=True)
class _Times:
    """Seconds of each repeat of the batch: on the clock, and of this process's processors."""

    wall: list[float]
    cpu: list[float]

    def measure(self, work: Any) -> Any:
        cpu, wall = time.process_time(), time.perf_counter()
        result = work()
        self.wall.append(time.perf_counter() - wall)
        self.cpu.append(time.process_time() - cpu)
        return result


def _cost(asked: _Asked, rows: NDArray[np.int64], times: _Times, latency_queries: int) -> Cost:
    system, n = asked.system, len(asked.reasons)
    counters = asked.count(rows) if len(rows) else None
    details: dict[str, Any] = {"system": system.describe(), "k": asked.k, "queries": len(rows)}
    if counters is not None:
        details["stages"] = _stages(counters)
    cpu = latency = None
    if system.timed and len(rows):
        if not system.remote:
            cpu = np.full(n, np.nan)
            cpu[rows] = median(times.cpu) / len(rows)
        latency = _latencies(asked, rows, latency_queries)
        details |= _speed(times, len(rows), latency[~np.isnan(latency)])
        latency = None if np.isnan(latency).all() else latency
    return Cost(
        asked.queries.ids,
        distance_computations=_spread(
            counters.distance_computations if counters else None, rows, n
        ),
        bytes_read=_spread(counters.bytes_read if counters else None, rows, n),
        cpu_seconds=cpu,
        latency_seconds=latency,
        settings=asked.settings,
        details=details,
    )


def _latencies(asked: _Asked, rows: NDArray[np.int64], most: int) -> NDArray[np.float64]:
    """Seconds of queries searched alone, (n,); NaN for those that were not."""
    seconds = np.full(len(asked.reasons), np.nan)
    spread = np.linspace(0, len(rows) - 1, min(most, len(rows)), dtype=np.int64)
    # In random order, so that stopping early leaves them spread over all.
    for row in np.random.default_rng(0).permutation(rows[spread]):
        one = np.array([row])
        start = time.perf_counter()
        asked.search(one)
        seconds[row] = time.perf_counter() - start
        if np.nansum(seconds) >= _ENOUGH_SECONDS:
            break
    return seconds


def _speed(times: _Times, n: int, latencies: NDArray[np.float64]) -> dict[str, Any]:
    figures: dict[str, Any] = {
        "queries_per_second": n / median(times.wall),
        "repeats": len(times.wall),
        "batch_seconds": list(times.wall),
        "batch_cpu_seconds": list(times.cpu),
        "cpu_seconds_of": "this process over the batch, divided evenly",
        "latency_queries": len(latencies),
    }
    if len(latencies):
        for percent in (50, 95, 99):
            figures[f"latency_p{percent}_seconds"] = float(np.percentile(latencies, percent))
    return figures


def _stages(counters: Counters) -> dict[str, dict[str, float] | None]:
    """Per stage the means per query."""
    means: dict[str, dict[str, float] | None] = {}
    for name, stage in counters.stages.items():
        means[name] = None
        if stage is not None:
            mean = float(np.mean(stage.distance_computations))
            means[name] = {
                "distance_computations": mean,
                "bytes_read": mean * stage.bytes_each,
            }
    return means


def _spread(
    values: NDArray[np.float64] | None, rows: NDArray[np.int64], n: int
) -> NDArray[np.float64] | None:
    """Figures of the searched rows among all n queries; NaN for the others."""
    if values is None:
        return None
    every = np.full(n, np.nan)
    every[rows] = values
    return every
