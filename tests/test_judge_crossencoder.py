"""A cross-encoder as a judge: thresholds from labels, and the real library on a tiny model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semrecall.errors import InputError, JudgeFault
from semrecall.judges.crossencoder import CrossEncoderJudge, calibrated
from semrecall.judging import judge


class Overlap:
    """Counts the words a query and a document share."""

    def predict(self, texts: list[tuple[str, str]]) -> list[float]:
        return [float(len(set(q.split()) & set(d.split()))) for q, d in texts]


QUERIES = {"q": "red fox den"}
CORPUS = {1: "red fox den", 2: "red fox", 3: "red", 4: "cow"}
PAIRS = [("q", n) for n in CORPUS]


def test_scores_are_cut_into_grades() -> None:
    done = judge(PAIRS, CrossEncoderJudge(Overlap(), thresholds=[1, 3], relevant=2),
                 corpus=CORPUS, queries=QUERIES)  # fmt: skip
    # A score that equals a threshold reaches it: 3 words -> 2; 2 and 1 word -> 1; none -> 0.
    assert done.judgments.grades.tolist() == [2, 1, 1, 0]
    assert done.judgments.details["reason"].tolist()[1] == "score 2"
    assert done.relevant == 2


def test_thresholds_are_needed_and_rise() -> None:
    with pytest.raises(InputError, match="has no thresholds"):
        judge(PAIRS, CrossEncoderJudge(Overlap()), corpus=CORPUS, queries=QUERIES)
    for cuts in ([2, 1], [1, 1], [float("nan")]):
        with pytest.raises(InputError, match="expected rising numbers"):
            CrossEncoderJudge(Overlap(), thresholds=cuts)


def test_another_threshold_is_another_judge() -> None:
    one, two = (CrossEncoderJudge(Overlap(), thresholds=cut) for cut in (1, 2))
    assert one.fingerprint != two.fingerprint
    assert one.with_thresholds([2]).fingerprint == two.fingerprint


def test_scores_that_are_none_are_no_label() -> None:
    class Broken(Overlap):
        def predict(self, texts: list[tuple[str, str]]) -> list[float]:
            return [float("nan"), *super().predict(texts)[1:]]

    done = judge(PAIRS, CrossEncoderJudge(Broken(), thresholds=1), corpus=CORPUS, queries=QUERIES)
    assert done.statuses == {"settled": 3, "illegal": 1}

    class Wide(Overlap):
        def predict(self, texts: list[tuple[str, str]]) -> Any:
            return np.zeros((len(texts), 3))

    with pytest.raises(JudgeFault, match=r"shape \(4, 3\) for 4 pairs"):
        judge(PAIRS, CrossEncoderJudge(Wide(), thresholds=1), corpus=CORPUS, queries=QUERIES)


def test_the_cut_stands_midway_at_the_highest_kappa() -> None:
    # Between 2 and 4 all agree but one of six: kappa = (5/6 - 1/2) / (1 - 1/2) = 2/3.
    assert calibrated([0, 1, 2, 4, 5, 6], [0, 1, 0, 1, 1, 1]) == (3.0,)
    assert calibrated([0, 1, 2, 3], [0, 0, 1, 2]) == (1.5, 2.5)


@given(st.lists(st.tuples(st.integers(-5, 5), st.booleans()), min_size=2, max_size=30))
def test_no_cut_has_a_higher_kappa(rows: list[tuple[int, bool]]) -> None:
    scores, labels = np.array([float(s) for s, _ in rows]), np.array([y for _, y in rows])

    def kappa(cut: float) -> float:
        called = scores >= cut
        agreed = (called == labels).mean()
        chance = called.mean() * labels.mean() + (1 - called.mean()) * (1 - labels.mean())
        return float("-inf") if chance == 1 else float((agreed - chance) / (1 - chance))

    if labels.all() or not labels.any() or len(set(scores)) == 1:
        with pytest.raises(InputError, match="cannot place the thresholds"):
            calibrated(scores, labels)
        return
    [cut] = calibrated(scores, labels)
    between = [s + 0.5 for s in range(-6, 6)]
    assert kappa(cut) == pytest.approx(max(kappa(c) for c in between if 0 < (scores >= c).sum()
                                           < len(scores)))  # fmt: skip


@pytest.mark.environment("crossencoder")
def test_the_real_library_on_a_tiny_model(tmp_path: Path, semrecall_main: Any) -> None:
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizer

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "red", "fox", "den", "cow"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(words), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, num_labels=1,
    )  # fmt: skip
    BertForSequenceClassification(config).save_pretrained(tmp_path / "model")
    BertTokenizer(str(tmp_path / "vocab.txt")).save_pretrained(tmp_path / "model")
    for name, texts in (("queries", QUERIES), ("docs", CORPUS)):
        rows = [json.dumps({"id": n, "text": t}) for n, t in texts.items()]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows))
    (tmp_path / "people.txt").write_text("q 0 1 1\nq 0 4 0\n")
    arguments = ("judge", "people.txt", "--corpus", "docs.jsonl", "--queries", "queries.jsonl",
                 "--judge", "crossencoder", "--model", "model", "--canaries", "0")  # fmt: skip
    status, out, err = semrecall_main(*arguments, "--calibrate-with", "people.txt")
    assert status == 0, err
    assert "thresholds from 2 labels: --threshold" in err
    grades = {json.loads(line)["doc_id"]: json.loads(line)["grade"] for line in out.splitlines()}
    assert sorted(grades.values()) in ([0, 1], [1, 1], [0, 0])


def test_an_image_is_not_scored_as_an_empty_text() -> None:
    corpus = {1: ("", "http://127.0.0.1/a.png"), 2: ("red fox", None)}
    done = judge([("q", 1), ("q", 2)], CrossEncoderJudge(Overlap(), thresholds=1, batch=1),
                 corpus=corpus, queries=QUERIES)  # fmt: skip
    assert done.statuses == {"skipped": 1, "settled": 1}
