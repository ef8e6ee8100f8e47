"""Any Python callable as a system: a search function of yours, or a retriever of a framework."""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from semrecall.data import Vectors
from semrecall.errors import InputError, SemrecallError, SystemFault
from semrecall.registry import import_object
from semrecall.space import space as space_of
from semrecall.systems.answers import Row, row_of
from semrecall.systems.asked import AskedSystem
from semrecall.systems.base import Knob, searchable, warn_left_out
from semrecall.systems.knobs import arguments
from semrecall.systems.units import space_and_unit

if TYPE_CHECKING:
    from semrecall.space import Space

__all__ = ["FunctionSystem"]

#: What the first parameter is called or typed -> what it takes.
_TAKES = {
    # The last one is LlamaIndex's.
    "text": "text query question q input str query_str prompt str_or_query_bundle",
    "texts": "texts questions list[str] Sequence[str] List[str]",
    "vector": "vector embedding query_vector query_embedding emb list[float]",
    "vectors": "vectors embeddings matrix query_vectors query_embeddings",
}
_K_NAMES = ("k", "top_k", "topk", "limit", "n", "n_results", "num_results", "size")
_FILTER_NAMES = ("filter", "filters", "where", "filter_")
#: Methods by which retrievers of frameworks are asked: of LangChain, LlamaIndex, and others.
_METHODS = ("invoke", "retrieve", "search", "query")


class FunctionSystem(AskedSystem):
    """A function that is given a query and returns what it found.

    function: "module:function" or the function itself; an object that is asked by `invoke`,
        `retrieve`, `search` or `query`, as retrievers of LangChain and LlamaIndex are, will do.
    takes: "text" or "vector" for one query, "texts" or "vectors" for a list or a matrix (n, d) of
        them; when None, the name or the type of the first parameter tells.
    id: the key of the metadata that holds the id, where documents are returned.
    unit: of the scores (see `units.UNITS`). space: of the scores, in its natural unit. Without
        either, scores are of no space, and higher is better.
    knobs: what can be turned: further parameters, as "name:low:high", "name:low:high:log"
        or, for a mode, "name:word|word".
    build: "module:function" or a function of (vectors, ids, space) that returns the function.

    The number of results goes to a parameter k, top_k, limit, ...; filters to one called filter,
    filters or where. See `answers.row_of` for what may be returned.
    """

    options: ClassVar = {
        "function": "module:function, or the function itself",
        "takes": "text, texts, vector or vectors; else the first parameter tells",
        "id": "key of the metadata that holds the id of a document",
        "unit": "of the scores, e.g. squared-l2, cosine-distance, negated-ip",
        "space": "ip, cosine or l2, for scores in the natural unit",
        "knobs": "what can be turned, e.g. ef:10:500:log,rerank:0:100",
        "build": "module:function of (vectors, ids, space) that returns the search function",
    }
    telling_space = "say it: space=ip, or unit=squared-l2, ..."

    #: The vectors it was built from; None where it was not built here.
    _base: Vectors | None = None

    def __init__(
        self,
        function: Callable[..., Any] | str | None = None,
        takes: str | None = None,
        id: str | None = None,  # noqa: A002 - the name of the option
        unit: str | None = None,
        space: str | Space | None = None,
        knobs: str | Sequence[Knob] = (),
        build: Callable[..., Any] | str | None = None,
    ) -> None:
        if (function is None) == (build is None):
            raise InputError(
                "the system 'python' needs a function that searches, or one that builds",
                hint='for example "python:my_app.search:retrieve"',
            )
        super().__init__(space, unit, knobs)
        if takes not in (None, *_TAKES):
            raise InputError(f"takes is {takes!r}; expected {', '.join(_TAKES)}")
        self._id, self._takes, self._unit = id, takes, unit
        self._build = _resolved(build)
        self.buildable = build is not None
        self._name = build if isinstance(build, str) else ""
        if function is not None:
            self._take(function)
        elif takes is not None:
            self.by_text = takes.startswith("text")

    def _take(self, function: Callable[..., Any] | str) -> None:
        called = _resolved(function)
        owner = type(called).__name__
        if not callable(called):
            method = next((m for m in _METHODS if callable(getattr(called, m, None))), None)
            if method is None:
                raise InputError(
                    f"{function!r} is a {owner}, which is no function and has no "
                    f"{', '.join(_METHODS)}"
                )
            called = getattr(called, method)
        default = getattr(called, "__qualname__", owner)
        self._name = function if isinstance(function, str) else default
        self._function = called
        self.spec = self.spec or f"python:{self._name}"
        parameters = _parameters(called)
        names = [p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
        self._k_name = next((n for n in _K_NAMES if n in names[1:]), "")
        self._filter_name = next((n for n in _FILTER_NAMES if n in names[1:]), "")
        self._asks = self._takes or _guessed(parameters, self._name)
        self.by_text = self._asks.startswith("text")
        self.filtered = bool(self._filter_name)
        for knob in self._knobs:
            if knob.kind == "search" and knob.name not in names and not takes_any:
                raise InputError(f"{self._name} has no parameter {knob.name!r} to turn")

    # -- what it is -----------------------------------------------------------------------

    @property
    def _called(self) -> str:
        return self.spec or self._name

    @property
    def built(self) -> bool:
        """Whether there is a function to ask."""
        return hasattr(self, "_function")

    @property
    def dimension(self) -> int:
        """Not known, unless it was built here."""
        return super().dimension if self._base is None else self._base.dimension

    @property
    def ntotal(self) -> int:
        """Not known, unless it was built here."""
        return super().ntotal if self._base is None else len(self._base)

    def describe(self) -> dict[str, Any]:
        """The name of the function and what it takes."""
        return {"system": "python", "function": self._name, "takes": getattr(self, "_asks", None)}

    def snippet(self, settings: Any) -> str:
        """The call with these settings."""
        k = f", {self._k_name}=k" if self._k_name else ""
        return f"{self._name.rpartition(':')[2]}(query{k}{arguments(settings)})"

    def build_snippet(self, knobs: Any) -> str:
        """The call of the function that builds."""
        built = getattr(self._build, "__name__", "build")
        return f"index = {built}(vectors, ids, {self.space.name!r}{arguments(knobs)})"

    # -- made and searched ----------------------------------------------------------------

    def build(self, base: Any, space: str | Space, ids: Any = None, **knobs: Any) -> Self:
        """What the function named by `build` makes of these vectors."""
        given = self.turned("build", knobs)
        if self._build is None:
            raise InputError(
                f"{self._called} is searched as it is: it names no function that builds",
                hint="name one, of (vectors, ids, space): build=module:function",
            )
        geometry = space_of(space)
        made = copy.copy(self)
        made._space, made._convert = space_and_unit(geometry, self._unit)
        vectors = Vectors.of(base, ids=ids)
        matrix = vectors.require_matrix()
        rows = np.flatnonzero(searchable(matrix, geometry))
        warn_left_out(rows, len(matrix), vectors.ids)
        kept = Vectors.of(matrix[rows], ids=vectors.ids[rows])
        told = (kept.require_matrix(), kept.ids.array(), geometry.name)
        made._take(_asked(self._name, self._build, *told, **given))
        made._name, made._base = self._name, kept
        return made

    def _rows(
        self, asked: Any, filters: Sequence[Any] | None, k: int, settings: Mapping[str, Any]
    ) -> list[Row]:
        given = {**settings, self._k_name: k} if self._k_name else dict(settings)
        if not self._filter_name:
            filters = None
        if self._asks.endswith("s"):
            return self._all_at_once(asked, filters, given)
        return [self._one(asked[row], row, filters, given) for row in range(len(asked))]

    def _one(self, query: Any, row: int, filters: Any, given: dict[str, Any]) -> Row:
        if filters is not None and filters[row] is not None:
            given = {**given, self._filter_name: filters[row]}
        found = _asked(f"{self._name} failed on query {row}", self._function, query, **given)
        return row_of(found, self._id)

    def _all_at_once(self, asked: Any, filters: Any, given: dict[str, Any]) -> list[Row]:
        if filters is not None:
            given = {**given, self._filter_name: list(filters)}
        batch = list(asked) if self.by_text else asked
        found = _asked(self._name, self._function, batch, **given)
        if isinstance(found, tuple) and len(found) == 2 and len(found[0]) == len(found[1]):
            # Ids and scores; two queries with a tuple each would be a list of tuples.
            rows = [(list(i), list(s)) for i, s in zip(*found, strict=True)]
        else:
            rows = list(found)
        if len(rows) != len(asked):
            raise SystemFault(
                f"{self._name} was asked {len(asked):,} queries and returned {len(rows):,} rows"
            )
        return [row_of(row, self._id) for row in rows]


def _resolved(given: Callable[..., Any] | str | None) -> Any:
    return import_object(given, "my_app.search:retrieve") if isinstance(given, str) else given


def _asked(name: str, function: Callable[..., Any], *given: Any, **more: Any) -> Any:
    """What the function returns; SystemFault for an exception in it, and for a coroutine."""
    try:
        found = function(*given, **more)
    except SemrecallError:
        raise
    except Exception as error:
        what = name if " failed on " in name else f"{name} failed"
        raise SystemFault(f"{what}: {type(error).__name__}: {error}") from error
    if inspect.isawaitable(found):
        if inspect.iscoroutine(found):
            found.close()
        raise SystemFault(
            f"{name} is asynchronous", hint="name a function that runs it: asyncio.run(...)"
        )
    return found


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Its parameters; none where Python cannot tell them."""
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []


def _guessed(parameters: Sequence[inspect.Parameter], called: str) -> str:
    """What it takes, by the type of its first parameter, else by the name."""
    first = parameters[0] if parameters else None
    typed = "" if first is None or first.annotation is first.empty else first.annotation
    kind = typed.__name__ if isinstance(typed, type) else re.sub(r"[\w.]+\.", "", str(typed))
    name = "" if first is None else first.name
    if "float" in kind or "ndarray" in kind.lower():
        return "vectors" if name in _TAKES["vectors"].split() or name == "queries" else "vector"
    for word in (kind, name):
        for takes, names in _TAKES.items():
            if word in names.split():
                return takes
    raise InputError(
        f"the first parameter of {called} ({name!r}) does not tell what it takes",
        hint="say it: takes=text, texts, vector or vectors",
    )
