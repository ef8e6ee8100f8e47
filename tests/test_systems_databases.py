"""What all adapters of databases share, by a database that is a dictionary."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest

from semrecall.errors import InputError, MismatchError, SystemFault
from semrecall.space import COSINE, L2
from semrecall.systems import Knob
from semrecall.systems.collection import (
    Asked,
    Asker,
    Collection,
    CollectionSystem,
    Found,
    Recipe,
    by_filter,
    only_one,
)
from semrecall.systems.connection import Session
from semrecall.systems.stored import answer
from semrecall.systems.units import UNITS
from semrecall.testing import check_system

BASE = np.random.default_rng(4).standard_normal((60, 5)).astype(np.float32)
#: The shelves there are: name -> (metric, ids, vectors).
SHELVES: dict[str, tuple[str, list[Any], list[Any]]] = {}


class Broken(Exception):
    """What the database raises."""


class Shelf(CollectionSystem):
    """Vectors on a shelf. It tells squared distances, and 1 - cosine."""

    engine, title, noun = "shelf", "Shelf", "shelf"
    key, example = "SHELF_KEY", "shelf://127.0.0.1/docs"
    metrics: ClassVar = {"angle": "cosine-distance", "square": "squared-l2"}
    asked: list[tuple[Any, int]]
    fails: str = ""

    @property
    def knobs(self) -> tuple[Knob, ...]:
        return (Knob("height", "build", 1, 9, 3, "how high it hangs"),)

    def _open(self) -> Session:
        self.asked = []
        return Session(SHELVES, lambda: None)

    def _names(self) -> Sequence[str]:
        return list(self._client)

    def _look(self, name: str) -> Collection | None:
        if name not in self._names():
            return None
        metric, ids, vectors = SHELVES[name]
        space = self._space_told(metric, f"the shelf {name!r}")
        return Collection(name, "", "", len(vectors[0]), space, len(ids), exact=True)

    def _create(self, recipe: Recipe) -> None:
        self._client[self.collection] = (self._metric(recipe.space), [], [])

    def _insert(self, ids: list[Any], block: Any) -> None:
        if self.fails == "insert":
            raise Broken("no room for sesame")
        _, names, vectors = SHELVES[str(self.collection)]
        names += map(str, ids)
        vectors += list(block)

    def _dropping(self) -> Callable[[], Any]:
        return partial(SHELVES.pop, str(self.collection), None)

    def _failures(self) -> tuple[type[BaseException], ...]:
        return (Broken,)

    def _asked_wrongly(self, error: Any, said: str, doing: str) -> bool:
        return "filter" in said

    def _hint(self, error: Any, said: str) -> str | None:
        return "buy a larger one" if "room" in said else None

    def _asker(self, asked: Asked) -> Asker:
        metric, names, vectors = SHELVES[self._held().name]
        rows = np.array(vectors, dtype=np.float64)

        def ask(matrix: Any, given: Any) -> Sequence[Found]:
            self.asked.append((given, len(matrix)))
            if given == "?":
                raise Broken("this is no filter")
            found: list[Found] = []
            for query in matrix.astype(np.float64):
                told = ((rows - query) ** 2).sum(axis=1)
                if metric == "angle":
                    lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(query)
                    told = 1 - rows @ query / lengths
                near = np.argsort(told, kind="stable")[: asked.k]
                found.append(([names[i] for i in near], told[near]))
            return found

        return ask

    def _pages(self, *, vectors: bool) -> Iterator[tuple[Any, Any]]:
        _, names, rows = SHELVES[self._held().name]
        for at in range(0, len(names), 25):
            yield names[at : at + 25], np.array(rows[at : at + 25])


@pytest.fixture(autouse=True)
def empty() -> Iterator[None]:
    SHELVES.clear()
    yield
    SHELVES.clear()


def shelf(name: str = "", **options: Any) -> Shelf:
    return Shelf(f"shelf://127.0.0.1/{name}", **options)


@pytest.mark.parametrize("space", ["cosine", "l2"])
def test_an_adapter_that_only_translates_keeps_the_contract(space: str) -> None:
    check_system(shelf, space=space, exact=True)
    gc.collect()
    assert SHELVES == {}


def test_queries_that_share_a_filter_are_asked_together() -> None:
    system = shelf("docs").build(BASE, "l2")
    system.search(BASE[:5], 2, filters=["a", None, {"b": 1}, "", {"b": 1}])
    assert system.asked == [("a", 1), (None, 2), ({"b": 1}, 2)]


def test_of_many_queries_some_are_asked_at_a_time() -> None:
    groups = [(given, rows.tolist()) for given, rows in by_filter(["x", None, "x", "x"], 2)]
    assert groups == [("x", [0, 2]), ("x", [3]), (None, [1])]


def test_a_build_that_fails_leaves_nothing_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELF_KEY", "sesame")
    monkeypatch.setattr(Shelf, "fails", "insert")
    with pytest.raises(SystemFault) as error:
        shelf("docs").build(BASE, "l2")
    assert error.value.message == "Shelf at 127.0.0.1:0 failed at a build: no room for ***"
    assert error.value.hint == "buy a larger one"
    assert SHELVES == {}


def test_what_is_asked_wrongly_is_no_fault_of_the_database() -> None:
    with pytest.raises(InputError, match="failed at a search: this is no filter"):
        shelf("docs").build(BASE, "l2").search(BASE[:1], 2, filters=["?"])


def test_a_space_that_the_database_does_not_know() -> None:
    with pytest.raises(MismatchError, match="Shelf has no space ip; it has cosine and l2"):
        shelf("docs").build(BASE, "ip")
    SHELVES["odd"] = ("taste", [1], [[0.0]])
    with pytest.raises(InputError, match="'odd' compares by taste; expected angle or square"):
        _ = shelf("odd").space


def test_a_shelf_is_found_by_its_name_and_never_built_over() -> None:
    built = shelf("docs").build(BASE, "l2", height=5)
    assert built.describe() == {
        "system": "shelf", "place": "Shelf at 127.0.0.1:0", "shelf": "docs", "index": None,
        "exact": True, "space": "l2", "rows": 60, "dimension": 5, "height": 5,
        "build_seconds": built.describe()["build_seconds"],
    }  # fmt: skip
    built.close()
    assert list(SHELVES) == ["docs"]
    assert shelf(shelf="docs").ntotal == 60
    with pytest.raises(InputError, match="the shelf 'docs' exists") as error:
        shelf("docs").build(BASE[:9], "l2")
    assert "replace=true" in str(error.value.hint)
    assert shelf("docs", replace=True).build(BASE[:9], "l2").ntotal == 9
    with pytest.raises(InputError, match="there is no shelf 'dosc'") as error:
        _ = shelf("dosc").space
    assert "did you mean docs?" in str(error.value.hint)
    with pytest.raises(InputError, match="names no shelf"):
        _ = shelf().space
    with pytest.raises(InputError, match="needs an address"):
        Shelf()
    with pytest.raises(TypeError, match="Shelf takes no rack"):
        shelf(rack="docs")


def test_vectors_are_read_in_pages_and_a_change_is_noticed() -> None:
    held = shelf("docs").build(BASE, "l2").vectors()
    np.testing.assert_array_equal(np.concatenate([b for _, b in held.blocks(100)]), BASE)
    assert held.ids.array().tolist() == list(range(60))
    SHELVES["docs"][1][30] = "another"
    with pytest.raises(SystemFault, match="'docs' changed while it was read"):
        list(held.blocks(100))


def test_answers_are_sorted_in_the_unit_of_their_space() -> None:
    unit = UNITS["squared-l2"]
    # Squared 9, 4, nothing: distances 3 and 2, so the second is first; texts of integers are ids.
    ids, scores = answer([(["7", "8", "9"], [9.0, 4.0, None]), (["5"], [1.0])], unit)
    assert ids.tolist() == [[8, 7, -1], [5, -1, -1]]
    np.testing.assert_array_equal(scores, [[2, 3, np.nan], [1, np.nan, np.nan]])
    ids, _ = answer([(["7", "b"], [0.0, 1.0]), ([], [])], unit)
    assert ids.tolist() == [["7", "b"], ["", ""]]
    assert answer([], unit, integer_ids=True)[0].shape == (0, 0)
    assert (UNITS["cosine-distance"].space, unit.space) == (COSINE, L2)


@pytest.mark.parametrize(
    ("asked", "there", "message"),
    [
        ("w", ["v"], "the table 't' has no column of vectors 'w'"),
        (None, ["u", "v"], "the table 't' has several columns of vectors: u, v"),
        (None, [], "the table 't' has no column of vectors"),
    ],
)
def test_one_of_several_columns_is_named(asked: Any, there: list[str], message: str) -> None:
    with pytest.raises(InputError) as error:
        only_one(asked, there, "the table 't'", "column of vectors", "column")
    assert error.value.message == message
    assert only_one("v", ["u", "v"], "", "", "") == only_one(None, ["v"], "", "", "") == "v"
