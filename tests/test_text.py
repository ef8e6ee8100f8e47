"""Plain text: names cut and lines broken by the columns they take on a terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semrecall.text import (
    WIDTH,
    aligned,
    display_width,
    json_value,
    one_line,
    shortened,
    terminal_width,
    wrapped,
)

#: Latin, wide, and with marks that take no column.
LETTERS = st.sampled_from(["a", "-", " ", "检", "索", "ไ", "ท", "ี", "é", "e\u0301"])
TEXTS = st.lists(LETTERS, max_size=80).map("".join)


@given(TEXTS, st.integers(5, 40))
def test_a_name_is_never_wider_than_asked(name, width):
    found = shortened(name, width)
    assert display_width(found) <= width
    if display_width(name) > width:
        assert "…" in found or display_width(" ".join(name.split())) <= width


def test_a_name_keeps_its_start_and_its_end():
    assert shortened("short") == "short"
    assert shortened("a" * 20 + "b" * 20, 11) == "aaaaa…bbbbb"
    # Each takes two columns: 2 + 1 + 2 characters, and one column to spare.
    assert shortened("检索系统检索系统", 10) == "检索…系统"


@given(TEXTS, st.integers(10, 60))
def test_lines_are_broken_at_blanks_only(line, width):
    lines = wrapped(line, width)
    assert " ".join(" ".join(lines).split()) == " ".join(line.split())
    for part in lines:
        if display_width(part) > width:
            # A single word that is too long.
            assert " " not in part.strip()


def test_what_follows_is_indented():
    assert wrapped("one two three four", 9) == ["one two", "  three", "  four"]
    assert wrapped("one two three four", 9, indent="") == ["one two", "three", "four"]
    assert wrapped("fits", 4) == ["fits"]
    assert wrapped("  indented words", 10) == ["  indented", "  words"]


@pytest.mark.parametrize("line", ["", "x" * 200])
def test_there_is_nothing_to_break(line):
    assert wrapped(line) == [line]


def test_a_name_turns_no_other_text_around():
    assert one_line("a\u202eb\u2066c\u2069\x1b[31m\n d") == "abc [31m d"
    assert one_line("שלום \u200fعربي") == "שלום \u200fعربي"


def test_json_holds_whole_characters():
    assert json_value(b'["\\ud83d\\ude00", "\\\\ud83d"]') == ["\U0001f600", "\\ud83d"]
    with pytest.raises(ValueError, match=r"half a character, \\ud83d: line 2"):
        json_value('["a",\n"\\uD83D"]')


def test_a_narrow_terminal_has_rows_below_themselves(monkeypatch):
    rows = [["", "mean", "95% interval", "queries"], ["recall@10", "0.5", "0.25 to 0.75", "1,000"]]
    right = [False, True, True, True]
    wide = aligned(rows, right)
    assert wide[1] == "recall@10   0.5  0.25 to 0.75    1,000"
    monkeypatch.setenv("COLUMNS", "31")
    assert terminal_width() == 31
    # As many lines as rows, each with its own break.
    assert aligned(rows, right) == [
        "           mean  95% interval\n    queries", "recall@10   0.5  0.25 to 0.75\n      1,000",
    ]  # fmt: skip
    assert wrapped("a line that is a little too long") == ["a line that is a little too", "  long"]
    monkeypatch.setenv("COLUMNS", "250")
    assert aligned(rows, right) == wide
    assert terminal_width() == WIDTH
