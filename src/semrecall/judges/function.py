"""Any Python callable as a judge."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from semrecall.errors import InputError, JudgeFault, SemrecallError
from semrecall.judges.contract import Answer, Judge, Question, Record, Reply, Scale, Status, digest
from semrecall.registry import import_object

__all__ = ["FunctionJudge"]

_DEPTH = 5
_PLAIN = (bool, int, float, complex, str, bytes)
_BINARY = Scale({0: "not relevant", 1: "relevant"})


class FunctionJudge(Judge):
    """A function of (query, document), both texts, that returns a grade.

    function: the callable, or "module:name" of one. It returns a grade, None where it cannot
        tell, or (grade, reason). It is called in this process, pair by pair.
    grades: the highest grade there may be; 1 for yes and no.
    version: change it when what the function calls changes, or the ledger gives the old answers.
        Its own source counts by itself, and so do its defaults, the values it closes over and
        those that functools.partial binds.

    An exception of the function ends the run as a JudgeFault that names the pair.
    """

    def __init__(
        self,
        function: Callable[[str, str], Any] | str,
        *,
        name: str | None = None,
        grades: int = 1,
        relevant: int = 1,
        version: str = "",
    ) -> None:
        self._function: Callable[[str, str], Any] = (
            import_object(function, "my_judges:is_relevant")
            if isinstance(function, str)
            else function
        )
        if not callable(self._function):
            raise InputError(f"{function!r} is not a function")
        called = getattr(self._function, "__name__", type(self._function).__name__)
        self.name = name or f"python:{called}"
        self.scale = (
            _BINARY
            if grades == 1
            else Scale({g: f"grade {g}" for g in range(grades + 1)}, relevant)
        )
        self._version = version

    @property
    def identity(self) -> Mapping[str, Any]:
        """Where the function comes from, its source where there is one, and the version."""
        module = getattr(self._function, "__module__", "")
        return {
            "function": f"{module}:{self.name}",
            "source": digest(*_makings(self._function)).hex(),
            "version": self._version,
            "grades": list(self.scale.grades),
        }

    def answer(self, questions: Iterable[Question], record: Record) -> None:
        """Call the function on each pair."""
        for question in questions:
            if (skipped := self.passed_over(question)) is not None:
                record(skipped)
                continue
            start = time.perf_counter()
            try:
                said = self._function(question.query, question.document.text)
            except SemrecallError:
                raise
            except Exception as error:
                raise JudgeFault(
                    f"{self.name} failed on query {question.query_id!r}, document "
                    f"{question.doc_id!r}: {type(error).__name__}: {error}",
                    hint="what was judged before is kept; mend the function and run again",
                ) from error
            answer = self._answer(question, said)
            seconds = time.perf_counter() - start
            record(Reply((answer,), answer.status, raw=repr(said), latency_seconds=seconds))

    def _answer(self, question: Question, said: Any) -> Answer:
        grade, reason = said if isinstance(said, tuple) and len(said) == 2 else (said, "")
        if grade is None:
            return Answer(question, Status.SKIPPED, reason=str(reason))
        try:
            value = float(grade)
        except (TypeError, ValueError):
            value = math.nan
        if value not in self.scale.grades:
            text = f"{self.name} said {grade!r}; expected one of {list(self.scale.grades)}"
            return Answer(question, Status.ILLEGAL, reason=text)
        return Answer(question, Status.SETTLED, value, str(reason))


def _makings(function: Any, depth: int = _DEPTH) -> list[str]:
    """What makes a callable what it is: its source, and the values bound to it."""

    def stable(values: Iterable[Any]) -> list[str]:
        return [_stable(value, depth) for value in values]

    if isinstance(function, partial):
        bound = [*function.args, *sorted(function.keywords.items())]
        return ["partial", *_makings(function.func, depth), *stable(bound)]
    if inspect.ismethod(function):
        return ["method", *_makings(function.__func__, depth), *stable([function.__self__])]
    try:
        source = inspect.getsource(function if inspect.isroutine(function) else type(function))
    except (OSError, TypeError):
        source = ""
    if inspect.isfunction(function):
        cells = map(_content, function.__closure__ or ())
        keywords = sorted((function.__kwdefaults__ or {}).items())
        return [source, *stable([*cells, *(function.__defaults__ or ()), *keywords])]
    return [source] if inspect.isroutine(function) else [source, *stable([function])]


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not bound yet
        return None


def _stable(value: Any, depth: int) -> str:
    """A value in words that are the same in every process; of an object, its plain attributes.

    What lies deeper than `depth`, as in a function that closes over itself, counts by its type.
    """
    if value is None or isinstance(value, _PLAIN):
        return repr(value)
    inner = partial(_stable, depth=depth - 1)
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if not depth:
        return kind
    if isinstance(value, list | tuple):
        return f"({', '.join(map(inner, value))})"
    if isinstance(value, set | frozenset):
        return f"{{{', '.join(sorted(map(inner, value)))}}}"
    if isinstance(value, dict):
        return f"{{{', '.join(sorted(f'{inner(k)}: {inner(v)}' for k, v in value.items()))}}}"
    if inspect.isroutine(value) or isinstance(value, partial):
        return " ".join(_makings(value, depth - 1))
    own = getattr(value, "__dict__", None)
    items = own.items() if isinstance(own, dict) else ()
    return f"{kind}{sorted((k, repr(v)) for k, v in items if isinstance(v, _PLAIN))}"
