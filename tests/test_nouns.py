"""The nouns: one form of ids, ragged rows, checks at the door."""

from __future__ import annotations

import uuid
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semrecall.data import Cost, Ids, Judgments, Pairs, Run, Scores, Vectors
from semrecall.data import rows as data_rows
from semrecall.data import run as data_run
from semrecall.data.ids import codes_in, concatenate, ids, unify
from semrecall.data.rows import pad, repeated
from semrecall.errors import InputError, SemrecallWarning

id_values = st.one_of(
    st.integers(-3, 5),
    st.integers(0, 2**63 - 1),
    st.text(max_size=4),
    st.sampled_from(
        ["7", "007", "+7", "7.0", "-1", "-1000000000000000000", -(10**18), "ก", "é", "é", "", None]
    ),
)


#: Columns that are numbers behind a prefix, padded or not, and what may stand among them.
numbered_values = st.one_of(
    st.builds(
        lambda prefix, number, width: f"{prefix}{number:0{width}d}",
        st.sampled_from(["D", "D", "D", "", "-", "é", "D1x"]),
        st.integers(0, 30) | st.integers(10**16, 10**20),
        st.sampled_from([1, 2, 2, 3, 18]),
    ),
    st.integers(0, 30),
    st.sampled_from(["D", "D-1", "D+1", "D1.0", "D0x1", "", None, "D\n1", "D٣"]),
)


def canonical(value: Any) -> str:
    """The slow definition: an id as text, "" when it is missing."""
    if value is None or value == "":
        return ""
    if isinstance(value, int):
        return "" if value < 0 else str(value)
    negative = value.startswith("-") and value[1:].isascii() and value[1:].isdigit()
    return "" if negative and not value[1:].startswith("0") else value


# -- ids ------------------------------------------------------------------------------------


def columns_of_ids(*, max_size: int) -> st.SearchStrategy[list[Any]]:
    numbered = numbered_values.flatmap(
        lambda one: st.lists(st.sampled_from([one]) | numbered_values, max_size=max_size)
    )
    same_form = st.lists(st.integers(0, 999).map(lambda n: f"D{n:03d}"), max_size=max_size)
    bare = st.lists(st.integers(0, 999).map(lambda n: f"D{n}"), max_size=max_size)
    return st.one_of(st.lists(id_values, max_size=max_size), numbered, same_form, bare)


@given(columns_of_ids(max_size=8), columns_of_ids(max_size=8))
def test_ids_mean_the_same_across_types(left: list[Any], right: list[Any]) -> None:
    a, b = unify(ids(left), ids(right))
    texts = [canonical(v) for v in left + right]
    codes = np.concatenate([a, b]).tolist()
    for i, text in enumerate(texts):
        assert (codes[i] < 0) == (text == "")
        for j in range(i):
            assert (codes[i] == codes[j]) == (text == texts[j])


@given(columns_of_ids(max_size=8))
def test_ids_survive_arrow_numpy_and_concatenation(values: list[Any]) -> None:
    column = ids(values)
    assert ids(column.to_arrow()) == column
    assert ids(column.array()) == column
    assert concatenate([column[:3], column[3:]]) == column
    assert [canonical(v) for v in column] == [canonical(v) for v in values]


def test_case_a24_strings_and_integers_are_one_id() -> None:
    assert ids([1, 2, 3]) == ids(["1", "2", "3"])
    assert ids(["1", "2"]).are_integers
    assert ids(np.array([3000000000], dtype=np.uint32))[0] == 3000000000
    assert ids([float("nan"), 7.0])[1] == 7


def test_wide_unsigned_and_uuid_ids() -> None:
    wide = ids(np.array([2**63 + 1, 2**64 - 1, 5], dtype=np.uint64))
    # The largest unsigned number is what -1 looks like there: missing.
    assert list(wide) == [str(2**63 + 1), "", "5"]
    name = uuid.uuid4()
    assert ids([name])[0] == str(name)


@pytest.mark.parametrize("bad", [[1.5], [True], [object()], [b"\xff"], np.zeros((2, 2))])
def test_ids_of_other_types_are_refused(bad: Any) -> None:
    with pytest.raises((InputError, UnicodeDecodeError)):
        ids(bad)


def test_numbers_behind_a_prefix_are_kept_as_numbers() -> None:
    padded, bare = ids(["D007", "D012"]), ids(["D7", "D112"])
    assert padded.codes.tolist() == [7, 12]
    assert list(padded) == ["D007", "D012"]
    assert padded.strings().tolist() == ["D007", "D012"]
    # "D7" is not "D007"; "D112" would be the padded 112.
    codes, others = unify(padded, bare)
    assert codes.tolist() == [7, 12]
    assert others[1] == 112
    assert others[0] not in (7, 12)
    assert list(concatenate([bare, padded])) == ["D7", "D112", "D007", "D012"]
    assert ids(["D7", "D07"]) == ids(pa.array(["D7", "D07"], pa.string_view()))


@given(st.integers(1, 18), st.sampled_from(["", "D", "doc-"]), st.data())
def test_numbers_of_every_length(digits: int, prefix: str, data: Any) -> None:
    numbers = data.draw(st.lists(st.integers(0, 10**digits - 1), min_size=1, max_size=9))
    texts = [f"{prefix}{number:0{digits}d}" for number in numbers]
    column = ids(texts)
    assert column.codes.tolist() == numbers
    assert column.strings().tolist() == texts


@pytest.mark.parametrize("other", ["D12:4", "D1/34", "D12x4", "E1234", "D12 4", "D 123"])
def test_what_is_no_number_is_a_text(other: str) -> None:
    """ ":" and "/" stand beside the digits in ASCII."""
    assert ids(["D1234", other]).strings().tolist() == ["D1234", other]


def test_a_dictionary_may_hold_more_than_is_used() -> None:
    column = pa.DictionaryArray.from_arrays([2, None, 0, 2], ["7", "x", "12"])
    assert ids(column).codes.tolist() == [12, -1, 7, 12]
    two = pa.chunked_array([pa.array(["a", "b"]), pa.array(["b", ""])]).dictionary_encode()
    assert list(ids(two)) == ["a", "b", "b", ""]


def test_codes_in() -> None:
    found = codes_in(np.array([5, -1, 9, 2]), np.array([9, 5]))
    assert found.tolist() == [1, -1, 0, -1]
    assert codes_in(np.array([5]), np.empty(0, dtype=np.int64)).tolist() == [-1]


def test_first_duplicate() -> None:
    assert ids(["b", "a", "c", "a", "b"]).first_duplicate() == (1, 3)
    assert ids([-1, -1, 2]).first_duplicate() is None


# -- runs -----------------------------------------------------------------------------------


def test_run_from_a_matrix() -> None:
    run = Run.from_arrays(
        [[3, 1, -1], [2, 0, 1]], [[0.9, 0.8, np.nan], [0.7, 0.6, 0.5]], space="ip"
    )
    assert run.ids.to_list() == [[3, 1, -1], [2, 0, 1]]
    assert run.valid.tolist() == [True, True, False, True, True, True]
    assert np.asarray(run.ids).shape == (2, 3)
    assert run.query_ids.tolist() == [0, 1]
    assert repr(run) == "Run(2 queries, 3 results each, ip, index scores)"


def test_run_of_ragged_rows() -> None:
    run = Run.from_arrays([["a"], [], ["b", "c"]], query_ids=["x", "y", "z"])
    assert run.ids.to_list() == [["a"], [], ["b", "c"]]
    assert run.ids.matrix().tolist() == [["a", ""], ["", ""], ["b", "c"]]
    assert run.select([2, 0]).ids.to_list() == [["b", "c"], ["a"]]
    assert run.select(np.array([False, True, False])).query_ids.tolist() == ["y"]


def test_case_a06_counts_say_how_many_are_real() -> None:
    run = Run.from_arrays(
        [[1, 3, 2, 0, 0]], [[0.0, 7.4, 8.6, np.nan, np.nan]], counts=[3], space="l2"
    )
    assert run.ids.to_list() == [[1, 3, 2]]


def test_infinite_distance_is_a_missing_result() -> None:
    run = Run.from_arrays([[1, 2]], [[1.0, np.inf]], space="l2")
    assert run.valid.tolist() == [True, False]
    assert Run.from_arrays([[1, 2]], [[1.0, np.inf]], space="ip").valid.all()


def test_run_from_dict_breaks_ties_as_trec_eval() -> None:
    run = Run.from_dict({"q": {"a": 1.0, "c": 2.0, "b": 1.0}})
    assert run.ids.to_list() == [["c", "b", "a"]]
    assert Run.from_dict({"q": {"a": 1.0, "b": 2.0}}, space="l2").ids.to_list() == [["a", "b"]]
    assert Run.from_dict({"q": ["x", "w"], "p": []}).ids.to_list() == [["x", "w"], []]
    # Integers compare as text there: "9" comes after "10".
    assert Run.from_dict({"q": {10: 1.0, 9: 1.0}}).ids.to_list() == [[9, 10]]


scored = st.lists(
    st.tuples(
        st.sampled_from("pqr"),
        st.sampled_from([1, 2, 10, "a", "é", "D2", "D10"]),
        st.sampled_from([0.0, -0.0, 1.0, 2.0, np.inf, -np.inf, np.nan]),
    ),
    max_size=12,
    unique_by=lambda row: row[:2],
)


@given(scored, st.sampled_from([None, "ip", "l2"]), st.booleans())
def test_order_of_results(rows: list[Any], space: str | None, lower: bool) -> None:
    # The slow definition: by score, then by id as text, descending; NaN last, in file order.
    columns = {"query_id": [r[0] for r in rows], "doc_id": [r[1] for r in rows]}
    columns["score"] = [r[2] for r in rows]
    lower = lower and space is None
    run = Run.from_frame(columns, space=space, lower_is_better=lower)
    sign = 1 if lower or space == "l2" else -1
    for query, found in zip(run.query_ids, run.ids.to_list(), strict=True):
        own = [r for r in rows if r[0] == query]
        real = sorted((r for r in own if r[2] == r[2]), key=lambda r: str(r[1]), reverse=True)
        real.sort(key=lambda r: sign * r[2])
        real += [r for r in own if r[2] != r[2]]
        assert [str(d) for d in found] == [str(r[1]) for r in real]
    by_dict: dict[str, dict[Any, float]] = {}
    for query, document, score in rows:
        by_dict.setdefault(query, {})[document] = score
    again = Run.from_dict(by_dict, space=space, lower_is_better=lower)
    assert again.queries == run.queries
    assert again.documents == run.documents


def test_order_across_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows in order, with ties, out of order and with NaN, looked at in blocks smaller than one."""
    monkeypatch.setattr(data_run, "_BLOCK", 7)
    rng = np.random.default_rng(0)
    results: dict[str, dict[str, float]] = {}
    for query in range(40):
        names = [f"d{n}" for n in rng.choice(1000, rng.integers(0, 25), replace=False)]
        scores = rng.integers(0, 12, len(names)).astype(float)
        if query % 3:
            scores = np.sort(scores)[::-1]
        elif len(names):
            scores[rng.integers(len(names))] = np.nan
        results[f"q{query}"] = dict(zip(names, scores.tolist(), strict=True))
    run = Run.from_dict(results)
    for got, row in zip(run.ids.to_list(), results.values(), strict=True):
        by_name = sorted(row, reverse=True)
        assert got == sorted(by_name, key=lambda d: (np.isnan(row[d]), -np.nan_to_num(row[d])))


def test_rows_known_to_be_distinct() -> None:
    """Nobody looks for repeats in them; a run whose documents are others is looked at again."""
    run = Run.from_dict({"q": {"d1": 2.0, "d2": 1.0}})
    assert run.distinct
    assert run.replace(name="other").distinct
    assert not run.replace(documents=ids(["d1", "d1"])).distinct
    # 7 and "7" are two keys, and one id.
    assert not Run.from_dict({"q": {7: 2.0, "7": 1.0}}).distinct
    assert not Run.from_dict({"q": ["d1", "d1"]}).distinct


def test_repeats_across_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_rows, "_BLOCK", 20)
    rng = np.random.default_rng(1)
    for top in (12, 200, 2**40):
        lengths = rng.integers(5, 9, 50)
        offsets = np.append(0, np.cumsum(lengths))
        codes = rng.integers(-1, top, offsets[-1])
        expected = np.zeros(len(codes), dtype=bool)
        for low, high in pairwise(offsets.tolist()):
            seen: set[int] = set()
            for at in range(low, high):
                expected[at] = codes[at] in seen
                seen |= {int(codes[at])} - {-1}
        found = repeated(codes, offsets)
        assert np.array_equal(np.zeros(len(codes), bool) if found is None else found, expected)


def test_order_may_be_stated() -> None:
    columns = {
        "query_id": ["q", "p", "q"],
        "doc_id": ["a", "b", "c"],
        "score": [1.0, 1.0, 2.0],
        "rank": [1, 1, 2],
    }
    for order, expected in [(None, "ac"), ("rank", "ac"), ("score", "ca"), ("file", "ac")]:
        assert Run.from_frame(columns, order=order).ids[0].tolist() == list(expected)
    by_dict = {"q": {"a": 1.0, "c": 2.0}}
    assert Run.from_dict(by_dict, order="file").ids.to_list() == [["a", "c"]]
    for order, message in [("rank", "there is no rank to order"), ("sore", "order is 'sore'")]:
        with pytest.raises(InputError, match=message):
            Run.from_dict(by_dict, order=order)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="in space ip the higher is"):
        Run.from_dict(by_dict, space="ip", lower_is_better=True)


def test_a_score_that_is_no_number_is_named() -> None:
    with pytest.raises(InputError, match="query 'q', document 'b' has the score 'x'"):
        Run.from_dict({"q": {"a": 1.0, "b": "x"}})


def test_some_queries_keep_what_is_known_of_their_filters() -> None:
    known = {"filter": {"fingerprint": "f", "filters": 2, "allowed_rows": [5, 7, 9]}}
    run = Run.from_arrays([[1], [2], [3]]).replace(identity=known)
    assert run.select([2, 0]).identity["filter"] == {"filters": 2, "allowed_rows": [9, 5]}
    assert run.select([0, 1, 2]).identity == known
    assert run.replace(identity={"filter": None}).select([1]).identity == {"filter": None}


@pytest.mark.parametrize("which", [[], (), np.empty(0), slice(0, 0), [False] * 3])
def test_nothing_is_selected_by_nothing(which: Any) -> None:
    run = Run.from_dict({q: {"x": 1.0} for q in "abc"}).select(which)
    assert (len(run), len(run.documents), run.offsets.tolist()) == (0, 0, [0])
    assert len(Judgments.from_dict({q: {"x": 1} for q in "abc"}).select(which)) == 0
    assert len(Pairs(ids(list("abc")), ids(list("xyz"))).select(which)) == 0


@pytest.mark.parametrize("library", ["arrow", "pandas", "polars"])
def test_run_frames_round_trip(library: str) -> None:
    if library != "arrow":
        pytest.importorskip(library, reason=f"needs {library}")
    run = Run.from_dict({"q2": {"a": 1.0, "b": 2.0}, "q1": {"c": 0.5}})
    again = Run.from_frame(run.to_frame(library))
    assert again.query_ids.tolist() == ["q2", "q1"]
    assert again.ids.to_list() == [["b", "a"], ["c"]]
    assert again.scores is not None
    assert again.scores.to_list() == [[2.0, 1.0], [0.5]]


def test_frames_name_the_columns_they_found() -> None:
    with pytest.raises(InputError, match="found columns a, b; expected 'query_id'"):
        Run.from_frame({"a": [1], "b": [2]})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Run.from_arrays([1, 2, 3]), "expected a row of ids per query"),
        (lambda: Run.from_arrays(np.zeros((2, 2, 2), dtype=int)), r"expected \(n_queries, k\)"),
        (lambda: Run.from_arrays([[1, 2]], [[0.5]]), "row 0 has 2 ids but 1 scores"),
        (lambda: Run.from_arrays([[1], [2]], [[0.5]]), "scores have 1 rows, ids have 2"),
        (lambda: Run.from_arrays([[1], [2]], query_ids=["a", "a"]), "stands at rows 0 and 1"),
        (lambda: Run.from_arrays([[1]], query_ids=["a", "b"]), "2 query ids for 1 rows"),
        (lambda: Run.from_arrays([[1]], query_ids=[""]), "query 0 has no id"),
        (lambda: Run.from_arrays([[1]], k=0), "k is 0"),
        (lambda: Run.from_arrays([[1]], counts=[2]), "not between 0 and 1"),
        (lambda: Run.from_arrays([[1]], space="l2sq"), "squared Euclidean"),
        (lambda: Run.from_arrays([[1]], [["x"]]), "could not convert|not numbers"),
        (lambda: Run.from_dict({"a": {"x": 1.0}, "b": ["x"]}), "some queries have scores"),
    ],
)
def test_run_faults(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_case_d12_deleted_documents_leave_the_truth() -> None:
    truth = Run.from_arrays([[1, 2, 3, 4]], k=4).without([2])
    assert truth.ids.to_list() == [[1, 3, 4]]
    # Four were known, one is gone: three are known to be complete.
    assert truth.k == 3
    # A row that was short before has lost nothing of its depth.
    assert Run.from_arrays([[1, 2]], k=4).without([2]).k == 4


@given(st.lists(st.integers(0, 5), max_size=6))
def test_pad(lengths: list[int]) -> None:
    flat = np.arange(sum(lengths))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    matrix = pad(flat, offsets, -1)
    rows = [row[row >= 0].tolist() for row in matrix]
    assert rows == [flat[a:b].tolist() for a, b in pairwise(offsets)]


# -- judgments ------------------------------------------------------------------------------


def test_repeated_judgments() -> None:
    with pytest.warns(SemrecallWarning, match="1 repeated judgments that agree count once"):
        agreed = Judgments.from_arrays(["q", "q"], ["d", "d"], [1, 1])
    assert len(agreed) == 1
    with pytest.raises(InputError, match="grade 1 at entry 0 and 2 at entry 1"):
        Judgments.from_arrays(["q", "q"], ["d", "d"], [1, 2])
    for rule, grade in [("max", 2), ("first", 1), ("last", 0)]:
        picked = Judgments.from_arrays(
            ["q", "q", "p", "q"],
            ["d", "d", "d", "d"],
            [1, 2, 5, 0],
            conflicts=rule,  # type: ignore[arg-type]
        )
        assert picked.grades.tolist() == ([grade, 5] if rule == "first" else picked.grades.tolist())
        assert grade in picked.grades.tolist()
        assert len(picked) == 2


def test_no_grade_is_not_zero() -> None:
    judged = Judgments.from_arrays([1, 1], [2, 3], [np.nan, 0.0], reason=["refused", ""])
    assert judged.to_arrow()["grade"].to_pylist() == [None, 0.0]
    assert judged.details["reason"].tolist() == ["refused", ""]
    assert repr(judged) == "Judgments(2 pairs, 1 queries, grades {0: 1}, 1 without a grade)"


@pytest.mark.parametrize("library", ["arrow", "pandas", "polars"])
def test_judgment_frames_round_trip(library: str) -> None:
    if library != "arrow":
        pytest.importorskip(library, reason=f"needs {library}")
    judged = Judgments.from_dict({"q": {"a": 2, "b": 0.5}})
    again = Judgments.from_frame(judged.to_frame(library))
    assert again.doc_ids.tolist() == ["a", "b"]
    assert again.grades.tolist() == [2.0, 0.5]


def test_several_columns_of_grades_are_said():
    pair = {"query_id": ["q"], "doc_id": ["d"]}
    several = pair | {"label": [1], "rating": [5], "human": [3]}
    with pytest.warns(SemrecallWarning) as said:
        assert Judgments.from_frame(several).grades.tolist() == [1.0]
    assert "taken from the column 'label'; 'rating', 'human' may hold" in str(said[0].message)
    assert "--grade" in str(said[0].message)
    # Said is said; and a score beside a grade is that of a search.
    assert Judgments.from_frame(several, grade="human").grades.tolist() == [3.0]
    assert Judgments.from_frame(pair | {"grade": [2], "score": [0.7]}).grades.tolist() == [2.0]


# -- scores and cost ------------------------------------------------------------------------


def test_means_are_exact() -> None:
    n = 5000
    values = np.ones(n)
    queries = Ids(np.arange(n))
    assert Scores("recall@100", queries, values).mean == 1.0
    values[7] = 0.95
    # Case A31: 4,999 queries at 1 and one at 0.95 is 0.99999, not 0.9999899999999999.
    assert Scores("recall@100", queries, values).mean == 0.99999
    assert np.isnan(Scores("recall@100", Ids(np.empty(0, dtype=np.int64)), np.empty(0)).mean)


def test_scores_count_what_is_left_out() -> None:
    scores = Scores("srecall@10", ids(["a", "b"]), np.array([np.nan, 1.0]), ("no truth", ""))
    assert scores.undefined == {"no truth": 1}
    assert repr(scores) == "Scores(srecall@10: mean 1.0000 over 1 queries, 1 left out)"


def test_cost_means() -> None:
    cost = Cost(ids([1, 2]), distance_computations=np.array([10, 20]))
    assert cost.mean("distance_computations") == 15
    assert np.isnan(cost.mean("bytes_read"))
    with pytest.raises(InputError, match="unknown cost 'money'"):
        cost.mean("money")
    with pytest.raises(InputError, match=r"has shape \(1,\) for 2 queries"):
        Cost(ids([1, 2]), bytes_read=np.array([1.0]))


# -- vectors --------------------------------------------------------------------------------


def test_vectors_keep_their_type() -> None:
    for dtype in ("float64", "float32", "float16", "int8", "uint8"):
        assert Vectors.of(np.zeros((2, 3), dtype=dtype)).dtype == dtype
    assert Vectors.of([[1, 2], [3, 4]]).dtype == np.float32
    assert Vectors.of(np.zeros((2, 3), dtype=">f4")).dtype == np.float32


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros(3), r"shape \(3,\); expected \(rows, dimensions\)"),
        (np.zeros((3, 0)), "at least one dimension"),
        ([["a"]], "expected one of float64"),
        ([[1, 2], [3]], "not a matrix"),
        ([[2**40 + 1]], "values that float32 cannot"),
    ],
)
def test_vector_faults(values: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Vectors.of(values)


def test_vector_ids() -> None:
    with pytest.raises(InputError, match="2 ids for 3 vectors"):
        Vectors.of(np.eye(3), ids=[1, 2])
    with pytest.raises(InputError, match="vectors 0 and 2 have the same id 'a'"):
        Vectors.of(np.eye(3), ids=["a", "b", "a"])
    with pytest.raises(InputError, match="vector 1 has no id"):
        Vectors.of(np.eye(3), ids=[1, -1, 2])


def test_streams() -> None:
    blocks = [np.ones((2, 3), dtype=np.float32), np.zeros((1, 3), dtype=np.float32)]
    again = Vectors.from_blocks(blocks)
    assert [(s, len(b)) for s, b in again.blocks(10)] == [(0, 2), (2, 1)]
    assert [(s, len(b)) for s, b in again.blocks(1)] == [(0, 1), (1, 1), (2, 1)]
    once = Vectors.from_blocks(iter(blocks))
    assert len(list(once.blocks(10))) == 2
    with pytest.raises(InputError, match="was read already"):
        list(once.blocks(10))
    with pytest.raises(InputError, match="the stream ended after 3 rows; expected 5"):
        list(Vectors.from_blocks(blocks, length=5).blocks(10))
    with pytest.raises(InputError, match="no block"):
        Vectors.from_blocks([])
    odd = [np.ones((1, 3), dtype=np.float32), np.ones((1, 2), dtype=np.float32)]
    with pytest.raises(InputError, match=r"block at row 1 has shape \(1, 2\)"):
        list(Vectors.from_blocks(odd).blocks(4))


def test_fingerprint_tells_data_apart() -> None:
    base = np.random.default_rng(0).standard_normal((100, 4)).astype(np.float32)
    same = Vectors.of(base.copy())
    assert Vectors.of(base).fingerprint == same.fingerprint
    changed = base.copy()
    changed[-1, 0] += 1
    assert Vectors.of(changed).fingerprint != same.fingerprint
    assert Vectors.of(base[:99]).fingerprint != same.fingerprint
    assert Vectors.of(base.astype(np.float16)).fingerprint != same.fingerprint


def test_arrow_columns_of_all_kinds() -> None:
    dictionary = pa.array(["a", None, "a"]).dictionary_encode()
    assert list(ids(dictionary)) == ["a", "", "a"]
    assert list(ids(pa.chunked_array([[1, 2], [None]]))) == [1, 2, -1]
    assert list(ids(pa.array([2**63 + 1], pa.uint64()))) == [str(2**63 + 1)]
    assert list(ids(pa.nulls(2))) == [-1, -1]
    with pytest.raises(InputError, match="are of type"):
        ids(pa.array([[1]]))
