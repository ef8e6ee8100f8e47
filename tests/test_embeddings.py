"""Vectors of texts: endpoints, functions, models, and the file that keeps them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from json_server import Call, JsonServer, Refusal, slowly

import semrecall as sr
from semrecall.embeddings import Embedder, embed, open_embedder
from semrecall.embeddings.function import FunctionEmbedder
from semrecall.embeddings.openai import OpenAIEmbedder
from semrecall.embeddings.sentence_transformers import SentenceTransformersEmbedder
from semrecall.errors import EmbeddingFault, InputError, MissingExtra

TEXTS = ["red fox", "blue whale", "a", "red fox", "Fuchs & Wal"]


def vector_of(text: str) -> list[float]:
    """Three numbers that tell texts apart."""
    return [float(len(text)), float(sum(map(ord, text)) % 97), float(text.count("e")) - 0.5]


def endpoint(call: Call) -> Any:
    """`POST /v1/embeddings` as OpenAI documents it; out of order, which it allows."""
    assert (call.method, call.path) == ("POST", "/v1/embeddings")
    rows = [
        {"object": "embedding", "index": at, "embedding": vector_of(text)}
        for at, text in enumerate(call.body["input"])
    ]
    return {"object": "list", "data": rows[::-1], "model": call.body["model"], "usage": {}}


@pytest.fixture
def server() -> Iterator[JsonServer]:
    with JsonServer(endpoint) as started:
        yield started


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setattr("semrecall.web._PAUSES_SECONDS", (0.01, 0.01))


class Counting(Embedder):
    """Says how often it was asked about which texts."""

    name = "counting"

    def __init__(self, batch: int = 2, **identity: Any) -> None:
        self.asked: list[list[str]] = []
        self.batch = batch
        self._identity = identity

    @property
    def identity(self) -> dict[str, Any]:
        return {"embedder": "counting", **self._identity}

    def vectors(self, texts: Sequence[str]) -> np.ndarray:
        self.asked.append(list(texts))
        return np.array([vector_of(text) for text in texts], dtype=np.float32)


# -- embed ----------------------------------------------------------------------------------------


def test_each_distinct_text_is_embedded_once_and_all_come_back_in_order():
    counting = Counting()
    found = embed(TEXTS, counting)
    assert counting.asked == [["red fox", "blue whale"], ["a", "Fuchs & Wal"]]
    np.testing.assert_array_equal(found.matrix, [vector_of(text) for text in TEXTS])
    assert found.matrix.dtype == np.float32
    assert found.ids.array().tolist() == [0, 1, 2, 3, 4]


def test_ids_come_from_the_texts_or_are_given():
    assert embed({"q1": "a", "q2": "b"}, Counting()).ids.array().tolist() == ["q1", "q2"]
    assert embed(["a", "b"], Counting(), ids=["x", "y"]).ids.array().tolist() == ["x", "y"]


def test_vectors_can_be_scaled_to_length_one():
    found = embed(TEXTS, Counting(), normalize=True)
    np.testing.assert_allclose(np.linalg.norm(found.matrix, axis=1), 1, rtol=1e-6)


def test_what_is_kept_is_not_made_again(tmp_path: Path):
    cache = tmp_path / "kept.embeddings"
    first, second, third = Counting(), Counting(), Counting()
    before = embed(TEXTS[:3], first, cache=cache)
    assert len(first.asked) == 2
    # normalize is no part of what is kept.
    scaled = embed(TEXTS[:3], second, cache=cache, normalize=True)
    assert second.asked == []
    np.testing.assert_allclose(
        scaled.matrix,
        before.matrix / np.linalg.norm(before.matrix, axis=1, keepdims=True),
        rtol=1e-6,
    )
    embed(TEXTS, third, cache=cache)
    assert third.asked == [["Fuchs & Wal"]]


def test_another_model_has_vectors_of_its_own(tmp_path: Path):
    cache = tmp_path / "kept.embeddings"
    embed(["a"], Counting(model="one"), cache=cache)
    other = Counting(model="two")
    embed(["a"], other, cache=cache)
    assert other.asked == [["a"]]


def test_what_was_made_before_a_fault_is_kept(tmp_path: Path):
    class Failing(Counting):
        def vectors(self, texts: Sequence[str]) -> np.ndarray:
            if "a" in texts:
                raise EmbeddingFault("no more")
            return super().vectors(texts)

    cache = tmp_path / "kept.embeddings"
    with pytest.raises(EmbeddingFault, match="no more"):
        embed(TEXTS, Failing(), cache=cache)
    again = Counting()
    embed(TEXTS, again, cache=cache)
    assert again.asked == [["a", "Fuchs & Wal"]]


def test_a_file_that_is_no_cache(tmp_path: Path):
    path = tmp_path / "notes.txt"
    path.write_text("not a database at all, but long enough to look at" * 20)
    with pytest.raises(InputError, match=r"notes\.txt: cannot be used to keep vectors"):
        embed(["a"], Counting(), cache=path)
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as database:
        database.execute("CREATE TABLE vectors (name TEXT)")
    database.close()
    with pytest.raises(InputError, match="cannot be used"):
        embed(["a"], Counting(), cache=other)
    with pytest.raises(InputError, match="cannot be used"):
        embed(["a"], Counting(), cache=tmp_path / "no" / "folder")


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([], "no texts"),
        (["a", " "], "1 of 2 texts are empty and have no vector: 1"),
        (["a", 7], "text 1 is a int"),
    ],
)
def test_texts_that_have_no_vector(texts, message):
    with pytest.raises(InputError, match=message):
        embed(texts, Counting())


def test_progress_counts_distinct_texts(tmp_path: Path):
    seen: list[tuple[int, int]] = []
    cache = tmp_path / "kept.embeddings"
    embed(TEXTS[:1], Counting(), cache=cache)
    embed(TEXTS, Counting(), cache=cache, watch=lambda *at: seen.append(at))
    assert seen == [(1, 4), (3, 4), (4, 4)]


# -- openai ---------------------------------------------------------------------------------------


def test_an_endpoint_is_asked_in_batches(server):
    spec = f"openai?model=m&base_url={server.url}&batch=3&dimensions=3&prefix=query: "
    found = embed(TEXTS, spec)
    expected = [vector_of("query: " + text) for text in TEXTS]
    np.testing.assert_allclose(found.matrix, expected)
    bodies = [call.body for call in server.calls]
    assert sorted(len(body["input"]) for body in bodies) == [1, 3]
    assert {body["model"] for body in bodies} == {"m"}
    assert {body["dimensions"] for body in bodies} == {3}
    assert "authorization" not in server.calls[0].headers


def test_batches_go_out_together_but_not_all(server):
    server.answer = lambda call: (slowly(0.03, None)(call), endpoint(call))[1]
    spec = f"openai?model=m&base_url={server.url}/v1&batch=1&at_once=3"
    embed([f"text {i}" for i in range(9)], spec)
    assert server.most_in_flight == 3


def test_the_key_comes_from_the_environment(server, monkeypatch, tmp_path: Path):
    with pytest.raises(InputError, match="OPENAI_API_KEY is not set"):
        open_embedder("openai?model=m")
    monkeypatch.setenv("MY_KEY", "sesame-42")
    made = open_embedder(f"openai?model=m&base_url={server.url}&key_env=MY_KEY")
    embed(["a"], made, cache=tmp_path / "kept")
    assert server.calls[0].headers["authorization"] == "Bearer sesame-42"
    assert "sesame" not in json.dumps(made.identity) + made.name
    assert b"sesame" not in (tmp_path / "kept").read_bytes()
    server.faults = [Refusal(401, {"error": {"message": "Incorrect API key provided: sesame-42"}})]
    with pytest.raises(EmbeddingFault, match="Incorrect API key") as found:
        embed(["b"], made)
    assert "sesame" not in str(found.value)


def test_a_busy_endpoint_is_asked_again_when_it_says(server):
    busy = Refusal(429, {"error": {"message": "slow down"}}, **{"retry-after": "0"})
    server.faults = [busy, busy]
    assert len(embed(["a"], f"openai?model=m&base_url={server.url}")) == 1
    assert len(server.calls) == 3
    server.faults = [busy] * 9
    with pytest.raises(EmbeddingFault, match="429: slow down"):
        embed(["b"], f"openai?model=m&base_url={server.url}")
    assert len(server.calls) == 3 + 6


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (Refusal(429, {"error": {"message": "You exceeded your current quota"}}), "quota"),
        (Refusal(404, {"error": "model 'm' not found"}), "404: model 'm' not found"),
        (Refusal(400, {"error": {"message": "maximum context length"}}), "maximum context"),
        ("page", "502: Bad gateway"),
    ],
)
def test_a_refusal_is_final(server, fault, message):
    server.faults = [fault]
    with pytest.raises(EmbeddingFault, match=message):
        embed(["a"], f"openai?model=m&base_url={server.url}")
    assert len(server.calls) == 1


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        ({"object": "list"}, "without a list 'data'"),
        ({"data": [{"index": 0, "embedding": [1.0]}]}, "2 texts and replied with 1 vectors"),
        ({"data": [{"index": 0, "embedding": [1.0]}] * 2}, "replied with 2 vectors"),
        ({"data": [{"index": 0, "embedding": [1.0]}, {"index": 1, "embedding": [1.0, 2.0]}]},
         "no matrix of numbers"),
        ({"data": [{"index": 0, "embedding": [1.0]}, {"index": 1, "embedding": None}]},
         "no matrix of numbers|NaN"),
        ({"data": [{"index": 0, "embedding": "AAAA"}, {"index": 1, "embedding": "AAAA"}]},
         "no matrix of numbers"),
    ],
)  # fmt: skip
def test_replies_that_are_no_vectors(server, reply, message):
    server.answer = lambda _: reply
    with pytest.raises(EmbeddingFault, match=message):
        embed(["a", "b"], f"openai?model=m&base_url={server.url}")


def test_a_model_that_changes_its_dimension(server, tmp_path: Path):
    spec = f"openai?model=m&base_url={server.url}"
    embed(["a"], spec, cache=tmp_path / "kept")
    server.answer = lambda _: {"data": [{"index": 0, "embedding": [1.0, 2.0]}]}
    with pytest.raises(EmbeddingFault, match="2 and 3 dimensions"):
        embed(["a", "b"], spec, cache=tmp_path / "kept")


def test_endpoints_have_names():
    made = OpenAIEmbedder("m", base_url="http://127.0.0.1:1")
    assert made.name == "m at http://127.0.0.1:1/v1"


# -- functions and models -------------------------------------------------------------------------


class Model:
    def encode(self, texts: list[str], **_: Any) -> np.ndarray:
        return np.array([vector_of(text) for text in texts])


class LangChainEmbeddings:
    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [vector_of(text) for text in texts]


@pytest.mark.parametrize(
    "function", [lambda texts: list(map(vector_of, texts)), Model(), LangChainEmbeddings()]
)
def test_functions_and_models_of_frameworks(function):
    found = embed(TEXTS, FunctionEmbedder(function))
    np.testing.assert_allclose(found.matrix, [vector_of(text) for text in TEXTS])


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda texts: np.ones(3), r"shape \(3,\) for 1 texts"),
        (lambda texts: np.ones((2, 3)), r"shape \(2, 3\) for 1 texts"),
        (lambda texts: [[1.0, float("nan")]], "NaN or infinity for the text 'a'"),
        (lambda texts: 1 / 0, "ZeroDivisionError"),
        (lambda texts: [["x"]], "no matrix of numbers"),
    ],
)
def test_functions_that_fail(function, message):
    with pytest.raises(EmbeddingFault, match=message):
        embed(["a"], FunctionEmbedder(function))


def test_a_zero_vector_has_no_direction():
    zero = FunctionEmbedder(lambda texts: np.zeros((len(texts), 2)))
    assert not embed(["a"], zero).matrix.any()
    with pytest.raises(EmbeddingFault, match="'a' is zero"):
        embed(["a"], zero, normalize=True)


def test_a_function_that_changed_is_asked_again(tmp_path: Path):
    cache = tmp_path / "kept"
    first = embed(["a"], FunctionEmbedder(lambda texts: np.full((len(texts), 2), 1.0)), cache=cache)
    second = embed(
        ["a"], FunctionEmbedder(lambda texts: np.full((len(texts), 2), 2.0)), cache=cache
    )
    assert first.matrix[0, 0] == 1
    assert second.matrix[0, 0] == 2


def test_an_object_with_encode_is_a_model():
    made = SentenceTransformersEmbedder(Model(), prefix="query: ")
    np.testing.assert_allclose(embed(["a"], made).matrix, [vector_of("query: a")])


def test_sentence_transformers_is_an_extra():
    try:
        import sentence_transformers  # noqa: F401
    except ModuleNotFoundError:
        with pytest.raises(MissingExtra, match="sentence_transformers"):
            embed(["a"], "sentence-transformers?model=some/model")
    else:
        pytest.skip("sentence-transformers is installed")


@pytest.mark.environment("crossencoder")
def test_a_model_of_sentence_transformers(tmp_path: Path):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    tokenizer = Tokenizer(WordLevel({"[UNK]": 0, "red": 1, "fox": 2}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    weights = np.array([[0, 0, 1], [1, 0, 0], [0, 1, 0]], dtype=np.float32)
    SentenceTransformer(
        modules=[StaticEmbedding(tokenizer, embedding_weights=weights)], device="cpu"
    ).save_pretrained(str(tmp_path / "model"))
    found = embed(
        ["red fox", "fox", "whale"], f"sentence-transformers?model={tmp_path / 'model'}&device=cpu"
    )
    # A mean over words: (1, 0, 0) and (0, 1, 0) give (1/2, 1/2, 0).
    np.testing.assert_allclose(found.matrix, [[0.5, 0.5, 0], [0, 1, 0], [0, 0, 1]])
    with pytest.raises(InputError, match="cannot be loaded"):
        embed(["a"], f"sentence-transformers?model={tmp_path / 'gone'}")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("opennai?model=m", "did you mean openai"),
        ("openai", "needs model"),
        ("openai?model=m&bass_url=x", "did you mean base_url"),
        ("openai?model=m&base_url=http://127.0.0.1:1&batch=0", "batch is '0'"),
        ("openai?model=m&base_url=http://127.0.0.1:1&timeout=x", "timeout is 'x'"),
        ("openai?model=m&base_url=nowhere", "is no address"),
        ("python:json:dump_all", "has no 'dump_all'"),
        ("python:json:decoder", "is no function"),
    ],
)
def test_specs_that_cannot_work(spec, message):
    with pytest.raises(InputError) as found:
        open_embedder(spec)
    assert message in str(found.value)


# -- the command line -----------------------------------------------------------------------------


def test_a_second_run_costs_nothing(semrecall_main, tmp_path: Path, server):
    (tmp_path / "texts.jsonl").write_text(
        "".join(json.dumps({"id": f"q{i}", "text": t}) + "\n" for i, t in enumerate(TEXTS))
    )
    command = (
        "embed", "texts.jsonl", "--with", f"openai?model=m&base_url={server.url}",
        "-o", "queries.parquet",
    )  # fmt: skip
    status, out, err = semrecall_main(*command)
    assert (status, out) == (0, ""), err
    assert "queries.parquet" in err
    found = sr.read("queries.parquet")
    assert found.ids.array().tolist() == [f"q{i}" for i in range(5)]
    np.testing.assert_allclose(found.require_matrix(), [vector_of(text) for text in TEXTS])
    assert len(server.calls) == 1
    status, _, err = semrecall_main(*command, "--normalize")
    assert status == 0, err
    assert len(server.calls) == 1
    assert (tmp_path / "semrecall.embeddings").exists()
    status, _, _ = semrecall_main(*command, "--no-cache")
    assert len(server.calls) == 2


def test_queries_are_embedded_while_searching(semrecall_main, tmp_path: Path, server):
    base = np.array([vector_of(text) for text in TEXTS], dtype=np.float32)
    np.save(tmp_path / "base.npy", base)
    (tmp_path / "eval.jsonl").write_text(
        '{"text": "blue whale", "grades": {"1": 1}}\n{"text": "a", "grades": {"2": 1}}\n'
    )
    status, _, err = semrecall_main(
        "search", "exact", "--base", "base.npy", "--space", "l2", "--eval-set", "eval.jsonl",
        "--embed", f"openai?model=m&base_url={server.url}", "-k", 2, "-o", "run.parquet",
    )  # fmt: skip
    assert status == 0, err
    run = sr.read("run.parquet")
    assert run.query_ids.tolist() == [1, 2]
    assert [row[0] for row in run.ids] == [1, 2]


def test_faults_are_explained(semrecall_main, tmp_path: Path, server):
    (tmp_path / "texts.jsonl").write_text('{"id": 1, "text": "a"}\n')
    status, _, err = semrecall_main(
        "embed", "texts.jsonl", "--with", "openai?model=m", "-o", "queries.npy"
    )
    assert status == 2
    assert "OPENAI_API_KEY is not set" in err
    server.faults = [Refusal(404, {"error": "model 'm' not found"})]
    status, _, err = semrecall_main(
        "embed", "texts.jsonl", "--with", f"openai?model=m&base_url={server.url}",
        "-o", "queries.npy",
    )  # fmt: skip
    assert status == 2
    assert "model 'm' not found" in err
    assert "Traceback" not in err
    assert not (tmp_path / "queries.npy").exists()
