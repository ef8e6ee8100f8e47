"""Measures that ir_measures computes (extra `ir`): diversity, preference and C/W/L families.

Names and parameters are those of ir_measures. It sees the judgments, and each ranking as it stands
here, ranks for scores, so that no tie is broken twice.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import redirect_stderr
from dataclasses import dataclass
from inspect import Parameter, Signature
from io import StringIO
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.errors import MeasureError
from semrecall.measures.grammar import measure
from semrecall.measures.kinds import BETWEEN, FLAG, NUMBER, PORTION, POSITIVE, Kind, number_or
from semrecall.measures.problem import Problem, need
from semrecall.measures.relevance import no_relevant
from semrecall.registry import import_extra

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

__all__ = ["FAMILIES", "External"]


@dataclass(frozen=True)
class External:
    """A measure of ir_measures: its parameters with kinds and defaults, and its cutoff.

    cutoff: "needed", "optional", or "none". subtopics: whether judgments are by subtopic.
    """

    name: str
    about: str
    params: Mapping[str, tuple[Kind, Any]]
    cutoff: str = "none"
    subtopics: bool = False
    aliases: tuple[str, ...] = ()


_REL = {"rel": (NUMBER, 1.0)}
_CONDENSED = {**_REL, "judged_only": (FLAG, False)}
_ALPHA = {"alpha": (PORTION, 0.5)}
_SCALE = {"min_rel": (NUMBER, 0.0), "max_rel": (number_or("highest"), "highest")}
_GOAL = {"T": (POSITIVE, 1.0)}
_DIVERSE: dict[str, Any] = {"cutoff": "needed", "subtopics": True}

FAMILIES = [
    External(
        "Compat",
        "How similar the results are to the closest ideal ranking, as rank-biased overlap.",
        {"p": (BETWEEN, 0.95), "normalize": (FLAG, True)},
    ),
    External("ERR_IA", "ERR over the subtopics of a query.", _CONDENSED, **_DIVERSE),
    External("nERR_IA", "ERR_IA over that of an ideal ranking.", _CONDENSED, **_DIVERSE),
    External(
        "alpha_DCG",
        "DCG in which a subtopic counts less each time it is seen again.",
        {**_REL, **_ALPHA, "judged_only": (FLAG, False)},
        aliases=("α_DCG",),
        **_DIVERSE,
    ),
    External(
        "alpha_nDCG",
        "alpha_DCG over that of an ideal ranking.",
        {**_REL, **_ALPHA, "judged_only": (FLAG, False)},
        aliases=("α_nDCG",),
        **_DIVERSE,
    ),
    External(
        "NRBP",
        "RBP in which a subtopic counts less each time it is seen again.",
        {**_REL, **_ALPHA, "beta": (PORTION, 0.5)},
        subtopics=True,
    ),
    External(
        "nNRBP",
        "NRBP over that of an ideal ranking.",
        {**_REL, **_ALPHA, "beta": (PORTION, 0.5)},
        subtopics=True,
    ),
    External(
        "AP_IA",
        "AP over the subtopics of a query.",
        _CONDENSED,
        subtopics=True,
        aliases=("MAP_IA",),
    ),
    External("P_IA", "Precision over the subtopics of a query.", _CONDENSED, **_DIVERSE),
    External("StRecall", "Share of subtopics among the first k results.", _REL, **_DIVERSE),
    External(
        "BPM",
        "Bejeweled player model, of a user who stops when satisfied or out of patience.",
        {**_GOAL, **_SCALE},
        cutoff="needed",
    ),
    External(
        "SDCG", "DCG over that of k results of the highest grade.", _SCALE, cutoff="needed"
    ),
    External("INST", "Gain per result of a user with a goal of T, INSQ made adaptive.",
             {**_GOAL, **_SCALE}),
    External("INSQ", "Gain per result of a user with a goal of T.", {**_GOAL, **_SCALE}),
    External("NERR8", "ERR as a C/W/L measure, equation 8.", _SCALE, cutoff="needed"),
    External("NERR9", "ERR as a C/W/L measure with discount, equation 9.", _SCALE, cutoff="needed"),
    External(
        "NERR10", "ERR as a C/W/L measure with patience p.", {"p": (BETWEEN, 0.9), **_SCALE}
    ),
    External("NERR11", "ERR as a C/W/L measure with a goal of T.", {**_GOAL, **_SCALE}),
]  # fmt: skip


def _register(family: External) -> None:
    """Register the family's plain function, with a signature of its own, as a measure."""

    def function(problem: Problem, *cutoff: int | None, **params: Any) -> Array:
        return _values(family, problem, cutoff[0] if cutoff else None, params)

    positional, keyword = Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY
    parameters = [Parameter("problem", positional)]
    if family.cutoff != "none":
        parameters.append(Parameter("k", positional))
    parameters += [
        Parameter(name, keyword, default=default) for name, (_, default) in family.params.items()
    ]
    function.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    function.__doc__ = f"{family.about}\n\n(n,). Source: ir_measures {family.name}."
    measure(
        family.name,
        needs={"judgments"},
        layer="retrieval",
        params={name: kind for name, (kind, _) in family.params.items()},
        undefined=_undefined,
        notes=_notes,
        aliases=family.aliases,
        extra="ir",
    )(function)


def _undefined(
    problem: Problem, k: int | None, rel: float = np.nextafter(0, 1), **_: Any
) -> Iterator[tuple[str, Any]]:
    yield from no_relevant(problem, k, rel)


def _notes(
    problem: Problem, k: int | None, values: Array, params: Mapping[str, Any]
) -> Iterator[str]:
    if params.get("max_rel") == "highest":
        yield f"max_rel = {_highest(problem):g}, the highest grade in the judgments"
    topics = need(problem.judged, "judgments").subtopics
    if (
        topics is not None
        and "rel" in params
        and len({t for part in topics for t in json.loads(part)}) == 1
    ):
        yield "the judgments name one subtopic only, so nothing is said of diversity"
    yield f"computed by ir_measures {_library().__version__}"


def _highest(problem: Problem) -> float:
    return float(need(problem.judged, "judgments").grades.max(initial=0.0))


def _library() -> Any:
    with warnings.catch_warnings():
        # A package of theirs has strings that newer Pythons warn about.
        warnings.simplefilter("ignore")
        library = import_extra("ir_measures", "ir", "a measure of ir_measures")
    # It tells which grades it met; our notes do.
    logging.getLogger("ir_measures.cwl_eval").setLevel(logging.ERROR)
    return library


def _values(family: External, problem: Problem, k: int | None, params: Mapping[str, Any]) -> Array:
    library = _library()
    wanted = library.measures.registry[family.name](**_given(family, problem, k, params))
    qrels = list(_qrels(family, problem, library))
    run = list(_run(problem, library, judged_only=bool(params.get("judged_only"))))
    values = np.zeros(len(problem))
    try:
        # It warns on standard error of judgments that name one subtopic only; so does a note.
        with warnings.catch_warnings(), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            found = list(library.iter_calc([wanted], qrels, run)) if qrels else []
    except ValueError as error:
        raise MeasureError(
            f"ir_measures cannot compute {family.name}: {error}",
            hint='pip install "semrecall[ir]" installs what it needs',
        ) from error
    for metric in found:
        values[int(metric.query_id)] = metric.value
    return values


def _given(
    family: External, problem: Problem, k: int | None, params: Mapping[str, Any]
) -> dict[str, Any]:
    """Parameters as ir_measures takes them: whole numbers for grades, and the cutoff."""
    given = dict(params)
    # Its own way to leave unjudged results out fails; they are left out of the run instead.
    given.pop("judged_only", None)
    if given.get("max_rel") == "highest":
        given["max_rel"] = _highest(problem)
    for name in ("rel", "min_rel", "max_rel"):
        if name in given:
            if not float(given[name]).is_integer():
                raise MeasureError(
                    f"{name} is {given[name]:g}; ir_measures takes whole numbers for {family.name}"
                )
            given[name] = int(given[name])
    if given.get("max_rel", 1) <= given.get("min_rel", 0):
        # No document has any gain: the values are undefined, whatever they are.
        given["max_rel"] = given["min_rel"] + 1
    return given if k is None else given | {"cutoff": k}


def _qrels(family: External, problem: Problem, library: Any) -> Iterator[Any]:
    known = need(problem.judged, "judgments")
    if not family.subtopics:
        columns = (known.rows.tolist(), known.codes.tolist(), known.grades.tolist())
        for row, code, grade in zip(*columns, strict=True):
            yield library.Qrel(str(row), str(code), grade)
        return
    if known.subtopics is None:
        raise MeasureError(
            f"{family.name} needs judgments by subtopic",
            hint="a column `subtopic`, or the second column of TREC qrels (--subtopics), says "
            "which subtopic of its query a grade is for",
        )
    for row, code, parts in zip(
        known.rows.tolist(), known.codes.tolist(), known.subtopics, strict=True
    ):
        for subtopic, grade in json.loads(parts).items():
            if not float(grade).is_integer():
                raise MeasureError(f"grade {grade:g}: {family.name} takes whole numbers")
            yield library.Qrel(str(row), str(code), int(grade), str(subtopic))


def _run(problem: Problem, library: Any, *, judged_only: bool) -> Iterator[Any]:
    lists = problem.results
    if judged_only:
        keep = np.zeros(len(lists.codes), dtype=bool)
        keep[problem.hits.entries] = True
        lists = lists.keep(keep)
    for row, (start, stop) in enumerate(zip(lists.offsets[:-1], lists.offsets[1:], strict=True)):
        codes = lists.codes[start:stop].tolist()
        for place, code in enumerate(codes):
            yield library.ScoredDoc(str(row), str(code), float(len(codes) - place))


for _family in FAMILIES:
    _register(_family)
