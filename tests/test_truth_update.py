"""Truth brought up to date: the same bits and identity as a truth made anew."""

from __future__ import annotations

import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import semrecall as sr
from semrecall.cli import cli
from semrecall.data import Run, Vectors
from semrecall.errors import InputError, MismatchError, SemrecallWarning
from semrecall.truth.rows import RowHashes, beside

SPACES = ("ip", "cosine", "l2")


def quiet(*args: Any, **options: Any) -> Run:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SemrecallWarning)
        return sr.truth(*args, **options)


def assert_same(run: Run, fresh: Run) -> None:
    """The same neighbours down to k and its ties, the same bits, the same identity."""
    assert run.queries == fresh.queries
    assert run.reasons == fresh.reasons
    assert run.scores is not None
    assert fresh.scores is not None
    for mine, new, ids, wanted in zip(run.scores, fresh.scores, run.ids, fresh.ids, strict=True):
        assert mine[: len(new)].tobytes() == new[: len(mine)].tobytes() or not fresh.identity.get(
            "spare"
        )
        if not fresh.identity.get("spare"):
            assert mine.tobytes() == new.tobytes()
            assert ids.tolist() == wanted.tolist()
        else:
            k = fresh.depth
            assert len(mine) >= min(k, len(new))
            least = min(len(mine), len(new))
            assert ids[:least].tolist() == wanted[:least].tolist()
    assert run.identity == fresh.identity
    assert (run.k, run.name, run.scores_by, run.space) == (
        fresh.k, fresh.name, fresh.scores_by, fresh.space,
    )  # fmt: skip


class World:
    """Rows and queries by id, of few values, so that there are ties and duplicates."""

    def __init__(self, rng: np.random.Generator, text: bool) -> None:
        self.rng, self.text, self.next = rng, text, 0
        self.rows: dict[Any, Any] = {}
        self.asked: dict[Any, Any] = {}
        self.touched: set[Any] = set()
        for _ in range(int(rng.integers(0, 25))):
            self.insert(self.rows)
        for _ in range(int(rng.integers(1, 6))):
            self.insert(self.asked)

    def vector(self) -> Any:
        vector = self.rng.integers(-1, 2, 3).astype(np.float32)
        if self.rng.random() < 0.05:
            vector[0] = np.nan
        return vector

    def insert(self, where: dict[Any, Any]) -> None:
        self.next += 1
        name = f"d{self.rng.integers(0, 1000)}/{self.next}" if self.text else self.next * 7
        where[name] = self.vector()
        self.touched.add(name)

    def step(self, where: dict[Any, Any]) -> None:
        kind = self.rng.integers(0, 3)
        if kind == 0 or not where:
            self.insert(where)
            return
        name = list(where)[int(self.rng.integers(0, len(where)))]
        if kind == 1:
            where[name] = self.vector()
            self.touched.add(name)
        else:
            del where[name]

    def vectors(
        self, where: dict[Any, Any], *, stream: bool = False, shuffled: bool = True
    ) -> Vectors:
        names = list(where)
        if shuffled:
            self.rng.shuffle(names)
        matrix = np.array([where[n] for n in names], dtype=np.float32).reshape(-1, 3)
        if stream:
            return Vectors.from_blocks(np.array_split(matrix, 3), ids=names, length=len(names))
        return Vectors.of(matrix, ids=names)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.integers(0, 2**32 - 1), st.booleans(), st.sampled_from(SPACES), st.integers(1, 6),
    st.sampled_from([0, 0, 3]), st.sampled_from(["was", "rows", "changed"]), st.booleans(),
)  # fmt: skip
def test_any_sequence_of_changes(
    seed: int, text: bool, name: str, k: int, spare: int, evidence: str, stream: bool
) -> None:
    rng = np.random.default_rng(seed)
    world = World(rng, text)
    base, queries = world.vectors(world.rows), world.vectors(world.asked, shuffled=False)
    with TemporaryDirectory() as folder:
        kept = Path(folder) / "truth.rows.parquet"
        keeps = {"keep_rows": kept} if evidence == "rows" else {}
        truth = quiet(base, queries, k, name, spare=spare, **keeps)
        for _ in range(4):
            world.touched = set()
            for _ in range(int(rng.integers(0, 6))):
                world.step(world.rows)
            for _ in range(int(rng.integers(0, 3))):
                # Only kept hashes prove what became of queries, when more than that some came.
                world.step(world.asked) if evidence == "rows" else world.insert(world.asked)
            changed = [n for n in world.touched if n in world.rows]
            told = {"was": base, "rows": kept, "changed": changed}
            k = max(1, k + int(rng.integers(-1, 2)))
            base = world.vectors(world.rows, stream=stream)
            queries = world.vectors(world.asked, shuffled=evidence == "rows")
            given = {evidence: told[evidence]} | keeps
            truth = quiet(base, queries, k, name, update=truth, **given)
            other = {name: Path(folder) / "other.parquet" for name in keeps}
            assert_same(truth, quiet(base, queries, k, name, spare=spare, **other))
            if keeps:
                assert kept.read_bytes() == other["keep_rows"].read_bytes()


def world(rows: int = 2000, queries: int = 20, d: int = 8) -> tuple[Any, Any, list[str]]:
    rng = np.random.default_rng(2)
    base = rng.standard_normal((rows, d)).astype(np.float32)
    return (
        base,
        rng.standard_normal((queries, d)).astype(np.float32),
        [f"d{i}" for i in range(rows)],
    )


def test_only_queries_that_ran_out_search_the_base(monkeypatch: pytest.MonkeyPatch) -> None:
    base, queries, names = world()
    old = sr.truth(Vectors.of(base, ids=names), queries, 10, "ip")
    verb = __import__("semrecall.truth.verb", fromlist=["_searched"])
    asked: list[int] = []
    searched = verb._searched
    monkeypatch.setattr(
        verb, "_searched",
        lambda source, some, *rest, **more: (
            asked.append(len(some)), searched(source, some, *rest, **more)
        )[1],
    )  # fmt: skip
    # Two of ten neighbours of query 3 go, and one row comes that is nearest to all.
    gone = set(old.ids[3][:2].tolist())
    lost = sum(bool(gone & set(row.tolist())) for row in old.ids)
    kept = np.array([n not in gone for n in names])
    new = Vectors.of(
        np.concatenate([base[kept], queries[3:4] * 9]),
        ids=[*(n for n in names if n not in gone), "new"],
    )
    notes: list[str] = []
    run = sr.truth(new, queries, 10, "ip", update=old, changed=["new"], notes=notes)
    ran_out = asked.copy()
    assert_same(run, sr.truth(new, queries, 10, "ip"))
    # The row that came fills one of the gaps where it is as near: those queries did not run out.
    assert len(ran_out) == 1
    assert 1 <= ran_out[0] <= lost
    assert f"1 row scored; {ran_out[0]} of 20 queries searched anew" in notes[0]
    assert "whose stored neighbours ran out" in notes[0]


def test_spare_neighbours_last_for_many_deletions() -> None:
    base, queries, names = world()
    whole = Vectors.of(base, ids=names)
    tight = sr.truth(whole, queries, 10, "l2")
    spare = sr.truth(whole, queries, 10, "l2", spare=20)
    assert (spare.k, spare.depth, spare.identity["spare"]) == (10, 10, 20)
    assert {len(row) for row in spare.ids} == {30}
    assert [row[:10].tolist() for row in spare.ids] == tight.ids.to_list()
    rng = np.random.default_rng(0)
    alive = np.ones(len(names), dtype=bool)
    for _ in range(4):
        before = Vectors.of(base[alive], ids=np.array(names)[alive])
        alive &= rng.random(len(names)) > 0.05
        now = Vectors.of(base[alive], ids=np.array(names)[alive])
        for_spare: list[str] = []
        for_tight: list[str] = []
        spare = sr.truth(now, queries, 10, "l2", update=spare, was=before, notes=for_spare)
        tight = sr.truth(now, queries, 10, "l2", update=tight, was=before, notes=for_tight)
        assert "0 of 20 queries searched anew" in for_spare[0]
        assert "ran out" in for_tight[0]
        assert_same(tight, sr.truth(now, queries, 10, "l2"))
        assert_same(spare, sr.truth(now, queries, 10, "l2", spare=20))


def test_row_hashes_are_found_beside_the_truth(tmp_path: Path) -> None:
    base, queries, names = world()
    path = tmp_path / "truth.parquet"
    kept = beside(path)
    assert kept.name == "truth.rows.parquet"
    sr.write(sr.truth(Vectors.of(base, ids=names), queries, 5, "ip", keep_rows=kept), path)
    base[7] *= 3
    now = Vectors.of(base, ids=names)
    notes: list[str] = []
    run = sr.truth(now, queries, 5, "ip", update=path, keep_rows=kept, notes=notes)
    assert_same(run, sr.truth(now, queries, 5, "ip", keep_rows=tmp_path / "other.parquet"))
    assert kept.read_bytes() == (tmp_path / "other.parquet").read_bytes()
    assert "1 row scored (0 inserted, 1 changed, 0 deleted); " in notes[0]
    # The file of the truth was not written: its hashes are no longer beside it.
    with pytest.raises(MismatchError, match="the row hashes has other rows"):
        sr.truth(now, queries, 5, "ip", update=path)


def test_rows_that_go_by_number() -> None:
    base, queries, _ = world(300)
    old = sr.truth(base, queries, 5, "ip")
    more = np.concatenate([base, base[:4] * 2])
    appended = sr.truth(more, queries, 5, "ip", update=old, changed=range(300, 304))
    assert_same(appended, sr.truth(more, queries, 5, "ip"))
    with pytest.raises(MismatchError, match="all numbers behind it are other rows"):
        sr.truth(np.delete(base, 9, axis=0), queries, 5, "ip", update=old, changed=[])
    # With the old base at hand it is only more work: rows from number 9 on are other ones.
    notes: list[str] = []
    shifted = np.delete(base, 9, axis=0)
    run = sr.truth(shifted, queries, 5, "ip", update=old, was=base, notes=notes)
    assert_same(run, sr.truth(shifted, queries, 5, "ip"))
    assert "290 rows scored (0 inserted, 290 changed, 1 deleted)" in notes[0]
    with pytest.raises(MismatchError, match="the new base has ids, the old one has none"):
        sr.truth(Vectors.of(base, ids=range(300)), queries, 5, "ip", update=old, was=base)


def test_queries_are_recognised_or_searched_anew() -> None:
    base, queries, names = world(300)
    rows = Vectors.of(base, ids=names)
    old = sr.truth(rows, Vectors.of(queries, ids=range(20)), 5, "cosine")
    changed = queries.copy()
    changed[4] += 0.01
    new = Vectors.of(np.concatenate([changed[1:], queries[:1] * 2]), ids=[*range(1, 20), 77])
    notes: list[str] = []
    run = sr.truth(rows, new, 5, "cosine", update=old, was=rows, notes=notes)
    assert_same(run, sr.truth(rows, new, 5, "cosine"))
    assert "18 queries recognised by the scores of their neighbours, without proof" in notes[0]
    assert "2 of 20 queries searched anew (1 that are new, 1 that changed)" in notes[0]


def test_a_changed_row_that_is_not_named_is_found_out() -> None:
    base, queries, names = world(300)
    old = sr.truth(Vectors.of(base, ids=names), queries, 5, "l2")
    first = int(old.ids[0][0].removeprefix("d"))
    base = base.copy()
    base[first] += 0.5
    with pytest.raises(MismatchError, match=rf"1 row of the base .* the first is 'd{first}'"):
        sr.truth(Vectors.of(base, ids=names), queries, 5, "l2", update=old, changed=["d7"])
    # Also where the queries are no longer the same ones.
    with pytest.raises(MismatchError, match=rf"1 row of the base .* the first is 'd{first}'"):
        sr.truth(Vectors.of(base, ids=names), queries[:19], 5, "l2", update=old, changed=["d7"])
    # An old base that is not quite the one: what is not sampled for its fingerprint differs.
    with pytest.raises(MismatchError, match=r"not that of the truth|other scores than in"):
        sr.truth(Vectors.of(base, ids=names), queries, 5, "l2",
                 update=old, was=Vectors.of(base, ids=names))  # fmt: skip


def test_ties_that_were_cut_off() -> None:
    """1,500 equal rows, of which 1,005 are stored: which ones tie is no longer known for sure."""
    base = np.ones((1500, 3), dtype=np.float32)
    queries = np.eye(3, dtype=np.float32)[:2]
    names = np.arange(1500)
    old = quiet(Vectors.of(base, ids=names), queries, 5, "ip")
    assert {len(row) for row in old.ids} == {1005}
    notes: list[str] = []
    fewer = Vectors.of(base[3:], ids=names[3:])
    run = quiet(fewer, queries, 5, "ip", update=old, was=Vectors.of(base, ids=names), notes=notes)
    assert_same(run, quiet(fewer, queries, 5, "ip"))
    assert "2 of 2 queries searched anew" in notes[0]
    far = Vectors.of(np.concatenate([base, -base[:1]]), ids=[*names, 9000])
    notes.clear()
    run = quiet(far, queries, 5, "ip", update=old, changed=[9000], notes=notes)
    assert_same(run, quiet(far, queries, 5, "ip"))
    assert "0 of 2 queries searched anew" in notes[0]


def test_bases_of_shards(tmp_path: Path) -> None:
    base, queries, _ = world(900)
    np.save(tmp_path / "part-1.npy", base[:400])
    np.save(tmp_path / "part-2.npy", base[400:])
    pattern = str(tmp_path / "part-*.npy")
    old = sr.truth(pattern, queries, 5, "ip", keep_rows=tmp_path / "r.parquet")
    np.save(tmp_path / "part-3.npy", base[:50] * 1.5)
    run = sr.truth(pattern, queries, 5, "ip", update=old, rows=tmp_path / "r.parquet")
    assert_same(run, sr.truth(pattern, queries, 5, "ip"))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, InputError, "nothing tells which rows changed"),
        ({"was": "base", "changed": [1]}, InputError, "was and changed both tell what changed"),
        ({"changed": ["x"]}, MismatchError, "none of the 1 changed ids is in the base"),
        ({"was": "other"}, MismatchError, "not that of the truth to update: same shape and type"),
        ({"was": "double"}, MismatchError, "to update: dtype float64, expected float32"),
        ({"was": "shorter"}, MismatchError, "of the truth to update: rows 299, expected 300"),
        ({"changed": [1], "space": "l2"}, MismatchError, "in space ip; l2 was asked for"),
        ({"changed": [1], "base": "double"}, MismatchError, "the base vectors are float64 of 8"),
        ({"changed": [1], "base": "longer"}, MismatchError, "2 rows more .* only 1 are named"),
        ({"changed": [1], "spare": -1}, InputError, "spare is -1"),
        ({"changed": [1], "update": "filtered"}, InputError, "is filtered, and no filter is given"),
        ({"changed": [1], "update": "bare"}, InputError, "does not know what it was made from"),
        ({"changed": [1], "update": None}, InputError, "are for an update"),
    ],
)  # fmt: skip
def test_what_cannot_be_an_update(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    base, queries, _ = world(300)
    old = sr.truth(base, queries, 5, "ip")
    known = {
        "base": base, "other": base * 2, "shorter": base[1:], "double": base.astype(np.float64),
        "longer": np.concatenate([base, base[:2]]), None: None,
        "filtered": sr.truth(base, queries, 5, "ip", filter=np.ones(300, dtype=bool)),
        "bare": Run.from_arrays(np.asarray(old.ids)),
    }  # fmt: skip
    given = {n: known[v] if isinstance(v, str | None) else v for n, v in options.items()
             if n not in ("space", "base")}  # fmt: skip
    given.setdefault("update", old)
    rows = known[options.get("base", "base")]
    with pytest.raises(error, match=message):
        sr.truth(rows, queries, 5, options.get("space", "ip"), **given)


def test_other_files_are_no_row_hashes(tmp_path: Path) -> None:
    base, queries, _ = world(30)
    old = sr.truth(base, queries, 5, "ip")
    sr.write(old, tmp_path / "run.parquet")
    (tmp_path / "text.parquet").write_text("no")
    with pytest.raises(sr.SemrecallError, match="holds no row hashes"):
        sr.truth(base, queries, 5, "ip", update=old, rows=tmp_path / "run.parquet")
    with pytest.raises(sr.SemrecallError, match="no parquet file"):
        sr.truth(base, queries, 5, "ip", update=old, rows=tmp_path / "text.parquet")
    # Hashes that the truth does not know of are no evidence, even if they fit in number.
    RowHashes.of(Vectors.of(base)).write(tmp_path / "r.parquet")
    with pytest.raises(MismatchError, match="the row hashes has other rows"):
        sr.truth(base, queries, 5, "ip", update=old, rows=tmp_path / "r.parquet")


def test_at_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    base, queries, _ = world(300)
    np.save("old.npy", base)
    np.save("queries.npy", queries)
    names = [f"ก{i}" for i in range(301)]
    Path("old.txt").write_text("\n".join(names[:300]))
    Path("new.txt").write_text("\n".join(names[1:]))
    np.save("new.npy", np.concatenate([base[1:], base[:1] * 2]))
    Path("changed.txt").write_text(names[300])

    def shell(*words: str, code: int = 0) -> str:
        done = CliRunner().invoke(cli, ["truth", *words], catch_exceptions=True)
        assert done.exit_code == code or isinstance(done.exception, sr.SemrecallError | OSError)
        return done.output if done.exception is None else str(done.exception)

    old = ("old.npy", "queries.npy", "-k", "5", "--space", "ip", "--base-ids", "old.txt")
    new = ("new.npy", "queries.npy", "-k", "5", "--space", "ip", "--base-ids", "new.txt")
    shell(*new, "-o", "fresh.parquet")
    fresh = sr.read("fresh.parquet")
    for told in (("--was", "old.npy", "--was-ids", "old.txt"), ("--changed", "changed.txt")):
        shell(*old, "-o", "truth.parquet")
        said = shell(*new, "--update", "truth.parquet", *told, "-o", "truth.parquet")
        assert "1 row scored" in said
        assert_same(sr.read("truth.parquet"), fresh)
    assert "nothing tells which rows changed" in shell(*new, "--update", "fresh.parquet")
    shell(*old, "--keep-rows", "--spare", "10", "-o", "kept.parquet")
    # The hashes beside the truth tell what changed, and go on doing so.
    said = shell(*new, "--update", "kept.parquet", "-o", "kept.parquet")
    assert "1 row scored (1 inserted, 0 changed, 1 deleted); 0 of 20 queries searched" in said
    said = shell(*old, "--update", "kept.parquet", "-o", "kept.parquet")
    assert "1 row scored (1 inserted, 0 changed, 1 deleted); 0 of 20 queries searched" in said
    assert sr.read("kept.parquet").identity["spare"] == 10
    assert "keeps them beside -o" in shell(*old, "--keep-rows")
    assert "no such file" in shell(*old, "--update", "gone.parquet")


@pytest.mark.parametrize("name", ["hamming", "jaccard"])
def test_bits_are_updated_too(name: str) -> None:
    rng = np.random.default_rng(5)
    bits = rng.integers(0, 4, (500, 2)).astype(np.uint8)  # few values: ties everywhere
    names = np.arange(500)
    old = quiet(Vectors.of(bits, ids=names), bits[:9], 20, name)
    now = bits[50:].copy()
    now[7] ^= 255
    new = Vectors.of(np.concatenate([now, bits[:3]]), ids=[*names[50:], 900, 901, 902])
    told = {"was": Vectors.of(bits, ids=names)}
    assert_same(quiet(new, bits[:9], 20, name, update=old, **told), quiet(new, bits[:9], 20, name))


def test_spare_neighbours_are_no_ties_and_no_deeper_truth() -> None:
    base, queries, _ = world(300)
    deep = sr.truth(base, queries, 5, "ip", spare=5)
    run = Run.from_arrays([row[2:10] for row in deep.ids], [row[2:10] for row in deep.scores or ()])
    # Of the nearest five, ranks 3 to 5 are among the first five found.
    assert sr.evaluate(run, ["recall@5"], truth=deep).mean("recall@5") == 3 / 5
    with pytest.raises(sr.SemrecallError):
        sr.evaluate(run, ["recall@8"], truth=deep)
