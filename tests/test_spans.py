"""Labels on spans: judgments for any chunking, and measures by character."""

from __future__ import annotations

import csv
import json
import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semrecall.data import Judgments, Run
from semrecall.data.spans import Chunks, Overlap, Spans, judge_chunks
from semrecall.errors import InputError, MeasureError, MismatchError, SemrecallWarning
from semrecall.measures import align, parse
from semrecall.measures.spans import lay_out_spans


def tiled(length, size, doc="d", first=0):
    """Chunks of a document end to end; ids c0, c1, ..."""
    starts = list(range(0, length, size))
    names = [f"c{first + i}" for i in range(len(starts))]
    return names, [doc] * len(starts), starts, [min(s + size, length) for s in starts]


def grades(judgments):
    pairs = zip(judgments.query_ids, judgments.doc_ids, judgments.grades, strict=True)
    return {(str(q), str(d)): float(g) for q, d, g in pairs}


# -- judgments of chunks ------------------------------------------------------------------------

ONE = Spans.from_arrays(["q"], ["d"], [8], [14])  # 2 characters in c0, 4 in c1
TENS = Chunks.from_arrays(*tiled(30, 10))


@pytest.mark.parametrize(
    ("rule", "relevant"),
    [
        ("50%", {"c1"}),  # 2/6 and 4/6 of the span
        ("30%", {"c0", "c1"}),
        ("80% of span", set()),
        ("20% of chunk", {"c0", "c1"}),  # 2/10 and 4/10 of the chunk
        ("21% of chunk", {"c1"}),
        ("3 characters", {"c1"}),
        ("3 c", {"c1"}),
        ("touch", {"c0", "c1"}),
        ("100 characters", set()),  # all there are: neither has 6
    ],
)
def test_rules_by_hand(rule, relevant):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if not relevant else "error", SemrecallWarning)
        found = grades(judge_chunks(ONE, TENS, rule))
        assert found == {("q", c): float(c in relevant) for c in ("c0", "c1", "c2")}
        only = grades(judge_chunks(ONE, TENS, rule, rest=False))
    assert set(only) == {("q", c) for c in relevant}


def test_a_chunk_inside_a_span_is_relevant_and_so_is_one_around_it():
    wide = Spans.from_arrays(["q"], ["d"], [5], [25])
    # c0 and c2 lie half inside, c1 wholly.
    assert set(grades(judge_chunks(wide, TENS, rest=False))) == {
        ("q", "c0"), ("q", "c1"), ("q", "c2"),
    }  # fmt: skip
    assert set(grades(judge_chunks(wide, TENS, "51%", rest=False))) == {("q", "c1")}
    whole = Chunks.from_arrays(["all"], ["d"], [0], [30])
    assert grades(judge_chunks(wide, whole)) == {("q", "all"): 1.0}


def test_the_highest_grade_of_a_match_counts():
    spans = Spans.from_arrays(["q"] * 4, ["d"] * 4, [0, 2, 12, 22], [3, 9, 19, 29], [1, 3, -1, 0])
    # c1 holds a span of grade -1: the rest of the other spans (0) does not outweigh it.
    assert grades(judge_chunks(spans, TENS)) == {
        ("q", "c0"): 3.0, ("q", "c1"): -1.0, ("q", "c2"): 0.0,
    }  # fmt: skip


def test_a_label_on_a_whole_document_is_on_each_of_its_chunks():
    spans = Spans.from_arrays(["q", "r"], ["d", "d"], [math.nan, 0], [math.nan, 4], [2, 1])
    assert repr(spans) == "Spans(2 spans, 2 queries, 1 of whole documents)"
    found = grades(judge_chunks(spans, TENS, "100% of span"))
    assert [found["q", f"c{i}"] for i in range(3)] == [2.0] * 3
    assert [found["r", f"c{i}"] for i in range(3)] == [1.0, 0.0, 0.0]
    assert len(Spans.from_arrays(["q"], ["d"])) == 1


@given(st.data())
def test_half_of_the_smaller_always_finds_a_chunk(data):
    cuts = data.draw(st.sets(st.integers(1, 59), max_size=12))
    edges = [0, *sorted(cuts), 60]
    chunks = Chunks.from_arrays(range(len(edges) - 1), ["d"] * (len(edges) - 1), edges[:-1],
                                edges[1:])  # fmt: skip
    start = data.draw(st.integers(0, 59))
    span = Spans.from_arrays(["q"], ["d"], [start], [data.draw(st.integers(start + 1, 60))])
    assert len(judge_chunks(span, chunks, rest=False)) >= 1


def test_spans_without_a_chunk_are_named_and_their_queries_stay():
    spans = Spans.from_arrays(["q", "r", "s"], ["d", "other", "d"], [0, 0, 12], [5, 5, 18])
    gaps = Chunks.from_arrays(["c0", "c2"], ["d", "d"], [0, 20], [10, 30])
    with pytest.warns(SemrecallWarning) as told:
        found = judge_chunks(spans, gaps)
    assert sorted(str(w.message) for w in told) == [
        "1 of 3 labelled spans are matched by no chunk (at least 50% of the smaller of span and "
        "chunk); they count for nothing",
        "1 of 3 labelled spans are on documents without a chunk; they count for nothing",
    ]
    at = found.query_ids.tolist().index("r")
    assert np.isnan(found.grades[at])
    assert found.details["reason"][at] == "the labelled document has no chunk"
    with pytest.raises(MismatchError, match="no labelled document has a chunk") as fault:
        judge_chunks(Spans.from_arrays(["q"], ["D"], [0], [3]), gaps)
    assert "upper and lower case" in str(fault.value)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Spans.from_arrays(["q"], ["d"], [3], [3]), "span 0 goes from 3 to 3"),
        (lambda: Spans.from_arrays(["q"], ["d"], [-2], [3]), "span 0 goes from -2 to 3"),
        (lambda: Spans.from_arrays(["q"], ["d"], [3]), "starts and ends belong together"),
        (lambda: Spans.from_arrays(["q"], ["d"], ["x"], [3]), "starts are not numbers"),
        (lambda: Spans.from_arrays(["q"], ["d"], [0.5], [3]), "value 0.5 at position 0"),
        (lambda: Spans.from_arrays(["q"], ["d"], [0], [3], [math.nan]), "no finite grade"),
        (lambda: Spans.from_arrays(["q"], [""], [0], [3]), "no query id or no document id"),
        (lambda: Spans.from_arrays(["q"], ["d", "e"], [0], [3]), "1 ids but 2 document ids"),
        (lambda: Chunks.from_arrays(["a", "a"], ["d"] * 2, [0, 1], [1, 2]), "have the id 'a'"),
        (lambda: Chunks.from_arrays(["a"], ["d"], [math.nan], [1]), "not a whole number"),
        (lambda: Chunks.from_arrays(["a"], [None], [0], [1]), "chunk 0 has no id or no document"),
        (lambda: Chunks.from_arrays(["a"], ["d"], [5], [1]), "chunk 0 goes from 5 to 1"),
        (lambda: Overlap.parse("half"), "'half' is no rule of overlap"),
        (lambda: Overlap.parse("0%"), "no rule"),
        (lambda: Overlap.parse("120%"), "no rule"),
        (lambda: Overlap.parse("0 characters"), "no rule"),
    ],
)
def test_what_is_no_span_chunk_or_rule_is_refused(make, said):
    with pytest.raises(InputError, match=said):
        make()


# -- by character -------------------------------------------------------------------------------


def values(name, run, spans, chunks):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SemrecallWarning)
        problem = align(run, None, judge_chunks(spans, chunks, "touch"))
    layout = lay_out_spans(problem.queries, run, spans, chunks)
    return parse(name).values(replace(problem, spans=layout)).values


def test_characters_by_hand():
    spans = Spans.from_arrays(["q", "q"], ["d", "d"], [8, 12], [14, 18])  # 8 to 18: 10 characters
    run = Run.from_dict({"q": ["c1", "c2", "c0"]})
    expected = {
        "SpanR@1": 8 / 10,  # c1 holds 10 to 18
        "SpanP@1": 8 / 10,
        "SpanIoU@1": 8 / 12,  # 10 read, 2 missed
        "SpanR@3": 1.0,
        "SpanP@3": 10 / 30,
        "SpanIoU@3": 10 / 30,
    }
    for name, value in expected.items():
        assert values(name, run, spans, TENS).tolist() == [value], name


def test_characters_that_chunks_share_are_read_twice():
    chunks = Chunks.from_arrays(["a", "b"], ["d", "d"], [0, 5], [10, 15])
    spans = Spans.from_arrays(["q"], ["d"], [0], [10])
    run = Run.from_dict({"q": ["a", "b"]})
    # 10 of the span found, 20 read, of which 15 are different.
    assert values("SpanR@2", run, spans, chunks).tolist() == [1.0]
    assert values("SpanP@2", run, spans, chunks).tolist() == [10 / 20]
    assert values("SpanP(repeats=once)@2", run, spans, chunks).tolist() == [10 / 15]
    assert values("SpanIoU@2", run, spans, chunks).tolist() == [10 / 20]
    assert values("SpanIoU(repeats=once)@2", run, spans, chunks).tolist() == [10 / 15]


def test_edges():
    spans = Spans.from_arrays(["q", "r", "s"], ["d", "d", "d"], [0, 0, 0], [5, 5, 5], [2, 1, 2])
    run = Run.from_dict({"q": ["c0", "c0"], "r": ["c0"]})
    # q: a repeated chunk counts once; r: no span of grade 2; s: not answered.
    np.testing.assert_array_equal(values("SpanP(rel=2)@2", run, spans, TENS), [0.5, np.nan, 0])
    np.testing.assert_array_equal(values("SpanR(rel=2)@2", run, spans, TENS), [1, np.nan, 0])
    np.testing.assert_array_equal(values("SpanIoU(rel=2)@2", run, spans, TENS), [0.5, np.nan, 0])
    whole = Spans.from_arrays(["q"], ["d"])
    assert values("SpanR@1", Run.from_dict({"q": ["c2"]}), whole, TENS).tolist() == [1 / 3]
    problem = align(run, None, Judgments.from_dict({"q": {"c0": 1}}))
    with pytest.raises(MeasureError, match="needs labelled spans and chunks"):
        parse("SpanR@1").values(problem)
    with pytest.warns(SemrecallWarning, match=r"1 of 2 results of run '' are no known chunk"):
        lay_out_spans(run.queries[:1], Run.from_dict({"q": ["c0", "x"]}), spans, TENS)
    with pytest.raises(MismatchError, match="no result of run '' is a chunk"):
        lay_out_spans(run.queries, Run.from_dict({"q": ["x"]}), spans, TENS)


@given(st.data())
def test_characters_are_those_of_sets(data):
    """The slow definition: sets of (document, position)."""
    piece = st.tuples(st.sampled_from("de"), st.integers(0, 20), st.integers(1, 15))
    parts = data.draw(st.lists(piece, min_size=1, max_size=6))
    spans = data.draw(st.lists(st.tuples(st.sampled_from("qr"), piece), min_size=1, max_size=5))
    found = {q: data.draw(st.permutations(range(len(parts)))) for q in "qr"}
    chunks = Chunks.from_arrays(
        range(len(parts)), [d for d, _, _ in parts], [s for _, s, _ in parts],
        [s + n for _, s, n in parts],
    )  # fmt: skip
    labels = Spans.from_arrays(
        [q for q, _ in spans], [d for _, (d, _, _) in spans], [s for _, (_, s, _) in spans],
        [s + n for _, (_, s, n) in spans],
    )  # fmt: skip
    run, k = Run.from_dict(found), data.draw(st.integers(1, 6))
    layout = lay_out_spans(run.queries, run, labels, chunks)
    problem = replace(align(run), spans=layout)

    def characters(pieces):
        return {(d, i) for d, s, n in pieces for i in range(s, s + n)}

    for row, query in enumerate(found):
        wanted = characters(piece for q, piece in spans if q == query)
        top = [parts[c] for c in found[query][:k]]
        read, common = sum(n for _, _, n in top), len(wanted & characters(top))
        for name, once in (("count", read), ("once", len(characters(top)))):
            for measure, expected in (
                (f"SpanR@{k}", common / len(wanted) if wanted else math.nan),
                (f"SpanP(repeats={name})@{k}", common / once if wanted else math.nan),
                (f"SpanIoU(repeats={name})@{k}", common / (once + len(wanted) - common)
                 if wanted else math.nan),
            ):  # fmt: skip
                value = parse(measure).values(problem).values[row]
                np.testing.assert_equal(value, expected)


# -- a real set ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real(shared):
    """(Spans, {document: text}) of the four small corpora of the chunk-spans set."""
    queries, documents, starts, ends = [], [], [], []
    with shared("data/chunk-spans/questions_df.csv").open(encoding="utf-8", newline="") as file:
        for number, row in enumerate(csv.DictReader(file)):
            for reference in json.loads(row["references"]):
                queries.append(f"q{number}")
                documents.append(row["corpus_id"])
                starts.append(reference["start_index"])
                ends.append(reference["end_index"])
    texts = {
        name: shared(f"data/chunk-spans/{name}.md").read_bytes().decode() for name in set(documents)
    }
    return Spans.from_arrays(queries, documents, starts, ends), texts


#: Means of the chunks that the labels call relevant, by chunk size: what the rule keeps of the
#: spans, and how much else the chunks carry. Found by this test, confirmed with sets of characters.
KEPT = {
    200: {"SpanR": 0.847, "SpanP": 0.636, "SpanIoU": 0.560, "R": 1.0},
    800: {"SpanR": 0.952, "SpanP": 0.248, "SpanIoU": 0.243, "R": 1.0},
}


@pytest.mark.parametrize("size", [200, 800])
def test_one_set_of_labels_serves_every_chunk_size(real, size):
    spans, texts = real
    parts, first = [], 0
    for name in sorted(texts):
        parts.append(tiled(len(texts[name]), size, name, first))
        first += len(parts[-1][0])
    chunks = Chunks.from_arrays(*([v for part in parts for v in part[i]] for i in range(4)))
    labels = judge_chunks(spans, chunks, rest=False)
    # Every one of the 416 questions has a relevant chunk.
    assert len(np.unique(labels.queries.codes)) == 416
    ideal = Run.from_frame(
        {"query_id": labels.queries, "doc_id": labels.documents, "score": labels.grades}
    )
    layout = lay_out_spans(ideal.queries, ideal, spans, chunks)
    problem = replace(align(ideal, None, labels), spans=layout)
    for name, mean in KEPT[size].items():
        found = parse(f"{name}@100").values(problem).values
        assert float(np.mean(found)) == pytest.approx(mean, abs=5e-4), name
    # The slow definition, for one query in ten.
    recall, precision = (parse(f"{n}@100").values(problem).values for n in ("SpanR", "SpanP"))
    place = {c: (chunks.documents[i], chunks.starts[i], chunks.ends[i])
             for i, c in enumerate(chunks.ids)}  # fmt: skip
    for row in range(0, 416, 10):
        mine = np.flatnonzero(np.asarray(spans.queries.array() == ideal.queries[row]))
        wanted = {(spans.documents[int(i)], c) for i in mine
                  for c in range(spans.starts[i], spans.ends[i])}  # fmt: skip
        read = {(place[c][0], i) for c in ideal.ids[row] for i in range(*place[c][1:])}
        assert recall[row] == len(wanted & read) / len(wanted)
        assert precision[row] == len(wanted & read) / len(read)


def test_spans_behind_the_last_chunk_are_told():
    chunks = Chunks.from_arrays(["c1", "c2"], ["D", "D"], [0, 100], [100, 200])
    spans = Spans.from_arrays(["q", "q"], ["D", "D"], [10, 150], [60, 260])
    said = r"1 of 2 labelled spans end behind .*'D', 150 to 260, where the chunks end at 200"
    with pytest.warns(SemrecallWarning, match=said):
        judge_chunks(spans, chunks)
