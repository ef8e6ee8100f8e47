"""Runs and judgments in text: TREC, BEIR, CSV, JSON lines, and foreign parquet."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semrecall import formats
from semrecall.data import Judgments, Run
from semrecall.data.ids import ids
from semrecall.errors import FormatError, InputError, SemrecallWarning
from semrecall.formats import records, trec


def text(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def message_of(reader: Callable[..., object], path: Path, **options: object) -> str:
    with pytest.raises(FormatError) as error:
        reader(path, **options)
    assert error.value.message.startswith(f"{path}: ")
    return error.value.message.removeprefix(f"{path}: ")


# -- real files -----------------------------------------------------------------------------


def test_trec_eval_files(shared: Callable[[str], Path]) -> None:
    folder = shared("data/trec-runs/trec_eval-test")
    run = formats.read(folder / "results.test")
    assert repr(run) == "Run(STANDARD: 3 queries, 500 results each, index scores)"
    assert all((np.diff(row) <= 0).all() for row in run.scores)
    # Tags that hold blanks; comments; grades from -1 to 4; gzip.
    assert len(formats.read(folder / "results.trunc")) == 2
    plain = formats.read(folder / "qrels.test")
    assert len(plain) == 3681
    commented = formats.read(folder / "qrels.test.with-comments")
    assert commented.queries == plain.queries
    assert (commented.grades == plain.grades).all()
    # "#" within a line is part of an id.
    assert "CR#93E-1860" in list(commented.documents)
    assert formats.read(folder / "qrels.rel_level").grades.min() == -1
    zipped = formats.read(folder / "results.comment.test.gz")
    assert repr(zipped) == "Run(comment.test: 301 queries, 100 results each, index scores)"
    # The document ids hold "#".
    assert all("#" in name for name in zipped.ids[0])
    with pytest.raises(FormatError, match="146 faults; the first 5"):
        formats.read_judgments(folder / "qrels.123")
    # Three people judged; their pairs, counted without us.
    lines = (folder / "qrels.123").read_text().splitlines()
    pairs = {tuple(line.split()[:3:2]) for line in lines}
    assert len(formats.read_judgments(folder / "qrels.123", conflicts="max")) == len(pairs)


def test_other_real_files(shared: Callable[[str], Path]) -> None:
    cacm = formats.read(shared("data/trec-runs/cacm/run.cacm-bm25.txt"))
    assert cacm.name == "Anserini"
    assert cacm.ids[0][:2].tolist() == ["CACM-1938", "CACM-2036"]
    cranfield = formats.read(shared("data/cranfield/qrels.txt"))
    assert repr(cranfield) == (
        "Judgments(1,837 pairs, 225 queries, grades {0: 225, 1: 1,611, 3: 1})"
    )
    labels = formats.read_judgments(shared("data/dl-pool/labels.parquet"), grade="umbrela_gpt4")
    assert len(labels) == 32_578


def test_foreign_csv_says_what_is_missing(shared: Callable[[str], Path]) -> None:
    path = shared("data/chorus-ecommerce/ratings_individual.csv")
    message = message_of(formats.read_judgments, path)
    assert message == (
        "found columns query, docid, name, description, agent_1_rating, agent_2_rating, "
        "agent_3_rating, final_rating; expected grade"
    )
    assert len(formats.read_judgments(path, grade="final_rating")) == 3188
    ratings = path.with_name("ratings_final.csv")
    assert len(formats.read(ratings)) == 3668
    with pytest.raises(FormatError, match="expected score or rank") as error:
        formats.read_run(ratings)
    assert "read_judgments" in (error.value.hint or "")


# -- TREC -----------------------------------------------------------------------------------


def test_order_is_that_of_trec_eval(tmp_path: Path) -> None:
    lines = ["q1 Q0 a 2 0.5 r", "q1 Q0 b 3 0.5 r", "q1 Q0 c 1 0.75 r", "q1\tQ0  B 4   0.5\tr"]
    run = formats.read(text(tmp_path / "r.run", "\n".join(lines)))
    # By score; 0.5 three times, so by id, descending by bytes: lower case after upper case.
    assert run.ids.to_list() == [["c", "b", "a", "B"]]
    assert run.name == "r"


def test_queries_need_not_be_adjacent(tmp_path: Path) -> None:
    path = text(tmp_path / "r.run", "q1 Q0 x 1 3 r\nq2 Q0 d 1 3 r\nq1 Q0 d 2 2 r\nq2 Q0 x 2 2 r\n")
    assert formats.read(path).ids.to_list() == [["x", "d"], ["d", "x"]]


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbfq1 0 d1 1\nq2 0 d1 1\n",
        # With a comment it takes the careful path, where arrow does not help.
        b"\xef\xbb\xbfq1 0 d1 1\n# c\nq2 0 d1 1\n",
        b"q1 0 d1 1\n\nq2 0 d1 1\n\n",
        b"q1 0 d1 1\r\nq2 0 d1 1\r\n",
        b"  q1\t0  d1 1 \nq2 0 d1 1",
        b"# judged in 2024\nq1 0 d1 1\n#\nq2 0 d1 1\n",
    ],
)
def test_harmless_variations(tmp_path: Path, content: bytes) -> None:
    judgments = formats.read(text(tmp_path / "qrels.txt", content))
    assert list(judgments.queries) == ["q1", "q2"]


def test_comment_or_data(tmp_path: Path) -> None:
    # A "#" line with exactly the fields of a result, its number included, is data.
    qrels = text(tmp_path / "a.qrels", "#1 0 d1 1\nq2 0 d1 1\n# 0 d1 note\n")
    assert list(formats.read(qrels).queries) == ["#1", "q2"]
    run = text(tmp_path / "a.run", "#1 Q0 d1 1 3 r\n# made by x\nq2 Q0 d1 1 3 r\n")
    assert list(formats.read(run).queries) == ["#1", "q2"]


@pytest.mark.parametrize("suffix", [".trec", ".csv", ".tsv"])
def test_what_no_reader_would_take_for_text_is_not_written(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"r{suffix}"
    with pytest.raises(InputError, match="holds a NUL character") as error:
        formats.write(Run.from_dict({"q": {"a\0b": 1.0}}), path)
    assert error.value.hint == "write parquet or jsonl instead"
    assert not path.exists()
    # A name is no id: in a tag a NUL is a blank.
    formats.write(Run.from_dict({"q": {"a": 1.0}}, name="x\0y"), path)
    assert formats.read_run(path).documents.strings().tolist() == ["a"]


def test_tag_may_be_absent_or_hold_blanks(tmp_path: Path) -> None:
    assert len(formats.read_run(text(tmp_path / "a.run", "q1 Q0 d1 1 3.0\nq2 Q0 d1 1 2\n"))) == 2
    run = formats.read_run(text(tmp_path / "b.run", "q1 Q0 d1 1 3.0 my run\n"))
    assert run.name == "my run"
    assert formats.read_run(tmp_path / "b.run", name="other").name == "other"


def test_no_break_space_is_part_of_an_id(tmp_path: Path) -> None:
    for tag in ("r", "r x"):
        run = formats.read_run(text(tmp_path / "a.run", f"q1 Q0 d\u00a01 1 3.0 {tag}\n"))
        assert run.ids.to_list() == [["d\u00a01"]]


def test_ranks_that_disagree_with_scores(tmp_path: Path) -> None:
    path = text(tmp_path / "a.run", "q1 Q0 d1 1 0.1 r\nq1 Q0 d2 2 0.9 r\nq2 Q0 d2 1 0.9 r\n")
    with pytest.warns(SemrecallWarning, match="ranks disagree with scores in 1 of 2 queries"):
        run = formats.read(path)
    assert run.ids[0].tolist() == ["d2", "d1"]
    # All ranks equal, or no numbers: they say nothing.
    formats.read(text(path, "q1 Q0 d1 0 0.1 r\nq1 Q0 d2 0 0.9 r\n"))
    formats.read(text(path, "q1 Q0 d1 x 0.1 r\nq1 Q0 d2 y 0.9 r\n"))


def test_faults_name_lines_and_come_together(tmp_path: Path) -> None:
    path = text(
        tmp_path / "a.run", "q1 Q0 d1 1 3 r\nq1 Q0 d2 2 1,9 r\nq1 Q0 d3\nq1 Q0 d4 4 abc r\n"
    )
    assert message_of(formats.read_run, path) == (
        "3 faults:\n"
        "  line 2: score is '1,9', expected a number\n"
        "  line 3: 3 fields, expected 6 (query Q0 document rank score tag)\n"
        "  line 4: score is 'abc', expected a number"
    )
    path = text(tmp_path / "a.qrels", "q1 0 d1 1\nq1 0 d2 yes\n")
    assert message_of(formats.read_judgments, path) == "line 2: grade is 'yes', expected a number"
    path = text(tmp_path / "a.qrels", "q1 0 d1 1_0\n")
    assert "grade is '1_0', expected a number" in message_of(formats.read_judgments, path)
    path = text(tmp_path / "a.qrels", "q1 0\n" * 9)
    message = message_of(formats.read_judgments, path)
    assert message.startswith("9 faults; the first 5:")
    assert message.count("line") == 5
    path = text(tmp_path / "a.qrels", b"q1 0 d1 1\nq1 0 d\xe9 1\n")
    assert message_of(formats.read_judgments, path) == "line 2 is not UTF-8 (byte 0xe9)"


def test_run_and_qrels_mixed_up(tmp_path: Path) -> None:
    qrels, run = text(tmp_path / "a", "q1 0 d1 1\n"), text(tmp_path / "b", "q1 Q0 d1 1 3 r\n")
    with pytest.raises(FormatError, match="line 1: 4 fields, expected 6") as error:
        formats.read_run(qrels)
    assert "read_judgments" in (error.value.hint or "")
    with pytest.raises(FormatError, match="line 1: 6 fields, expected 4") as error:
        formats.read_judgments(run)
    assert "read_run" in (error.value.hint or "")
    # Without a suffix, the first line tells.
    assert isinstance(formats.read(qrels), Judgments)
    assert isinstance(formats.read(run), Run)


def test_empty_files(tmp_path: Path) -> None:
    for name, content in (("a.run", ""), ("b.csv", "query_id,doc_id,score\n"), ("c.jsonl", "\n")):
        path = text(tmp_path / name, content)
        with pytest.warns(SemrecallWarning, match="the run has no rows"):
            assert len(formats.read_run(path)) == 0
    assert message_of(formats.read_run, text(tmp_path / "b.csv", "")).startswith(
        "the file is empty"
    )
    for name in ("a.qrels", "a.jsonl", "a.csv"):
        path = text(tmp_path / name, "")
        assert message_of(formats.read_judgments, path).startswith("the file is empty")
    path = text(tmp_path / "a.csv", "query_id,doc_id,grade\n")
    assert message_of(formats.read_judgments, path) == "no judgment in the file"


def test_binary_files_are_no_text(tmp_path: Path) -> None:
    path = text(tmp_path / "a.run", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")
    assert message_of(formats.read_run, path) == "is a PNG image; expected text"
    path = text(tmp_path / "a.run", "q1 Q0 d1 1 3 r\n".encode("utf-16"))
    assert message_of(formats.read_run, path) == "the text is UTF-16; expected UTF-8"


def test_distances_are_negated_in_trec(tmp_path: Path) -> None:
    run = Run.from_arrays([["a", "b"]], [[0.0, 2.5]], query_ids=["q"], space="l2", name="my run")
    with pytest.warns(SemrecallWarning, match="distances are written negated"):
        formats.write(run, tmp_path / "a.run")
    assert (tmp_path / "a.run").read_text() == "q Q0 a 1 -0.0 my_run\nq Q0 b 2 -2.5 my_run\n"
    assert formats.read_run(tmp_path / "a.run", space="l2").scores.to_list() == [[0.0, 2.5]]
    # Distances as they are, ranked by them.
    path = text(tmp_path / "b.run", "q Q0 a 1 0.5 r\nq Q0 b 2 2.5 r\n")
    assert formats.read_run(path, space="l2").ids.to_list() == [["a", "b"]]
    path = text(tmp_path / "b.run", "q Q0 a 1 0.5 r\nq Q0 b 2 -2.5 r\n")
    assert "both sides of 0" in message_of(formats.read_run, path, space="l2")


def test_what_trec_cannot_hold(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="document id 'a b' holds blanks"):
        formats.write(Run.from_arrays([["a b"]]), tmp_path / "a.run")
    gaps = Judgments.from_arrays(["q"], ["d"], [np.nan])
    for name, format in (("a.qrels", "trec"), ("a.tsv", "beir")):  # noqa: A001
        with pytest.raises(InputError, match="1 judgments have no grade"):
            formats.write(gaps, tmp_path / name, format=format)
    assert list(tmp_path.iterdir()) == []
    # No scores: n, n - 1, ..., 1; missing results are left out.
    formats.write(Run.from_arrays([[7, -1, 9]]), tmp_path / "a.run")
    assert (tmp_path / "a.run").read_text() == "0 Q0 7 1 2.0 semrecall\n0 Q0 9 2 1.0 semrecall\n"


FIELDS = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cs", "Cc", "Z"]), min_size=1, max_size=4
)


@given(
    rows=st.lists(
        st.tuples(
            # What may be a comment takes the careful path.
            FIELDS.filter(lambda query: query[0] != "#"),
            FIELDS,
            st.integers(0, 9),
            st.floats(allow_nan=False),
            FIELDS,
        ),
        min_size=1,
        max_size=5,
    ),
    gap=st.sampled_from([" ", "\t", "  ", " \t "]),
)
def test_fast_and_careful_reading_agree(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[object, ...]], gap: str
) -> None:
    lines = (gap.join([q, "Q0", d, str(r), repr(s), t]) for q, d, r, s, t in rows)
    path = tmp_path_factory.getbasetemp() / "agree.run"
    path.write_bytes("\n".join(lines).encode())
    fast, (careful, _) = trec._fast(path, trec._RUN), trec._slow(path, trec._RUN)
    assert fast is not None
    for name, column in fast.items():
        assert _values(column) == _values(careful[name])


def _values(column: Any) -> list[Any]:
    if isinstance(column, records.Stretches):
        column = column.column()
    return list(ids(column) if isinstance(column, list) else column)


# -- rules for ranked files -----------------------------------------------------------------

REPEATED = {
    "a.run": "q1 Q0 A 1 3.0 r\nq1 Q0 A 2 2.0 r\nq1 Q0 C 3 1.0 r\n",
    "a.csv": "query_id,doc_id,score\nq1,A,3.0\nq1,A,2.0\nq1,C,1.0\n",
    "a.jsonl": "".join(
        f'{{"query_id": "q1", "doc_id": "{d}", "score": {s}}}\n' for d, s in ("A3", "A2", "C1")
    ),
    "b.jsonl": '{"query_id": "q1", "ids": ["A", "A", "C"], "scores": [3, 2, 1]}\n',
}
PLACES = {"a.run": (1, 2), "a.csv": (2, 3), "a.jsonl": (1, 2), "b.jsonl": (1, 1)}


@pytest.mark.parametrize("name", REPEATED)
def test_repeated_results(tmp_path: Path, name: str) -> None:
    path = text(tmp_path / name, REPEATED[name])
    with pytest.raises(FormatError) as error:
        formats.read_run(path)
    first, again = PLACES[name]
    assert error.value.message == (
        f"{path}: query 'q1', document 'A' stands at line {first} and again at line {again}"
    )
    assert "--duplicates first" in (error.value.hint or "")
    run = formats.read_run(path, duplicates="first")
    assert run.ids.to_list() == [["A", "C"]]
    assert run.scores.to_list() == [[3.0, 1.0]]


NAN_SCORES = {
    "a.run": "q1 Q0 A 1 nan r\nq1 Q0 B 2 2.0 r\nq1 Q0 C 3 1.0 r\n",
    "a.csv": "query_id,doc_id,score\nq1,A,nan\nq1,B,2.0\nq1,C,1.0\n",
    "b.csv": "query_id,doc_id,score\nq1,A,\nq1,B,2.0\nq1,C,1.0\n",
    "a.jsonl": '{"query_id": "q1", "ids": ["A", "B", "C"], "scores": [null, 2, 1]}\n',
    "b.jsonl": '{"query_id": "q1", "ids": ["A", "B", "C"], "scores": [NaN, 2, 1]}\n',
}


@pytest.mark.parametrize("name", NAN_SCORES)
@pytest.mark.filterwarnings("ignore:.*ranks disagree with scores")
def test_nan_scores(tmp_path: Path, name: str) -> None:
    path = text(tmp_path / name, NAN_SCORES[name])
    line = 2 if name.endswith("csv") else 1
    assert message_of(formats.read_run, path) == (
        f"line {line}: the score of query 'q1', document 'A' is not a number"
    )
    run = formats.read_run(path, nan="last")
    assert run.ids.to_list() == [["B", "C", "A"]]
    # Just below the worst score, so it stays a result.
    assert run.valid.all()
    assert 0.999 < run.scores[0][2] < 1.0
    far = formats.read_run(path, nan="last", space="l2")
    assert far.ids[0].tolist()[-1] == "A"
    assert far.valid.all()


def test_missing_results_are_kept_as_such(tmp_path: Path) -> None:
    path = text(
        tmp_path / "a.jsonl", '{"query_id": 1, "ids": [7, -1, null], "scores": [1, 0, null]}\n'
    )
    run = formats.read_run(path)
    assert run.valid.tolist() == [True, False, False]
    path = text(tmp_path / "a.jsonl", '{"query_id": 1, "ids": []}\n{"query_id": 2, "ids": [3]}\n')
    assert formats.read_run(path).ids.to_list() == [[], [3]]


def test_conflicting_judgments(tmp_path: Path) -> None:
    contents = {
        "a.qrels": "q1 0 d1 0\nq1 0 d1 1\n",
        "a.csv": "query_id,doc_id,grade\nq1,d1,0\nq1,d1,1\n",
        "a.jsonl": '{"query_id":"q1","doc_id":"d1","grade":0}\n'
        '{"query_id":"q1","doc_id":"d1","grade":1}\n',
    }
    for name, content in contents.items():
        path = text(tmp_path / name, content)
        shift = 1 if name == "a.csv" else 0
        assert message_of(formats.read_judgments, path) == (
            f"query 'q1', document 'd1' has grade 0 at line {1 + shift} and 1 at line {2 + shift}"
        )
        for rule, grade in (("max", 1), ("first", 0), ("last", 1)):
            assert formats.read_judgments(path, conflicts=rule).grades.tolist() == [grade]


def test_repeated_judgments_that_agree(tmp_path: Path) -> None:
    path = text(tmp_path / "a.qrels", "q1 0 a 2\nq1 0 a 2\nq1 0 b 1\n")
    with pytest.warns(SemrecallWarning, match="1 repeated judgments that agree count once"):
        assert formats.read(path).grades.tolist() == [2, 1]


def test_ids_of_different_type_are_the_same(tmp_path: Path) -> None:
    # Case A24: integers on one side, strings on the other.
    numbers = text(tmp_path / "a.jsonl", '{"query_id": 1, "ids": [1, 2, 3]}\n')
    strings = text(tmp_path / "b.jsonl", '{"query_id": "1", "ids": ["1", "2", "3"]}\n')
    left, right = formats.read_run(numbers), formats.read_run(strings)
    assert left.documents == right.documents
    assert left.queries == right.queries
    padded = text(tmp_path / "c.jsonl", '{"query_id": "1", "ids": ["01", "2", "3"]}\n')
    assert formats.read_run(padded).documents != left.documents


# -- CSV, TSV, BEIR -------------------------------------------------------------------------


def test_beir_qrels(tmp_path: Path) -> None:
    path = text(
        tmp_path / "test.tsv", "query-id\tcorpus-id\tscore\n1\t31715818\t1\n3\t14717500\t2\n"
    )
    judgments = formats.read(path)
    assert judgments.doc_ids.tolist() == [31715818, 14717500]
    formats.write(judgments, tmp_path / "again.tsv", format="beir")
    assert (tmp_path / "again.tsv").read_bytes() == path.read_bytes()


def test_qrels_without_header_in_tsv(tmp_path: Path) -> None:
    path = text(tmp_path / "qrels.dev.tsv", "300674\t0\t7067032\t1\n125705\t0\t7067056\t1\n")
    assert formats.read(path).doc_ids.tolist() == [7067032, 7067056]


def test_dialects(tmp_path: Path) -> None:
    for content in (
        'query_id,doc_id,score\n"q,1","d ""x""",2\n',
        'query_id;doc_id;score\n"q,1";"d ""x""";2\n',
        '\r\nquery_id, doc_id ,score\r\n"q,1","d ""x""",2\r\n',
    ):
        run = formats.read(text(tmp_path / "a.csv", content))
        assert list(run.queries) == ["q,1"]
        assert run.ids.to_list() == [['d "x"']]
        assert run.scores.to_list() == [[2.0]]


def test_rank_decides_over_score(tmp_path: Path) -> None:
    path = text(tmp_path / "a.csv", "query_id,doc_id,rank,score\nq,a,2,1\nq,b,1,1\n")
    assert formats.read_run(path).ids.to_list() == [["b", "a"]]


def test_faults_of_csv(tmp_path: Path) -> None:
    path = text(tmp_path / "a.csv", "query_id,doc_id,score\nq,a,1\nq,b\nq,c,x\nq,d,1,2\n")
    assert message_of(formats.read_run, path) == (
        "3 faults:\n  line 3: 2 fields, expected 3\n  line 5: 4 fields, expected 3\n"
        "  line 4: score is 'x', expected a number"
    )
    path = text(tmp_path / "a.csv", "query_id,doc_id,score\nq,a,1\n,b,1\n")
    assert message_of(formats.read_run, path) == "line 3: no query id"
    path = text(tmp_path / "a.csv", "query_id,doc_id,grade\nq,a,1\nq,,1\nq,c,inf\n")
    assert message_of(formats.read_judgments, path) == (
        "2 faults:\n  line 3: no document id\n  line 4: the grade is infinite"
    )
    path = text(tmp_path / "a.csv", "query_id,doc_id,doc_id\n")
    assert message_of(formats.read_run, path).startswith("the header names a column twice")
    # A first line of data is told to be one, whatever else would be wrong with it.
    for line, name in (("0\t1590\t0", "twice"), ("0\t1561\t1", "once"), ("q\td\t2", "names")):
        path = text(tmp_path / f"{name}.tsv", f"{line}\n9\t8\t1\n")
        with pytest.raises(FormatError, match="line 1 is data: ") as error:
            formats.read_judgments(path)
        assert error.value.hint == "put query_id<TAB>doc_id<TAB>grade on line 1"
    path = text(tmp_path / "a.csv", "q,d,0.5\n")
    with pytest.raises(FormatError, match="line 1 is data: q, d, ") as error:
        formats.read_run(path)
    assert error.value.hint == "put query_id,doc_id,score on line 1"
    # Names that are no numbers, or some that are known, are a header.
    path = text(tmp_path / "a.csv", "query,docid,2019\nq,d,1\n")
    assert formats.read_judgments(path, grade="2019").grades.tolist() == [1.0]
    path = text(tmp_path / "a.csv", "query_id,title,score\nq,a,1\n")
    assert message_of(formats.read_run, path) == (
        "no column for document ids: found columns query_id, title, score; expected 'doc_id'"
    )


def test_lines_are_right_behind_fields_with_line_ends(tmp_path: Path) -> None:
    path = text(tmp_path / "a.csv", 'query_id,doc_id,score\nq,"a\nb",1\nq,c,x\n')
    assert message_of(formats.read_run, path) == "line 4: score is 'x', expected a number"


def test_queries_without_results_are_mentioned(tmp_path: Path) -> None:
    run = Run.from_arrays([[1], []])
    with pytest.warns(SemrecallWarning, match="1 queries without results are not kept"):
        formats.write(run, tmp_path / "a.csv")


# -- JSON lines -----------------------------------------------------------------------------


def test_faults_of_json_lines(tmp_path: Path) -> None:
    path = text(tmp_path / "a.jsonl", '{"query_id": 1, "ids": [1]}\n{"query_id": 2,\n[1, 2]\n')
    message = message_of(formats.read_run, path)
    assert message.startswith("2 faults:\n  line 2: is no JSON (")
    assert message.endswith("line 3: is a JSON list, expected an object {...}")
    path = text(tmp_path / "a.jsonl", '{"query_id": 1, "ids": [1], "scores": [1, 2]}\n')
    assert message_of(formats.read_run, path) == (
        "line 1: 2 scores for 1 ids; expected equally many"
    )
    path = text(
        tmp_path / "a.jsonl", '{"query_id": 1, "ids": [1]}\n\n{"query_id": 1, "ids": [2]}\n'
    )
    assert message_of(formats.read_run, path) == (
        "query 1 stands at line 1 and at line 3; expected one line a query"
    )
    path = text(
        tmp_path / "a.jsonl",
        '{"query_id":1,"doc_id":2,"score":1}\n{"query_id":1,"doc_id":3,"score":"x"}\n',
    )
    assert message_of(formats.read_run, path) == "line 2: score is 'x', expected a number"
    path = text(
        tmp_path / "a.jsonl", '{"query_id":1,"doc_id":2,"score":1}\n{"doc_id":3,"score":1}\n'
    )
    assert message_of(formats.read_run, path) == "line 2: no query id"


def test_types_may_change_from_line_to_line(tmp_path: Path) -> None:
    path = text(
        tmp_path / "a.jsonl",
        '{"query_id": 1, "doc_id": 2, "score": 1}\n'
        '{"query_id": "b", "doc_id": "x", "score": 0.5}\n',
    )
    run = formats.read(path)
    assert list(run.queries) == ["1", "b"]
    assert run.ids.to_list() == [["2"], ["x"]]


def test_dates_stay_text(tmp_path: Path) -> None:
    path = text(tmp_path / "a.jsonl", '{"query_id": "2020-01-01", "doc_id": "a", "grade": 1}\n')
    assert list(formats.read(path).queries) == ["2020-01-01"]


def test_details_of_judgments(tmp_path: Path) -> None:
    path = text(
        tmp_path / "a.jsonl",
        '{"query_id": 1, "doc_id": 2, "grade": 1, "judge": "ann"}\n'
        '{"query_id": 1, "doc_id": 3, "grade": null, "judge": "ann", "reason": "refused"}\n',
    )
    judgments = formats.read(path)
    assert np.isnan(judgments.grades[1])
    assert judgments.details["judge"].tolist() == ["ann", "ann"]
    assert judgments.details["reason"].tolist() == [None, "refused"]


# -- parquet --------------------------------------------------------------------------------


def test_foreign_parquet(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    def save(**columns: object) -> Path:
        pq.write_table(pa.table(columns), tmp_path / "t.parquet")
        return tmp_path / "t.parquet"

    run = formats.read(save(qid=["q", "q"], docno=["a", "b"], score=[1, 2]))
    assert run.ids.to_list() == [["b", "a"]]
    judgments = formats.read(save(query_id=[1], doc_id=[2], relevance=[3]))
    assert judgments.grades.tolist() == [3]
    rows = formats.read(save(query_id=[1, 2], ids=[[5, 6], []]))
    assert rows.ids.to_list() == [[5, 6], []]
    path = save(query_id=["q", "q"], doc_id=["a", "a"], score=[1.0, 2.0])
    assert "stands at row 1 and again at row 2" in message_of(formats.read_run, path)
    path = save(query_id=["q"], doc_id=["a"], score=["x"])
    assert message_of(formats.read_run, path) == (
        "the column score is of type string; expected numbers"
    )
    with pytest.raises(InputError, match="does not tell which it holds") as error:
        formats.read(save(query_id=[1], doc_id=[2]))
    assert "read_run(path), read_judgments(path)" in (error.value.hint or "")
    with pytest.raises(InputError, match="holds texts"):
        formats.read(save(doc_id=[1], text=["a"]))


def test_nouns_of_our_parquet_are_not_confused(tmp_path: Path) -> None:
    run = Run.from_arrays([[1]], [[0.5]], space="ip")
    formats.write(run, tmp_path / "r.parquet")
    for reader in (formats.read_vectors, formats.read_judgments, formats.read_cost):
        with pytest.raises(FormatError, match="holds run, expected"):
            reader(tmp_path / "r.parquet")
    with pytest.raises(InputError, match="recorded in space ip; l2 was asked for"):
        formats.read_run(tmp_path / "r.parquet", space="l2")
    assert formats.read_run(tmp_path / "r.parquet", name="mine").name == "mine"


# -- compression ----------------------------------------------------------------------------


def test_compression_is_told_by_the_content(tmp_path: Path) -> None:
    content = b"q1 Q0 d1 1 3 r\nq1 Q0 d2 2 2 r\n"
    whole = gzip.compress(content[:16]) + gzip.compress(content[16:])
    for name in ("a.run.gz", "a.run", "a"):
        run = formats.read(text(tmp_path / name, whole))
        assert run.ids.to_list() == [["d1", "d2"]]


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_cut_off_compression(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"r.csv{suffix}"
    formats.write(Run.from_arrays(np.arange(3000).reshape(30, 100)), path)
    text(path, path.read_bytes()[:-20])
    assert "data is damaged or cut off" in message_of(formats.read_run, path)


def test_numbers_of_files() -> None:
    assert records.number("1e3") == 1000
    for wrong in ("1_0", "\u0661", "", "x"):
        with pytest.raises(ValueError, match=r".*"):
            records.number(wrong)


def test_several_columns_of_grades_in_a_file_say_which_was_taken(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text("query_id,doc_id,label,rating\nq,a,1,3\nq,b,0,2\n")
    with pytest.warns(SemrecallWarning, match="column 'label'; 'rating' may hold grades too"):
        assert formats.read_judgments(path).grades.tolist() == [1, 0]
    assert formats.read_judgments(path, grade="rating").grades.tolist() == [3, 2]


# -- one JSON object ------------------------------------------------------------------------


@pytest.mark.parametrize("indent", [None, 2])
def test_runs_and_judgments_in_one_object(tmp_path: Path, indent: int | None) -> None:
    """{query: {document: number}}, as BEIR, ranx and pytrec_eval have it."""
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"q1": {"d1": 1, "7": 2.5}, "q2": {"d1": 1}}, indent=indent))
    run = formats.read_run(path)
    assert run.query_ids.tolist() == ["q1", "q2"]
    assert run.ids.to_list() == [["7", "d1"], ["d1"]]
    judgments = formats.read_judgments(path)
    assert judgments.grades.tolist() == [1.0, 2.5, 1.0]
    assert formats.read_runs(path)["a"].ids.to_list() == run.ids.to_list()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            '{"q1": {"a": 1, "a": 2}}',
            "query 'q1', document 'a' stands at entry 1 and again at entry",
        ),
        ('{"q1": {"a": 1}, "q1": {"a": 2}}', "document 'a' stands at entry 1 and again at entry 2"),
        ('{"q1": {"a": 1, "b": "x"}}', "entry 2: score is 'x', expected a number"),
        ('{"q1": {"a": [1, 2]}}', "no column for query ids: found columns q1"),
        ('{"query": "q1", "result": "d1"}', "no column for document ids: found columns query, res"),
        ('{"foo": 1}\n{"foo": 2}', "no column for query ids: found columns foo"),
    ],
)
def test_objects_that_are_no_run(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(content)
    for reader in (formats.read_run, formats.read_judgments):
        with pytest.raises(FormatError) as fault:
            reader(path)
        if reader is formats.read_run:
            assert said in str(fault.value)
