"""Python functions as systems: what they take, what they may return, and what goes wrong."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import semrecall as sr
from semrecall.errors import InputError, MismatchError, SemrecallWarning, SystemFault
from semrecall.systems.answers import matrix_of, row_of
from semrecall.systems.function import FunctionSystem
from semrecall.systems.knobs import parse_knobs
from semrecall.testing import check_system

RNG = np.random.default_rng(3)
BASE = RNG.standard_normal((200, 8)).astype(np.float32)
NAN = float("nan")


def similarities(queries: np.ndarray, vectors: np.ndarray, space: str) -> np.ndarray:
    """Larger is nearer, whatever the space."""
    if space == "l2":
        return -np.linalg.norm(queries[:, None] - vectors[None], axis=2)
    if space == "cosine":
        vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        queries = queries / np.linalg.norm(queries, axis=1, keepdims=True)
    return queries @ vectors.T


def index(vectors: np.ndarray, ids: np.ndarray, space: str) -> Callable[..., Any]:
    """What a user's own index looks like: it is built, and it returns a function."""

    def search(queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        scores = similarities(queries, vectors, space)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        found = np.take_along_axis(scores, order, 1)
        return ids[order], -found if space == "l2" else found

    return search


def nearest(vector: np.ndarray, k: int = 10) -> list[tuple[int, float]]:
    scores = BASE @ vector
    return [(int(i), float(scores[i])) for i in np.argsort(-scores)[:k]]


# -- the contract ---------------------------------------------------------------------------------


@pytest.mark.parametrize("space", ["ip", "cosine", "l2"])
def test_a_function_that_builds_keeps_the_contract(space):
    check_system(lambda: FunctionSystem(build=index), space=space, exact=True)


def test_a_function_that_is_not_built_keeps_the_contract():
    check_system(FunctionSystem(nearest, space="ip"), base=BASE, exact=True)


def test_the_contract_finds_a_function_that_loses_the_nearest():
    lossy = FunctionSystem(lambda vector, k: nearest(vector, k + 1)[1:], space="ip")
    with pytest.raises(AssertionError, match="misses"):
        check_system(lossy, base=BASE, exact=True)


def test_the_contract_finds_squared_distances():
    def search(vector: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        squared = ((BASE - vector) ** 2).sum(axis=1)
        order = np.argsort(squared)[:k]
        return order, squared[order]

    with pytest.raises(AssertionError, match="a distance, not squared"):
        check_system(FunctionSystem(search, space="l2"), space="l2", base=BASE)
    check_system(FunctionSystem(search, unit="squared-l2"), space="l2", base=BASE, exact=True)


# -- what may be returned -------------------------------------------------------------------------


@dataclass
class Document:
    """As LangChain has it."""

    page_content: str
    metadata: dict[str, Any] = field(default_factory=dict)
    id: str | None = None


@dataclass
class Node:
    """As LlamaIndex has it."""

    node_id: str
    metadata: dict[str, Any] = field(default_factory=dict)
    ref_doc_id: str = ""


@dataclass
class NodeWithScore:
    node: Node
    score: float | None = None


UUID = uuid.UUID("12345678-1234-5678-1234-567812345678")


@pytest.mark.parametrize(
    ("found", "row"),
    [
        (None, ([], None)),
        ([], ([], None)),
        (["a", "b"], (["a", "b"], None)),
        (np.array([3, 1]), ([3, 1], None)),
        ([UUID], ([str(UUID)], None)),
        ([None, 4], (["", 4], None)),
        ([("a", 0.5), ("b", np.float32(0.25))], (["a", "b"], [0.5, 0.25])),
        ((("a", 0.5), ("b", 0.25)), (["a", "b"], [0.5, 0.25])),
        ((["a", "b"], [0.5, 0.25]), (["a", "b"], [0.5, 0.25])),
        ((np.array([7]), np.array([0.5])), ([7], [0.5])),
        ([{"id": 7, "score": 0.5}, {"_id": "b", "_score": 0.25}], ([7, "b"], [0.5, 0.25])),
        ({"documents": [{"id": 7}]}, ([7], None)),
        ([Document("text", {"id": "m"}, "own")], (["m"], None)),
        ([Document("text", {}, "own")], (["own"], None)),
        ([(Document("text", {"doc_id": "d"}), 0.5)], (["d"], [0.5])),
        ([NodeWithScore(Node("n1"), 0.5), NodeWithScore(Node("n2", {"id": "x"}))],
         (["n1", "x"], [0.5, NAN])),
    ],
)  # fmt: skip
def test_what_a_function_may_return(found, row):
    ids, scores = row_of(found)
    assert ids == row[0]
    assert (scores is None) == (row[1] is None)
    if scores is not None:
        np.testing.assert_array_equal(scores, row[1])


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ("a text", "a str was returned"),
        (7, "a int was returned"),
        ([True], "True was returned as an id"),
        ([1.5], "a float without an id"),
        ([("a", "b", "c")], "a tuple without an id"),
        ([("a", [1])], "expected a number"),
        ((["a", "b"], [0.5]), "2 ids and 1 scores"),
        ([Document("text", {"source": "s"})], "source"),
    ],
)
def test_what_it_may_not(found, message):
    with pytest.raises(SystemFault) as fault:
        row_of(found)
    assert message in str(fault.value)


def test_the_key_of_the_id_can_be_named():
    assert row_of([Document("t", {"id": "m", "source": "s.md"})], "source") == (["s.md"], None)
    assert row_of([NodeWithScore(Node("n", {}, "doc"), 1)], "ref_doc_id") == (["doc"], [1.0])


def test_rows_of_any_length_become_a_matrix():
    # Cut to k = 2; the last row has one result, the middle one none.
    ids, scores = matrix_of([([4, 5, 6], [3.0, 2.0, 1.0]), ([], None), ([7], [9.0])], 2)
    np.testing.assert_array_equal(ids, [[4, 5], [-1, -1], [7, -1]])
    np.testing.assert_array_equal(scores, [[3, 2], [NAN, NAN], [9, NAN]])
    ids, scores = matrix_of([(["a", 5], None)], 3)
    assert ids.tolist() == [["a", "5"]]
    assert scores is None
    ids, _ = matrix_of([(["17", "4"], None)], 3)
    assert ids.tolist() == [[17, 4]]


# -- what it takes --------------------------------------------------------------------------------


def by_name(text): ...
def by_plain_query(query): ...
def by_type(thing: str): ...
def by_list(things: list[str]): ...
def by_vector(embedding): ...
def by_array(query: np.ndarray): ...
def by_matrix(queries: np.ndarray): ...
def by_nothing(thing): ...


@pytest.mark.parametrize(
    ("function", "takes"),
    [
        (by_name, "text"),
        (by_plain_query, "text"),
        (by_type, "text"),
        (by_list, "texts"),
        (by_vector, "vector"),
        (by_array, "vector"),
        (by_matrix, "vectors"),
    ],
)
def test_the_first_parameter_tells_what_it_takes(function, takes):
    assert FunctionSystem(function).describe()["takes"] == takes


def test_a_parameter_that_tells_nothing_has_to_be_explained():
    with pytest.raises(InputError, match="'thing'") as found:
        FunctionSystem(by_nothing)
    assert "takes=text" in str(found.value)
    assert FunctionSystem(by_nothing, takes="texts").by_text


@pytest.mark.parametrize("name", ["k", "top_k", "limit", "n_results"])
def test_k_goes_where_it_is_wanted(name):
    seen: list[dict[str, int]] = []
    scope: dict[str, Any] = {"seen": seen}
    exec(f"def find(text, {name}=3):\n    seen.append({name})\n    return list('abcdef')", scope)
    ids, _ = FunctionSystem(scope["find"]).search(np.ones((1, 1)), 4, texts=["x"])
    assert seen == [4]
    assert ids.tolist() == [list("abcd")]


def test_filters_go_to_the_function_and_none_is_left_out():
    seen: list[Any] = []

    def find(text: str, filter: Any = "nothing") -> list[str]:  # noqa: A002
        seen.append(filter)
        return ["a"]

    system = FunctionSystem(find)
    assert system.filtered
    sr.search(
        system, None, 1, texts=["x", "y"], filters=[{"lang": "de"}, None],
        repeats=1, latency_queries=0,
    )  # fmt: skip
    assert seen[-2:] == [{"lang": "de"}, "nothing"]
    with pytest.raises(InputError, match="takes no filters"):
        sr.search(FunctionSystem(by_name), None, 1, texts=["x"], filters=[{}])


def test_settings_are_parameters_of_the_function():
    seen: list[int] = []

    def find(vector: np.ndarray, k: int, ef: int = 10) -> list[int]:
        seen.append(ef)
        return list(range(k))

    system = FunctionSystem(find, knobs="ef:1:500:log:default=10")
    (knob,) = system.knobs
    assert (knob.low, knob.high, knob.scale, knob.default, knob.whole) == (1, 500, "log", 10, True)
    system.search(BASE[:1], 3, ef=99)
    system.search(BASE[:1], 3)
    assert seen == [99, 10]
    with pytest.raises(InputError, match="ef is 501"):
        system.search(BASE[:1], 3, ef=501)
    with pytest.raises(InputError, match="no parameter 'nprobe'"):
        FunctionSystem(find, knobs="nprobe:1:10")
    assert system.snippet({"ef": 40}).endswith("(query, k=k, ef=40)")


@pytest.mark.parametrize(
    "text",
    [
        "ef",
        "ef:1",
        "ef:x:9",
        "1f:1:9",
        "ef:9:1",
        "ef:1:9:loud",
        "ef:1:9,ef:2:3",
        "ef:1:inf",
        "m:a|a",
        "m:a|",
        "m:a|b:log",
        "m:a|b:default=c",
    ],
)
def test_knobs_that_cannot_be_read(text):
    with pytest.raises(InputError):
        parse_knobs(text)


def test_knobs_have_kinds_and_fractions():
    share, links = parse_knobs("share:0.1:1.0, m:4:64:build")
    assert (share.whole, share.kind, links.kind) == (False, "search", "build")
    (mode,) = parse_knobs("order:Relaxed|strict:default=strict")
    assert (mode.words, mode.default, mode.kind) == (("relaxed", "strict"), "strict", "search")


class LangChainRetriever:
    """Asked with `invoke`, as LangChain's are."""

    def invoke(self, input: str, config: Any = None, **more: Any) -> list[Document]:  # noqa: A002
        return [Document(input, {"id": f"{input}-{i}"}) for i in range(3)]


class LlamaIndexRetriever:
    """Asked with `retrieve`, as LlamaIndex's are."""

    def retrieve(self, str_or_query_bundle: Any) -> list[NodeWithScore]:
        return [NodeWithScore(Node(f"{str_or_query_bundle}-{i}"), 1 - i / 10) for i in range(3)]


def test_retrievers_of_frameworks_are_one_line():
    run, cost = sr.search(FunctionSystem(LangChainRetriever()), None, 10, texts=["a", "b"])
    assert [row.tolist() for row in run.ids] == [["a-0", "a-1", "a-2"], ["b-0", "b-1", "b-2"]]
    assert run.scores is None
    assert cost.latency_seconds is not None
    run, _ = sr.search(FunctionSystem(LlamaIndexRetriever()), None, 2, texts={"q": "a"})
    assert run.query_ids.tolist() == ["q"]
    np.testing.assert_allclose(run.scores[0], [1.0, 0.9])


def test_all_at_once_as_pairs_of_columns_or_as_rows():
    def find(texts: list[str]) -> Any:
        return [[(f"{t}1", 0.5)] for t in texts]

    ids, scores = FunctionSystem(find).search(np.ones((2, 1)), 5, texts=["a", "b"])
    assert ids.tolist() == [["a1"], ["b1"]]
    assert scores is not None
    assert scores.tolist() == [[0.5], [0.5]]
    with pytest.raises(SystemFault, match="asked 2 queries and returned 1 rows"):
        FunctionSystem(lambda texts: [["a"]], takes="texts").search(
            np.ones((2, 1)), 5, texts=["a", "b"]
        )


# -- scores ---------------------------------------------------------------------------------------


def test_scores_of_no_space_that_rise_are_left_out_with_a_warning():
    system = FunctionSystem(lambda text: [("a", 0.1), ("b", 0.7)])
    with pytest.warns(SemrecallWarning, match="they are left out"):
        ids, scores = system.search(np.ones((1, 1)), 5, texts=["x"])
    assert ids.tolist() == [["a", "b"]]
    assert scores is None


def test_scores_in_another_unit_are_converted():
    system = FunctionSystem(lambda text: [("a", 0.1), ("b", 0.7)], unit="cosine-distance")
    _, scores = system.search(np.ones((1, 1)), 5, texts=["x"])
    assert system.space.name == "cosine"
    np.testing.assert_allclose(scores, [[0.9, 0.3]])
    with pytest.raises(InputError, match="of the space cosine, not l2"):
        FunctionSystem(by_name, unit="cosine-distance", space="l2")
    with pytest.raises(InputError, match="did you mean squared-l2"):
        FunctionSystem(by_name, unit="squared_l2")


def test_scores_of_a_space_that_stand_the_wrong_way_round():
    system = FunctionSystem(lambda vector: [(1, 0.1), (2, 0.7)], space="ip")
    with pytest.raises(SystemFault, match="must fall"):
        system.search(BASE[:1], 5)


# -- what goes wrong ------------------------------------------------------------------------------


def test_an_exception_names_function_and_query():
    def find(text: str) -> list[str]:
        if text == "bad":
            raise KeyError("no index")
        return ["a"]

    with pytest.raises(SystemFault, match=r"find failed on query 1: KeyError: 'no index'"):
        FunctionSystem(find).search(np.ones((2, 1)), 1, texts=["good", "bad"])


def test_a_coroutine_is_refused():
    async def find(text: str) -> list[str]:
        return ["a"]

    with pytest.raises(SystemFault, match="is asynchronous"):
        FunctionSystem(find).search(np.ones((1, 1)), 1, texts=["x"])


def test_what_cannot_be_told_is_said():
    system = FunctionSystem(by_name)
    for what in ("space", "dimension", "ntotal"):
        with pytest.raises(InputError, match="does not"):
            getattr(system, what)
    with pytest.raises(InputError, match="searched as it is"):
        system.build(BASE, "ip")
    with pytest.raises(InputError, match="names no function"):
        sr.open_system("python:my_module")
    with pytest.raises(InputError, match="a function that searches, or one that builds"):
        FunctionSystem()
    with pytest.raises(InputError, match="is no function"):
        FunctionSystem(object())


def test_texts_and_vectors_are_asked_for():
    with pytest.raises(InputError, match="is asked in text"):
        sr.search(FunctionSystem(by_name), BASE[:2], 5)
    with pytest.raises(InputError, match="is asked with vectors"):
        sr.search(FunctionSystem(nearest), None, 5, texts=["x"])
    with pytest.raises(InputError, match="3 texts for 2 queries"):
        sr.search(FunctionSystem(by_name), BASE[:2], 5, texts=["a", "b", "c"])
    with pytest.raises(MismatchError, match="1 query of 2 have no text"):
        sr.search(FunctionSystem(by_name), BASE[:2], 5, texts={"0": "a"})


# -- the command line -----------------------------------------------------------------------------

MODULE = """
CORPUS = {"d1": "red fox", "d2": "blue whale", "d3": "red whale"}

def retrieve(query: str, k: int = 2, filter=None):
    words = set(query.split())
    hits = [(len(words & set(text.split())), name) for name, text in CORPUS.items()
            if filter is None or filter in text]
    return [(name, float(n)) for n, name in sorted(hits, key=lambda h: (-h[0], h[1])) if n][:k]
"""
EVALUATION = """\
{"text": "red fox", "grades": {"d1": 2, "d3": 1}}
{"text": "red whale", "filter": "blue", "grades": {"d2": 1}}
"""


def test_a_function_and_an_evaluation_set_are_two_commands(semrecall_main, tmp_path: Path):
    (tmp_path / "my_search_app.py").write_text(MODULE)
    (tmp_path / "eval.jsonl").write_text(EVALUATION)
    status, _, err = semrecall_main(
        "search", "python:my_search_app:retrieve", "--eval-set", "eval.jsonl", "-k", 3,
        "-o", "run.parquet", "--repeats", 1,
    )  # fmt: skip
    assert status == 0, err
    run = sr.read("run.parquet")
    assert run.query_ids.tolist() == [1, 2]
    assert [row.tolist() for row in run.ids] == [["d1", "d3"], ["d2", ""]]
    status, out, err = semrecall_main(
        "score", "run.parquet", "--judgments", "eval.jsonl", "-m", "R@2", "-m", "P@2",
        "--format", "json",
    )  # fmt: skip
    assert status == 0, err
    # Query 1 finds both of its two, query 2 its one: R@2 is 1; P@2 is (2/2 + 1/2) / 2.
    means = {row["measure"]: row["mean"] for row in json.loads(out)["summary"]}
    assert means == {"R@2": 1.0, "P@2": 0.75}


def test_a_wrong_function_is_explained(semrecall_main, tmp_path: Path):
    (tmp_path / "my_search_app2.py").write_text(MODULE)
    (tmp_path / "eval.jsonl").write_text(EVALUATION)
    status, _, err = semrecall_main(
        "search", "python:my_search_app2:retreive", "--eval-set", "eval.jsonl"
    )
    assert status == 2
    assert "did you mean retrieve?" in err
    status, _, err = semrecall_main(
        "search", "python:my_search_app2:retrieve", "--queries", "eval.jsonl"
    )
    assert status == 2
    assert "no column of vectors" in err
    assert "Traceback" not in err


TUNED = """
import time

def retrieve(query: str, k: int = 10, depth: int = 5):
    time.sleep(depth * 0.0002)
    return [f"{query}-{i}" for i in range(min(depth, k))]
"""


def test_a_function_of_texts_is_tuned_and_swept(semrecall_main, tmp_path: Path):
    (tmp_path / "my_tuned_app.py").write_text(TUNED)
    # Eight documents matter to every query: depth 8 is the least that finds 90% of them.
    (tmp_path / "eval.jsonl").write_text(
        "".join(
            json.dumps({"text": f"q{n}", "grades": {f"q{n}-{i}": 1 for i in range(8)}}) + "\n"
            for n in range(40)
        )
    )
    spec = "python:my_tuned_app:retrieve?knobs=depth:1:20"
    status, out, err = semrecall_main(
        "tune", spec, "--eval-set", "eval.jsonl", "--target", "R@10 >= 0.9",
        "--minimize", "latency_seconds",
    )  # fmt: skip
    assert status == 0, err
    # Which of the deeper ones is fastest is the machine's business.
    chosen = re.search(r"retrieve\(query, k=k, depth=(\d+)\)", out)
    assert chosen is not None, out
    assert int(chosen[1]) >= 8
    status, out, err = semrecall_main(
        "sweep", spec, "--set", "depth=4,8", "--eval-set", "eval.jsonl", "-m", "R@10",
        "--format", "csv",
    )  # fmt: skip
    assert status == 0, err
    assert "0.5" in out
