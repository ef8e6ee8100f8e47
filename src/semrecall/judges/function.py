"""Any Python callable as a judge."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from semrecall.errors import InputError, JudgeFault, SemrecallError
from semrecall.judges.contract import Answer, Judge, Question, Record, Reply, Scale, Status, digest
from semrecall.registry import import_object

__all__ = ["FunctionJudge"]

_BINARY = Scale({0: "not relevant", 1: "relevant"})


class FunctionJudge(Judge):
    """A function of (query, document), both texts, that returns a grade.

    function: the callable, or "module:name" of one. It returns a grade, None where it cannot
        tell, or (grade, reason). It is called in this process, pair by pair.
    grades: the highest grade there may be; 1 for yes and no.
    version: change it when the function changes, or the ledger gives the old answers. The source
        of a plain function counts by itself.

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
        try:
            source = inspect.getsource(self._function)
        except (OSError, TypeError):
            source = ""
        module = getattr(self._function, "__module__", "")
        return {
            "function": f"{module}:{self.name}",
            "source": digest(source).hex(),
            "version": self._version,
            "grades": list(self.scale.grades),
        }

    def answer(self, questions: Iterable[Question], record: Record) -> None:
        """Call the function on each pair."""
        for question in questions:
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
