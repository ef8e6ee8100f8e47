"""Whether two columns of ids mean the same things, and what would make them match."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from semrecall.data.ids import Ids, unify

__all__ = ["Difference", "Match", "difference", "match"]

#: Unmatched ids on the left that are tried; on the right all of them.
_TRIED = 10_000


@dataclass(frozen=True)
class Match:
    """How many distinct ids two columns have in common, and how many only one of them has.

    left_examples, right_examples: the first ids that only this side has.
    """

    common: int
    left_only: int
    right_only: int
    left_examples: tuple[str | int, ...] = ()
    right_examples: tuple[str | int, ...] = ()


@dataclass(frozen=True)
class Difference:
    """In what unmatched ids differ: the words for it, how many would match, and one pair."""

    what: str
    matching: int
    tried: int
    left: str
    right: str

    def __str__(self) -> str:
        whole = f"{self.matching:,} of {self.tried:,} unmatched ids"
        return f"{whole} would match but for {self.what}: {self.left!r} here, {self.right!r} there"


def match(left: Ids, right: Ids, *, examples: int = 3) -> Match:
    """Compare two columns as sets; missing ids count on neither side."""
    ours, theirs = unify(left, right)
    ours, first = np.unique(ours, return_index=True)
    first, ours = first[ours >= 0], ours[ours >= 0]
    theirs, second = np.unique(theirs, return_index=True)
    second, theirs = second[theirs >= 0], theirs[theirs >= 0]
    alone, other = ~np.isin(ours, theirs), ~np.isin(theirs, ours)
    return Match(
        common=int((~alone).sum()),
        left_only=int(alone.sum()),
        right_only=int(other.sum()),
        left_examples=tuple(left[np.sort(first[alone])[:examples]]),
        right_examples=tuple(right[np.sort(second[other])[:examples]]),
    )


def difference(left: Ids, right: Ids) -> Difference | None:
    """What would make ids of `left` match that are not in `right`; None when nothing is found.

    Of all known differences (leading zeros, case, Unicode form, a prefix, ...) the one that makes
    most of them match, the simplest where several do. It must explain a tenth of them; half where
    the repair cuts something off, which makes strange ids equal by chance; a single one where it
    only undoes a way of writing and leaves all ids of either side different from each other.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    ours, theirs = (_texts(column) for column in (left, right))
    ours = ours.filter(pc.invert(pc.is_in(ours, value_set=theirs)))[:_TRIED]
    if len(ours) == 0 or len(theirs) == 0:
        return None
    best: Difference | None = None
    for what, least, repair in _REPAIRS:
        mine, other = repair(ours), repair(theirs)
        # An id that the repair leaves empty says nothing.
        known = pc.and_(pc.is_in(mine, value_set=other), pc.not_equal(mine, ""))
        count = pc.sum(known).as_py() or 0
        if count < max(1, least * len(ours)) or (best is not None and count <= best.matching):
            continue
        if least == 0 and not (_all_differ(mine) and _all_differ(other)):
            continue
        at = pc.index(known, pa.scalar(True)).as_py()
        twin = theirs[pc.index(other, mine[at]).as_py()].as_py()
        best = Difference(what, count, len(ours), ours[at].as_py(), twin)
    return best


def _all_differ(texts: Any) -> bool:
    import pyarrow.compute as pc

    return bool(pc.count_distinct(texts).as_py() == len(texts))


def _texts(column: Ids) -> Any:
    """Distinct ids as an arrow column of text, in order of first appearance."""
    import pyarrow as pa

    codes, first = np.unique(column.codes, return_index=True)
    kept = column[np.sort(first[codes >= 0])]
    return kept.to_arrow().cast(pa.large_string())


# -- repairs: what is done to the ids of both sides so that they match ------------------------


def _replaced(pattern: str, by: str = "") -> Callable[[Any], Any]:
    def repair(texts: Any) -> Any:
        import pyarrow.compute as pc

        return pc.replace_substring_regex(texts, pattern, by)

    return repair


def _in_turn(*repairs: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def repair(texts: Any) -> Any:
        for one in repairs:
            texts = one(texts)
        return texts

    return repair


def _normal_form(texts: Any) -> Any:
    import pyarrow.compute as pc

    return pc.utf8_normalize(texts, form="NFC")


def _compatible_form(texts: Any) -> Any:
    import pyarrow.compute as pc

    return pc.utf8_normalize(texts, form="NFKC")


def _lower(texts: Any) -> Any:
    import pyarrow.compute as pc

    return pc.utf8_lower(texts)


def _without_shared_start(texts: Any) -> Any:
    """Without the prefix that all ids of the column share; digits at its end are kept."""
    import pyarrow.compute as pc

    if len(texts) < 2:
        return texts
    # What the first and the last in order share, all between them share.
    ends = pc.min_max(texts)
    low, high = ends["min"].as_py(), ends["max"].as_py()
    shared = next((at for at, c in enumerate(low) if c != high[at : at + 1]), len(low))
    return pc.utf8_slice_codeunits(texts, len(low[:shared].rstrip("0123456789")))


def _reversed(texts: Any) -> Any:
    import pyarrow.compute as pc

    return pc.utf8_reverse(texts)


def _as_float(texts: Any) -> Any:
    """Whole numbers above 2**53 as the nearest 64-bit float, which is what JavaScript keeps."""
    import pyarrow as pa
    import pyarrow.compute as pc

    long = pc.match_substring_regex(texts, "^[0-9]{16,19}$")
    if not pc.any(long).as_py():
        return texts
    floats = [str(int(float(v))) for v in texts.filter(long).to_pylist()]
    return pc.replace_with_mask(texts, long, pa.array(floats, texts.type))


_ZEROS = _replaced(r"^0+([0-9])", r"\1")
#: Not behind a point: 1.05 is not 1.5.
_PADDING = _replaced(r"^(.*[^0-9.,])0+([0-9]+)$", r"\1\2")
_BLANKS = _replaced(r"""^[\s"'\x{FEFF}\x{00A0}]+|[\s"'\x{00A0}]+$""")
_FRACTION = _replaced(r"^(-?[0-9]+)\.0+$", r"\1")
_HYPHENS = _replaced(r"[-{}]")
_ENDING = _replaced(r"\.[A-Za-z][A-Za-z0-9]{0,4}$")
_FOLDER = _replaced(r"^.*[/\\]")
_SCHEME = _replaced(r"^.*[:#|]")
_LETTERS = _replaced(r"^[^0-9]+([0-9]+)$", r"\1")
_SUFFIX = _replaced(r"^([0-9]+)[^0-9A-Za-z].*$", r"\1")
_SHARED = _in_turn(_without_shared_start, _reversed, _without_shared_start, _reversed)
_SEVERAL = _in_turn(_BLANKS, _compatible_form, _lower, _FOLDER, _ENDING, _LETTERS, _ZEROS)

#: In what ids may differ, the least share of unmatched ids it must explain, and its repair.
_REPAIRS: Sequence[tuple[str, float, Callable[[Any], Any]]] = (
    ("leading zeros", 0, _ZEROS),
    ("zeros that fill up a number", 0, _PADDING),
    ("blanks or quotes around them", 0, _BLANKS),
    ("upper and lower case", 0.1, _lower),
    ("their Unicode form (NFC or NFD)", 0, _normal_form),
    ("their Unicode form (full and half width, ligatures: NFKC)", 0.1, _compatible_form),
    ("a fraction .0, as in whole numbers written as floats", 0, _FRACTION),
    ("hyphens", 0.1, _HYPHENS),
    ("rounding to 64-bit floats (numbers above 2^53)", 0.1, _as_float),
    ("a file name's ending", 0.5, _ENDING),
    ("the folder before the name", 0.5, _FOLDER),
    ("the folder and the file name's ending", 0.5, _in_turn(_FOLDER, _ENDING)),
    ("a prefix ending in a colon, # or |", 0.5, _SCHEME),
    ("a prefix before the number", 0.5, _LETTERS),
    ("a prefix before the number and leading zeros", 0.5, _in_turn(_LETTERS, _ZEROS)),
    ("a suffix after the number", 0.5, _SUFFIX),
    ("a prefix or suffix that all ids of one side share", 0.5, _SHARED),
    ("several of: blanks, case, Unicode form, folder, prefix, leading zeros", 0.5, _SEVERAL),
)
