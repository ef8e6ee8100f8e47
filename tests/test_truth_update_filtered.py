"""Truth with filters, of documents and of bits, brought up to date: the bits of one made anew."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import semrecall as sr
from semrecall.cli import cli
from semrecall.data import Run, Vectors
from semrecall.data.allowed import Allowed
from semrecall.data.multivectors import MultiVectors
from semrecall.errors import InputError, MismatchError, SemrecallWarning
from semrecall.truth.rows import RowHashes, beside

SPACES = ("ip", "cosine", "l2", "hamming", "jaccard", "maxsim")


def told(*args: Any, **options: Any) -> tuple[Run, list[str]]:
    """A truth, and what was said of it."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        run = sr.truth(*args, **options)
    assert all(issubclass(one.category, SemrecallWarning) for one in said)
    return run, sorted(str(one.message) for one in said)


def assert_same(run: Run, fresh: Run) -> None:
    """The same neighbours, bits, reasons and identity; with spare ones, as far as both go."""
    assert (run.queries.array().tolist(), run.reasons) == (
        fresh.queries.array().tolist(), fresh.reasons,
    )  # fmt: skip
    assert run.scores is not None
    assert fresh.scores is not None
    spare = fresh.identity.get("spare")
    for mine, new, ids, wanted in zip(run.scores, fresh.scores, run.ids, fresh.ids, strict=True):
        if spare:
            assert len(mine) >= min(fresh.depth, len(new))
            least = min(len(mine), len(new))
            mine, new, ids, wanted = mine[:least], new[:least], ids[:least], wanted[:least]
        assert mine.tobytes() == new.tobytes()
        assert ids.tolist() == wanted.tolist()
    assert run.identity == fresh.identity
    assert (run.k, run.name, run.scores_by, run.space) == (
        fresh.k, fresh.name, fresh.scores_by, fresh.space,
    )  # fmt: skip


class World:
    """Rows with two columns, and queries with a filter each, by id, of few values: many ties."""

    def __init__(self, rng: np.random.Generator, space: str, kind: str, named: bool) -> None:
        self.rng, self.space, self.kind, self.named, self.next = rng, space, kind, named, 0
        self.rows: dict[Any, Any] = {}
        self.columns: dict[Any, Any] = {}
        self.asked: dict[Any, Any] = {}
        self.filters: dict[Any, Any] = {}
        for _ in range(int(rng.integers(0, 25))):
            self.insert_row()
        for _ in range(int(rng.integers(0, 6))):
            self.insert_query()

    def vector(self) -> Any:
        if self.space == "maxsim":
            rows = self.rng.integers(-1, 2, (int(self.rng.integers(0, 4)), 3)).astype(np.float32)
            if len(rows) and self.rng.random() < 0.05:
                rows[0, 0] = np.inf
            return rows
        if self.space in ("hamming", "jaccard"):
            bits = self.rng.random(11) < 0.3
            return bits if self.kind == "bool" else np.packbits(bits)
        vector = self.rng.integers(-1, 2, 3)
        if self.kind in ("int8", "uint8"):
            return np.abs(vector).astype(self.kind)
        vector = vector.astype(self.kind)
        if self.rng.random() < 0.05:
            vector[0] = np.nan
        return vector

    def row_columns(self) -> Any:
        return (["th", "de", None][int(self.rng.integers(0, 3))], int(self.rng.integers(0, 4)))

    def any_filter(self) -> Any:
        return [
            None, "lang = 'th'", "price < 2", "lang != 'th' and price > 0", "price > 9",
            "price >= 0",
        ][int(self.rng.integers(0, 6))]  # fmt: skip

    def insert_row(self) -> None:
        self.next += 1
        name = f"d{self.rng.integers(0, 100)}/{self.next}"
        self.rows[name], self.columns[name] = self.vector(), self.row_columns()

    def insert_query(self) -> None:
        self.next += 1
        self.asked[f"q{self.next}"] = self.vector()
        self.filters[f"q{self.next}"] = self.any_filter()

    def step(self, steps: list[str]) -> None:
        """One change of one of these kinds."""
        name = steps[int(self.rng.integers(0, len(steps)))]
        rows, asked = list(self.rows), list(self.asked)
        row = rows[int(self.rng.integers(0, len(rows)))] if rows else None
        query = asked[int(self.rng.integers(0, len(asked)))] if asked else None
        if name == "insert":
            self.insert_row()
        elif name == "ask":
            self.insert_query()
        elif name == "change" and row:
            self.rows[row] = self.vector()
        elif name == "columns" and row:
            self.columns[row] = self.row_columns()
        elif name == "delete":
            for gone in rows if self.rng.random() < 0.1 else [row] * bool(rows):
                del self.rows[gone], self.columns[gone]
        elif name == "change query" and query:
            self.asked[query] = self.vector()
        elif name == "filter" and query:
            self.filters[query] = self.any_filter()
        elif name == "forget" and query:
            del self.asked[query], self.filters[query]

    def shuffle(self, where: str) -> None:
        names = list(getattr(self, where))
        self.rng.shuffle(names)
        setattr(self, where, {name: getattr(self, where)[name] for name in names})

    def vectors(self, which: str, stream: bool = False) -> Any:
        some = getattr(self, which)
        ids = list(some) if self.named or which == "asked" else None
        if self.space == "maxsim":
            cuts = np.cumsum([0, *map(len, some.values())])
            matrix = np.concatenate([np.empty((0, 3), np.float32), *some.values()])
            return MultiVectors.of(matrix, offsets=cuts, ids=ids)
        shape = np.shape(self.vector())
        dtype = self.vector().dtype
        matrix = np.array(list(some.values()), dtype=dtype).reshape(-1, *shape)
        if stream:
            parts = np.array_split(matrix, 3)
            return Vectors.from_blocks(parts, ids=ids, length=len(some))
        return Vectors.of(matrix, ids=ids)

    def table(self) -> Any:
        names = list(self.rows)
        return {
            **({"id": pa.array(names, pa.string())} if self.named else {}),
            "lang": pa.array([self.columns[n][0] for n in names], pa.string()),
            "price": pa.array([self.columns[n][1] for n in names], pa.int64()),
        }

    def mask(self) -> Any:
        """What every query may find, (queries, rows)."""
        tests: dict[Any, Callable[[Any, Any], bool]] = {
            None: lambda lang, price: True,
            "lang = 'th'": lambda lang, price: lang == "th",
            "price < 2": lambda lang, price: price < 2,
            "lang != 'th' and price > 0": lambda lang, price: (
                lang not in ("th", None) and price > 0
            ),
            "price > 9": lambda lang, price: price > 9,
            "price >= 0": lambda lang, price: price >= 0,
        }
        rows = [self.columns[name] for name in self.rows]
        mask = [[tests[self.filters[q]](*row) for row in rows] for q in self.asked]
        return np.array(mask, dtype=bool).reshape(len(self.asked), len(rows))

    def filter(self, way: str) -> dict[str, Any]:
        if way == "none":
            return {}
        mask = self.mask()
        names = np.array([*self.rows, ""], dtype=object)[:-1]
        if not self.named:
            names = np.arange(len(names))
        if way == "predicates":
            # A filter of its own that no row has: predicates for all would be no filter.
            each = [self.filters[q] or "price < 99" for q in self.asked]
            return {"filter": dict(zip(self.asked, each, strict=True)), "columns": self.table()}
        if way == "ids":
            allowed = {q: names[row].tolist() for q, row in zip(self.asked, mask, strict=True)}
            return {"filter": allowed}
        if way == "bits":
            bits = np.packbits(mask, axis=1, bitorder="little")
            return {"filter": Allowed.of_bits(bits, len(names), order="little")}
        return {"filter": mask}


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.integers(0, 2**32 - 1), st.sampled_from(SPACES), st.integers(1, 30),
    st.sampled_from([0, 0, 3]), st.sampled_from(["was", "rows", "changed", "told", "columns"]),
    st.sampled_from(["none", "predicates", "ids", "bits", "mask"]),
    st.sampled_from(["float32", "float64", "float16", "int8", "uint8", "bool"]),
    st.booleans(), st.booleans(), st.sampled_from(["few", "rows", "all"]),
)  # fmt: skip
def test_any_sequence_of_changes(
    seed: int, space: str, k: int, spare: int, evidence: str, way: str, kind: str, named: bool,
    stream: bool, what: str,
) -> None:  # fmt: skip
    """As little as inserts, or all that may happen to rows, columns, queries and filters.

    Without proof, queries are only believed while their vectors stay what they are.
    """
    if space not in ("hamming", "jaccard") and kind == "bool":
        kind = "float32"
    steps = {
        "few": ["insert", "change"], "rows": ["insert", "change", "columns", "delete"],
        "all": ["insert", "change", "columns", "delete", "ask", "filter"],
    }[what]  # fmt: skip
    steps += ["change query", "forget"] * (what == "all" and evidence == "rows")
    if evidence == "changed" and not named:
        steps = [step for step in steps if step != "delete"]
    rng = np.random.default_rng(seed)
    world = World(rng, space, kind, named)
    base, filters, table = world.vectors("rows"), world.filter(way), world.table()
    with TemporaryDirectory() as folder:
        kept, other = Path(folder) / "truth.rows.parquet", Path(folder) / "other.parquet"
        keeps = {"keep_rows": kept} if evidence == "rows" else {}
        truth, _ = told(base, world.vectors("asked"), k, space, spare=spare, **keeps, **filters)
        for _ in range(3):
            before = list(world.rows.items())
            for _ in range(int(rng.integers(0, 6))):
                world.step(steps)
            if what == "all":
                world.shuffle("asked")
            if what != "few" and (named or evidence != "changed"):
                world.shuffle("rows")
            changed: list[Any] = [n for n, v in world.rows.items() if dict(before).get(n) is not v]
            if not named:
                now = list(world.rows.items())
                changed = [
                    at
                    for at in range(len(now))
                    if at >= len(before) or now[at][1] is not before[at][1]
                ]
            shown = {
                "was": {"was": base}, "rows": {"rows": kept}, "changed": {"changed": changed},
                "told": {"was": base, "was_filter": filters.get("filter"),
                         "was_columns": filters.get("columns")},
                "columns": {"was": base, "was_columns": table},
            }[evidence]  # fmt: skip
            k = max(1, k + int(rng.integers(-1, 2)))
            new, asked = world.vectors("rows", stream), world.vectors("asked")
            filters, table = world.filter(way), world.table()
            anew = {"keep_rows": other} if keeps else {}
            fresh, fresh_said = told(new, asked, k, space, spare=spare, **anew, **filters)
            notes: list[str] = []
            truth, said = told(
                new, asked, k, space, update=truth, notes=notes, **shown, **keeps, **filters
            )
            assert_same(truth, fresh)
            assert said == fresh_said
            assert len(notes) == 1
            if keeps:
                assert kept.read_bytes() == other.read_bytes()
            if evidence in ("rows", "told"):
                assert "not known what their filter" not in notes[0]
            base = world.vectors("rows")


def rows_of(n: int = 600, d: int = 6) -> tuple[Any, Any, Any]:
    """Vectors, queries, and a column of numbers below 100."""
    rng = np.random.default_rng(7)
    base = rng.standard_normal((n, d)).astype(np.float32)
    return base, rng.standard_normal((8, d)).astype(np.float32), rng.integers(0, 100, n)


def test_only_rows_whose_allowedness_changed_are_scored() -> None:
    base, queries, price = rows_of()
    each = ["price < 50", "price >= 50"] * 4
    named = Vectors.of(base, ids=np.arange(600))
    columns = {"id": np.arange(600), "price": price}
    old = sr.truth(named, queries, 5, "ip", filter=each, columns=columns, spare=5)
    later = {"id": np.arange(600), "price": price.copy()}
    # Ten rows go from one filter to the other; nobody's reserve of five is used up by that.
    some = [row for row in range(600) if not any(row in ids[:10] for ids in old.ids)][:10]
    later["price"][some] = 99 - later["price"][some]
    notes: list[str] = []
    shown = {"was": named, "was_columns": columns}
    run = sr.truth(named, queries, 5, "ip", filter=each, columns=later, update=old, notes=notes,
                   **shown)  # fmt: skip
    assert_same(run, sr.truth(named, queries, 5, "ip", filter=each, columns=later, spare=5))
    assert notes == [
        "10 rows scored (0 inserted, 0 changed, 0 deleted, 10 newly allowed); 0 of 8 queries "
        "searched anew"
    ]
    # A new filter for one query concerns that one only.
    wider = ["price < 60", *each[1:]]
    notes.clear()
    run = sr.truth(named, queries, 5, "ip", filter=wider, columns=columns, update=old, notes=notes,
                   was=named, was_filter=each, was_columns=columns)  # fmt: skip
    assert_same(run, sr.truth(named, queries, 5, "ip", filter=wider, columns=columns, spare=5))
    added = int(((price >= 50) & (price < 60)).sum())
    assert f"{added} rows scored" in notes[0]
    assert "0 of 8 queries" in notes[0]


def test_what_a_truth_remembers_of_its_filter_is_enough_without_deletions() -> None:
    base, queries, price = rows_of()
    masks = np.array([price < 50, price >= 50] * 4)
    old = sr.truth(base, queries, 5, "l2", filter=masks)
    more = np.concatenate([base, base[:3] / 2])
    wider = np.concatenate([masks, np.ones((8, 3), dtype=bool)], axis=1)
    notes: list[str] = []
    run = sr.truth(more, queries, 5, "l2", filter=wider, update=old, changed=range(600, 603),
                   notes=notes)  # fmt: skip
    assert_same(run, sr.truth(more, queries, 5, "l2", filter=wider))
    assert notes == ["3 rows scored; 0 of 8 queries searched anew"]
    # One bit more, and nothing is known of any filter.
    wider[0, int(np.argmax(~masks[0]))] = True
    notes.clear()
    run = sr.truth(more, queries, 5, "l2", filter=wider, update=old, changed=range(600, 603),
                   notes=notes)  # fmt: skip
    assert_same(run, sr.truth(more, queries, 5, "l2", filter=wider))
    assert "8 of 8 queries searched anew (8 of which it is not known what their filter" in notes[0]
    assert "; --keep-rows, or --was with --was-filter or --was-columns, tells" in notes[0]


def test_all_and_nothing_are_known_by_their_numbers() -> None:
    base, queries, price = rows_of()
    named = Vectors.of(base, ids=np.arange(600))
    masks = np.array([price >= 0, price < 0, price < 50, price >= 0] * 2)
    old = sr.truth(named, queries, 5, "ip", filter=masks)
    fewer = Vectors.of(base[5:], ids=np.arange(5, 600))
    now = np.roll(masks[:, 5:], -1, axis=0)
    notes: list[str] = []
    run = sr.truth(fewer, queries, 5, "ip", filter=now, update=old, changed=[], notes=notes)
    assert_same(run, sr.truth(fewer, queries, 5, "ip", filter=now))
    assert "2 of which it is not known" in notes[0]
    # An older truth without filters allowed everything.
    bare = sr.truth(named, queries, 5, "ip", spare=300)
    notes.clear()
    run = sr.truth(fewer, queries, 5, "ip", filter=now, update=bare, changed=[], notes=notes)
    assert_same(run, sr.truth(fewer, queries, 5, "ip", filter=now, spare=300))
    assert "not known" not in notes[0]


def test_a_run_of_some_queries_does_not_know_which_filter_was_whose() -> None:
    base, _, price = rows_of()
    queries = Vectors.of(np.ones((2, 6), dtype=np.float32), ids=["a", "b"])  # equal vectors
    masks = {"a": price < 50, "b": price < 80}
    filters = {name: np.flatnonzero(mask) for name, mask in masks.items()}
    with TemporaryDirectory() as folder:
        kept = Path(folder) / "r.parquet"
        old = sr.truth(base, queries, 5, "ip", filter=filters, keep_rows=kept)
        turned = old.select([1, 0])
        swapped = {"a": filters["b"], "b": filters["a"]}
        asked = Vectors.of(queries.matrix, ids=["b", "a"])
        for told_now in ({"rows": kept}, {"was": base}, {"changed": []}):
            run = sr.truth(base, asked, 5, "ip", filter=swapped, update=turned, **told_now)
            assert_same(run, sr.truth(base, asked, 5, "ip", filter=swapped))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, InputError, "is filtered, and no filter is given"),
        ({"filter": "price < 9", "was": "base", "was_filter": "price < 8"}, MismatchError,
         "the filter given as the old one is not that of the truth to update"),
        ({"filter": "price < 9", "was_filter": "price < 9", "changed": [1]}, InputError,
         "the old filter is of the old base, whose ids are not known"),
        ({"filter": "price < 9", "was": "base", "was_columns": {"weight": [1] * 600}}, InputError,
         "looks at the column 'price', which there is not"),
        ({"filter": "price < 9", "was_filter": "price < 9", "update": None}, InputError,
         "was_filter, was_columns are for an update"),
    ],
)  # fmt: skip
def test_what_is_said_of_filters_is_checked(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    base, queries, price = rows_of()
    named = Vectors.of(base, ids=np.arange(600))
    columns = {"price": price}
    old = sr.truth(named, queries, 5, "ip", filter="price < 9", columns=columns)
    given_all = {"update": old, "changed": None} | options
    if given_all.get("was") == "base":
        given_all["was"] = named
    elif given_all["update"] is not None:
        given_all["changed"] = [1]
    if "was_filter" in options and "was" in options:
        given_all["was_columns"] = columns
    with pytest.raises(error, match=message):
        sr.truth(named, queries, 5, "ip", columns=columns, **given_all)


def test_a_truth_that_lost_neighbours_is_refused() -> None:
    base, queries, price = rows_of()
    old = sr.truth(base, queries, 5, "ip")
    with pytest.raises(MismatchError, match=r"lacks neighbours: query 0 has 4 with a score, of 5"):
        sr.truth(base, queries, 5, "ip", update=old.without([int(old.ids[0][0])]), was=base)
    some = sr.truth(base, queries, 5, "ip", filter=price < 9)
    with pytest.raises(MismatchError, match="lacks neighbours"):
        sr.truth(base, queries, 5, "ip", filter=price < 9, was=base,
                 update=some.without([int(some.ids[3][0])]))  # fmt: skip


def test_kept_filters_of_another_truth_are_refused(tmp_path: Path) -> None:
    base, queries, price = rows_of()
    kept = tmp_path / "r.parquet"
    old = sr.truth(base, queries, 5, "ip", filter=price < 50, keep_rows=kept)
    other = tmp_path / "other.parquet"
    sr.truth(base, queries, 5, "ip", filter=price < 51, keep_rows=other)
    with pytest.raises(MismatchError, match="the row hashes has other rows"):
        sr.truth(base, queries, 5, "ip", filter=price < 50, update=old, rows=other)
    # Hashes without filters tell of rows only; what is known by its number goes on.
    bare = RowHashes.read(kept)
    bare = RowHashes(bare.hashes, bare.ids, bare.queries)
    notes: list[str] = []
    sr.truth(base, queries, 5, "ip", filter=price < 51, update=old, rows=bare, notes=notes)
    assert "8 of which it is not known what their filter allowed before" in notes[0]


def shell(*words: str) -> str:
    done = CliRunner().invoke(cli, ["truth", *words], catch_exceptions=True)
    assert done.exit_code == 0 or isinstance(done.exception, sr.SemrecallError | OSError), done
    return done.output if done.exception is None else str(done.exception)


def test_filters_at_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    base, queries, price = rows_of()
    np.save("queries.npy", queries)
    for name, part in (("old", slice(0, 590)), ("new", slice(10, 600))):
        now = price if name == "old" else np.where(np.arange(600) % 50 == 0, 99 - price, price)
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(base[part].reshape(-1)), 6)
        names = [f"d{at}" for at in range(600)][part]
        table = pa.table({"id": names, "price": now[part], "vector": vectors})
        # Shards of parquet, read one after another.
        Path(name).mkdir()
        pq.write_table(table.slice(0, 200), f"{name}/part-1.parquet")
        pq.write_table(table.slice(200), f"{name}/part-2.parquet")
        np.save(f"{name}.npy", np.packbits(now[part] < 30, bitorder="little"))
    asked = ("queries.npy", "-k", "5", "--space", "ip")
    way = ("--filter", "price < 30")
    shell("new", *asked, *way, "-o", "fresh.parquet")
    shell("old", *asked, *way, "--keep-rows", "-o", "kept.parquet")
    shell("old", *asked, *way, "-o", "old.parquet")
    said = shell("new", *asked, *way, "--update", "kept.parquet", "-o", "kept.parquet")
    assert "10 inserted, 0 changed, 10 deleted" in said
    assert "not known" not in said
    assert beside("kept.parquet").exists()
    for more in (("--was", "old"), ("--was", "old", "--was-filter", "price < 30")):
        said = shell("new", *asked, *way, "--update", "old.parquet", *more, "-o", "now.parquet")
        assert "not known" not in said
        assert_same(sr.read("now.parquet"), sr.read("fresh.parquet"))
    # Packed bits: those of the old base are given beside.
    bits = ("--filter-bits", "little")
    shell("old", *asked, "--filter", "old.npy", *bits, "-o", "bits.parquet")
    shell("new", *asked, "--filter", "new.npy", *bits, "-o", "fresh.parquet")
    said = shell("new", *asked, "--filter", "new.npy", *bits, "--update", "bits.parquet",
                 "--was", "old", "--was-filter", "old.npy", "-o", "now.parquet")  # fmt: skip
    assert "not known" not in said
    assert_same(sr.read("now.parquet"), sr.read("fresh.parquet"))
    said = shell("new", *asked, "--filter", "new.npy", *bits, "--update", "bits.parquet",
                 "--changed", "queries.npy", "--was-filter", "old.npy")  # fmt: skip
    assert "packed bits of --was-filter are of the rows of --was" in said


def test_documents_at_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(3)
    lengths = rng.integers(1, 5, 60)
    cuts = np.concatenate([[0], np.cumsum(lengths)])
    documents = MultiVectors.of(
        rng.standard_normal((cuts[-1], 4)).astype(np.float32), offsets=cuts,
        ids=[f"d{at}" for at in range(60)],
    )  # fmt: skip
    np.save("queries.npy", rng.standard_normal((7, 3, 4)).astype(np.float32))

    def folder(name: str, some: MultiVectors) -> None:
        Path(name).mkdir()
        np.save(f"{name}/vectors.npy", some.matrix)
        np.save(f"{name}/offsets.npy", some.offsets)
        Path(f"{name}/ids.txt").write_text("\n".join(some.ids))

    folder("old", documents.take(np.arange(55)))
    changed = documents.matrix.copy()
    changed[documents.rows_of(np.array([20]))] *= 2
    folder("new", MultiVectors.of(changed, offsets=cuts, ids=documents.ids).take(np.arange(5, 60)))
    Path("changed.txt").write_text("\n".join(f"d{at}" for at in (20, 55, 56, 57, 58, 59)))
    asked = ("queries.npy", "-k", "5", "--space", "maxsim")
    shell("new", *asked, "-o", "fresh.parquet")
    shell("old", *asked, "--spare", "10", "--keep-rows", "-o", "kept.parquet")
    said = shell("new", *asked, "--update", "kept.parquet", "-o", "kept.parquet")
    assert "6 rows scored (5 inserted, 1 changed, 5 deleted); 0 of 7 queries" in said
    shell("old", *asked, "-o", "old.parquet")
    for more in (("--was", "old"), ("--changed", "changed.txt")):
        said = shell("new", *asked, "--update", "old.parquet", *more, "-o", "now.parquet")
        assert "6 rows scored" in said
        assert_same(sr.read("now.parquet"), sr.read("fresh.parquet"))


def test_documents_that_were_cut_elsewhere_are_others() -> None:
    """The same vectors in the same order, as other documents: their hashes tell."""
    matrix = np.arange(24, dtype=np.float32).reshape(8, 3)
    one = MultiVectors.of(matrix, offsets=[0, 2, 4, 8])
    two = MultiVectors.of(matrix, offsets=[0, 3, 4, 8])
    asked = MultiVectors.of(np.ones((1, 1, 3), dtype=np.float32))
    assert (RowHashes.of(one).hashes == RowHashes.of(two).hashes).tolist() == [False, False, True]
    old = sr.truth(one, asked, 1, "maxsim")
    with pytest.raises(MismatchError, match="same shape and type, but other values"):
        sr.truth(two, asked, 1, "maxsim", update=old, was=two)


@pytest.mark.parametrize("name", ["hamming", "jaccard"])
@pytest.mark.parametrize("suffix", ["npy", "u8bin", "bvecs", "parquet", "hdf5", "bool"])
def test_bits_in_files_are_updated_too(tmp_path: Path, name: str, suffix: str) -> None:
    rng = np.random.default_rng(5)
    bits = rng.integers(0, 4, (300, 2)).astype(np.uint8)
    asked = bits[:9]
    if suffix == "bool":
        bits, asked = bits[:, :1] > np.arange(3), asked[:, :1] > np.arange(3)
    for part, rows in (("old", bits[:280]), ("new", np.concatenate([bits[:100], bits[120:]]))):
        Path(tmp_path / part).mkdir()
        for at, low in enumerate((0, 150)):
            some, path = rows[low : low + 150 if at == 0 else None], tmp_path / part / f"{at}"
            write_bits(path, some, suffix)
    old = told(str(tmp_path / "old"), asked, 20, name, keep_rows=tmp_path / "r.parquet")[0]
    new = str(tmp_path / "new")
    fresh, fresh_said = told(new, asked, 20, name)
    run, said = told(new, asked, 20, name, update=old, rows=tmp_path / "r.parquet")
    assert_same(run, fresh)
    assert said == fresh_said
    run, said = told(new, asked, 20, name, update=old, was=str(tmp_path / "old"))
    assert_same(run, fresh)


def write_bits(path: Path, bits: Any, suffix: str) -> None:
    if suffix in ("npy", "bool"):
        np.save(f"{path}.npy", bits)
    elif suffix == "u8bin":
        header = np.array(bits.shape, dtype="<u4")
        Path(f"{path}.u8bin").write_bytes(header.tobytes() + bits.tobytes())
    elif suffix == "bvecs":
        widths = np.full((len(bits), 1), bits.shape[1], dtype="<i4")
        rows = np.concatenate([widths.view(np.uint8).reshape(len(bits), 4), bits], axis=1)
        Path(f"{path}.bvecs").write_bytes(rows.tobytes())
    elif suffix == "parquet":
        kind = pa.FixedSizeListArray.from_arrays(pa.array(bits.reshape(-1)), bits.shape[1])
        pq.write_table(pa.table({"vector": kind}), f"{path}.parquet")
    else:
        h5py = pytest.importorskip("h5py")
        with h5py.File(f"{path}.hdf5", "w") as file:
            file["train"] = bits
