"""Every line of the judging cases is a test: here, or where its id stands in another test."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import semrecall as sr
from semrecall.cli.tables import json_text
from semrecall.judges import Document, Question, open_judge
from semrecall.judges.function import FunctionJudge
from semrecall.judging import judge

HERE = Path(__file__).parent


@pytest.fixture
def case(shared: Callable[[str], Path]) -> Callable[[str], dict[str, Any]]:
    rows = shared("cases/judging.jsonl").read_text(encoding="utf-8").splitlines()
    cases = {row["id"]: row for row in map(json.loads, rows)}
    return lambda name: cases[name]


def test_every_line_is_a_case(shared: Callable[[str], Path]) -> None:
    rows = shared("cases/judging.jsonl").read_text(encoding="utf-8").splitlines()
    tests = (
        "\n".join(
            path.read_text(encoding="utf-8")
            for path in HERE.glob("test_*.py")
            if path.name != Path(__file__).name
        )
        + Path(__file__).read_text(encoding="utf-8").partition("# -- cases")[2]
    )
    named = set(re.findall(r"\bJ\d\d\b", tests))
    assert {json.loads(row)["id"] for row in rows} <= named


# -- cases ----------------------------------------------------------------------------------------


def test_an_id_twice_counts_once(case: Callable[[str], dict[str, Any]]) -> None:
    given = case("J25")
    assert (given["setup"], given["input"]) == ("retrieved [5,5,8]", "truth {5,9}")
    run = sr.Run.from_arrays([[5, 5, 8]], space="ip")
    truth = sr.Run.from_arrays([[5, 9]], space="ip")
    judged = sr.Judgments.from_dict({0: {5: 1, 9: 1}})
    result = sr.evaluate(run, ["recall@2", "R@3", "P@2"], truth=truth, judgments=judged)
    assert "1 repeated result dropped" in str(result)
    assert "recall 0.5" in given["expected"]
    assert result.mean("recall@2") == 0.5
    assert result.mean("R@3") == 0.5
    # Precision is over the list of distinct ids, [5, 8].
    assert result.mean("P@2") == 0.5


def counts_words(query: str, document: str) -> int:
    return int(any(word in document for word in query.split()))


def test_stuffed_words_lower_the_score_and_warn(case: Callable[[str], dict[str, Any]]) -> None:
    given = case("J29")
    assert "run warns under a floor" in given["expected"]
    with pytest.warns(sr.SemrecallWarning, match="of its canaries"):
        done = judge([("q", 1)], FunctionJudge(counts_words), corpus={1: "a passage"},
                     queries={"q": "red fox"}, canaries=1)  # fmt: skip
    assert done.canaries is not None
    assert done.canaries.kinds["stuffed"] == (0, 1)
    assert done.canaries.right < 0.8
    strict = FunctionJudge(lambda query, document: int(document.startswith(query)), name="strict")
    kept = judge([("q", 1)], strict, corpus={1: "a passage"}, queries={"q": "red fox"}, canaries=1)
    assert kept.canaries is not None
    assert kept.canaries.right == 1


TRUTH = sr.Run.from_arrays(
    [list(range(20))], scores=[[1 - i / 100 for i in range(20)]], query_ids=["q"], space="ip"
)


def test_no_relevant_neighbour_is_undefined(case: Callable[[str], dict[str, Any]]) -> None:
    given = case("J31")
    assert (given["setup"], given["input"]) == ("k=20, all labels 0", "query q")
    labels = sr.Judgments.from_dict({"q": dict.fromkeys(range(20), 0), "r": {0: 1}})
    truth = sr.Run.from_arrays([list(range(20)), list(range(20))], query_ids=["q", "r"], space="ip")
    result = sr.evaluate(truth, ["srecall@20"], truth=truth, judgments=labels)
    assert result.mean("srecall@20") == 1
    assert np.isnan(result["srecall@20"].values).tolist() == [True, False]
    assert sum(result.undefined("srecall@20").values()) == 1
    assert "NaN" not in json_text(result.to_dict())


def test_unresolved_neighbours_give_bounds(case: Callable[[str], dict[str, Any]]) -> None:
    given = case("J32")
    assert given["setup"] == "20 neighbours, 3 unresolved"
    said: dict[int, float | None] = dict.fromkeys(range(17), 1)
    unresolved = FunctionJudge(lambda _, document: said.get(int(document)), name="partly")
    done = judge(TRUTH, unresolved, corpus={n: str(n) for n in range(20)}, queries={"q": "x"})
    assert done.statuses == {"settled": 17, "skipped": 3}
    found = sr.Run.from_arrays([[*range(10), 17]], query_ids=["q"], space="ip")
    result = sr.evaluate(found, ["srecall@20"], truth=TRUTH, judgments=done.judgments)
    # Over the judged: 10 of 17. Worst: the found unresolved one is not relevant, the two missed
    # are: 10 of 19. Best: the reverse, 11 of 18.
    assert result.mean("srecall@20") == pytest.approx(10 / 17)
    text = str(result)
    for value in (10 / 19, 11 / 18):
        assert f"{value:.4f}" in text
    assert "judged share 0.8500" in text


def test_opening_a_judge_needs_no_network() -> None:
    pytest.importorskip("aiohttp", reason="needs the extra llm")
    made = open_judge("llm?model=m&base_url=http://127.0.0.1:9/v1")
    assert made.key(Question("q", 1, "a", Document("b")))
