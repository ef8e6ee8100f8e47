"""The settled order, against exact rational arithmetic on near-ties made to mislead it.

Fractions hold every float exactly, so what they compare has no rounding at all. A float64 score of
`exact_scores` is off by at most `bound` (the terms are exact or rounded once, and `ordered_sum`
adds them in a tree as deep as log2 d), so two rows can stand in the wrong order only where their
exact scores differ by less than that: about 1e-16 of the length of the vectors. Where the terms and
sums fit in 53 bits there is no rounding, and the order is the exact one without any exception.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from semrecall.data import Run
from semrecall.exact import chunk, fused, search

SPACES = ("ip", "cosine", "l2")
_UNIT = Fraction(1, 2**53)


def fractions(row: Any) -> list[Fraction]:
    return [Fraction(float(value)) for value in row]


def dot(a: list[Fraction], b: list[Fraction]) -> Fraction:
    return sum((x * y for x, y in zip(a, b, strict=True)), Fraction(0))


def keys(name: str, base: Any, query: Any) -> list[Fraction]:
    """Exact numbers (n,) that order the rows as their scores do, nearest first.

    ip: -q.x; l2: |q - x|^2; cosine: -c|c| for c = q.x / |x|, which needs no root.
    """
    q = fractions(query)
    found = []
    for row in base:
        x = fractions(row)
        if name == "l2":
            off = [a - b for a, b in zip(q, x, strict=True)]
            found.append(dot(off, off))
        elif name == "ip":
            found.append(-dot(q, x))
        else:
            found.append(-dot(q, x) * abs(dot(q, x)) / dot(x, x))
    return found


def bound(name: str, base: Any, query: Any) -> Fraction:
    """How far the keys of two rows can differ whose float64 scores are in the wrong order or equal.

    Each term is rounded at most twice and added ceil(log2 d) times, so a sum of products is off by
    (2 + log2 d) u of the sum of their sizes; squaring or a root at most doubles it, the norms of
    cosine and the last division add as much again. Two rows: twice that.
    """
    q = fractions(query)
    depth = 4 * (4 + math.ceil(math.log2(max(2, len(q)))))
    worst = Fraction(0)
    for row in base:
        x = fractions(row)
        if name == "l2":
            size = sum(((a - b) ** 2 for a, b in zip(q, x, strict=True)), Fraction(0))
        else:
            size = sum((abs(a * b) for a, b in zip(q, x, strict=True)), Fraction(0))
            if name == "cosine":
                size = size * size / dot(x, x) if dot(x, x) else Fraction(0)
        worst = max(worst, size)
    return 2 * depth * _UNIT * worst


def assert_in_order(run: Run, base: Any, queries: Any, k: int, name: str, slack: bool) -> None:
    """No row stands before a nearer one, none nearer than the k-th is missing, equals by id."""
    for number, query in enumerate(queries):
        exact = keys(name, base, query)
        off = bound(name, base, query) if slack else Fraction(0)
        rows = [int(i) for i in run.ids[number].tolist()]
        for first, second in pairwise(rows):
            assert exact[first] <= exact[second] + off
            if not slack and exact[first] == exact[second]:
                assert first < second
        others = [exact[i] for i in range(len(base)) if i not in set(rows)]
        if others:
            assert min(others) >= exact[rows[k - 1]] - off
            assert slack or min(others) > exact[rows[k - 1]]


@pytest.fixture(params=["compiled", "numpy"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """By products of bytes, where they can be had, and without."""
    if request.param == "compiled":
        monkeypatch.setattr(fused, "_FEW", 1)
        monkeypatch.setattr(fused, "_SHORT", 0)
        monkeypatch.setattr(fused, "_LOADING", 0.0)
        monkeypatch.setattr(fused, "_LEAST", 1)
        monkeypatch.setattr(fused, "_MOST_PASSING", 1.0)
    else:
        monkeypatch.setattr(chunk, "fused", lambda *_: None)
    return str(request.param)


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("d", [2, 33, 384])
def test_one_step_of_one_value_apart(way: str, name: str, d: int) -> None:
    """Rows that differ by one unit in the last place of one float32, where a product sees noise."""
    rng = np.random.default_rng(d)
    one = rng.standard_normal(d).astype(np.float32)
    base = np.tile(one, (120, 1))
    for i in range(120):
        at = rng.integers(0, d)
        base[i, at] = np.nextafter(base[i, at], np.float32(rng.choice([-9, 9])))
    base[60:80] = base[:20]  # and equal ones
    queries = np.stack([one, rng.standard_normal(d).astype(np.float32)])
    run = search(base, queries, 40, name)
    assert_in_order(run, base, queries, 40, name, slack=True)
    if name == "ip" and d > 2:  # float32 sums would be two or three numbers
        assert len(set(run.scores[1].tolist())) > 10


@pytest.mark.parametrize("name", ["ip", "l2"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "float16"])
def test_the_exact_order_where_nothing_is_rounded(way: str, name: str, dtype: str) -> None:
    """Whole numbers: sums stay below 2^53, so order, ties and their ids are those of fractions."""
    rng = np.random.default_rng(3)
    low, high = {"int8": (-128, 128), "uint8": (0, 256), "float16": (-2048, 2049)}[dtype]
    base = rng.integers(low, high, (150, 24)).astype(dtype)
    base[50:100] = base[:50]
    base[100:] = base[:50][:, ::-1]
    queries = np.concatenate([np.full((1, 24), 3), rng.integers(low, high, (3, 24))]).astype(dtype)
    # For l2: roots of different whole numbers below 2^40 differ, those of equal ones are equal.
    run = search(base, queries, 30, name)
    assert_in_order(run, base, queries, 30, name, slack=False)


def test_cancellation(way: str) -> None:
    """Terms of 1e8 that cancel, and a rest of 1e-8 that decides: float32 keeps nothing of it."""
    rng = np.random.default_rng(4)
    large = rng.integers(1, 2**20, (200, 4)).astype(np.float64) * 64
    small = np.ldexp(rng.permutation(200) - 100.0, -20)[:, None]
    base = np.concatenate([large, -large, small], axis=1).astype(np.float32)
    queries = np.ones((1, 9), dtype=np.float32)
    run = search(base, queries, 50, "ip")
    # The halves that are added first are large and -large: nothing is rounded on the way.
    assert_in_order(run, base, queries, 50, "ip", slack=False)
    assert run.ids[0].tolist() == np.argsort(-small[:, 0], kind="stable")[:50].tolist()


@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_adversarial_near_ties(way: str, data: st.DataObject) -> None:
    d = data.draw(st.integers(1, 5))
    steps = st.integers(-3, 3).map(lambda n: 1 + n * 2.0**-23)
    value = st.one_of(steps, st.sampled_from([1 / 3, -1.0, 2.0**-12, 4096.0, -4096.0, 1 + 2**-12]))
    row = st.lists(value, min_size=d, max_size=d)
    base = np.array(data.draw(st.lists(row, min_size=2, max_size=12)), dtype=np.float32)
    queries = np.array(data.draw(st.lists(row, min_size=1, max_size=2)), dtype=np.float32)
    k = data.draw(st.integers(1, len(base)))
    name = data.draw(st.sampled_from(SPACES))
    assert_in_order(search(base, queries, k, name), base, queries, k, name, slack=True)
