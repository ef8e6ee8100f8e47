"""Filtered truth: the same answer for every way of saying a filter and of computing with it."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semrecall.data import Run, Vectors
from semrecall.data.allowed import NOTHING_ALLOWED, Allowed, RowSet
from semrecall.errors import InputError, MismatchError, SemrecallWarning
from semrecall.evaluate import evaluate
from semrecall.exact import search
from semrecall.space import space

WAYS = {"gathered": True, "masked": False, "whichever": None}
grouped = import_module("semrecall.exact.grouped")


def quiet(*args: Any, **options: Any) -> Run:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SemrecallWarning)
        return search(*args, **options)


def slow(base: Any, query: Any, k: int, name: str, allowed: Any) -> tuple[list[int], list[float]]:
    """Every allowed row of the base, sorted by (score, row), cut after the ties with rank k."""
    geometry = space(name)
    scores = geometry.exact_scores(base, query)
    key = geometry.sort_key(scores)
    found = np.flatnonzero(allowed & np.isfinite(base).all(axis=1) & ~np.isnan(scores))
    order = found[np.lexsort((found, key[found]))]
    if len(order) > k:
        order = order[: np.searchsorted(key[order], key[order[k - 1]], side="right")]
    return order.tolist(), scores[order].tolist()


def rows_of(run: Run) -> list[tuple[list[Any], list[float]]]:
    """Ids and scores of each query, without rows that have no score."""
    assert run.scores is not None
    pairs = zip(run.ids, run.scores, strict=True)
    return [(i[~np.isnan(s)].tolist(), s[~np.isnan(s)].tolist()) for i, s in pairs]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["ip", "cosine", "l2"])
def test_every_way_gives_the_same_bits(
    way: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(1)
    base = rng.integers(-2, 3, (5000, 6)).astype(np.float32)  # few values: ties everywhere
    base[7], base[11, 2], base[4000] = 0, np.nan, np.inf
    queries = rng.integers(-2, 3, (40, 6)).astype(np.float32)
    queries[~queries.any(axis=1)] = 1
    share = np.array([0, 0.0004, 0.003, 0.05, 0.9, 1.0])
    filters = rng.random((6, 5000)) < share[:, None]
    which = rng.integers(0, 6, 40)
    allowed = filters[which]
    with np.errstate(invalid="ignore"):
        expected = [slow(base, q, 12, name, mask) for q, mask in zip(queries, allowed, strict=True)]
    whole = quiet(base, queries, 12, name, allowed=allowed)
    if WAYS[way] is not None:
        monkeypatch.setattr(grouped, "_pays", lambda *_: WAYS[way])
    for source in (base, Vectors.from_blocks(np.array_split(base, 7), length=5000)):
        run = quiet(source, queries, 12, name, allowed=allowed, memory=1 << 20)
        assert rows_of(run) == expected
        assert run.identity == whole.identity
        assert run.reasons == tuple("" if w else NOTHING_ALLOWED for w in which)
    names = [f"row {i % 97}-{i}" for i in range(5000)]
    by_id = [[names[row] for row in np.flatnonzero(mask)] for mask in allowed]
    texts = quiet(Vectors.of(base, ids=names), queries, 12, name, allowed=by_id)
    for (found, scores), (rows, wanted) in zip(rows_of(texts), expected, strict=True):
        assert scores == wanted
        assert sorted(found) == sorted(names[row] for row in rows)
        ties = list(zip(scores, found, strict=True))
        assert ties == sorted(ties, key=lambda t: (space(name).sort_key(t[0]), t[1]))


def test_rows_are_copied_where_that_is_cheaper() -> None:
    def pays(share: float, queries: int, rows: int = 1_000_000, d: int = 384) -> bool:
        allowed = RowSet.of_rows(8, np.arange(0))
        group = grouped._Group(allowed, np.arange(queries), int(share * rows))
        return bool(grouped._pays(group, rows, d))

    assert pays(0.0001, 1)
    assert pays(0.1, 50)
    assert pays(1.0, 1)  # nothing is copied
    assert not pays(0.9, 1)


def test_extreme_values_are_refused_whatever_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    base = np.random.default_rng(0).standard_normal((30, 4)) * 1e200
    for pays in (True, False):
        monkeypatch.setattr(grouped, "_pays", lambda *_, pays=pays: pays)
        with pytest.raises(InputError, match="whose squares float64 cannot hold"):
            search(base, base[:2], 3, "ip", allowed=np.arange(30) < 20)


@given(st.integers(1, 200), st.data())
def test_a_set_of_rows_is_one_whatever_its_form(n: int, data: st.DataObject) -> None:
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    start = data.draw(st.integers(0, n))
    stop = data.draw(st.integers(start, n))
    rows = np.flatnonzero(mask)
    forms = [
        RowSet.of_mask(mask), RowSet.of_rows(n, rows[::-1]), RowSet.of_bits(n, np.packbits(mask)),
        RowSet(n, rows, None), RowSet(n, None, np.packbits(mask)),
    ]  # fmt: skip
    some = np.array(data.draw(st.lists(st.integers(0, n - 1), max_size=5)), dtype=np.int64)
    for form in forms:
        assert form.count == len(rows)
        assert form.counted(start, stop) == int(mask[start:stop].sum())
        assert (
            form.between(start, stop).tolist() == (start + mask[start:stop].nonzero()[0]).tolist()
        )
        assert form.mask(start, stop).tolist() == mask[start:stop].tolist()
        assert form.has(some).tolist() == mask[some].tolist()
        assert form.taken(np.arange(n)[::-1]).mask(0, n).tolist() == mask[::-1].tolist()
    assert len({form.digest for form in forms[:3]}) == 1


def test_many_ways_to_say_one_filter() -> None:
    rng = np.random.default_rng(3)
    base, queries = rng.standard_normal((50, 4)), rng.standard_normal((3, 4))
    mask = rng.random(50) < 0.4
    names = Vectors.of(base, ids=[f"d{i}" for i in range(50)])
    turned = rng.permutation(50)
    every = np.tile(mask, (3, 1))
    runs = [
        search(base, queries, 5, "ip", allowed=mask),
        search(base, queries, 5, "ip", allowed=every),
        search(base, queries, 5, "ip", allowed=[np.flatnonzero(mask)] * 3),
        search(base, queries, 5, "ip", allowed=Allowed.of_bits(np.packbits(mask), 50, order="big")),
        search(
            base, queries, 5, "ip",
            allowed=Allowed.of_bits(np.packbits(every, axis=1, bitorder="little"), 50,
                                    order="little"),
        ),
        search(names, queries, 5, "ip", allowed=Allowed(
            (RowSet.of_mask(mask[turned]),), ids=Vectors.of(base, ids=[f"d{i}" for i in turned]).ids
        )),
    ]  # fmt: skip
    for run in runs:
        assert run.identity["filter"] == runs[0].identity["filter"]
    assert runs[0].identity["filter"]["allowed_rows"] == int(mask.sum())
    assert runs[0].identity["filter"]["filters"] == 1
    other = search(base, queries, 5, "ip", allowed=~mask)
    assert other.identity["filter"]["fingerprint"] != runs[0].identity["filter"]["fingerprint"]


def test_a_query_that_may_find_nothing_has_a_reason_and_results_for_it_are_a_violation() -> None:
    base, queries = np.eye(4, dtype=np.float32), np.eye(4, dtype=np.float32)[:2]
    truth = search(base, queries, 2, "ip", allowed=[[], [1, 2]])
    assert [len(row) for row in truth.ids] == [0, 2]
    assert truth.reasons == (NOTHING_ALLOWED, "")
    assert truth.identity["filter"]["allowed_rows"] == [0, 2]
    found = Run.from_arrays([[3, 2], [1, 2]], space="ip")
    result = evaluate(found, ["recall@2"], truth=truth)
    assert result.mean("recall@2") == 1.0
    assert result.undefined("recall@2") == {NOTHING_ALLOWED: 1}
    assert "2 results where the truth is empty" in str(result)


def test_allowed_faults() -> None:
    base, queries = np.eye(4, dtype=np.float32), np.eye(4, dtype=np.float32)
    with pytest.raises(MismatchError, match="over 9 rows, the base has 4"):
        search(base, queries, 1, "ip", allowed=Allowed((RowSet.everything(9),)))
    known = Vectors.of(base[:2]).ids
    with pytest.raises(MismatchError, match="2 of 4 rows of the base are not among"):
        search(base, queries, 1, "ip", allowed=Allowed((RowSet.everything(2),), ids=known))
    every = RowSet.everything(4)
    with pytest.raises(MismatchError, match="filters are of 3 queries, there are 4"):
        search(base, queries, 1, "ip", allowed=Allowed.shared([every] * 3))
    some = Vectors.of(base[:3]).ids
    with pytest.raises(MismatchError, match="1 of 4 queries have no filter, the first is 3"):
        search(base, queries, 1, "ip", allowed=Allowed.shared([every] * 3, queries=some))
    with pytest.raises(InputError, match=r"bits are uint8 of shape \(2,\); expected uint8 with 1 "):
        Allowed.of_bits(np.zeros(2, dtype=np.uint8), 4, order="big")
    with pytest.raises(InputError, match="bits beyond the 4 rows are set"):
        Allowed.of_bits(np.array([0b1111], dtype=np.uint8), 4, order="big")
    with pytest.raises(InputError, match="expected 'big' or 'little'"):
        Allowed.of_bits(np.zeros(1, dtype=np.uint8), 4, order="row")  # type: ignore[arg-type]


def test_no_queries_and_no_rows() -> None:
    none = np.empty((0, 4), dtype=np.float32)
    some = np.ones((2, 4), dtype=np.float32)
    assert len(search(some, none, 3, "ip", allowed=np.ones(2, dtype=bool))) == 0
    empty = quiet(none, some, 3, "ip", allowed=np.ones(0, dtype=bool))
    assert [len(row) for row in empty.ids] == [0, 0]
