"""Exact search by maximum similarity: against fractions, and the same however it is computed."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import semrecall as sr
from semrecall.data import MultiVectors, Run, Vectors
from semrecall.errors import FormatError, InputError, MismatchError, SemrecallWarning
from semrecall.exact import maxsim, rescore, search
from semrecall.exact.maxsim import maxsim_pair_scores, search_documents
from semrecall.formats.multivectors import holds_documents, read_multivectors
from semrecall.space import IP, ordered_sum


def slow(base: list[Any], query: Any) -> list[Fraction | None]:
    """The score of each document as a fraction; None for one without vectors."""

    def dot(a: Any, b: Any) -> Fraction:
        return sum(
            (Fraction(float(x)) * Fraction(float(y)) for x, y in zip(a, b, strict=True)),
            Fraction(0),
        )

    return [
        sum((max(dot(q, x) for x in document) for q in query), Fraction(0))
        if len(document)
        else None
        for document in base
    ]


def nearest(scores: list[Fraction | None], k: int) -> list[int]:
    found = sorted((-score, row) for row, score in enumerate(scores) if score is not None)
    last = found[min(k, len(found)) - 1][0] if found else 0
    return [row for score, row in found if score <= last]


def ragged(rng: Any, n: int, d: int, *, most: int, whole: bool = False) -> list[Any]:
    lengths = rng.integers(1, most + 1, n)
    if whole:
        return [rng.integers(-3, 4, (int(length), d)).astype(np.float32) for length in lengths]
    return [rng.standard_normal((int(length), d)).astype(np.float32) for length in lengths]


# -- scores ----------------------------------------------------------------------------------------


def test_by_hand() -> None:
    # Query vectors (1, 0) and (0, 2). Document 0 has (3, 0) and (0, 1): 3 + 2 = 5.
    # Document 1 has (2, 2): 2 + 4 = 6. Document 2 has (-1, -1): -1 - 2 = -3.
    base = [[[3.0, 0.0], [0.0, 1.0]], [[2.0, 2.0]], [[-1.0, -1.0]]]
    run = search_documents(base, [[[1.0, 0.0], [0.0, 2.0]]], 3)
    assert run.ids[0].tolist() == [1, 0, 2]
    assert run.scores is not None
    assert run.scores[0].tolist() == [6.0, 5.0, -3.0]
    assert str(run.space) == "maxsim"
    assert run.space is not None
    assert run.space.higher_is_nearer


@given(data=st.data())
def test_whole_numbers_against_fractions(data: st.DataObject) -> None:
    """Whole numbers have exact sums, so scores and ties must be those of the fractions."""
    d = data.draw(st.integers(1, 3))
    value = st.integers(-2, 2).map(float)
    vector = st.lists(value, min_size=d, max_size=d)
    base = data.draw(st.lists(st.lists(vector, max_size=4), min_size=1, max_size=12))
    queries = data.draw(st.lists(st.lists(vector, min_size=1, max_size=3), min_size=1, max_size=3))
    k = data.draw(st.integers(1, 13))
    documents = [np.array(document).reshape(-1, d) for document in base]
    if not any(len(document) for document in documents):
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *a, **o: None)
        run = search_documents(documents, queries, k)
    assert run.scores is not None
    for number, query in enumerate(queries):
        if not np.any(query):
            assert run.reason(number) == "zero query vector"
            continue
        scores = slow(base, query)
        assert run.ids[number].tolist() == nearest(scores, k)
        assert run.scores[number].tolist() == [float(scores[i] or 0) for i in run.ids[number]]


@given(seed=st.integers(0, 2**32 - 1), dtype=st.sampled_from(["float64", "float32", "float16"]))
def test_near_ties_are_settled_right(seed: int, dtype: str) -> None:
    """Documents that differ in one unit in the last place: float32 products cannot tell them."""
    rng = np.random.default_rng(seed)
    one = rng.standard_normal((3, 8)).astype(dtype)
    base = []
    for _ in range(20):
        document = one.copy()
        at = rng.integers(3), rng.integers(8)
        document[at] = np.nextafter(document[at], np.array(rng.choice([-9, 9]), dtype=dtype))
        base.append(document)
    query = rng.standard_normal((2, 8)).astype(dtype)
    run = search_documents(base, [query], 5)
    terms = [[max(IP.exact_scores(document, q)) for q in query] for document in base]
    scores = ordered_sum(np.array(terms))
    order = np.lexsort((np.arange(20), -scores))
    length = int(np.count_nonzero(scores >= scores[order[4]]))
    assert run.ids[0].tolist() == order[:length].tolist()
    assert run.flat_scores is not None
    assert run.flat_scores.tolist() == scores[order[:length]].tolist()


@pytest.mark.parametrize("scale", [1e-30, 1e-9, 1e9, 1e25, 1e120])
def test_sizes_beyond_float32(scale: float) -> None:
    rng = np.random.default_rng(2)
    base = [x.astype(np.float64) * scale for x in ragged(rng, 40, 5, most=4)]
    queries = [x.astype(np.float64) for x in ragged(rng, 3, 5, most=3)]
    run = search_documents(base, queries, 4)
    for number, query in enumerate(queries):
        assert run.ids[number].tolist() == nearest(slow(base, query), 4)


def test_one_vector_a_document_is_inner_product() -> None:
    rng = np.random.default_rng(3)
    base, queries = rng.standard_normal((500, 12)), rng.standard_normal((7, 12))
    single = search(base, queries, 9, "ip")
    several = search_documents(base[:, None], queries[:, None], 9)
    assert several.documents == single.documents
    assert np.array_equal(several.flat_scores, single.flat_scores)  # type: ignore[arg-type]


# -- the same however it is computed ---------------------------------------------------------------


@pytest.mark.parametrize("whole", [False, True])
def test_same_bits_by_blocks_threads_and_memory(
    whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(4)
    base = ragged(rng, 700, 6, most=30, whole=whole)
    base[13] = rng.integers(-3, 4, (900, 6)).astype(np.float32)  # longer than a block
    queries = MultiVectors.of(ragged(rng, 23, 6, most=9, whole=whole))
    plain = search_documents(base, queries, 12)
    for rows, cells, scores in ((64, 64 * 5, 300), (7, 7, 23), (2048, 1 << 14, 10_000)):
        monkeypatch.setattr(maxsim, "_ROWS", rows)
        monkeypatch.setattr(maxsim, "_CELLS", cells)
        monkeypatch.setattr(maxsim, "_SCORES", scores)
        other = search_documents(base, queries, 12, threads=3, memory=1 << 20)
        assert other.documents == plain.documents
        assert np.array_equal(other.flat_scores, plain.flat_scores)  # type: ignore[arg-type]
        assert other.identity == plain.identity
    for number in (0, 22):
        expected = nearest(slow(base, queries.document(number)), 12)
        assert plain.ids[number].tolist() == expected


def test_filters_and_ids() -> None:
    rng = np.random.default_rng(5)
    base = ragged(rng, 60, 4, most=5)
    names = [f"d{number}" for number in range(60)]
    documents = MultiVectors.of(base, ids=names)
    queries = ragged(rng, 4, 4, most=3)
    mask = rng.random((4, 60)) < 0.3
    run = search_documents(documents, queries, 5, allowed=mask)
    for number, query in enumerate(queries):
        scores = [s if m else None for s, m in zip(slow(base, query), mask[number], strict=True)]
        assert list(run.ids[number]) == [names[row] for row in nearest(scores, 5)]


# -- what has no score -----------------------------------------------------------------------------


def test_empty_documents_are_named_and_never_neighbours() -> None:
    base = [np.ones((2, 3)), [], np.full((1, 3), -1.0), []]
    with pytest.warns(SemrecallWarning, match="2 documents without a vector left out: b, d"):
        run = search_documents(MultiVectors.of(base, ids=list("abcd")), [np.ones((1, 3))], 4)
    assert list(run.ids[0]) == ["a", "c"]


def test_no_documents_no_queries() -> None:
    one = MultiVectors.of(np.ones((1, 2, 3)))
    none = MultiVectors.of(np.empty((0, 3)), offsets=[0])
    empty = MultiVectors.of(np.empty((0, 3)), offsets=[0, 0])
    assert search_documents(none, one, 2).offsets.tolist() == [0, 0]
    assert search_documents(one, none, 2).offsets.tolist() == [0]
    with pytest.warns(SemrecallWarning, match="without a vector"):
        assert search_documents(empty, one, 2).offsets.tolist() == [0, 0]
    with pytest.warns(SemrecallWarning, match="query without a vector"):
        assert search_documents(one, empty, 2).offsets.tolist() == [0, 0]


def test_nan_is_named() -> None:
    base = [np.ones((2, 3)), np.array([[1.0, 1, 1], [np.nan, 0, 0]]), np.ones((1, 3))]
    with pytest.warns(SemrecallWarning, match="1 base row left out, with NaN or infinity: 1"):
        run = search_documents(base, [np.ones((1, 3))], 3)
    assert run.ids[0].tolist() == [0, 2]


def test_nan_is_counted_without_queries_too() -> None:
    base = [np.ones((2, 3)), np.full((1, 3), np.nan)]
    nobody = MultiVectors.of(np.empty((0, 3)), offsets=[0])
    with pytest.warns(SemrecallWarning, match="1 base row left out, with NaN or infinity: 1"):
        assert search_documents(base, nobody, 1).identity["left_out_rows"] == 1


def test_the_same_vectors_cut_elsewhere_are_other_documents() -> None:
    matrix = np.arange(24, dtype=np.float32).reshape(8, 3)
    one = MultiVectors.of(matrix, offsets=[0, 2, 4, 8])
    two = MultiVectors.of(matrix, offsets=[0, 3, 4, 8])
    assert one.fingerprint != two.fingerprint
    known, other = (search_documents(one, some, 1).identity["queries"] for some in (one, two))
    assert known["digest"] != other["digest"]


def test_queries_without_neighbours() -> None:
    queries = [np.ones((1, 3)), [], np.zeros((2, 3)), np.full((1, 3), np.inf)]
    with pytest.warns(SemrecallWarning, match="without neighbours"):
        run = search_documents([np.ones((2, 3))], queries, 1)
    assert [run.reason(number) for number in range(4)] == [
        "", "query without a vector", "zero query vector", "NaN or infinite query vector",
    ]  # fmt: skip


def test_what_is_refused() -> None:
    single = np.ones((3, 2))
    with pytest.raises(InputError, match=r"have shape \(3, 2\); expected \(documents"):
        sr.truth(single, single, 1, "maxsim")
    with pytest.raises(InputError, match="expected single vectors"):
        sr.truth(MultiVectors.of(single[:, None]), single, 1, "ip")
    with pytest.raises(InputError, match="maxsim compares documents of several vectors"):
        search(single, single, 1, "maxsim")
    with pytest.raises(InputError, match="maxsim knows no engine or checkpoint"):
        sr.truth(single[None], single[None], 1, "maxsim", engine="processes", checkpoint="x")
    with pytest.raises(MismatchError, match="have 2 dimensions, those of the queries 3"):
        search_documents(single[None], np.ones((1, 1, 3)), 1)
    with pytest.raises(InputError, match="document 1 has shape"):
        MultiVectors.of([np.ones((2, 3)), np.ones((2, 4))])
    with pytest.raises(InputError, match="offsets go from 0 to 2; expected to rise from"):
        MultiVectors.of(single, offsets=[0, 2])
    with pytest.raises(InputError, match="whose products float64 cannot hold"):
        search_documents([np.full((1, 2), 1e200)], [np.full((1, 2), 1e200)], 1)
    with pytest.raises(InputError, match="check does not look into documents"):
        sr.check(base=single[None], queries=single[None], space="maxsim")


def test_normalised_documents_sum_cosines() -> None:
    documents = MultiVectors.of([[[3.0, 4.0], [0.0, 0.0]], [[5.0, 0.0]]]).normalised()
    assert documents.matrix.tolist() == np.float32([[0.6, 0.8], [0, 0], [1, 0]]).tolist()
    assert documents.lengths.tolist() == [2, 1]


# -- everything else a run does --------------------------------------------------------------------


def test_evaluate_rescore_and_tolerance() -> None:
    rng = np.random.default_rng(6)
    base, queries = ragged(rng, 90, 5, most=4), ragged(rng, 8, 5, most=3)
    exact = sr.truth(base, queries, 6, "maxsim")
    wrong = Run.from_arrays(np.tile(np.arange(6), (8, 1)), space="maxsim")
    result = sr.evaluate(
        {"exact": exact, "wrong": wrong}, ["recall@6", "trecall(x=5%)@6", "erecall(eps=10%)@6"],
        truth=exact, base=base, queries=queries,
    )  # fmt: skip
    assert result.mean("recall@6", run="exact") == 1.0
    assert result.mean("recall@6", run="wrong") < 0.5
    scored = rescore(wrong, base, queries, "maxsim")
    assert scored.scores is not None
    for number, query in enumerate(queries):
        expected = [float(score or 0) for score in slow(base[:6], query)]
        assert scored.scores[number].tolist() == pytest.approx(expected, rel=1e-12)
    report = sr.tolerance(exact, 6, base=base, queries=queries)
    assert "compares no single vectors" in str(report.to_dicts())
    with pytest.raises(MismatchError, match="the base vectors are not those of the"):
        sr.evaluate(exact, ["recall@6"], truth=exact, base=base[::-1], queries=queries)


def test_pairs_without_score_are_nan() -> None:
    base = MultiVectors.of([np.ones((1, 2)), [], np.full((1, 2), np.nan)])
    queries = MultiVectors.of([np.ones((2, 2)), []])
    scores = maxsim_pair_scores(base, np.array([0, 1, 2, 0]), queries, np.array([0, 0, 0, 1]))
    assert scores[0] == 4.0
    assert np.isnan(scores[1:]).all()


# -- files -----------------------------------------------------------------------------------------


def _written(folder: Path, documents: MultiVectors, kind: str) -> Path:
    path = folder / f"documents.{kind}"
    if kind == "folder":
        path.mkdir()
        np.save(path / "vectors.npy", documents.matrix)
        np.save(path / "offsets.npy", documents.offsets)
        (path / "ids.txt").write_text("\n".join(documents.ids.strings()), encoding="utf-8")
    elif kind == "npz":
        np.savez(path, vectors=documents.matrix, offsets=documents.offsets,
                 ids=np.array(list(documents.ids.strings())))  # fmt: skip
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq

        lists = [documents.document(number).tolist() for number in range(len(documents))]
        column = pa.array(lists, pa.list_(pa.list_(pa.float32())))
        pq.write_table(pa.table({"id": list(documents.ids.strings()), "vectors": column}), path)
    return path


@pytest.mark.parametrize("kind", ["folder", "npz", "parquet"])
def test_files(tmp_path: Path, kind: str) -> None:
    rng = np.random.default_rng(7)
    documents = MultiVectors.of([*ragged(rng, 5, 3, most=4), []], ids=list("กขฃคฅฆ"))
    path = _written(tmp_path, documents, kind)
    assert holds_documents(path)
    back = read_multivectors(path)
    assert list(back.ids) == list("กขฃคฅฆ")
    assert np.array_equal(back.matrix, documents.matrix)
    assert back.offsets.tolist() == documents.offsets.tolist()
    assert back.fingerprint == documents.fingerprint


def test_faulty_files(tmp_path: Path) -> None:
    np.save(tmp_path / "flat.npy", np.ones((3, 2)))
    (tmp_path / "bad.npz").write_bytes(b"PK\x03\x04 no archive")
    np.savez(tmp_path / "lacking.npz", vectors=np.ones((3, 2)))
    (tmp_path / "empty").mkdir()
    for name, message in (
        ("flat.npy", r"has shape \(3, 2\)"),
        ("bad.npz", "cannot be read as .npz"),
        ("lacking.npz", "holds vectors"),
        ("empty", "has no vectors.npy"),
        ("nowhere.npz", "no such file"),
    ):
        with pytest.raises(FormatError, match=message):
            read_multivectors(tmp_path / name)


def test_at_the_command_line(
    tmp_path: Path, semrecall_main: Callable[..., tuple[int, str, str]]
) -> None:
    rng = np.random.default_rng(8)
    documents = MultiVectors.of(ragged(rng, 30, 4, most=5), ids=[f"d{i}" for i in range(30)])
    _written(tmp_path, documents, "folder")
    np.save(tmp_path / "queries.npy", rng.standard_normal((5, 2, 4)))
    status, _, err = semrecall_main(
        "truth", "documents.folder", "queries.npy", "-k", 3, "--space", "maxsim", "-o", "t.parquet"
    )
    assert status == 0, err
    status, out, err = semrecall_main(
        "score", "t.parquet", "--truth", "t.parquet", "-m", "recall@3",
        "--base", "documents.folder", "--queries", "queries.npy",
    )  # fmt: skip
    assert status == 0, err
    assert "1.0" in out
    status, _, err = semrecall_main(
        "truth", "queries.npy", "queries.npy", "-k", 9, "--space", "maxsim", "-o", "t.parquet"
    )
    assert status == 2
    assert "k is 9, but the base has 5 rows" in err


def test_vectors_are_not_documents() -> None:
    with pytest.raises(InputError, match="Vectors holds single vectors"):
        MultiVectors.of(Vectors.of(np.ones((2, 2))))
