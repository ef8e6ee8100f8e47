"""The demonstration data: the corpus of this machine, its embedding, the questions, the labels."""

from __future__ import annotations

import csv
import signal
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import semrecall.demo
from semrecall.demo.corpus import corpus
from semrecall.demo.lsa import embed

FOLDER = Path(semrecall.demo.__file__).parent
JUDGED_DEPTH = 20


def rows(name: str) -> list[dict[str, str]]:
    with (FOLDER / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", strict=True))


@pytest.fixture(scope="module")
def questions() -> list[dict[str, str]]:
    return rows("questions.tsv")


@pytest.fixture(scope="module")
def labels() -> list[dict[str, str]]:
    return rows("labels.tsv")


@pytest.fixture(scope="module")
def documents() -> tuple[list[str], list[str]]:
    return corpus()


@pytest.fixture(scope="module")
def vectors(
    documents: tuple[list[str], list[str]], questions: list[dict[str, str]]
) -> tuple[np.ndarray, np.ndarray]:
    return embed(documents[1], [question["text"] for question in questions])


@pytest.fixture(scope="module")
def nearest(
    documents: tuple[list[str], list[str]],
    questions: list[dict[str, str]],
    vectors: tuple[np.ndarray, np.ndarray],
) -> dict[str, list[str]]:
    base, queries = (matrix.astype(np.float64) for matrix in vectors)
    order = np.argsort(-(queries @ base.T), axis=1, kind="stable")[:, :JUDGED_DEPTH]
    return {
        question["query_id"]: [documents[0][position] for position in row]
        for question, row in zip(questions, order, strict=True)
    }


def test_questions_are_complete(questions: list[dict[str, str]]) -> None:
    ids = [question["query_id"] for question in questions]
    assert ids == [f"q{number:02d}" for number in range(1, 73)]
    assert len({question["text"] for question in questions}) == len(questions)
    topics = Counter(question["topic"] for question in questions)
    assert set(topics) == {"text", "files", "collections", "dates", "numpy", "system"}
    assert min(topics.values()) >= 8


def test_labels_are_well_formed(
    labels: list[dict[str, str]], questions: list[dict[str, str]]
) -> None:
    assert {label["grade"] for label in labels} == {"0", "1", "2"}
    pairs = [(label["query_id"], label["doc_id"]) for label in labels]
    assert len(set(pairs)) == len(pairs)
    assert {query for query, _ in pairs} == {question["query_id"] for question in questions}
    assert all(label["reason"] or label["grade"] == "0" for label in labels)
    assert all('"' not in value for label in labels for value in label.values())


def test_most_questions_have_twenty_labels(labels: list[dict[str, str]]) -> None:
    counts = Counter(label["query_id"] for label in labels)
    assert sum(count >= JUDGED_DEPTH for count in counts.values()) >= 60


def test_corpus_is_large_sorted_and_unique(documents: tuple[list[str], list[str]]) -> None:
    ids, texts = documents
    assert len(ids) == len(texts) > 5000
    assert ids == sorted(set(ids))
    assert all(text.strip() for text in texts)
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize(
    "name",
    [
        "sorted",
        "open",
        "str.split",
        "dict.get",
        "os.path.join",
        "os.listdir",
        "json.dumps",
        "collections.OrderedDict",
        "collections.Counter.most_common",
        "io.IOBase.readline",
        "concurrent.futures.ThreadPoolExecutor",
        "random.shuffle",
        "numpy.mean",
        "numpy.linalg.norm",
        "numpy.random.Generator.normal",
    ],
)
def test_corpus_uses_the_public_name(name: str, documents: tuple[list[str], list[str]]) -> None:
    assert name in documents[0]


def test_corpus_has_no_private_or_foreign_names(documents: tuple[list[str], list[str]]) -> None:
    parts = {part for name in documents[0] for part in name.split(".")}
    assert not [part for part in parts if part.startswith("_")]
    # Second names of one object, and modules that must not be imported.
    tops = {name.split(".")[0] for name in documents[0]}
    assert not tops & {"posixpath", "ntpath", "antigravity", "this", "idlelib", "test", "scipy"}


def test_corpus_is_quiet_and_repeatable(
    documents: tuple[list[str], list[str]], capfd: pytest.CaptureFixture[str]
) -> None:
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    threads = threading.active_count()
    assert corpus() == documents
    assert capfd.readouterr() == ("", "")
    assert threading.active_count() == threads
    assert handlers == {number: signal.getsignal(number) for number in signal.valid_signals()}


def test_embedding_has_unit_rows(vectors: tuple[np.ndarray, np.ndarray]) -> None:
    for matrix in vectors:
        assert matrix.dtype == np.float32
        assert matrix.shape[1] == 384
        # No question may be all unknown words, which would give a zero row.
        np.testing.assert_allclose(np.linalg.norm(matrix, axis=1), 1.0, atol=1e-5)


def test_embedding_is_repeatable(
    documents: tuple[list[str], list[str]],
    questions: list[dict[str, str]],
    vectors: tuple[np.ndarray, np.ndarray],
) -> None:
    again = embed(documents[1], [question["text"] for question in questions])
    for first, second in zip(vectors, again, strict=True):
        np.testing.assert_allclose(first, second, atol=1e-6)


def test_query_of_unknown_words_is_a_zero_row(documents: tuple[list[str], list[str]]) -> None:
    base, queries = embed(documents[1][:500], ["qwertzuiop", "the of and"], dimensions=32)
    assert base.shape == (500, 32)
    assert not queries.any()


@pytest.mark.parametrize("dimensions", [0, 3, 100_000])
def test_dimensions_that_do_not_fit(dimensions: int) -> None:
    with pytest.raises(ValueError, match=rf"found dimensions={dimensions}\b.*expected"):
        embed(["a.b\nsort a list", "a.c\nsort a tuple", "a.d\nsort a list"], ["sort"], dimensions)


def test_right_answers_are_near(nearest: dict[str, list[str]]) -> None:
    assert "str.strip" in nearest["q01"][:3]
    assert "sorted" in nearest["q27"][:5]
    assert "list.sort" in nearest["q27"][:5]
    assert "numpy.linalg.inv" in nearest["q48"][:3]


def test_nearest_entries_are_judged(
    nearest: dict[str, list[str]], labels: list[dict[str, str]]
) -> None:
    judged = {(label["query_id"], label["doc_id"]) for label in labels}
    pairs = [(query, name) for query, names in nearest.items() for name in names]
    # All of them where the labels were made; another version of Python or numpy has other entries.
    assert np.mean([pair in judged for pair in pairs]) >= 0.85


def test_labelled_entries_exist(
    documents: tuple[list[str], list[str]], labels: list[dict[str, str]]
) -> None:
    known = set(documents[0])
    # Some labels are for entries that only other versions of Python have.
    assert np.mean([label["doc_id"] in known for label in labels]) >= 0.95
