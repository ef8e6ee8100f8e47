"""The grammar of measures: `name(param=value, ...)@k`, printed and parsed back to the same."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from semrecall.data.scores import Scores
from semrecall.errors import MeasureError
from semrecall.measures.kinds import Kind, Value
from semrecall.registry import did_you_mean

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.measures.problem import Problem

__all__ = ["NO_RELEVANT", "Definition", "Measure", "measure", "measures", "parse", "parse_all"]

#: The reason for which trec_eval says 0; `no_relevant="zero"` of a problem does too.
NO_RELEVANT = "no relevant document"

Layer = Literal["index", "retrieval", "context", "answer"]
#: Counts, errors and ratios, whose values go beyond 1.
_ABOVE_ONE = {"NumQ", "NumRel", "NumRelRet", "NumRet", "alpha_DCG", "ratio", "rde"}
#: In which order measures are listed.
_LAYERS = ("index", "retrieval", "context", "answer")
Function = TypeVar("Function", bound=Callable[..., Any])
Synonyms = Mapping[tuple[str, str | None], tuple[str, str | None]]


@dataclass(frozen=True)
class Measure:
    """A measure with its cutoff and parameters, e.g. `srecall(rel=2)@100`.

    params: the parameters that differ from their defaults, in the order of the definition; so
    equal measures print alike. Raises MeasureError for a name, a parameter or a value that does
    not exist.
    """

    name: str
    k: int | None = None
    params: tuple[tuple[str, Value], ...] = ()

    def __post_init__(self) -> None:
        definition, params = _checked(self.name, self.name, self.k, self.params)
        object.__setattr__(self, "name", definition.name)
        object.__setattr__(self, "params", params)

    def __str__(self) -> str:
        kinds, at = self.definition.kinds, self.definition.at
        shown = {name: kinds[name].show(value) for name, value in self.params}
        cutoff = str(shown.pop(at, "") if at else self.k or "")
        cutoff = f"@{cutoff}" if cutoff else ""
        inside = ",".join(f"{name}={text}" for name, text in shown.items())
        return f"{self.name}({inside}){cutoff}" if inside else f"{self.name}{cutoff}"

    @property
    def definition(self) -> Definition:
        """What the measure is, apart from its cutoff and parameters."""
        return _DEFINITIONS[self.name]

    @property
    def settings(self) -> dict[str, Any]:
        """All parameters by name, defaults included."""
        return {**self.definition.defaults, **dict(self.params)}

    @property
    def rel(self) -> float:
        """The grade from which a document is relevant; 1 where the measure does not say."""
        rel = self.settings.get("rel", 1.0)
        return rel if isinstance(rel, float) else 1.0

    @property
    def needs(self) -> frozenset[str]:
        """What must be given: "truth", "judgments", "scores" (of the truth), "found_scores"."""
        return self.definition.needs

    @property
    def layer(self) -> Layer:
        """What is judged: "index" against exact search, "retrieval", "context", "answer"."""
        return self.definition.layer

    @property
    def lower_is_better(self) -> bool:
        """Whether 0 is the best value (an error) rather than the worst."""
        return self.definition.lower_is_better

    @property
    def zero_or_one(self) -> bool:
        """Whether a value is 0 or 1 by definition, so that a mean is a share of the queries."""
        return self.definition.zero_or_one

    @property
    def at_most_one(self) -> bool:
        """Whether no value is above 1, as far as is known: a measure of somebody else may be."""
        ours = self.definition.function.__module__.startswith("semrecall.")
        return ours and self.name not in _ABOVE_ONE

    @property
    def about(self) -> str:
        """One sentence: what it means."""
        return self.definition.about

    def values(self, problem: Problem) -> Scores:
        """One value per query, NaN with its reason where undefined.

        Raises MeasureError where the problem lacks what the measure needs, or the truth is less
        than k deep.
        """
        definition, settings = self.definition, self.settings
        _require(self, problem)
        cutoff = (self.k,) if definition.takes_k else ()
        values = _one_a_query(self, problem, definition.function(problem, *cutoff, **settings))
        reasons = np.full(len(values), "", dtype=object)
        for text, where in definition.undefined(problem, self.k, **settings):
            reasons[where & (reasons == "")] = text
        values[reasons != ""] = np.nan
        reasons[np.isnan(values) & (reasons == "")] = "undefined"
        notes = []
        if problem.no_relevant == "zero":
            as_zero = reasons == NO_RELEVANT
            values[as_zero], reasons[as_zero] = 0.0, ""
            if as_zero.any():
                notes.append(f"queries without a relevant document, taken as 0: {as_zero.sum():,}")
        notes += [
            *_depth_note(problem, self.k),
            *definition.notes(problem, self.k, values, settings),
        ]
        return Scores(str(self), problem.queries, values, tuple(reasons), tuple(notes))


@dataclass(frozen=True, eq=False)
class Definition:
    """A registered measure: the plain function and what there is to know about it.

    function: (problem, k, **params) -> (n,) float64, NaN where undefined; without k where the
        measure takes no cutoff.
    at: the parameter that stands behind @ in place of k, as in IPrec@0.1; "" for none.
    defaults: of the parameters that have one; the others must be given.
    undefined: (problem, k, **params) -> pairs of a reason and the queries (n,) bool it holds for,
        the strongest reason first.
    notes: (problem, k, values, params) -> what a reader of the mean should know.
    zero_or_one: whether every value is 0 or 1, which decides how an interval is made.
    synonyms: other spellings of a parameter and its value, e.g. those of another tool; where a
        value is None, any value is meant, and it stays.
    extra: the optional extra of semrecall that computes it; "" for none.
    """

    name: str
    function: Callable[..., NDArray[np.float64]]
    needs: frozenset[str]
    layer: Layer
    lower_is_better: bool
    kinds: Mapping[str, Kind]
    defaults: Mapping[str, Value]
    takes_k: bool
    k_is_optional: bool
    undefined: Callable[..., Iterable[tuple[str, NDArray[np.bool_]]]]
    notes: Callable[..., Iterable[str]]
    synonyms: Synonyms
    zero_or_one: bool = False
    at: str = ""
    extra: str = ""

    @property
    def about(self) -> str:
        """The first sentence of the function's docstring."""
        return " ".join((inspect.getdoc(self.function) or "").split("\n\n")[0].split())

    @property
    def usage(self) -> str:
        """How it is written, with its parameters at their defaults: `trecall(x=proxy)@k`."""
        inside = ", ".join(
            f"{n}={kind.show(self.defaults[n]) if n in self.defaults else '...'}"
            for n, kind in self.kinds.items()
            if n != self.at
        )
        cutoff = ("[@k]" if self.k_is_optional else "@k") if self.takes_k else ""
        cutoff = f"@{self.at}" if self.at else cutoff
        return f"{self.name}({inside}){cutoff}" if inside else f"{self.name}{cutoff}"


def parse(text: str | Measure) -> Measure:
    """The measure of that name: `recall@100`, `srecall(rel=2)@100`, `trecall(x=1%)@10`, `RR`.

    Spaces do not matter, and neither does case where it is clear what is meant. Names of
    trec_eval are read as it prints them and as its -m takes them: `P_10`, `ndcg_cut.10`. Raises
    MeasureError, naming what is close, for anything else.
    """
    if isinstance(text, Measure):
        return text
    turned = _TURNED.fullmatch(text)
    if turned is not None:
        inside = ", ".join(filter(None, (turned["before"], turned["inside"])))
        raise MeasureError(
            f"{text}: parameters behind the cutoff; expected them before it",
            hint=f"write {turned['name']}({inside})@{turned['k']}",
        )
    match = _SPELLING.fullmatch(text)
    if match is None:
        raise MeasureError(
            f"{text!r} is not a measure; expected name(param=value, ...)@k",
            hint="for example recall@100, srecall(rel=2)@100, trecall(x=1%)@100, nDCG@10",
        )
    name, inside, cutoff = match["name"], match["inside"], match["k"]
    if cutoff is None:
        name, cutoff = _trec_cutoff(name)
    at, pairs = _definition(text, name).at, _pairs(text, inside)
    if at and cutoff is not None:
        pairs, cutoff = (*pairs, (at, cutoff)), None
    if cutoff is not None and not cutoff.isdecimal():
        raise MeasureError(f"{text}: k is {cutoff!r}; expected a whole number of at least 1")
    k = None if cutoff is None else int(cutoff)
    definition, params = _checked(text, name, k, pairs)
    return Measure(definition.name, k, params)


def parse_all(texts: str | Measure | Iterable[str | Measure]) -> list[Measure]:
    """Several measures, each once, in the order given; all that cannot be read in one error."""
    found: dict[Measure, None] = {}
    faults: list[MeasureError] = []
    for text in [texts] if isinstance(texts, str | Measure) else texts:
        try:
            found[parse(text)] = None
        except MeasureError as fault:
            faults.append(fault)
    if len(faults) == 1:
        raise faults[0]
    if faults:
        lines = [f.message + (f" ({f.hint})" if f.hint else "") for f in faults]
        raise MeasureError(f"{len(faults)} measures cannot be read:\n  " + "\n  ".join(lines))
    return list(found)


def _nothing(*_: Any, **__: Any) -> Iterator[Any]:
    return iter(())


def measure(
    name: str,
    *,
    needs: Iterable[str],
    layer: Layer = "index",
    params: Mapping[str, Kind] | None = None,
    undefined: Callable[..., Iterable[tuple[str, NDArray[np.bool_]]]] = _nothing,
    notes: Callable[..., Iterable[str]] = _nothing,
    lower_is_better: bool = False,
    zero_or_one: bool = False,
    aliases: Iterable[str] = (),
    near: Mapping[str, tuple[str, str]] | None = None,
    synonyms: Synonyms | None = None,
    at: str = "",
    extra: str = "",
) -> Callable[[Function], Function]:
    """Register a plain function (problem, k, *, param=default, ...) -> (n,) as a measure.

    A cutoff with a default (`k=None`) may be left out in the name, and a function without k takes
    none; `aliases` are other names for it. near: names that other tools give to something near it
    -> (what to write here, how it differs); they are refused with that hint. See `Definition` for
    the other arguments. The function itself is returned unchanged. Raises MeasureError for a name
    that could not be read back, or is taken.
    """

    def register(function: Function) -> Function:
        _check_name(name, function)
        signature = inspect.signature(function).parameters
        kinds = dict(params or {})
        none = inspect.Parameter.empty
        own = Definition(
            name=name,
            function=function,
            needs=frozenset(needs),
            layer=layer,
            lower_is_better=lower_is_better,
            zero_or_one=zero_or_one,
            kinds=kinds,
            defaults={n: signature[n].default for n in kinds if signature[n].default is not none},
            takes_k="k" in signature,
            k_is_optional="k" not in signature or signature["k"].default is not none,
            undefined=undefined,
            notes=notes,
            synonyms=synonyms or {},
            at=at,
            extra=extra,
        )
        for spelling in (name, *aliases):
            taken = _SPELLINGS.setdefault(spelling.lower(), name)
            if taken != name:
                raise MeasureError(f"the measure name {spelling!r} is taken by {taken}")
        for spelling, hint in (near or {}).items():
            _NEAR[spelling.lower()] = hint
        _DEFINITIONS[name] = own
        return function

    return register


def measures() -> list[Definition]:
    """All registered measures, the index layer first, then by name."""
    return sorted(_DEFINITIONS.values(), key=lambda d: (_LAYERS.index(d.layer), d.name.lower()))


_DEFINITIONS: dict[str, Definition] = {}
#: Lower-case spelling -> name.
_SPELLINGS: dict[str, str] = {}
#: Lower-case name elsewhere -> what is near it here, and how it differs.
_NEAR: dict[str, tuple[str, str]] = {}
_SPELLING = re.compile(
    r"\s*(?P<name>\w+(?:\.\d+)*)\s*(?:\(\s*(?P<inside>[^()]*?)\s*\))?\s*(?:@\s*(?P<k>\S+))?\s*"
)
#: The same with parameters behind the cutoff, where they do not belong.
_TURNED = re.compile(
    r"\s*(?P<name>\w+)\s*(?:\(\s*(?P<before>[^()]*?)\s*\))?\s*@\s*(?P<k>[\w.]+)\s*"
    r"\(\s*(?P<inside>[^()]*?)\s*\)\s*"
)
#: No list is longer, and numpy counts no further in the narrowest of its index types.
_LARGEST_K = 2**31 - 1
#: trec_eval's names that end in a cutoff, as P_10 and iprec_at_recall_0.10, or P.10 on its shell.
_TREC_CUTOFFS = {
    "P": "P",
    "recall": "R",
    "map_cut": "AP",
    "ndcg_cut": "nDCG",
    "success": "Success",
    "relative_P": "Rcap",
    "iprec_at_recall": "IPrec",
}
_TREC_SPELLING = re.compile(r"(?P<name>\w+?)[_.](?P<k>\d+(?:\.\d+)?)")
#: A comma that is not inside braces.
_COMMA = re.compile(r",(?![^{}]*\})")


def _trec_cutoff(name: str) -> tuple[str, str | None]:
    """Our name and the cutoff, where `name` is one of trec_eval's with a cutoff at its end."""
    match = _TREC_SPELLING.fullmatch(name)
    if match is None or match["name"] not in _TREC_CUTOFFS:
        return name, None
    return _TREC_CUTOFFS[match["name"]], match["k"]


def _definition(text: str, name: str) -> Definition:
    if name in _DEFINITIONS:
        return _DEFINITIONS[name]
    if name.lower() == "recall":
        after = text.strip()[len(name) :]
        raise MeasureError(
            f"{text} can mean two things: recall{after} is the share of the exact neighbours that "
            f"the index found, R{after} the share of the relevant documents that were retrieved",
            hint=f"write recall{after} or R{after}",
        )
    if name.lower() in _SPELLINGS:
        return _DEFINITIONS[_SPELLINGS[name.lower()]]
    raise MeasureError(f"{text}: unknown measure {name!r}", hint=_close(name))


def _close(name: str) -> str:
    """A hint naming the measures that are close by meaning, by name, or by another name."""
    if name.lower() in _NEAR:
        write, difference = _NEAR[name.lower()]
        return f"the nearest here is {write}: {difference}"
    found: dict[str, str] = {}
    for spelling in difflib.get_close_matches(name.lower(), _SPELLINGS, n=3, cutoff=0.6):
        own = _SPELLINGS[spelling]
        alike = difflib.get_close_matches(name.lower(), [own.lower()], cutoff=0.6)
        found.setdefault(own, own if alike else f"{own} (also {spelling})")
    if not found:
        return "semrecall list measures shows them all"
    return "did you mean " + " or ".join(found.values()) + "?"


def _check_name(name: str, function: Callable[..., Any]) -> None:
    """Raise MeasureError for a name that no one could write, or that is one of ours."""
    if re.fullmatch(r"\w+", name) is None:
        raise MeasureError(
            f"{name!r} is no name of a measure; expected letters, digits and underscores"
        )
    ours = __name__.partition(".")[0]
    known = _DEFINITIONS.get(name)
    if known is None:
        return
    # A notebook may run a definition of its own again.
    inside = [f.__module__.partition(".")[0] == ours for f in (known.function, function)]
    if inside == [True, False]:
        raise MeasureError(
            f"the measure name {name!r} is taken by semrecall", hint="give yours another name"
        )


def _pairs(text: str, inside: str | None) -> tuple[tuple[str, str], ...]:
    pairs = []
    for part in _COMMA.split(inside) if inside else ():
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not name or not value:
            raise MeasureError(f"{text}: cannot read {part.strip()!r}; expected param=value")
        if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"":
            value = value[1:-1]
        pairs.append((name, value))
    return tuple(pairs)


def _checked(
    text: str, name: str, k: int | None, params: Iterable[tuple[str, Value]]
) -> tuple[Definition, tuple[tuple[str, Value], ...]]:
    """The definition, and the parameters that differ from their defaults, in canonical form."""
    definition = _definition(text, name)
    if k is not None and not definition.takes_k:
        raise MeasureError(
            f"{text}: {definition.name} takes no cutoff k", hint=f"write {definition.usage}"
        )
    if k is None and not definition.k_is_optional:
        raise MeasureError(
            f"{text}: a cutoff k is missing", hint=f"write it after @, as in {text.strip()}@10"
        )
    if k is not None and not 1 <= k <= _LARGEST_K:
        limit = "of at least 1" if k < 1 else f"of at most {_LARGEST_K:,}"
        raise MeasureError(f"{text}: k is {k}; expected a whole number {limit}")
    given: dict[str, Value] = {}
    for own_key, own_value in params:
        key, value = _translated(definition, own_key, own_value)
        if key in given:
            raise MeasureError(f"{text}: the parameter {key!r} is given twice")
        if key not in definition.kinds:
            words = [word for own, word in definition.synonyms if own == key and word]
            if words:
                expected = " or ".join(words)
                raise MeasureError(f"{text}: {key} is {value!r}; expected {expected}")
            known = did_you_mean(key, definition.kinds) or f"{definition.name} has no parameters"
            raise MeasureError(f"{text}: unknown parameter {key!r}", hint=known)
        kind = definition.kinds[key]
        read = kind.read(value)
        if read is None:
            raise MeasureError(f"{text}: {key} is {value!r}; expected {kind.expected}")
        given[key] = read
    defaults = definition.defaults
    lacking = [n for n in definition.kinds if n not in given and n not in defaults]
    if lacking:
        raise MeasureError(f"{text}: {lacking[0]} is missing", hint=f"write {definition.usage}")
    kept = tuple(
        (n, given[n]) for n in definition.kinds if n in given and given[n] != defaults.get(n)
    )
    return definition, kept


def _translated(definition: Definition, key: str, value: Value) -> tuple[str, Value]:
    """A parameter and its value in our own spelling."""
    synonyms = definition.synonyms
    if (key, str(value).lower()) in synonyms:
        name, word = synonyms[key, str(value).lower()]
        return name, value if word is None else word
    if (key, None) in synonyms:
        return synonyms[key, None][0], value
    return key, value


def _one_a_query(measure: Measure, problem: Problem, found: Any) -> NDArray[np.float64]:
    """What a measure returned, as an array (n,) of its own; MeasureError where it is none."""
    try:
        values = np.array(found, dtype=np.float64)
    except (TypeError, ValueError):
        raise MeasureError(
            f"{measure} returned a {type(found).__name__}; expected one number a query"
        ) from None
    if values.shape != (len(problem),):
        raise MeasureError(
            f"{measure} returned an array of shape {values.shape}; expected ({len(problem)},), one "
            "number a query"
        )
    if np.isinf(values).any():
        raise MeasureError(
            f"{measure} returned an infinite value; expected numbers, and NaN where it is undefined"
        )
    return values


def _require(measure: Measure, problem: Problem) -> None:
    needs = measure.needs
    if ("verdicts" in needs) != hasattr(problem, "cases"):
        raise MeasureError(
            f"{measure} is made from verdicts on claims and contexts"
            if "verdicts" in needs
            else f"{measure} is no measure of contexts or answers",
            hint="measures of these layers: semrecall rag, sr.rag",
        )
    if "verdicts" in needs:
        return
    if "truth" in needs and problem.true is None:
        raise MeasureError(
            f"{measure} needs the exact neighbours",
            hint="give the truth (--truth); `semrecall truth` computes it",
        )
    if "judgments" in needs and problem.judged is None:
        raise MeasureError(
            f"{measure} needs judgments", hint="give them (--judgments): which documents matter"
        )
    if "scores" in needs and problem.true_scores is None:
        raise MeasureError(
            f"{measure} needs the scores of the exact neighbours; the truth has ids only",
            hint="give base and query vectors (--base, --queries), so that they can be computed",
        )
    if "found_scores" in needs and problem.given_found.scores is None:
        raise MeasureError(
            f"{measure} needs the scores of the results; the run has ids only",
            hint="give base and query vectors (--base, --queries), so that they can be computed",
        )
    if needs & {"scores", "found_scores"} and problem.space is None:
        raise MeasureError(
            f"{measure} compares scores, and neither the truth nor the run says of which space",
            hint="say it: ip, cosine or l2 (--space)",
        )
    depth, k = problem.depth, measure.k
    if "truth" in needs and k is not None and depth is not None and k > depth:
        nearest = f", or ask for k of at most {depth}" if depth else ""
        raise MeasureError(
            f"{measure}: k is {k}, but the truth is only {depth} deep",
            hint=f"compute the truth with -k {k}{nearest}",
        )


def _depth_note(problem: Problem, k: int | None) -> Iterator[str]:
    if k is None or problem.run_depth >= k:
        return
    if problem.true is None or bool((problem.sizes(k) > problem.run_depth).any()):
        yield f"the run is {problem.run_depth} deep, less than k"
