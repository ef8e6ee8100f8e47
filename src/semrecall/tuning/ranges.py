"""Range: which values of a knob are tried, and how they are spread, divided and stepped."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from semrecall.errors import InputError

if TYPE_CHECKING:
    from semrecall.systems import Knob, System

__all__ = ["Range", "Setting", "ranges_of", "read_range", "shown"]

Kind = Literal["build", "search"]
#: Closer than this, two values that need not be whole are the same to a search.
_FINEST_RATIO = 1.01
_FINEST_SHARE = 1 / 200
#: How far the search for a first setting that meets the target steps up at a time.
_STRIDE_RATIO = 4.0
_STRIDE_SHARE = 1 / 6


@dataclass(frozen=True)
class Range:
    """The values of a knob that may be tried: from low to high, or the `listed` ones, rising.

    ordered: whether more of it is more of something; False for a mode, whose values are words.
    """

    name: str
    kind: Kind
    low: Any
    high: Any
    scale: Literal["linear", "log"] = "log"
    whole: bool = True
    listed: tuple[Any, ...] = ()
    ordered: bool = True

    def __post_init__(self) -> None:
        if not self.ordered:
            object.__setattr__(self, "scale", "linear")
        elif self.whole:
            # Whole numbers stay whole in what is shown and pasted, too.
            for name in ("low", "high"):
                object.__setattr__(self, name, round(getattr(self, name)))
            object.__setattr__(self, "listed", tuple(round(value) for value in self.listed))

    @property
    def single(self) -> bool:
        """Whether there is nothing to choose."""
        return bool(self.low == self.high)

    def spread(self, count: int) -> list[Any]:
        """At most `count` values from low to high, both included, spread by the scale."""
        if self.listed:
            at = sorted({round(i * (len(self.listed) - 1) / max(count - 1, 1))
                         for i in range(count)})  # fmt: skip
            return [self.listed[i] for i in at]
        if self.single or count < 2:
            return [self.low]
        found = [self.at(i / (count - 1)) for i in range(count)]
        return sorted(set(found))

    def at(self, share: float) -> Any:
        """The value at a share (0 to 1) of the way from low to high."""
        if self.listed:
            return self.listed[round(share * (len(self.listed) - 1))]
        start, end = self._place(self.low), self._place(self.high)
        return self._value(start + share * (end - start))

    def share(self, value: float) -> float:
        """Where a value lies, from 0 to 1."""
        if self.single:
            return 0.0
        if self.listed:
            return self.listed.index(value) / (len(self.listed) - 1)
        start, end = self._place(self.low), self._place(self.high)
        return (self._place(value) - start) / (end - start)

    def between(self, low: float, high: float) -> Any:
        """A value in the middle of two, None where they are next to each other."""
        if self.listed:
            left, right = self.listed.index(low), self.listed.index(high)
            return self.listed[(left + right) // 2] if right - left > 1 else None
        middle = self._value((self._place(low) + self._place(high)) / 2)
        if self.whole:
            return min(max(middle, low + 1), high - 1) if high - low > 1 else None
        return middle if self._apart(low, high) else None

    def above(self, value: float) -> Any:
        """The next value of a search that strides up; None at the top."""
        if value >= self.high:
            return None
        if self.listed:
            at = self.listed.index(value)
            return self.listed[min(at + max(1, len(self.listed) // 4), len(self.listed) - 1)]
        if self.scale == "log":
            up = max(value, self._smallest) * _STRIDE_RATIO
        else:
            up = value + (self.high - self.low) * _STRIDE_SHARE
        up = max(value + 1, round(up)) if self.whole else up
        return min(up, self.high)

    def below(self, value: float) -> Any:
        """The value next to this one on its lower side; None at the bottom."""
        if value <= self.low:
            return None
        if self.listed:
            return self.listed[self.listed.index(value) - 1]
        if self.whole:
            return value - 1
        if self.scale == "log":
            return max(self.low, value / _FINEST_RATIO)
        return max(self.low, value - (self.high - self.low) * _FINEST_SHARE)

    def _apart(self, low: float, high: float) -> bool:
        if self.scale == "log":
            return bool(high > _FINEST_RATIO * max(low, self._smallest))
        return bool(high - low > (self.high - self.low) * _FINEST_SHARE)

    @property
    def _smallest(self) -> float:
        """What counts as the smallest value on a logarithmic scale, which has no zero."""
        return self.low if self.low > 0 else (1.0 if self.whole else self.high / 1000)

    def _place(self, value: float) -> float:
        if self.scale == "linear":
            return value
        # A knob that may be 0 has it one step below its smallest value.
        smallest = self._smallest
        return math.log(value) if value >= smallest else math.log(smallest / 2)

    def _value(self, place: float) -> Any:
        value = place if self.scale == "linear" else math.exp(place)
        if self.scale == "log" and self.low <= 0 and value < self._smallest / math.sqrt(2):
            value = self.low
        value = round(value) if self.whole else float(f"{value:.4g}")
        return min(max(value, self.low), self.high)


@dataclass(frozen=True)
class Setting:
    """One point of the space: which system, built how, searched how."""

    system: str
    build: tuple[tuple[str, Any], ...] = ()
    search: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        pairs = [*self.build, *self.search]
        return ", ".join(f"{name}={shown(value)}" for name, value in pairs) or "as it is"


def shown(value: Any) -> str:
    """A value of a knob as text."""
    return value if isinstance(value, str) else f"{value:g}"


def ranges_of(
    system: System, kind: Kind, given: Mapping[str, Any] | None = None, k: int = 1
) -> list[Range]:
    """What is tuned of a system: the ranges given, else, for a search, all its search knobs.

    k: results per query: a knob that cannot act below it is tuned from there on, unless given a
    range of its own.
    given: name -> (low, high), a list of values, one value, or text as `read_range` takes it.
    Raises InputError for a knob that the system lacks, or a value that it cannot have.
    """
    knobs = {knob.name: knob for knob in system.knobs if knob.kind == kind}
    if given is None:
        found = [_whole_range(knob, k) for knob in knobs.values()] if kind == "search" else []
        return [one for one in found if not one.single]
    system.turned(kind, {name: _any_value(value) for name, value in given.items()})
    return [_range(knobs[name], value, k) for name, value in given.items()]


def read_range(text: str, option: str = "--search") -> tuple[str, Any]:
    """`nprobe=1:256` (a range), `nprobe=1,2,4` (values) or `nprobe` (all it can be), read."""
    name, equals, written = (part.strip() for part in text.partition("="))
    if not name or (equals and not written):
        raise InputError(f"{option} {text!r} is not KNOB=LOW:HIGH", hint=f"{option} nprobe=1:256")
    if not equals:
        return name, ()
    low, colon, high = written.partition(":")
    if colon:
        return name, (_number(low, text), _number(high, text))
    return name, [_value(part) for part in written.split(",")]


def _value(text: str) -> Any:
    """A number, or the word that it is: the knob knows whether it may be one."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text.strip()


def _number(text: str, whole: str) -> float:
    found = _value(text)
    if isinstance(found, str):
        raise InputError(f"{found!r} in {whole!r} is not a number")
    return float(found) if isinstance(found, float) else int(found)


def _whole_range(knob: Knob, k: int) -> Range:
    if knob.words:
        return _words(knob, knob.words)
    low = min(max(knob.low, k), knob.high) if knob.from_k else knob.low
    return Range(knob.name, knob.kind, low, knob.high, knob.scale, knob.whole)


def _any_value(given: Any) -> Any:
    """One of the values given, for a check of the name; None is refused by the knob itself."""
    values = _values(given)
    return values[0] if values else 1


def _values(given: Any) -> Sequence[Any]:
    if isinstance(given, Range):
        return [given.low, given.high]
    return list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [given]


def _range(knob: Knob, given: Any, k: int = 1) -> Range:
    if isinstance(given, Range):
        return given
    if isinstance(given, str):
        given = read_range(f"{knob.name}={given}")[1]
    if isinstance(given, tuple) and not given:
        return _whole_range(knob, k)
    if knob.words:
        chosen = {knob.check(value) for value in _values(given)}
        return _words(knob, [word for word in knob.words if word in chosen])
    values = [knob.check(value) for value in _values(given)]
    if isinstance(given, tuple):
        if len(values) != 2 or values[0] > values[1]:
            raise InputError(
                f"{knob.name} is tried from {given}; expected (low, high) or a list of values"
            )
        return Range(knob.name, knob.kind, values[0], values[1], knob.scale, knob.whole)
    rising = tuple(sorted(set(values)))
    return Range(knob.name, knob.kind, rising[0], rising[-1], knob.scale, knob.whole, rising)


def _words(knob: Knob, words: Sequence[str]) -> Range:
    return Range(knob.name, knob.kind, words[0], words[-1], listed=tuple(words), ordered=False)
