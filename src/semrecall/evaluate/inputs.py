"""Whether runs, truth, judgments and vectors belong together; else what does not fit, and why."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from semrecall.data import Ids, Judgments, Run, Vectors
from semrecall.data.allowed import filter_mismatch, filtered
from semrecall.data.ids import concatenate, ids, unify
from semrecall.data.matching import difference
from semrecall.data.multivectors import MultiVectors
from semrecall.data.spans import Chunks, Spans
from semrecall.data.vectors import identity_difference, identity_of
from semrecall.errors import InputError, MismatchError, SemrecallWarning
from semrecall.exact import rescore
from semrecall.formats import queries_of, vectors_of
from semrecall.formats.multivectors import documents_of
from semrecall.measures import NoRelevant

__all__ = ["Inputs", "named_runs"]


@dataclass
class Inputs:
    """What is compared: runs by name, truth, judgments, and a run over the quantised codes.

    unanswerable: queries known to have no answer. spans: labelled spans, and the chunks searched.
    unmerged: the runs before documents that are the same became one. no_relevant: what a query
    without a relevant document is, as in `align`.
    """

    runs: dict[str, Run]
    truth: Run | None
    judgments: Judgments | None
    codes: Run | None
    deleted: Ids | None = None
    unanswerable: Ids | None = None
    spans: tuple[Spans, Chunks] | None = None
    unmerged: dict[str, Run] = field(default_factory=dict)
    no_relevant: NoRelevant = "skip"
    notes: list[str] = field(default_factory=list)

    def parts(self) -> dict[str, Run]:
        """Every run by what it is called in a message."""
        named = {f"run {name!r}": run for name, run in self.runs.items()}
        if self.codes is not None:
            named["run over the codes"] = self.codes
        if self.truth is not None:
            named["truth"] = self.truth
        return named

    def check(self) -> None:
        """Raise MismatchError where spaces differ or ids do not meet; note what is only odd."""
        _check_spaces(self.parts(), self.truth)
        remarks = _check_ids(self.runs, self.truth, self.judgments)
        if self.truth is not None:
            remarks += _exchanged(self.runs, self.truth)
            whole = filtered(self.truth.identity)
            for name, run in self.runs.items():
                odd = filter_mismatch(whole, filtered(run.identity), f"run {name!r}")
                remarks += [odd] if odd else []
        for remark in remarks:
            warnings.warn(remark, SemrecallWarning, stacklevel=3)
        self.notes += remarks

    def rescore(self, base: Any, queries: Any) -> None:
        """Replace all scores by exact ones; first check that the vectors are the right ones."""
        if base is None or queries is None:
            raise InputError(
                f"{'queries' if base is None else 'base'} vectors were given alone; "
                "expected base and queries, to recompute the scores"
            )
        space = next((r.space for r in self.parts().values() if r.space is not None), None)
        if space is None:
            raise InputError(
                "neither the truth nor a run says in which space its scores are",
                hint="say it: Run.from_arrays(..., space=...), or --space ip, cosine or l2",
            )
        vectors: dict[str, Any]
        if space.compares == "documents":
            vectors = {"base": documents_of(base), "queries": documents_of(queries)}
        else:
            vectors = {"base": vectors_of(base), "queries": queries_of(queries)}
        for what, run in self.parts().items():
            _check_identity(what, run, vectors)

        def exact(run: Run) -> Run:
            scored = rescore(run, vectors["base"], vectors["queries"], space)
            # What was no result before (a NaN score beside a padded id) does not become one.
            assert scored.flat_scores is not None
            return scored.replace(flat_scores=np.where(run.valid, scored.flat_scores, np.nan))

        self.runs = {name: exact(run) for name, run in self.runs.items()}
        self.codes = None if self.codes is None else exact(self.codes)
        if self.truth is not None and not _is_exact(self.truth):
            self.truth = exact(self.truth)

    def drop(self, deleted: Any) -> None:
        """Take deleted documents out of truth and judgments."""
        self.deleted = ids(deleted, what="deleted ids")
        if self.judgments is not None:
            gone, judged = unify(self.deleted, self.judgments.documents)
            self.judgments = self.judgments.select(~np.isin(judged, gone))
        if self.truth is not None:
            before = self.truth.depth
            self.truth = self.truth.without(self.deleted)
            self.notes.append(
                f"without {len(self.deleted):,} deleted documents the truth is known to depth "
                f"{self.truth.depth:,} (before: {before:,})"
            )


def named_runs(runs: Any) -> dict[str, Run]:
    """Runs by name: from one run, a mapping, or a list, with a second of one name renamed."""
    if isinstance(runs, Run):
        return {runs.name or "run": runs}
    if isinstance(runs, Mapping):
        named = {str(name): run for name, run in runs.items()}
        if len(named) < len(runs):
            raise InputError(f"two runs have one name: {', '.join(map(repr, runs))}")
    else:
        named = {}
        for position, run in enumerate(runs, start=1):
            name = getattr(run, "name", "") or f"run {position}"
            again = 2
            unique = name
            while unique in named:
                unique, again = f"{name}#{again}", again + 1
            named[unique] = run
    if not named:
        raise InputError("no run to evaluate; expected at least one")
    for name, run in named.items():
        if not isinstance(run, Run):
            raise InputError(
                f"run {name!r} is a {type(run).__name__}; expected a Run",
                hint="make one with Run.from_arrays, Run.from_dict or Run.from_frame",
            )
    return named


def _check_identity(
    what: str, run: Run, vectors: Mapping[str, Vectors | MultiVectors | None]
) -> None:
    """Raise MismatchError where `run` was made from other data than the `vectors` at hand.

    vectors: {"base": ..., "queries": ...}, None where they are not at hand.
    """
    faults = []
    for part, found in vectors.items():
        known = run.identity.get(part)
        if found is None or not isinstance(known, Mapping):
            continue
        streamed = found.matrix is None
        rows = known.get("rows", 0) if found.length is None else found.length
        differs = identity_difference(
            known, identity_of(found, rows, "" if streamed else found.fingerprint)
        )
        if differs:
            faults.append(f"the {part} vectors are not those of the {what}: {differs}")
    if faults:
        raise MismatchError(
            "; ".join(faults),
            hint="use the files it was made from, or make it again from these (semrecall truth)",
        )


def _check_spaces(parts: Mapping[str, Run], truth: Run | None) -> None:
    """Raise MismatchError where a run is in another space than the truth, or two runs differ."""
    spaces = {name: run.space for name, run in parts.items() if run.space is not None}
    if truth is not None and truth.space is not None:
        for name, found in spaces.items():
            if found != truth.space:
                raise MismatchError(
                    f"{name} has scores in space {found}, the truth in space {truth.space}",
                    hint="compare results with the exact neighbours of the same space",
                )
    if len(set(spaces.values())) > 1:
        said = ", ".join(f"{name}: {found}" for name, found in spaces.items())
        raise MismatchError(f"the runs are in different spaces ({said})")


def _check_ids(
    runs: Mapping[str, Run], truth: Run | None, judgments: Judgments | None
) -> list[str]:
    """Raise MismatchError for a run of other queries; say what is odd."""
    first, source = (truth, "truth") if truth is not None else (judgments, "judgments")
    if first is None:
        return []
    if truth is not None and judgments is not None:
        _require_common(truth, judgments, "the truth", "judgments")
    known = concatenate([part.documents for part in (truth, judgments) if part is not None])
    remarks = []
    for name, run in runs.items():
        if bool(run.documents.missing.all()):
            remarks.append(f"run {name!r} has no results at all")
        if len(run) == 0:
            continue
        _require_common(run, first, f"run {name!r}", source)
        remarks += _strange_documents(name, run, known)
    return remarks


def _require_common(
    left: Run | Judgments, right: Run | Judgments, left_name: str, right_name: str
) -> None:
    if len(left) == 0 or len(right) == 0 or _meet(left.queries, right.queries):
        return
    distinct = len(np.unique(left.queries.codes))
    if _swapped(left, right):
        hint = f"its query ids are document ids in the {right_name}: are two columns swapped?"
    else:
        found = difference(left.queries, right.queries)
        hint = str(found) if found else "are these files of the same queries?"
    raise MismatchError(
        f"0 of {distinct:,} query ids of {left_name} occur in the {right_name}: "
        f"{left_name} has {_example(left.queries)}, the {right_name} {_example(right.queries)}",
        hint=hint,
    )


def _swapped(left: Run | Judgments, right: Run | Judgments) -> bool:
    """Whether queries of each side are documents of the other: many on one side, some on both."""
    # A poor run has most documents from outside the truth.
    shares = (_share(left.queries, right.documents), _share(right.queries, left.documents))
    return min(shares) > 0.1 and max(shares) > 0.5


def _strange_documents(name: str, run: Run, known: Ids) -> list[str]:
    """That no result is known, and in what the ids differ where that can be told."""
    if _meet(run.documents, known):
        return []
    results, known = run.documents[~run.documents.missing], known[~known.missing]
    if len(results) == 0 or len(known) == 0:
        return []
    remark = (
        f"no document id of run {name!r} occurs in truth or judgments: the run has "
        f"{_example(results)}, they have {_example(known)}"
    )
    found = difference(results, known)
    return [remark if found is None else f"{remark}; {found}"]


def _exchanged(runs: Mapping[str, Run], truth: Run) -> list[str]:
    """That a run was found by exact search while the scores of the truth are an index's."""
    if truth.flat_scores is None or truth.scores_by == "exact":
        return []
    return [
        f"run {name!r} was found by exact search, the scores of the truth are by an index: are "
        "run and truth exchanged?"
        for name, run in runs.items()
        if "base" in run.identity and run.scores_by == "exact"
    ]


def _meet(left: Ids, right: Ids) -> bool:
    """Whether any entry of `left` occurs in `right`; missing ids aside."""
    ours, theirs = unify(left, right)
    theirs = theirs[theirs >= 0]
    # Nearly always one of the first does: a run of millions need not be looked through.
    return bool(np.isin(ours[:1024], theirs).any() or np.isin(ours[1024:], theirs).any())


def _share(left: Ids, right: Ids) -> float:
    """Which share of the entries of `left` occurs in `right`; missing ids aside."""
    ours, theirs = unify(left[~left.missing], right[~right.missing])
    return float(np.isin(ours, theirs).mean()) if len(ours) else 0.0


def _example(column: Ids) -> str:
    known = column[~column.missing]
    shown = [repr(v) for v in known[:2]]
    return ", ".join(shown) + (", ..." if len(known) > 2 else "")


def _is_exact(truth: Run) -> bool:
    """Whether the scores of a truth are exact and, by its identity, of the vectors at hand."""
    return truth.scores_by == "exact" and {"base", "queries"} <= set(truth.identity)
