"""sweep(): curves, comparisons at the same cost or quality, groups, filters; the command line."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest
from tuned_system import Shells

import semrecall as sr
from semrecall.errors import InputError, MismatchError, SemrecallWarning
from semrecall.tuning.sweep_text import at_quality_rows, at_text

K = 10
RNG = np.random.default_rng(11)
BASE = RNG.standard_normal((300, 6)).astype(np.float32)
QUERIES = RNG.standard_normal((60, 6)).astype(np.float32)
TRUTH = sr.truth(BASE, QUERIES, K, "l2")
JUDGMENTS = sr.Judgments.from_arrays(
    np.repeat(np.arange(60), K),
    np.concatenate([row[:K] for row in TRUTH.ids]),
    np.tile([2.0] * 3 + [0.0] * 7, 60),
)
RECALLS = [f"recall@{K}", f"srecall@{K}", f"trecall@{K}"]
GIVEN = {"truth": TRUTH, "judgments": JUDGMENTS, "base": BASE}


def built(spec="shells", **behaviour):
    made = Shells(**behaviour).build(BASE, "l2")
    made.spec = spec
    return made


def sweep(system=None, measures=RECALLS, **more):
    return sr.sweep(built() if system is None else system, QUERIES, measures, **(GIVEN | more))


def test_every_value_is_measured_as_evaluate_does():
    found = sweep(settings={"visit": [2, 10, 40]})
    for row, visit in zip(found.rows(), (2, 10, 40), strict=True):
        run, _ = sr.search(built(), QUERIES, K, repeats=1, latency_queries=0, visit=visit)
        result = sr.evaluate(run, RECALLS, queries=QUERIES, **GIVEN)
        assert dict(row.setting.search) == {"visit": visit}
        for name in RECALLS:
            assert row.measures[name].mean == pytest.approx(result.mean(name))
            assert row.measures[name].low == pytest.approx(result.interval(name)[0])
        # 300 vectors of 24 bytes, so many percent of them.
        assert row.cost.mean == 3 * visit * 24


def test_a_range_is_spread_by_the_scale_of_the_knob():
    found = sweep(settings={"visit": (1, 64)}, points=7)
    assert [dict(r.setting.search)["visit"] for r in found.rows()] == [1, 2, 4, 8, 16, 32, 64]


def test_without_settings_the_main_knob_is_followed_until_nothing_changes():
    values = [dict(r.setting.search)["visit"] for r in sweep(points=8).rows()]
    assert values == sorted(values)
    assert 3 < len(values) < 16
    assert values[-1] < 100


def test_a_knob_that_does_nothing_is_refused():
    with pytest.raises(InputError, match="the same results at the same cost"):
        sweep(built(ignores=True), settings={"visit": [1, 50, 100]})


def test_a_system_without_knobs_is_one_point():
    exact = sr.open_system("exact").build(BASE, "l2")
    found = sweep([exact, built()], settings={"visit": [10, 50]})
    assert [len(points) for points in found.curves.values()] == [1, 2]
    assert found.rows()[0].measures[f"recall@{K}"].mean == 1


def test_groups_have_their_own_means():
    columns = {"query_id": np.arange(60), "selectivity": ["1%", "10%", "100%"] * 20}
    found = sweep(settings={"visit": [5, 50]}, columns=columns, by="selectivity")
    rows = found.rows("selectivity")
    assert {r.group for r in rows} == {"1%", "10%", "100%"}
    values = found.curves["shells"][0][1].values[f"recall@{K}"]
    first = next(r for r in rows if r.group == "10%")
    assert first.queries == 20
    assert first.measures[f"recall@{K}"].mean == pytest.approx(values[1::3].mean())
    assert "by selectivity:" in str(found)
    with pytest.raises(InputError, match="no slices by 'colour'"):
        found.rows("colour")


def test_neighbours_that_matter_are_a_slice():
    assert [r.group for r in sweep(settings={"visit": [5]}, by="sn").rows("sn")] == ["2-7"]


# -- side by side ---------------------------------------------------------------------------------


def test_at_a_cost_of_a_setting_its_own_values_are_found():
    found = sweep(settings={"visit": [5, 20, 80]})
    (one,) = found.at_cost(20 * 3 * 24, [f"recall@{K}"])
    row = found.rows()[1]
    assert one.value is not None
    assert one.value.mean == pytest.approx(row.measures[f"recall@{K}"].mean)
    assert one.change is None


def test_between_two_settings_values_are_interpolated():
    """Costs of 5% and 20%: 10% is half way between their logarithms."""
    found = sweep(settings={"visit": [5, 20, 80]})
    low, high = (r.measures[f"recall@{K}"].mean for r in found.rows()[:2])
    (one,) = found.at_cost(10 * 3 * 24, [f"recall@{K}"])
    assert one.value is not None
    assert one.value.mean == pytest.approx((low + high) / 2)
    quality = (3 * low + high) / 4
    (cost,) = found.at_quality(f"recall@{K}", quality)
    assert cost.value is not None
    # A quarter of the way from 360 to 1440 bytes.
    assert cost.value.mean == pytest.approx(5 * 72 + 15 * 72 / 4)


def test_two_systems_differ_by_pairs():
    clear = Shells().build(BASE, "l2", noise=0)
    clear.spec = "clear"
    found = sweep([built(), clear], settings={"visit": [3, 5, 20, 80]})
    first, second = found.at_cost(720, [f"recall@{K}"])
    assert first.change is None
    assert second.change is not None
    assert second.value is not None
    assert first.value is not None
    assert second.change.mean == pytest.approx(second.value.mean - first.value.mean)
    assert second.change.low > 0
    first, second = found.at_quality(f"recall@{K}", 0.95)
    assert second.change is not None
    # Every query costs the same: the ratio has no spread.
    assert second.change.low == pytest.approx(second.change.mean)
    assert second.change.mean < 0


def test_beyond_a_curve_there_is_no_value():
    found = sweep(settings={"visit": [5, 8]})
    assert [one.value for one in found.at_cost(100)] == [None] * 3
    assert "the cheapest setting has bytes_read 360" in found.at_cost(100)[0].reason
    assert "outside its curve" in found.at_quality(f"recall@{K}", 0.9999)[0].reason
    with pytest.raises(InputError, match="above 0"):
        found.at_cost(0)
    with pytest.raises(InputError, match="was not measured"):
        found.at_quality("nDCG@10", 0.5)


def test_a_cheapest_setting_that_is_better_already_bounds_the_cost():
    found = sweep(settings={"visit": [5, 8]})
    best = found.rows()[0].measures[f"recall@{K}"].mean
    (one,) = found.at_quality(f"recall@{K}", best / 2)
    assert one.value is None
    assert one.cheapest is not None
    assert one.cheapest.mean == 360
    assert one.reason == f"already {best:.4g} at its cheapest"
    heads, row = at_quality_rows(found, f"recall@{K}", best / 2)
    assert heads[1] == "bytes_read"
    assert row[1:] == ["≤ 360", "-", one.reason]
    lines = at_text("at it:", [heads, row]).splitlines()
    assert lines[3].index("≤ 360") + len("≤ 360") == lines[2].index("bytes_read") + 10
    # Of a speed, more is better.
    found = sweep(settings={"visit": [2, 90]}, minimize="queries_per_second")
    assert at_quality_rows(found, f"recall@{K}", 0.001)[1][1].startswith("≥ ")


def test_speeds_are_compared_as_speeds():
    found = sweep(settings={"visit": [2, 90]}, minimize="queries_per_second")
    speeds = sorted(r.cost.mean for r in found.rows())
    middle = (speeds[0] * speeds[1]) ** 0.5
    (one,) = found.at_cost(middle, [f"recall@{K}"])
    assert one.value is not None or "outside" in one.reason


# -- filters --------------------------------------------------------------------------------------


class Filtered(Shells):
    """Takes a filter per query: the ids up to which documents are allowed."""

    filtered = True

    def search(self, queries, k, *, filters=None, **settings):
        ids, scores = super().search(queries, len(self._base), **settings)
        if filters is not None:
            limits = np.array([np.inf if f is None else f for f in filters])[:, None]
            gone = ids >= limits
            ids, scores = np.where(gone, -1, ids), np.where(gone, np.nan, scores)
        order = np.argsort(ids < 0, axis=1, kind="stable")[:, :k]
        return np.take_along_axis(ids, order, 1), np.take_along_axis(scores, order, 1)

    def count(self, queries, k, *, filters=None, **settings):
        return super().count(queries, k, **settings)


def test_filters_go_to_the_system_and_their_selectivity_is_an_axis():
    """Post-filtering: the narrower the filter, the less is found for the same effort."""
    limits = np.tile([30, 300], 30)
    allowed = np.arange(300)[None] < limits[:, None]
    truth = sr.truth(BASE, QUERIES, K, "l2", filter=allowed)
    columns = {"query_id": np.arange(60), "selectivity": (limits / 300).tolist()}
    found = sr.sweep(
        Filtered().build(BASE, "l2"), QUERIES, f"recall@{K}", truth=truth, base=BASE,
        settings={"visit": [3, 10, 100]}, filters=limits.tolist(), columns=columns,
        by="selectivity",
    )  # fmt: skip
    rows = {(r.group, dict(r.setting.search)["visit"]): r for r in found.rows("selectivity")}
    assert {group for group, _ in rows} == {"0.1", "1"}
    for visit in (3, 10):
        narrow, wide = (rows[g, visit].measures[f"recall@{K}"].mean for g in ("0.1", "1"))
        assert narrow < wide
    assert rows["0.1", 100].measures[f"recall@{K}"].mean == 1


def test_a_run_remembers_its_filters_and_a_truth_without_them_is_noticed(tmp_path):
    system = Filtered().build(BASE, "l2")
    limits = [30, None] * 30
    truth = sr.truth(BASE, QUERIES, K, "l2", filter=np.tile(np.arange(300) < 30, (60, 1)))
    run, _ = sr.search(system, QUERIES, K, filters=limits, repeats=1, latency_queries=0)
    sr.write(run, tmp_path / "run.parquet")
    run = sr.read(tmp_path / "run.parquet")
    known = run.identity["filter"]
    assert (known["filters"], known["queries"], known["says"]) == (1, 30, ["30"])
    other, _ = sr.search(system, QUERIES, K, filters=[40] * 60, repeats=1, latency_queries=0)
    assert other.identity["filter"]["fingerprint"] != known["fingerprint"]
    for given in (run, sr.rescore(run, BASE, QUERIES, "l2")):
        with pytest.raises(MismatchError, match="with filters, the truth was made without"):
            sr.evaluate(given, f"recall@{K}", truth=TRUTH)
        assert sr.evaluate(given, f"recall@{K}", truth=truth).mean(f"recall@{K}") > 0
    plain, _ = sr.search(system, QUERIES, K, repeats=1, latency_queries=0)
    assert plain.identity == {"filter": None}
    with pytest.warns(SemrecallWarning, match="without filters, the truth was made with some"):
        sr.evaluate(plain, f"recall@{K}", truth=truth)
    with pytest.warns(SemrecallWarning, match="without filters, the truth was made with some"):
        sweep(system, f"recall@{K}", truth=truth, settings={"visit": [3]})
    with pytest.raises(MismatchError, match="every setting is searched with filters"):
        sweep(system, f"recall@{K}", settings={"visit": [3]}, filters=limits)
    # A system that takes no filters may have them built in: nothing is known, nothing is said.
    unfiltered, _ = sr.search(built(), QUERIES, K, repeats=1, latency_queries=0)
    assert dict(unfiltered.identity) == {}
    sr.evaluate(unfiltered, f"recall@{K}", truth=truth)


# -- the command line -----------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path):
    pytest.importorskip("faiss", reason="needs the package faiss, which is not installed")
    np.save(tmp_path / "base.npy", BASE)
    np.save(tmp_path / "queries.npy", QUERIES)
    sr.write(TRUTH, tmp_path / "truth.parquet")
    sr.write(JUDGMENTS, tmp_path / "labels.parquet")
    lines = ["query_id,selectivity", *(f"{i},{('low', 'high')[i % 2]}" for i in range(60))]
    (tmp_path / "columns.csv").write_text("\n".join(lines) + "\n")
    return [
        "sweep", "faiss?factory=IVF24,Flat", "faiss?factory=HNSW8,Flat", "--base", "base.npy",
        "--queries", "queries.npy", "--space", "l2", "--truth", "truth.parquet",
        "--judgments", "labels.parquet",
    ]  # fmt: skip


def test_sweep_from_the_shell(semrecall_main, files):
    status, out, err = semrecall_main(
        *files, "--set", "nprobe=1,2,4,8", "--set", "efSearch=8:64", "--points", 4,
        "--columns", "columns.csv", "--by", "selectivity", "--at", "srecall@10=80%",
        "--at-cost", 1800,
    )  # fmt: skip
    assert status == 0, err
    assert max(map(len, out.splitlines())) <= 100
    for text in ("nprobe=4", "efSearch=16", "by selectivity:", "at bytes_read 1,800:",
                 "at srecall@10 0.8:"):  # fmt: skip
        assert text in out


def test_sweep_prints_json_csv_and_markdown(semrecall_main, files):
    wanted = [*files, "--set", "nprobe=1,4", "--set", "efSearch=8,64"]
    _, out, _ = semrecall_main(*wanted, "--format", "json", "--at", "recall@10=0.5")
    found = json.loads(out)
    assert len(found["rows"]) == 4
    assert [s["system"] for s in found["compared"][0]["systems"]] == files[1:3]
    _, out, _ = semrecall_main(*wanted, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["nprobe"] for row in rows] == ["1", "4", "", ""]
    assert float(rows[0]["recall@10"]) <= float(rows[1]["recall@10"])
    _, out, _ = semrecall_main(*wanted, "--format", "markdown", "--at-cost", 1800)
    assert out.startswith("| system | nprobe |")
    assert "at bytes_read 1,800:" in out


def test_sweep_writes_a_page(semrecall_main, files, tmp_path):
    pytest.importorskip("matplotlib", reason="needs the package matplotlib, which is not installed")
    status, _, err = semrecall_main(
        *files, "--set", "nprobe=1,4,24", "--set", "efSearch=8,64", "--columns", "columns.csv",
        "--by", "selectivity", "--html", "sweep.html",
    )  # fmt: skip
    assert status == 0, err
    page = (tmp_path / "sweep.html").read_text()
    # Two systems, three measures side by side, and each measure of each system by group.
    assert page.count("<svg") == 2 + 3 + 6
    assert "http" not in page.replace("http://www.w3.org", "")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--set", "nprob=1,2"], "no system has a knob 'nprob'"),
        (["--set", "nprobe=1,x"], "'x'; expected a whole number"),
        (["--at", "recall@10"], "is not MEASURE=VALUE"),
        (["--at", "recall@10=95"], "95 is above 1, the most recall@10 can be"),
        (["--by", "selectivity"], "no column 'selectivity'"),
        (["--filter-column", "filter"], "needs the columns"),
        (["--columns", "columns.csv", "--filter-column", "filter"], "no column 'filter'"),
        (["-m", "recall@99"], "only 10 deep"),
        (["--html", "gone/page.html"], "gone does not exist"),
    ],
)
def test_wrong_input_is_status_two(semrecall_main, files, more, message):
    status, out, err = semrecall_main(*files, *more)
    assert (status, out) == (2, "")
    assert message in " ".join(err.split())
    assert "Traceback" not in err
