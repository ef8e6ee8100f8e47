"""Why ids of two columns do not match."""

from __future__ import annotations

import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semrecall.data.ids import ids
from semrecall.data.matching import difference, match


def test_match_counts_distinct_ids_on_both_sides():
    # left {1, 2, 3}, right {2, 3, 4, 5}: 2 in common, 1 only left, 2 only right
    found = match(ids([1, 2, 2, 3, -1]), ids(["5", "2", "3", "4"]))
    assert (found.common, found.left_only, found.right_only) == (2, 1, 2)
    assert found.left_examples == (1,)
    assert found.right_examples == (5, 4)


def test_the_same_number_as_text_and_as_integer_is_one_id():
    found = match(ids([1, 2, 3]), ids(["1", "2", "3"]))
    assert (found.common, found.left_only, found.right_only) == (3, 0, 0)
    assert difference(ids([1, 2, 3]), ids(["1", "2", "3"])) is None


@pytest.mark.parametrize(
    ("left", "right", "what"),
    [
        (["007", "012"], [7, 12], "leading zeros"),
        ([" a", "b "], ["a", "b"], "blanks or quotes around them"),
        (['"12"', '"13"'], [12, 13], "blanks or quotes around them"),
        (["Doc-a", "Doc-b"], ["doc-a", "doc-b"], "upper and lower case"),
        (
            ["cafe\u0301", "re\u0301sume"],
            ["caf\u00e9", "r\u00e9sume"],
            "their Unicode form (NFC or NFD)",
        ),
        (["\uff11\uff12a", "\uff13b"], ["12a", "3b"], "their Unicode form (full and half width"),
        (["7.0", "12.0"], [7, 12], "a fraction .0"),
        (["a.txt", "b.md"], ["a", "b"], "a file name's ending"),
        (["docs/a", "x/y/b"], ["a", "b"], "the folder before the name"),
        (["docs/a.html", "b.html"], ["a", "b"], "the folder and the file name's ending"),
        (["msmarco:12", "msmarco:7"], [12, 7], "a prefix ending in a colon, # or |"),
        (["doc12", "doc7"], [12, 7], "a prefix before the number"),
        (["doc012", "doc007"], [12, 7], "a prefix before the number and leading zeros"),
        (["12_0", "7_3"], [12, 7], "a suffix after the number"),
        (["en_a_x", "en_b_x"], ["a", "b"], "a prefix or suffix that all ids of one side share"),
        (["ab-cd", "ef-01"], ["abcd", "ef01"], "hyphens"),
        ([2**60 + 1, 2**60 + 3], [2**60, 2**60], "rounding to 64-bit floats"),
        ([" A.TXT", " B.TXT"], ["a", "b"], "several of"),
    ],
)
def test_the_difference_is_named(left, right, what):
    found = difference(ids(left), ids(right))
    assert found is not None
    assert found.what.startswith(what)
    assert (found.matching, found.tried) == (2, 2)
    assert f"2 of 2 unmatched ids would match but for {found.what}" in str(found)
    back = difference(ids(right), ids(left))
    assert back is not None
    assert back.what == found.what


def test_ids_of_different_collections_have_no_difference():
    assert difference(ids(["a1", "b2"]), ids(["x9", "y8"])) is None
    assert difference(ids([1, 2]), ids([1, 2, 3])) is None
    assert difference(ids([1, 2]), ids([])) is None


def test_a_rare_coincidence_is_no_reason():
    # 1 of 20 unmatched ids would match without its prefix: less than half.
    others = [f"x{n}y" for n in range(19)]
    assert difference(ids(["a7", *others]), ids([7, 8])) is None
    # Another way to write a number is one, however rare ...
    found = difference(ids(["CACM-0268", *others]), ids(["CACM-268", "CACM-3"]))
    assert str(found) == (
        "1 of 20 unmatched ids would match but for zeros that fill up a number: "
        "'CACM-0268' here, 'CACM-268' there"
    )
    # ... unless one side writes both: then they are two.
    assert difference(ids(["007", "07", *others]), ids([7, 8])) is None
    # Digits behind a point are no number of their own.
    assert difference(ids(["v1.05", *others]), ids(["v1.5"])) is None


def test_ids_of_which_nothing_is_left_do_not_match():
    assert difference(ids(["-", "--"]), ids(["{}", "---"])) is None


@given(st.sets(st.integers(0, 10**6), min_size=1, max_size=30), st.integers(8, 12))
def test_padded_numbers_lack_their_zeros(numbers, width):
    padded = [str(n).zfill(width) for n in numbers]
    found = difference(ids(padded), ids(list(numbers)))
    assert found is not None
    assert found.what == "leading zeros"
    assert found.matching == len(numbers)


@given(st.sets(st.text("abcäöüéñ", min_size=3, max_size=6), min_size=2, max_size=20))
def test_decomposed_text_is_the_same_text(names):
    decomposed = [unicodedata.normalize("NFD", n) for n in names]
    found = difference(ids(decomposed), ids(list(names)))
    changed = sum(d not in names for d in decomposed)
    assert (found is not None) == (changed > 0)
    if found is not None:
        assert found.matching == changed


def test_missing_ids_count_on_neither_side():
    found = match(ids(np.array([-1, -1])), ids(["", "a"]))
    assert (found.common, found.left_only, found.right_only) == (0, 0, 1)
