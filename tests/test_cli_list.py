"""semrecall list: names that can be read back, in tables that fit a terminal."""

from __future__ import annotations

import csv
import io
import json

import pytest

from semrecall.judges.prompts import load_prompt, prompt_names
from semrecall.measures import measures
from semrecall.text import display_width


@pytest.mark.parametrize(
    "what", [(), ("measures",), ("systems",), ("judges",), ("prompts",), ("formats",)]
)
def test_tables_fit_100_columns(semrecall_main, what):
    status, out, err = semrecall_main("list", *what)
    assert (status, err) == (0, "")
    for line in out.splitlines():
        assert display_width(line) <= 100, line
        assert line == line.rstrip()


def test_every_measure_is_listed_with_what_it_is_measured_against(semrecall_main):
    out = semrecall_main("list", "measures")[1]
    heads = {
        "index": "index: results against exact neighbours",
        "retrieval": "retrieval: results against judgments",
        "context": "context: what a generator read, by verdicts",
        "answer": "answer: what it answered, by verdicts",
    }
    assert out.startswith(heads["index"])
    for definition in measures():
        part = out.split(f"{heads[definition.layer]}\n\n")[1].split("\n\n")[0]
        (line,) = [x for x in part.splitlines() if x.startswith(f"{definition.usage}  ")]
        assert definition.about.startswith(line.removeprefix(definition.usage).strip()[:20])
    text = " ".join(out.split())
    assert (
        "alpha_nDCG(rel=1, alpha=0.5, judged_only=False)@k alpha_DCG over that of an ideal" in text
    )
    assert "(extra ir)" in text


def test_other_formats_have_a_row_a_measure(semrecall_main):
    rows = list(
        csv.DictReader(io.StringIO(semrecall_main("list", "measures", "--format", "csv")[1]))
    )
    assert [row["measure"] for row in rows] == [d.usage for d in measures()]
    assert json.loads(semrecall_main("list", "measures", "--format", "json")[1]) == rows


def test_judges_and_prompts_are_listed_by_names_that_open_them(semrecall_main):
    judges = json.loads(semrecall_main("list", "judges", "--format", "json")[1])
    found = {row["judge"]: row["extra"] for row in judges}
    assert found["llm"] == "llm"
    assert found["crossencoder"] == "crossencoder"
    assert found["recorded"] == ""
    prompts = json.loads(semrecall_main("list", "prompts", "--format", "json")[1])
    assert [row["prompt"] for row in prompts] == prompt_names()
    for row in prompts:
        assert load_prompt(row["prompt"]).purpose == row["about"]
    assert set(json.loads(semrecall_main("list", "--format", "json")[1])) == {
        "measures", "systems", "judges", "prompts", "formats"
    }  # fmt: skip
