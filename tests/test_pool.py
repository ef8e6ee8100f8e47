"""pool(): which pairs to judge next."""

from __future__ import annotations

import json

import numpy as np
import pytest

import semrecall as sr
from semrecall.data import Judgments, Run
from semrecall.errors import InputError, MismatchError
from semrecall.measures import align, parse
from semrecall.pool import pool

BM25 = Run.from_dict({"q": ["a", "b", "c"], "r": ["x", "y"]}, name="bm25")
DENSE = Run.from_dict({"q": ["b", "d", "a"], "r": ["y", "z"]}, name="dense")
LABELS = Judgments.from_dict({"q": {"a": 1}, "r": {"x": 0, "w": 1}})


def pairs(found):
    return list(zip(found.queries, found.documents, strict=True))


def test_by_hand():
    found = pool([BM25, DENSE], LABELS, depth=2, measure="P@2")
    # P@2 of a run moves by 1/2 for each pair in its first two: b and y are in both runs. Of equal
    # ones the best rank comes first, then the order of the runs.
    assert pairs(found) == [("q", "b"), ("r", "y"), ("q", "d"), ("r", "z")]
    assert found.changes.tolist() == [1.0, 1.0, 0.5, 0.5]
    assert found.probabilities.tolist() == [1.0] * 4
    assert set(found.picked) == {"change"}
    assert {name: ranks.tolist() for name, ranks in found.ranks.items()} == {
        "bm25": [2, 2, 0, 0],
        "dense": [1, 1, 2, 2],
    }
    assert [row["why"] for row in found.rows()][:3] == [
        "rank 2 in bm25, 1 in dense", "rank 2 in bm25, 1 in dense", "rank 2 in dense",
    ]  # fmt: skip
    assert pairs(found.judged) == [("q", "a"), ("r", "x")]
    # a at rank 1 of bm25 and x at rank 1; the first two of dense are unjudged.
    assert [(s.run, s.depth, s.judged) for s in found.shares] == [
        ("bm25", 1, 1.0), ("bm25", 2, 0.5), ("dense", 1, 0.0), ("dense", 2, 0.0),
    ]  # fmt: skip
    assert repr(found) == "Pool(4 of 4 unjudged pairs, 2 judged ones, depth 2, by P@2)"


@pytest.mark.parametrize("measure", ["nDCG@3", "AP@3", "R@2", "RR", "Success@2", "nDCG@10"])
def test_changes_are_what_one_label_changes(measure):
    """Against the slow way: each pair judged alone, the measure computed again."""
    random = np.random.default_rng(0)
    runs = {
        name: Run.from_dict({q: random.permutation(12)[:5].tolist() for q in "qrst"})
        for name in ("one", "two", "three")
    }
    labels = Judgments.from_dict(
        {q: {int(d): int(random.integers(0, 3)) for d in random.permutation(12)[:4]} for q in "qrs"}
    )
    found = pool(runs, labels, depth=5, measure=measure)
    known = {q: {} for q in "qrst"}
    for q, d, g in zip(labels.queries, labels.documents, labels.grades, strict=True):
        known[q][d] = g
    assert len(found) == sum(
        len({d for run in runs.values() for d in run.ids[i].tolist()} - set(known[q]))
        for i, q in enumerate("qrst")
    )

    def value(run, query, grades):
        judged = Judgments.from_dict({query: grades or {99: 0}})
        return np.nan_to_num(parse(measure).values(align(run, None, judged)).values[0])

    for (query, document), change in zip(pairs(found), found.changes, strict=True):
        expected = sum(
            abs(value(run, query, {**known[query], document: 2}) - value(run, query, known[query]))
            for run in runs.values()
        )
        assert change == pytest.approx(expected)
    assert (np.diff(found.changes) <= 1e-9).all()


def test_missed_neighbours_come_first_with_a_truth():
    truth = Run.from_arrays([list(range(10))], query_ids=["q"], k=10)
    # 8 of 10 found, and those that are judged are relevant.
    ann = Run.from_arrays([[0, 1, 2, 3, 4, 5, 6, 7, 90, 91]], query_ids=["q"], k=10, name="ann")
    labels = Judgments.from_dict({"q": dict.fromkeys(range(6), 1)})
    found = pool(ann, labels, truth=truth, depth=10)
    assert found.measure == "srecall@10"
    # srecall is 6/6. A missed relevant neighbour makes it 6/7, a found one leaves it at 1; what is
    # no neighbour does not matter.
    assert found.documents.array().tolist() == [8, 9, 6, 7, 90, 91]
    np.testing.assert_allclose(found.changes, [1 / 7, 1 / 7, 0, 0, 0, 0])
    assert [row["why"] for row in found.rows()][::2] == [
        "exact rank 9, missed by ann", "rank 7 in ann; exact rank 7", "rank 9 in ann",
    ]  # fmt: skip
    assert {s.run for s in found.shares} == {"ann", "truth"}


def test_a_budget_and_a_sample():
    whole = pool([BM25, DENSE], depth=3)
    assert whole.unjudged == len(whole) == 7
    first = pool([BM25, DENSE], depth=3, budget=4)
    assert pairs(first) == pairs(whole)[:4]
    mixed = pool([BM25, DENSE], depth=3, budget=4, sample=2, seed=1)
    assert pairs(mixed)[:2] == pairs(whole)[:2]
    assert mixed.picked == ("change", "change", "sample", "sample")
    # Two of the five that are left.
    assert mixed.probabilities.tolist() == [1, 1, 0.4, 0.4]
    assert set(pairs(mixed)[2:]) <= set(pairs(whole)[2:])
    again = pool([BM25, DENSE], depth=3, budget=4, sample=2, seed=1)
    assert pairs(again) == pairs(mixed)
    drawn = {tuple(pairs(pool([BM25, DENSE], depth=3, budget=4, sample=2, seed=s))[2:])
             for s in range(20)}  # fmt: skip
    assert len(drawn) > 3
    all_of_it = pool([BM25, DENSE], depth=3, budget=40, sample=2)
    assert set(all_of_it.probabilities.tolist()) == {1.0}


def test_labels_of_a_sampled_pool_estimate_all_of_it():
    random = np.random.default_rng(3)
    runs = [Run.from_arrays(np.array([random.permutation(60)[:30] for _ in range(10)]))
            for _ in range(2)]  # fmt: skip
    whole = pool(runs, depth=30)
    relevant = {pair: (pair[0] + pair[1]) % 3 == 0 for pair in pairs(whole)}
    for sample_by in ("equal", "change"):
        totals = []
        for seed in range(80):
            found = pool(runs, depth=30, budget=80, sample=50, sample_by=sample_by, seed=seed)
            hits = np.array([relevant[pair] for pair in pairs(found)])
            totals.append((hits / found.probabilities).sum())
        error = np.std(totals) / np.sqrt(len(totals))
        assert abs(np.mean(totals) - sum(relevant.values())) < 4 * error
    assert len(set(found.probabilities.tolist())) > 2  # the last by change: unequal ones


def test_a_pair_without_a_grade_is_unjudged_and_judged_queries_need_no_run():
    labels = Judgments.from_dict({"q": {"a": np.nan, "b": 1}, "elsewhere": {"a": 1}})
    found = pool(BM25, labels, depth=3)
    assert ("q", "a") in pairs(found)
    assert ("q", "b") not in pairs(found)
    assert "elsewhere" not in found.queries


def test_repeats_and_missing_results_take_no_place():
    run = Run.from_arrays([[5, 5, -1, 6, 7]], query_ids=["q"])
    found = pool(run, depth=2)
    assert pairs(found) == [("q", 5), ("q", 6)]
    assert found.ranks["run"].tolist() == [1, 2]


def test_runs_by_name():
    assert list(pool([BM25, BM25, Run.from_dict({"q": ["a"]})]).ranks) == [
        "bm25", "bm25#2", "run 3",
    ]  # fmt: skip
    assert list(pool({"mine": BM25}).ranks) == ["mine"]
    assert sr.pool is pool


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"depth": 0}, "depth is 0"),
        ({"budget": -1}, "budget is -1"),
        ({"sample": 3}, "a sample needs a budget"),
        ({"sample": 3, "budget": 2}, "sample is 3; expected 0 to the budget, 2"),
        ({"sample": 1, "budget": 2, "sample_by": "rank"}, "expected equal or change"),
        ({"measure": "recall@3"}, "recall@3 does not depend on judgments"),
        ({"measure": "srecall@3"}, "srecall@3 needs the exact neighbours"),
    ],
)
def test_what_cannot_be_pooled_is_refused(options, said):
    with pytest.raises(InputError, match=said):
        pool([BM25], **options)
    with pytest.raises(InputError, match="no run to pool"):
        pool([])
    with pytest.raises(InputError, match="a run is called 'truth'"):
        pool({"truth": BM25}, truth=BM25)


@pytest.mark.parametrize("name", ["pairs.jsonl", "pairs.csv", "pairs.parquet", "pairs.jsonl.gz"])
def test_files(tmp_path, name):
    found = pool([BM25, DENSE], LABELS, depth=3, budget=4, sample=1)
    path = tmp_path / name
    found.write(path)
    from semrecall.formats.texts import read_records

    columns = read_records(path).columns
    assert list(columns) == [
        "query_id", "doc_id", "probability", "picked", "change", "runs", "best_rank", "why",
    ]  # fmt: skip
    assert [str(q) for q in list(columns["query_id"])] == list(found.queries)
    assert [float(str(p)) for p in list(columns["probability"])] == found.probabilities.tolist()
    if name == "pairs.jsonl":
        assert [json.loads(line) for line in path.read_text().splitlines()] == found.rows()
    with pytest.raises(InputError, match=r"\.jsonl, \.csv or \.parquet"):
        found.write(tmp_path / "pairs.txt")
    assert found.to_frame("arrow").num_rows == 4


def test_nothing_left_to_judge():
    labels = Judgments.from_dict({"q": dict.fromkeys("abcd", 0), "r": dict.fromkeys("xyz", 0)})
    found = pool([BM25, DENSE], labels)
    assert len(found) == found.unjudged == 0
    assert found.rows() == []
    assert {s.judged for s in found.shares} == {1.0}
    assert len(pool(Run.from_dict({}))) == 0


# -- as score and compare read their inputs -----------------------------------------------------


@pytest.mark.parametrize("name", ["pairs.parquet.gz", "pairs.txt", "csv"])
def test_names_of_files_that_do_not_say_what_to_write(name, tmp_path):
    with pytest.raises(InputError, match="a pool is written as JSON lines, CSV or parquet"):
        pool(Run.from_dict({"q": ["a"]})).write(tmp_path / name)


def test_the_last_suffix_decides(tmp_path):
    path = tmp_path / "my.csv.jsonl"
    pool(Run.from_dict({"q": ["a"]})).write(path)
    assert json.loads(path.read_text())["doc_id"] == "a"


def test_documents_that_are_the_same_are_judged_once():
    runs = {"x": Run.from_dict({"q": ["a", "copy", "b"]}), "y": Run.from_dict({"q": ["copy"]})}
    same = {"copy": "a"}
    found = pool(runs, same_as=same)
    assert [(row["doc_id"], row["runs"]) for row in found.rows()] == [("a", 2), ("b", 1)]
    # Without its copy, b stands at rank 2 of x.
    assert found.rows()[1]["best_rank"] == 2
    # A label of the copy is one of the document.
    judged = pool(runs, Judgments.from_dict({"q": {"copy": 1}}), same_as=same)
    assert [row["doc_id"] for row in judged.rows()] == ["b"]
    assert len(judged.judged) == 1


def test_the_query_itself_is_not_judged():
    run = Run.from_dict({"q1": ["q1", "a"], "q2": ["b"]})
    assert [row["doc_id"] for row in pool(run, drop_self=True).rows()] == ["a", "b"]


def test_a_part_of_the_queries():
    run = Run.from_dict({"q1": ["a"], "q2": ["b"], "q3": ["c"]})
    found = pool(run, only=["q3", "q1", "zz"])
    assert [row["query_id"] for row in found.rows()] == ["q1", "q3"]
    with pytest.raises(MismatchError, match="none of the 1 query to pool is in a run"):
        pool(run, only=["zz"])


def test_the_command_reads_files_as_score_does(semrecall_main, tmp_path):
    lines = ["q1 Q0 a 1 1 x", "q1 Q0 b 2 2 x", "q1 Q0 b 2 3 x", "q1 Q0 c 1 1 y", "q2 Q0 d 1 1 y"]
    (tmp_path / "two.run").write_text("\n".join(lines[:2] + lines[3:]))
    (tmp_path / "twice.run").write_text("\n".join(lines[:3]))
    (tmp_path / "same.csv").write_text("id,same_as\nc,a\n")
    (tmp_path / "split.csv").write_text("query_id,split\nq1,dev\nq2,test\n")

    def pairs(*arguments):
        status, out, err = semrecall_main("pool", *arguments, "--format", "json")
        assert status == 0, err
        found = json.loads(out)["pairs"]
        return [(row["query_id"], row["doc_id"], row["why"]) for row in found]

    # Two runs of one file, the first by score: b, a.
    assert pairs("two.run", "--split", "split.csv:dev", "--same-as", "same.csv") == [
        ("q1", "a", "rank 2 in x, 1 in y"),
        ("q1", "b", "rank 1 in x"),
    ]
    assert pairs("two.run", "--order", "rank")[0] == ("q1", "a", "rank 1 in x")
    assert len(pairs("two.run")) == 4
    assert len(pairs("two.run", "two.run")) == 4
    status, _, err = semrecall_main("pool", "twice.run")
    assert status == 2
    assert "stands at line 2 and again at line 3" in err
    assert len(pairs("twice.run", "--duplicates", "first")) == 2
