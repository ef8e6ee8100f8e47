"""Gates: what passes, what is said of what does not, and what a continuous integration reads."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import pytest

import semrecall as sr
from semrecall.cli.ci import Case, annotate, junit
from semrecall.errors import InputError, MeasureError
from semrecall.gates import Gate, Mean, verdicts
from semrecall.testing import assert_measure

ROWS = [Mean("a", "recall@4", 0.9, 0.85, 0.95, 30), Mean("b", "recall@4", 0.9, 0.7, 1.0, 5)]


def passed(gate: Gate) -> list[bool]:
    return [verdict.passed for verdict in verdicts(gate, ROWS)]


def test_a_gate_holds_for_the_mean_or_for_the_whole_interval():
    assert passed(Gate("recall@4", at_least=0.9)) == [True, True]
    assert passed(Gate("recall@4", at_least=0.9000001)) == [False, False]
    assert passed(Gate("recall@4", at_least=0.8, confident=True)) == [True, False]
    assert passed(Gate("recall@4", at_most=0.97, confident=True)) == [True, False]
    assert passed(Gate("recall@4", at_least=0.8, at_most=0.85)) == [False, False]
    assert [v.run for v in verdicts(Gate("recall@4", 0.5, runs=("b",)), ROWS)] == ["b"]
    assert verdicts(Gate("recall@4", 0.5, column="lang", group="th"), ROWS) == []


def test_what_is_undefined_passes_no_gate():
    [verdict] = verdicts(Gate("recall@4", at_least=0.0), [Mean("a", "recall@4", math.nan)])
    assert not verdict.passed
    assert verdict.message == "recall@4 of a is undefined for every query"
    [verdict] = verdicts(Gate("recall@4", 0.1, confident=True), [Mean("a", "recall@4", 1.0, n=1)])
    assert verdict.message == "recall@4 of a is 1, without an interval"


def test_messages_name_value_interval_and_limit():
    [first, _] = verdicts(Gate("recall@4", at_least=0.95), ROWS)
    assert first.message == "recall@4 of a is 0.9, under 0.95"
    [first, _] = verdicts(Gate("recall@4", at_least=0.9, confident=True), ROWS)
    assert first.message == (
        "recall@4 of a is 0.9 (interval 0.85 to 0.95), the interval's lower end is under 0.9"
    )
    assert str(first.gate) == "recall@4 >= 0.9, confidently"


def test_gates_read_from_text_know_which_way_is_better():
    assert Gate.read("recall@10=95%") == Gate("recall@10", at_least=0.95)
    assert Gate.read("rde@10=0.01") == Gate("rde@10", at_most=0.01)
    with pytest.raises(InputError, match=r"is not MEASURE=VALUE"):
        Gate.read("recall@10")
    with pytest.raises(MeasureError):
        Gate.read("recal@10=1")


def test_a_limit_that_no_share_reaches_is_refused(result):
    with pytest.raises(InputError, match=r"95 is above 1, the most recall@10 can be") as raised:
        Gate.read("recall@10=95")
    assert raised.value.hint == "write 0.95"
    with pytest.raises(InputError, match=r"at_least: 95 is above 1"):
        assert_measure(result, "recall@4", at_least=95)
    # Counts and errors go beyond 1.
    assert Gate.read("NumRelRet=95").at_least == 95
    assert Gate.read("rde@10=2").at_most == 2


@pytest.fixture
def result():
    truth = sr.Run.from_dict({q: [f"{q}{n}" for n in range(4)] for q in "abc"}, k=4)
    # Four, two and one of four.
    found = {"a": ["a0", "a1", "a2", "a3"], "b": ["b0", "b1"], "c": ["c0", "x"]}
    columns = {"query_id": ["a", "b", "c"], "lang": ["en", "en", "th"]}
    return sr.evaluate(
        sr.Run.from_dict(found, k=4), "recall@4", truth=truth, columns=columns, by="lang"
    )


def test_assert_measure_passes_in_silence(result):
    assert_measure(result, "recall@4", at_least=0.58, at_most=0.59)
    assert_measure(result, "recall@4", by="lang", group="en", at_least=0.75)


def test_assert_measure_tells_value_interval_and_worst_queries(result):
    with pytest.raises(AssertionError) as error:
        assert_measure(result, "recall@4", at_least=0.95)
    lines = str(error.value).splitlines()
    # (1 + 1/2 + 1/4) / 3
    assert lines[0] == "recall@4 is 0.583333, under 0.95"
    low, high = result.interval("recall@4")
    assert lines[1] == f"  mean 0.583333 over 3 queries, interval {low:.6g} to {high:.6g}"
    assert lines[2] == "  33.3% of the queries at 1, 0.0% at 0"
    assert lines[4] == "    c  0.25  missed c1, c2, c3"
    assert lines[5] == "    b  0.5  missed b2, b3"
    with pytest.raises(AssertionError, match=r"lower end is under 0\.5"):
        assert_measure(result, "recall@4", at_least=0.5, confident=True)
    with pytest.raises(AssertionError, match=r"where lang is th is 0\.25, under"):
        assert_measure(result, "recall@4", at_least=0.5, by="lang", group="th")


def test_assert_measure_refuses_what_asserts_nothing(result):
    with pytest.raises(InputError, match="nothing to assert"):
        assert_measure(result, "recall@4")
    with pytest.raises(InputError, match="group is given alone"):
        assert_measure(result, "recall@4", at_least=1, group="th")
    with pytest.raises(InputError, match="no group 'fr' of 'lang'"):
        assert_measure(result, "recall@4", at_least=1, by="lang", group="fr")
    with pytest.raises(MeasureError, match="was not computed"):
        assert_measure(result, "recall@3", at_least=1)


def test_junit_ends_in_a_line_break(tmp_path):
    junit([Case("gates", "fine", "passed")], str(tmp_path / "out.xml"))
    assert (tmp_path / "out.xml").read_bytes().endswith(b"</testsuites>\n")


def test_junit_counts_by_suite_and_escapes(tmp_path):
    path = tmp_path / "out.xml"
    junit(
        [
            Case("gates", "a <b> & \x00ไทย", "failure", 'is "bad"\nvery'),
            Case("gates", "fine", "passed"),
            Case("steps", "truth", "error", "no file", 1.5),
            Case("steps", "scores", "skipped", "waits"),
        ],
        str(path),
    )
    gates, steps = ElementTree.parse(path).getroot()
    assert gates.attrib == {
        "name": "gates", "tests": "2", "failures": "1", "errors": "0", "skipped": "0",
    }  # fmt: skip
    assert gates[0].attrib["name"] == "a <b> & ไทย"
    assert gates[0].find("failure").attrib["message"] == 'is "bad" very'
    assert steps[0].attrib["time"] == "1.500"
    assert [case[0].tag for case in steps] == ["error", "skipped"]


def test_annotations_are_for_github_alone(monkeypatch, capsys):
    cases = [Case("gates", "g", "failure", "50%\nlost", line=7), Case("gates", "h", "passed")]
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    annotate(cases)
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    annotate(cases, "a,b:c.toml")
    annotate(cases)
    assert capsys.readouterr().err.splitlines() == [
        "::error file=a%2Cb%3Ac.toml,line=7::50%25%0Alost",
        "::error::50%25%0Alost",
    ]
