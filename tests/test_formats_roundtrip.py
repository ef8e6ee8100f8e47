"""Every format gives back what was written to it."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from semrecall import formats
from semrecall.data import Cost, Judgments, Run, Scores, Vectors
from semrecall.data.ids import ids
from semrecall.errors import SemrecallWarning
from semrecall.formats.table import FORMATS
from semrecall.space import COSINE, IP, L2

settings.register_profile("files", max_examples=25, deadline=None, derandomize=True)
FEW = settings(settings.get_profile("files"), suppress_health_check=list(HealthCheck))


@pytest.fixture(autouse=True, scope="module")
def no_waiting_for_the_disk() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@contextmanager
def new_file(name: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory) / name


def quietly(function: Any, *args: Any, **kwargs: Any) -> Any:
    """The formats say what they cannot keep; here that is known."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SemrecallWarning)
        return function(*args, **kwargs)


# -- strategies -----------------------------------------------------------------------------

WORDS = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cs", "Cc", "Z"]), min_size=1, max_size=6
)
ANY_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=6)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def id_lists(draw: Any, texts: Any, count: int) -> list[Any]:
    """Distinct ids: small or 64-bit integers, or strings, or both."""
    kinds = [st.integers(0, 2**63 - 1).filter(lambda i: i < 10**18), texts, st.integers(0, 40)]
    one = draw(st.sampled_from([*kinds, st.one_of(*kinds)]))
    found = draw(st.lists(one, min_size=count, max_size=count, unique_by=str))
    # "-3" and the like are missing by definition.
    assume(not ids(found).missing.any() and ids(found).first_duplicate() is None)
    return found


@st.composite
def runs(draw: Any, texts: Any = ANY_TEXT, *, scored: bool | None = None, gaps: bool = True) -> Run:
    n = draw(st.integers(0, 4))
    pool = draw(id_lists(texts, 7))
    rows = [draw(st.lists(st.sampled_from(range(7)), unique=True, max_size=5)) for _ in range(n)]
    documents = ids([pool[i] for row in rows for i in row])
    offsets = np.cumsum([0, *map(len, rows)])
    scores = None
    if draw(st.booleans()) if scored is None else scored:
        values = st.floats() if gaps else FLOATS
        scores = np.array(draw(st.lists(values, min_size=len(documents), max_size=len(documents))))
    if gaps and len(documents):
        lost = draw(st.lists(st.booleans(), min_size=len(documents), max_size=len(documents)))
        codes = np.where(lost, -1, documents.codes)
        documents = type(documents)(codes, documents.names)
    return Run(
        ids(draw(id_lists(texts, n))),
        documents,
        offsets,
        scores,
        draw(st.sampled_from([None, IP, COSINE, L2])),
        draw(st.sampled_from([None, 1, 100])),
        draw(st.text(max_size=5)),
        draw(st.sampled_from(["exact", "index"])),
        tuple(draw(st.lists(st.text(max_size=3), min_size=n, max_size=n))),
        {"rows": n, "filter": None, "hash": "ab"} if draw(st.booleans()) else {},
    )


@st.composite
def judgment_sets(draw: Any, texts: Any = ANY_TEXT, *, gaps: bool = True) -> Judgments:
    queries, documents = draw(id_lists(texts, 3)), draw(id_lists(texts, 4))
    pairs = draw(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), unique=True, min_size=1))
    m = len(pairs)
    grades = np.array(draw(st.lists(FLOATS, min_size=m, max_size=m)))
    details: dict[str, Any] = {}
    if gaps:
        grades[np.array(draw(st.lists(st.booleans(), min_size=m, max_size=m)))] = np.nan
        details["reason"] = np.array(["" if g == g else "refused" for g in grades], dtype=object)
        details["cost"] = np.arange(m) / 8
    return Judgments(
        ids([queries[q] for q, _ in pairs]),
        ids([documents[d] for _, d in pairs]),
        grades,
        details,
        draw(st.text(max_size=4)),
    )


@st.composite
def matrices(draw: Any, dtype: str) -> np.ndarray:
    n, d = draw(st.integers(0, 5)), draw(st.integers(1, 4))
    seed = draw(st.integers(0, 2**32 - 1))
    raw = np.random.default_rng(seed).integers(0, 256, n * d * np.dtype(dtype).itemsize)
    matrix = raw.astype(np.uint8).view(dtype).reshape(n, d)
    return np.where(np.isfinite(matrix), matrix, 0).astype(dtype)


def assert_same_run(found: Run, expected: Run) -> None:
    assert found.queries == expected.queries
    assert found.documents == expected.documents
    np.testing.assert_array_equal(found.offsets, expected.offsets)
    if expected.flat_scores is None:
        assert found.flat_scores is None
    else:
        np.testing.assert_array_equal(found.flat_scores, expected.flat_scores)


# -- vectors --------------------------------------------------------------------------------

STORED = {
    "npy": ["float64", "float32", "float16", "int8", "uint8"],
    "parquet": ["float64", "float32", "float16", "int8", "uint8"],
    "hdf5": ["float64", "float32", "float16", "int8", "uint8"],
    "fvecs": ["float32"],
    "bvecs": ["uint8"],
    "fbin": ["float32"],
    "f16bin": ["float16"],
    "u8bin": ["uint8"],
    "i8bin": ["int8"],
}


@pytest.mark.parametrize(("name", "dtype"), [(n, t) for n, types in STORED.items() for t in types])
@FEW
@given(data=st.data())
def test_vectors(name: str, dtype: str, data: Any) -> None:
    matrix = data.draw(matrices(dtype))
    # A TEXMEX file has no header: without rows it is empty, and empty files are refused.
    assume(len(matrix) or name not in ("fvecs", "bvecs"))
    with new_file(f"v.{name}") as path:
        formats.write(Vectors.of(matrix), path)
        found = formats.read_vectors(path)
        assert found.dtype == np.dtype(dtype)
        assert found.require_matrix().tobytes() == matrix.tobytes()
        assert found.require_matrix().shape == matrix.shape


def test_every_format_of_vectors_is_tested() -> None:
    assert set(STORED) == {name for name, f in FORMATS.items() if "vectors" in f.write}


@FEW
@given(data=st.data())
def test_vectors_with_ids_in_parquet(data: Any) -> None:
    matrix = data.draw(matrices("float32"))
    names = data.draw(id_lists(ANY_TEXT, len(matrix)))
    with new_file("v.parquet") as path:
        formats.write(Vectors.of(matrix, ids=names), path)
        assert formats.read_vectors(path).ids == ids(names)


# -- runs -----------------------------------------------------------------------------------


@FEW
@given(run=runs())
def test_run_in_parquet_is_exact(run: Run) -> None:
    with new_file("r.parquet") as path:
        formats.write(run, path)
        found = formats.read(path)
    assert_same_run(found, run)
    for name in ("space", "k", "name", "scores_by", "reasons", "identity"):
        assert getattr(found, name) == getattr(run, name)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".csv.gz", ".tsv.zst"])
@FEW
@given(run=runs(gaps=False))
def test_run_in_csv(suffix: str, run: Run) -> None:
    assume((np.diff(run.offsets) > 0).all())
    with new_file(f"r{suffix}") as path:
        formats.write(run, path)
        assert_same_run(quietly(formats.read_run, path), run)


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz"])
@FEW
@given(run=runs())
def test_run_in_json_lines(suffix: str, run: Run) -> None:
    if run.flat_scores is not None:
        # NaN with an id is an error in a ranked file unless nan="last"; see test_formats_ranked.
        scores = np.where(np.isnan(run.flat_scores) & ~run.documents.missing, 0, run.flat_scores)
        run = run.replace(flat_scores=scores)
    with new_file(f"r{suffix}") as path:
        formats.write(run, path)
        assert_same_run(quietly(formats.read_run, path), run if len(run) else Run.from_dict({}))


@FEW
@given(run=runs(WORDS, scored=True, gaps=False))
def test_run_in_trec(run: Run) -> None:
    assume((np.diff(run.offsets) > 0).all() and len(run))
    if run.space is L2:
        run = run.replace(flat_scores=np.abs(run.flat_scores))
    # What a TREC file means: by score, best first, then by document id, descending.
    rows = np.repeat(np.arange(len(run)), np.diff(run.offsets))
    keys = run.flat_scores if run.space is L2 else -run.flat_scores
    names = run.documents.strings()
    by_name = sorted(range(len(rows)), key=lambda i: names[i].encode(), reverse=True)
    order = np.array(sorted(by_name, key=lambda i: (rows[i], keys[i])), dtype=np.int64)
    expected = run.replace(documents=run.documents[order], flat_scores=run.flat_scores[order])
    for suffix in (".trec", ".run.zst"):
        with new_file(f"r{suffix}") as path:
            quietly(formats.write, run, path)
            found = quietly(formats.read_run, path, space=run.space)
        assert_same_run(found, expected)


@pytest.mark.parametrize("name", ["npy", "ivecs", "ibin"])
@FEW
@given(
    matrix=st.integers(1, 4).flatmap(
        lambda k: st.lists(
            st.lists(st.integers(-1, 2**31 - 1), min_size=k, max_size=k), min_size=1, max_size=4
        )
    )
)
def test_id_matrix(name: str, matrix: list[list[int]]) -> None:
    run = Run.from_arrays(np.array(matrix))
    with new_file(f"r.{name}") as path:
        formats.write(run, path)
        assert_same_run(formats.read(path), run)


@pytest.mark.parametrize("space", [IP, COSINE, L2])
@pytest.mark.parametrize("name", ["bigann", "bigann-range", "hdf5"])
@FEW
@given(data=st.data())
def test_ground_truth(name: str, space: Any, data: Any) -> None:
    n, k = data.draw(st.integers(1, 4)), data.draw(st.integers(2, 5))
    documents = np.array([data.draw(st.permutations(range(9)))[:k] for _ in range(n)])
    # Halves: their squares, negatives and 1 - x are exact in float32.
    steps = data.draw(st.lists(st.integers(1, 8), min_size=n * k, max_size=n * k))
    rising = np.cumsum(np.array(steps).reshape(n, k) / 2, axis=1)
    scores = rising if space is L2 else 3 - rising
    run = Run.from_arrays(documents, scores, space=space)
    suffix = {"bigann": "gt", "bigann-range": "rangegt", "hdf5": "hdf5"}[name]
    with new_file(f"truth.{suffix}") as path:
        formats.write(run, path)
        found = quietly(formats.read_run, path, space=space)
    assert_same_run(found, run)
    assert found.space is space


@FEW
@given(lengths=st.lists(st.integers(0, 4), min_size=1, max_size=6))
def test_range_results_are_ragged(lengths: list[int]) -> None:
    rows = [list(range(length)) for length in lengths]
    scores = [[float(i) for i in row] for row in rows]
    run = Run.from_arrays(rows, scores, space="l2")
    with new_file("truth.rangegt") as path:
        formats.write(run, path)
        assert_same_run(quietly(formats.read_run, path, space="l2"), run)


# -- judgments, scores, cost ----------------------------------------------------------------


def assert_same_judgments(found: Judgments, expected: Judgments) -> None:
    assert found.queries == expected.queries
    assert found.documents == expected.documents
    np.testing.assert_array_equal(found.grades, expected.grades)


@FEW
@given(judgments=judgment_sets())
def test_judgments_in_parquet_are_exact(judgments: Judgments) -> None:
    with new_file("j.parquet") as path:
        formats.write(judgments, path)
        found = formats.read(path)
    assert_same_judgments(found, judgments)
    assert found.name == judgments.name
    assert list(found.details) == list(judgments.details)
    for name, column in judgments.details.items():
        assert found.details[name].tolist() == column.tolist()


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".tsv", ".jsonl.zst"])
@FEW
@given(judgments=judgment_sets())
def test_judgments_in_text(suffix: str, judgments: Judgments) -> None:
    with new_file(f"j{suffix}") as path:
        formats.write(judgments, path)
        found = formats.read_judgments(path)
    assert_same_judgments(found, judgments)
    assert found.details["reason"].tolist() == judgments.details["reason"].tolist()
    assert found.details["cost"].tolist() == judgments.details["cost"].tolist()


@pytest.mark.parametrize("format", ["trec", "beir"])
@FEW
@given(judgments=judgment_sets(WORDS, gaps=False))
def test_judgments_in_qrels(format: str, judgments: Judgments) -> None:  # noqa: A002
    with new_file("qrels.txt" if format == "trec" else "test.tsv") as path:
        formats.write(judgments, path, format=format)
        assert_same_judgments(formats.read(path), judgments)


@FEW
@given(values=st.lists(st.floats(), max_size=5), notes=st.lists(st.text(), max_size=2))
def test_scores(values: list[float], notes: list[str]) -> None:
    reasons = tuple("no truth" if v != v else "" for v in values)
    scores = Scores("recall@10", ids(range(len(values))), np.array(values), reasons, tuple(notes))
    with new_file("s.parquet") as path:
        formats.write(scores, path)
        found = formats.read(path)
    np.testing.assert_array_equal(found.values, scores.values)
    assert (found.measure, found.reasons, found.notes) == ("recall@10", reasons, tuple(notes))
    assert found.queries == scores.queries


@FEW
@given(
    n=st.integers(0, 4),
    known=st.sets(
        st.sampled_from(["distance_computations", "bytes_read", "cpu_seconds", "latency_seconds"])
    ),
)
def test_cost(n: int, known: set[str]) -> None:
    figures = {name: np.arange(n) / 3 for name in known}
    cost = Cost(
        ids(range(n)),
        **figures,
        settings={"nprobe": 8, "exact": True},
        details={"coarse": 1.5, "by_stage": [1, np.int64(2)]},
    )
    with new_file("c.parquet") as path:
        formats.write_cost(cost, path)
        found = formats.read_cost(path)
    for name in ("distance_computations", "bytes_read", "cpu_seconds", "latency_seconds"):
        expected = figures.get(name)
        assert (getattr(found, name) is None) == (expected is None)
        if expected is not None:
            np.testing.assert_array_equal(getattr(found, name), expected)
    assert found.settings == {"nprobe": 8, "exact": True}
    assert found.details == {"coarse": 1.5, "by_stage": [1, 2]}
    assert len(found) == n


# -- folders --------------------------------------------------------------------------------


@FEW
@given(data=st.data())
def test_vectordbbench_folder_is_joined_on_id(data: Any) -> None:
    base = Vectors.of(data.draw(matrices("float32")))
    n = data.draw(st.integers(1, 4))
    query_ids = data.draw(id_lists(WORDS, n))
    queries = Vectors.of(np.ones((n, 2), np.float32), ids=query_ids)
    truth = Run.from_arrays([[i, i + 1] for i in range(n)], query_ids=query_ids)
    shuffled = truth.select(data.draw(st.permutations(range(n))))
    assume(len(base))
    with tempfile.TemporaryDirectory() as directory:
        formats.write_dataset(directory, base=base, queries=queries, truth=shuffled)
        folder = Path(directory)
        assert_same_run(formats.read_run(folder), truth)
        assert formats.read_vectors(folder, dataset="test").ids == ids(query_ids)
        found = formats.read_vectors(folder)
    np.testing.assert_array_equal(found.require_matrix(), base.require_matrix())
