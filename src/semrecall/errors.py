"""Every error a user can meet.

SemrecallError            base of all; also a ValueError, so that callers may catch either
|- InputError             an argument or a value is wrong
|  |- FormatError         a file is not what it claims to be; names the file and the place
|  |- MismatchError       two inputs do not belong together (ids, dimension, space, stale truth)
|- MeasureError           a measure's name cannot be read or computed from what was given
|- MissingExtra           an optional package is needed; names the extra that installs it
|- SystemFault            a search system failed or answered against its contract
|- EmbeddingFault         a model or an endpoint that makes vectors of texts failed
|- JudgeFault             a judge failed or answered against its contract
|- LedgerFault            the file that keeps labels cannot be read or written
|- Stopped                work ended before its end, as asked or as it had to; it can be resumed

Each says what was found, what was expected, and (hint) what to do.
"""

from __future__ import annotations

__all__ = [
    "EmbeddingFault",
    "FormatError",
    "InputError",
    "JudgeFault",
    "LedgerFault",
    "MeasureError",
    "MismatchError",
    "MissingExtra",
    "SemrecallError",
    "SemrecallWarning",
    "Stopped",
    "SystemFault",
]


class SemrecallError(ValueError):
    """Base of all errors of semrecall: a message, and an optional hint on what to do."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n\nhint: {self.hint}"


class InputError(SemrecallError):
    """An argument or a value is wrong."""


class FormatError(InputError):
    """A file is not what it claims to be."""


class MismatchError(InputError):
    """Two inputs do not belong together."""


class MeasureError(SemrecallError):
    """A measure's name cannot be read, or the measure cannot be computed from what was given."""


class MissingExtra(SemrecallError):
    """An optional package is needed and not installed."""

    def __init__(self, package: str, extra: str, needed_for: str) -> None:
        super().__init__(
            f"{needed_for} needs the package {package!r}, which is not installed",
            hint=f'pip install "semrecall[{extra}]"',
        )
        self._given = (package, extra, needed_for)

    def __reduce__(self) -> tuple[type[MissingExtra], tuple[str, str, str]]:
        return type(self), self._given


class SystemFault(SemrecallError):
    """A search system failed, or answered against its contract."""


class EmbeddingFault(SemrecallError):
    """A model or an endpoint that makes vectors of texts failed, or gave no vectors."""


class JudgeFault(SemrecallError):
    """A judge failed, or answered against its contract."""


class LedgerFault(SemrecallError):
    """The file that keeps labels cannot be read or written; what it holds is untouched."""


class Stopped(SemrecallError):
    """Work ended before its end (a cap, a quota, a wait too long); running again resumes it."""


class SemrecallWarning(UserWarning):
    """Something in the data deserves a look; the computation went on by a stated rule."""
