"""How many tokens a text takes, at least and at most, and what to do with one that does not fit.

No tokenizer is asked: each vendor has its own, and most are not published. A range by script is
enough to say before anything is sent what a run may cost, and to cut a document so that it fits.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from semrecall.errors import InputError

__all__ = ["IMAGE_TOKENS", "POLICIES", "Fitted", "estimate_tokens", "fit"]

#: Tokens of one image: from a thumbnail to one of 1,500 pixels a side, over the vendors' rules.
#: A few small models count images many times as high, at a price as much lower.
IMAGE_TOKENS = (85, 3000)

#: What may be done with a document that does not fit.
POLICIES = ("head", "tail", "head-tail", "windows")

#: First code point of a block, and tokens a character (low, high). Measured with four published
#: vocabularies (cl100k, o200k, an early Claude's, DeepSeek's) on text written as a JSON string;
#: tests/test_judge_sizes.py has the counts. What is no language (random letters, hexadecimal
#: digits, rows of blanks) may take up to half as many tokens again as the high one.
_SCRIPTS = (
    (0x0000, 0.30, 6.0),  # control characters: \u0000 in JSON
    (0x0020, 0.00, 0.30),  # blank
    (0x0021, 0.30, 1.00),  # punctuation
    (0x0022, 0.30, 2.00),  # quotation mark: \" in JSON
    (0x0023, 0.30, 1.00),
    (0x0030, 0.33, 1.00),  # digits
    (0x003A, 0.30, 1.00),
    (0x0041, 0.15, 0.50),  # capitals
    (0x005B, 0.30, 2.00),  # backslash among them: \\ in JSON
    (0x0061, 0.18, 0.36),  # small letters
    (0x007B, 0.30, 1.00),
    (0x007F, 0.30, 6.0),
    (0x00A0, 0.40, 2.20),  # Latin with marks
    (0x0370, 0.30, 1.60),  # Greek
    (0x0400, 0.22, 1.00),  # Cyrillic, Armenian
    (0x0590, 0.32, 1.40),  # Hebrew, Arabic, Syriac
    (0x0900, 0.25, 2.00),  # India
    (0x0E00, 0.35, 2.20),  # Thai, Lao
    (0x0F00, 0.25, 3.40),  # Tibet, Burma, Georgia, Ethiopia, Khmer
    (0x1E00, 0.40, 2.20),  # Vietnamese, old Greek
    (0x2000, 0.30, 3.00),  # marks and signs
    (0x2E80, 0.45, 1.70),  # kana, Chinese, Korean
    (0xD800, 1.00, 6.0),  # half surrogate pairs
    (0xE000, 0.50, 3.00),
    (0x10000, 1.00, 4.00),  # emoji, rare scripts
)
_STARTS = np.array([start for start, _, _ in _SCRIPTS], dtype=np.uint32)
# In hundredths of a token, so that sums are exact.
_LOW = np.array([round(100 * low) for _, low, _ in _SCRIPTS])
_HIGH = np.array([round(100 * high) for _, _, high in _SCRIPTS])
_LARGEST = int(_HIGH.max())
#: Line breaks and tabs are two characters in JSON and often one token.
_BREAKS = (9, 10, 13)
_BREAK_HIGH = 150

_ELLIPSIS = " [...] "
#: Windows share this part of their length, so that a sentence at the edge is whole in one of them.
_OVERLAP = 0.1
#: A cut moves back to a blank within this part of the text.
_BACK = 0.05


@dataclass(frozen=True)
class Fitted:
    """The texts to judge instead of one: a single one, or windows of which the best counts."""

    texts: tuple[str, ...]
    cut: bool = False

    @property
    def flags(self) -> tuple[str, ...]:
        """What a reader of the label should know."""
        if self.cut:
            return ("input cut",)
        return (f"best of {len(self.texts)} windows",) if len(self.texts) > 1 else ()


def estimate_tokens(text: str) -> tuple[int, int]:
    """How many tokens a text takes, at least and at most, also as a string in JSON."""
    if not text:
        return (0, 0)
    codes = _codes(text)
    low, high = int(_LOW[_script(codes)].sum()), int(_weights(codes).sum())
    return max(low // 100, 1), -(-high // 100)


def fit(text: str, room_tokens: int, policy: str = "head-tail") -> Fitted:
    """The text, or the parts of it that fit into so many tokens by the high estimate.

    policy: "head" and "tail" keep one end, "head-tail" both with [...] between them, "windows"
    all of it in overlapping windows. Cuts are made at blanks where one is near, and never between
    a letter and its marks. Raises InputError when there is no room.
    """
    if policy not in POLICIES:
        raise InputError(f"a policy is one of {', '.join(POLICIES)}; found {policy!r}")
    if room_tokens < 1:
        raise InputError(
            f"{room_tokens} tokens are left for a document",
            hint="the prompt and the reply take up the context: raise --context-tokens or lower "
            "--max-tokens",
        )
    room = 100 * room_tokens
    sums = np.concatenate([[0], np.cumsum(_weights(_codes(text)))])
    if sums[-1] <= room:
        return Fitted((text,))
    if policy == "windows":
        return Fitted(tuple(_windows(text, sums, room)))
    part = _CUTS[policy](text, sums, room)
    return Fitted((part,), cut=part != text)


#: What stands before each character, in hundredths of a token.
_Sums = npt.NDArray[np.int64]


def _codes(text: str) -> npt.NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)


def _script(codes: npt.NDArray[np.uint32]) -> npt.NDArray[np.intp]:
    return np.searchsorted(_STARTS, codes, side="right") - 1


def _weights(codes: npt.NDArray[np.uint32]) -> _Sums:
    """Hundredths of a token of each character at most."""
    weights = _HIGH[_script(codes)]
    weights[np.isin(codes, _BREAKS)] = _BREAK_HIGH
    return weights


def _head(text: str, sums: _Sums, room: int) -> str:
    return text[: _end(text, sums, 0, room)]


def _tail(text: str, sums: _Sums, room: int) -> str:
    start = min(int(np.searchsorted(sums, sums[-1] - room, side="left")), len(text) - 1)
    blank = text.find(" ", start, start + int(_BACK * (len(text) - start)))
    start = blank + 1 if blank >= 0 else start
    while start < len(text) and _joins(text[start]):
        start += 1
    return text[start:]


def _head_tail(text: str, sums: _Sums, room: int) -> str:
    half = (room - 100 * estimate_tokens(_ELLIPSIS)[1]) // 2
    if half < _LARGEST:  # no room for two ends
        return _head(text, sums, room)
    return _head(text, sums, half) + _ELLIPSIS + _tail(text, sums, half)


_CUTS: dict[str, Callable[[str, _Sums, int], str]] = {
    "head": _head,
    "tail": _tail,
    "head-tail": _head_tail,
}


def _windows(text: str, sums: _Sums, room: int) -> list[str]:
    found, start = [], 0
    while True:
        end = _end(text, sums, start, room)
        found.append(text[start:end])
        if end >= len(text):
            return found
        back = _end(text, sums, start, int((1 - _OVERLAP) * room))
        # A character may be larger than the room: it stands alone.
        start = back if start < back < end else end


def _end(text: str, sums: _Sums, start: int, room: int) -> int:
    """Where a piece that starts there and fits ends."""
    end = int(np.searchsorted(sums, sums[start] + room, side="right")) - 1
    if end >= len(text):
        return len(text)
    end = max(end, start + 1)
    blank = text.rfind(" ", end - int(_BACK * (end - start)), end)
    if blank > start:
        return blank + 1
    at = end
    while at > start + 1 and _joins(text[at]):
        at -= 1
    return at if at > start + 1 else end


def _joins(character: str) -> bool:
    """Whether it belongs to the one before: marks, and what joins emoji."""
    return unicodedata.category(character) in ("Mn", "Mc", "Me") or character == "\u200d"
