"""Each finding of a check, from data broken in one way; and none on data that is sound."""

from __future__ import annotations

import dataclasses
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from semrecall.check import Report, check
from semrecall.check.report import Finding, percent, plural
from semrecall.check.scan import Duplicates, row_hashes, scan
from semrecall.check.scores import fits
from semrecall.data import Judgments, Run, Vectors
from semrecall.errors import InputError, SemrecallWarning
from semrecall.exact import rescore, search

N, D, M, K = 400, 16, 30, 10


def vectors(rows: int, seed: int = 0, dimension: int = D) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, dimension)).astype(np.float32)


BASE, QUERIES = vectors(N, 1), vectors(M, 2)
UNIT = BASE / np.linalg.norm(BASE, axis=1, keepdims=True)
TRUTH = {space: search(BASE, QUERIES, K, space) for space in ("ip", "cosine", "l2")}


def serious(report: Report) -> list[str]:
    return [f.code for f in report.findings if f.level != "note"]


def the(report: Report, code: str) -> Finding:
    """The one finding of that code."""
    found = [f for f in report.findings if f.code == code]
    assert len(found) == 1, f"{code} not once in {report.codes}\n{report}"
    return found[0]


def only(report: Report, code: str, level: str) -> Finding:
    """The finding of that code, where nothing else is an error or a warning."""
    finding = the(report, code)
    assert finding.level == level, report
    assert serious(report) == ([code] if level != "note" else []), report
    return finding


def changed(array: np.ndarray, at: object, value: object) -> np.ndarray:
    copy = array.copy()
    copy[at] = value
    return copy


def without_identity(run: Run, **changes: object) -> Run:
    """As a truth of another program: no identity."""
    return dataclasses.replace(run, identity={}, **changes)


def truth_of(ids: np.ndarray, scores: np.ndarray | None = None, **options: object) -> Run:
    return Run.from_arrays(ids, scores, **options)


# -- sound data ---------------------------------------------------------------------------------


@pytest.mark.parametrize("space", ["ip", "cosine", "l2"])
def test_sound_data_has_no_error_and_no_warning(space):
    run = search(BASE, QUERIES, K, space)
    judgments = Judgments.from_arrays(
        np.repeat(np.arange(M), 2), run.ids.matrix()[:, :2].ravel(), np.tile([1, 0], M)
    )
    report = check(
        base=BASE, queries=QUERIES, truth=TRUTH[space], run=run, judgments=judgments, space=space
    )
    assert serious(report) == [], report
    assert report.ok
    assert "All 30 sampled rows" in the(report, "truth-right").found
    assert [f.about for f in report.findings if f.code == "scores-fit"] == ["truth", "run"]


@pytest.mark.parametrize("part", ["base", "queries", "truth", "run", "judgments"])
def test_any_one_input_will_do(part):
    inputs = {
        "base": BASE,
        "queries": QUERIES,
        "truth": TRUTH["l2"],
        "run": TRUTH["l2"],
        "judgments": Judgments.from_arrays([0, 0], [1, 2], [1, 0]),
    }
    report = check(**{part: inputs[part]})
    assert serious(report) == []
    assert list(report.inputs) == [part]


def test_nothing_to_check_is_an_error():
    with pytest.raises(InputError, match="nothing to check"):
        check()
    with pytest.raises(InputError, match="sample is 0"):
        check(base=BASE, sample=0)
    with pytest.raises(InputError, match="expected Judgments"):
        check(judgments=[1, 2])
    with pytest.raises(InputError, match="expected a Run"):
        check(truth=3)


def test_real_data_sift(shared):
    report = check(
        base=shared("data/sift5k/base.u8.npy"),
        queries=shared("data/sift5k/siftsmall_query.fvecs"),
        truth=np.load(shared("data/sift5k/groundtruth100_over_5k.npy")),
        space="l2",
    )
    assert serious(report) == [], report
    assert "All 100 sampled rows" in the(report, "truth-right").found


@pytest.mark.parametrize(
    ("folder", "documents", "labels"),
    [
        ("dl-pool", "docs.minilm.f16.npy", "labels.parquet"),
        ("cranfield", "docs.minilm.f32.npy", "qrels.txt"),
    ],
)
def test_real_data_minilm(shared, folder, documents, labels):
    import pyarrow.parquet as pq

    names = [
        pq.read_table(shared(f"data/{folder}/{f}.parquet")).column(0) for f in ("docs", "queries")
    ]
    base = Vectors.of(np.load(shared(f"data/{folder}/{documents}"), mmap_mode="r"), ids=names[0])
    queries = Vectors.of(np.load(shared(f"data/{folder}/queries.minilm.f32.npy")), ids=names[1])
    truth = search(base, queries, 20, "ip")
    report = check(
        base=base,
        queries=queries,
        truth=truth,
        judgments=shared(f"data/{folder}/{labels}"),
        sample=40,
    )
    assert serious(report) == [], report
    assert "norm 1" in the(report, "unit-norms").found


# -- vectors ------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("part", ["base", "queries"])
def test_rows_that_are_not_finite_are_named(part, value):
    rows = {"base": BASE, "queries": QUERIES}
    rows[part] = changed(rows[part], (np.array([3, 17]), 5), value)
    finding = only(check(**rows), "not-finite", "error")
    assert finding.about == part
    assert finding.examples == (3, 17)
    assert finding.found.startswith(f"2 of {N if part == 'base' else M} rows")


def test_float16_overflow_is_suspected():
    base = changed(BASE.astype(np.float16), (2, 2), np.inf)
    assert "65,504" in the(check(base=base), "not-finite").advice


def test_a_large_norm_is_no_infinity():
    # 3e38 squared is beyond float32; the row itself is finite.
    base = changed(BASE, (4, 0), 3e38)
    assert "not-finite" not in check(base=base).codes


def test_tiny_vectors_are_not_zero():
    # 1e-30 squared is 0 in float32; rows of 1e-30 have a direction and norm 4e-30
    seen = scan(Vectors.of(np.full((3, D), 1e-30, np.float32)))
    assert seen.zero.count == 0
    assert seen.norm_low == pytest.approx(4e-30)
    huge = scan(Vectors.of(np.full((3, D), 1e300)))
    assert huge.bad.count == 0
    assert huge.norm_high == pytest.approx(4e300)


@pytest.mark.parametrize(
    ("space", "level"), [("cosine", "warning"), ("ip", "warning"), ("l2", "note")]
)
def test_zero_rows_matter_where_a_direction_is_needed(space, level):
    report = check(base=changed(BASE, [7, 9], 0), queries=QUERIES, space=space)
    finding = only(report, "zero-rows", level)
    assert finding.examples == (7, 9)


def test_case_c01_a_zero_row_under_cosine():
    report = check(base=np.array([[0, 0], [1, 0]], np.float32), space="cosine")
    assert the(report, "zero-rows").found == "1 of 2 rows (50.0%) of the base are zero vectors."


def test_case_c03_nan_rows_do_not_spoil_the_rest():
    base = changed(BASE, (0, 0), np.nan)
    queries = changed(QUERIES, (1, 1), np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SemrecallWarning)
        truth = search(base, queries, K, "l2")
    report = check(base=base, queries=queries, truth=truth)
    assert serious(report) == ["not-finite", "not-finite"]
    assert "All 29 sampled rows" in the(report, "truth-right").found


@pytest.mark.parametrize(("dimensions", "level"), [(1, "note"), (D // 2, "warning")])
def test_constant_dimensions(dimensions, level):
    finding = only(
        check(base=changed(BASE, np.s_[:, :dimensions], 0.5)), "constant-dimensions", level
    )
    assert finding.examples == tuple(range(min(dimensions, 5)))


@pytest.mark.parametrize(
    ("matrix", "narrower"),
    [
        (BASE.astype(np.float64), "float32"),
        (np.rint(BASE * 10).astype(np.float32), "int8"),
        (np.abs(np.rint(BASE * 10)).astype(np.float32), "uint8"),
        (BASE.astype(np.float16).astype(np.float32), "float16"),
    ],
)
def test_a_narrower_type_would_do(matrix, narrower):
    finding = the(check(base=matrix), "narrower-type")
    assert f"is exactly a {narrower}" in finding.found


def test_float64_beyond_float32():
    wide = np.random.default_rng(0).standard_normal((50, 4))
    assert only(check(base=wide), "wider-than-engines", "note")
    huge = changed(wide, (3, 1), 1e39)
    assert the(check(base=huge), "beyond-float32").examples == (3,)


def test_decoded_codes_are_recognised():
    base = vectors(3000, 4)
    codes = np.rint(base * 30) / np.float32(30.7)
    finding = only(check(base=codes.astype(np.float32)), "quantised", "note")
    assert "distinct values" in finding.found
    assert "quantised" not in check(base=base).codes


def test_integers_whose_sums_float32_cannot_hold():
    # 300 * 255^2 = 19,507,500 > 2^24 = 16,777,216; 250 * 255^2 = 16,256,250 is below.
    rng = np.random.default_rng(0)
    wide = rng.integers(0, 200, (20, 300)).astype(np.uint8)
    assert "19,507,500" in the(check(base=wide), "integer-sums").found
    assert "integer-sums" not in check(base=wide[:, :250]).codes


def test_clipped_integers():
    codes = np.clip(np.rint(BASE * 100), -128, 127).astype(np.int8)
    assert "127 or -128" in only(check(base=codes), "clipped", "warning").found
    assert "clipped" not in check(base=(BASE * 20).astype(np.int8)).codes


def test_duplicates_are_counted_and_the_largest_group_is_named():
    base = changed(BASE, [5, 8, 9], BASE[2])
    base[20] = base[30]
    finding = only(check(base=base), "duplicates", "note")
    # rows 2, 5, 8, 9 and rows 20, 30: 3 + 1 repeats in 2 groups
    assert finding.found == (
        "4 rows of the base (1.0%) repeat an earlier row: 2 groups of equal vectors, "
        "the largest of 4."
    )
    assert finding.examples == (2, 5)


def test_groups_larger_than_k_are_a_warning():
    base = changed(BASE, np.arange(15), BASE[0])
    report = check(base=base, run=search(BASE, QUERIES, 10, "l2"))
    assert the(report, "duplicates").level == "warning"


def test_repeated_queries():
    queries = changed(QUERIES, np.arange(20), QUERIES[0])
    finding = only(check(queries=queries), "duplicates", "warning")
    assert finding.about == "queries"


def test_dimensions_must_agree():
    finding = only(check(base=BASE, queries=vectors(5, 3, D + 1)), "dimension", "error")
    assert finding.found == "Queries have 17 dimensions, the base has 16."


def test_swapped_base_and_queries():
    report = check(base=QUERIES, queries=BASE)
    only(report, "more-queries-than-base", "note")
    report = check(base=QUERIES, queries=BASE, truth=without_identity(TRUTH["l2"]))
    assert the(report, "swapped-vectors").level == "error"


def test_only_one_side_was_quantised():
    codes = (BASE * 30).astype(np.int8)
    assert the(check(base=codes, queries=QUERIES), "scales-differ").level == "warning"
    assert "scales-differ" not in check(base=codes, queries=QUERIES * 30).codes
    shifted = (QUERIES * 30 + 128).astype(np.uint8)
    assert "signed-and-unsigned" in check(base=codes, queries=shifted).codes


def test_queries_drawn_from_the_base():
    report = check(base=BASE, queries=BASE[100:130], space="l2")
    assert only(report, "queries-in-base", "note").found.startswith("30 of 30 queries (100%)")
    mixed = np.concatenate([QUERIES, BASE[:1]])
    assert only(check(base=BASE, queries=mixed), "some-queries-in-base", "note").examples == (M,)


def test_a_negative_zero_is_zero():
    base = changed(BASE, (5, 0), 0.0)
    base[6] = base[5]
    base[6, 0] = -0.0
    assert the(check(base=base), "duplicates").examples == (5, 6)


def test_no_rows():
    assert only(check(base=np.empty((0, 4), np.float32)), "empty", "error").about == "base"


# -- norms and spaces -----------------------------------------------------------------------------


def test_unit_norms_make_the_spaces_alike():
    report = check(base=UNIT, queries=QUERIES)
    assert only(report, "unit-norms", "note")
    assert "spaces-apart" not in report.codes
    report = check(base=UNIT * 7, queries=QUERIES)
    assert "the same norm, 7" in the(report, "equal-norms").found


def test_unnormalised_vectors_are_measured():
    for space in ("ip", "cosine", "l2"):
        report = check(base=BASE, queries=QUERIES, space=space)
        finding = only(report, "spaces-apart", "note")
        both = np.mean(
            [
                len(np.intersect1d(a, b)) / K
                for a, b in zip(TRUTH["ip"].ids, TRUTH["cosine"].ids, strict=True)
            ]
        )
        assert f"ip and cosine {both:.3f}" in finding.found
    assert "norms-vary" in report.codes


def test_nearly_unit_vectors_under_ip_are_a_warning():
    nearly = UNIT * np.random.default_rng(3).uniform(0.96, 1.04, (N, 1)).astype(np.float32)
    report = check(base=nearly, queries=QUERIES, space="ip")
    assert serious(report) == ["nearly-unit", "spaces-apart"]
    report = check(base=nearly, queries=QUERIES, space="cosine")
    assert serious(report) == []


@pytest.mark.parametrize("made", ["ip", "cosine", "l2"])
@pytest.mark.parametrize("said", ["ip", "cosine", "l2"])
def test_case_a22_a_truth_of_another_space_is_named_from_its_ids(made, said):
    truth = truth_of(TRUTH[made].ids.matrix(), space=said, k=K)
    report = check(base=BASE, queries=QUERIES, truth=truth)
    if made == said:
        assert serious(report) == []
        return
    finding = only(report, "truth-space", "error")
    assert f"nearest in {made} " in finding.found
    assert f"{made} 1.000" in finding.found


def test_a_truth_that_does_not_say_its_space_is_placed():
    report = check(base=BASE, queries=QUERIES, truth=TRUTH["cosine"].ids.matrix())
    assert "nearest in cosine (" in only(report, "truth-space", "note").found
    report = check(base=UNIT, queries=QUERIES, truth=search(UNIT, QUERIES, K, "ip").ids.matrix())
    assert "nearest in ip and cosine and l2" in the(report, "truth-space").found


def test_stated_spaces_that_differ():
    report = check(truth=TRUTH["l2"], space="cosine")
    assert only(report, "spaces-differ", "error").about == "truth"
    report = check(truth=TRUTH["l2"], run=TRUTH["ip"])
    assert the(report, "spaces-differ").about == "run"


# -- scores -------------------------------------------------------------------------------------

DISGUISES = [
    ("ip", "negated inner products", lambda s: -s),
    ("ip", "1 - inner product", lambda s: 1 - s),
    ("ip", "(1 + inner product) / 2", lambda s: (1 + s) / 2),
    ("cosine", "cosine distances (1 - cosine)", lambda s: 1 - s),
    ("cosine", "(1 + cosine) / 2", lambda s: (1 + s) / 2),
    ("cosine", "angles", np.arccos),
    ("cosine", "negated cosines", lambda s: -s),
    ("cosine", "1 / (2 - cosine)", lambda s: 1 / (2 - s)),
    ("l2", "squared Euclidean distances", lambda s: s**2),
    ("l2", "1 / (1 + squared distance)", lambda s: 1 / (1 + s**2)),
    ("l2", "1 / (1 + distance)", lambda s: 1 / (1 + s)),
    ("l2", "negated distances", lambda s: -s),
    ("l2", "negated squared distances", lambda s: -(s**2)),
    ("l2", "half of squared distances", lambda s: s**2 / 2),
]


@pytest.mark.parametrize(("space", "name", "write"), DISGUISES, ids=[d[1] for d in DISGUISES])
def test_disguised_scores_are_named(space, name, write):
    exact = TRUTH[space].scores.matrix()
    stored = write(exact).astype(np.float32)  # as an engine stores them
    for said, level in ((None, "warning"), (space, "error")):
        truth = truth_of(TRUTH[space].ids.matrix(), stored, space=said, k=K)
        finding = the(check(base=BASE, queries=QUERIES, truth=truth), "score-unit")
        assert finding.level == level
        assert f"are {name} (" in finding.found


@pytest.mark.parametrize("made", ["ip", "cosine", "l2"])
def test_the_space_of_scores_is_named(made):
    exact = TRUTH[made]
    silent = without_identity(exact, space=None)
    report = check(base=BASE, queries=QUERIES, truth=silent)
    assert f"its scores are those of {made} (" in the(report, "scores-fit").found
    other = {"ip": "cosine", "cosine": "ip", "l2": "ip"}[made]
    wrong = without_identity(exact, space=TRUTH[other].space)
    finding = the(check(base=BASE, queries=QUERIES, truth=wrong), "score-space")
    assert finding.level == "error"
    assert finding.found.startswith(f"The truth says {other}, but its scores are ")


def test_unit_vectors_cannot_tell_ip_from_cosine():
    truth = search(UNIT, QUERIES / np.linalg.norm(QUERIES, axis=1, keepdims=True), K, "ip")
    queries = QUERIES / np.linalg.norm(QUERIES, axis=1, keepdims=True)
    finding = the(check(base=UNIT, queries=queries, truth=truth), "scores-fit")
    assert finding.found.endswith("cosine cannot be told apart from it here.")


def test_scores_of_codes_are_rough():
    codes = np.rint(BASE * 20) / np.float32(20)
    run = rescore(TRUTH["ip"], codes, QUERIES, "ip").replace(scores_by="index", identity={})
    report = check(base=BASE, queries=QUERIES, run=run)
    assert the(report, "scores-approximate").level == "note"
    report = check(base=BASE, queries=QUERIES, truth=run)
    assert the(report, "scores-approximate").level == "warning"


def test_some_damaged_scores_are_not_the_same_scores():
    scores = TRUTH["l2"].scores.matrix().copy()
    scores[:, -1] *= 1.01  # one of ten
    report = check(base=BASE, queries=QUERIES, truth=truth_of(TRUTH["l2"].ids, scores, space="l2"))
    assert the(report, "scores-approximate").level == "warning"


def test_scores_in_float32_fit_although_digits_cancel():
    # two further dimensions, whose products cancel: 1000 * 1000 - 1000 * 1000
    more = np.full((N, 2), 1000, np.float32)
    base = np.hstack([more, BASE])
    queries = np.hstack([more[:M] * [1, -1], QUERIES]).astype(np.float32)
    ids = search(base, queries, K, "ip").ids.matrix()
    stored = -np.sort(-np.einsum("qd,qkd->qk", queries, base[ids]), axis=1)
    assert not np.allclose(stored, rescore(truth_of(ids), base, queries, "ip").scores, 4e-6, 0)
    report = check(base=base, queries=queries, truth=truth_of(ids, stored, space="ip"))
    assert "scores-fit" in report.codes, report
    # squared distances by products, far from the origin
    base, queries = BASE + 100, QUERIES + 100
    ids = search(base, queries, K, "l2").ids.matrix()
    products = np.einsum("qd,qkd->qk", queries, base[ids])
    squares = (queries**2).sum(1)[:, None] + (base**2).sum(1)[ids] - 2 * products
    stored = np.sort(np.sqrt(np.maximum(squares, 0)), axis=1)
    report = check(base=base, queries=queries, truth=truth_of(ids, stored, space="l2"))
    assert "scores-fit" in report.codes, report


def test_a_disguise_is_told_in_the_stated_space():
    queries = QUERIES / np.linalg.norm(QUERIES, axis=1, keepdims=True)
    truth = search(UNIT, queries, K, "ip")
    stored = truth_of(truth.ids.matrix(), 1 - truth.scores.matrix(), space="ip")
    finding = the(check(base=UNIT, queries=queries, truth=stored), "score-unit")
    assert "1 - inner product" in finding.found


def test_scores_of_nothing_known():
    rng = np.random.default_rng(0)
    scores = -np.sort(-rng.random((M, K)), axis=1)
    truth = truth_of(TRUTH["ip"].ids.matrix(), scores, space="ip")
    assert only(check(base=BASE, queries=QUERIES, truth=truth), "scores-fit-nothing", "error")


@given(st.floats(1e-3, 1e3), st.sampled_from(["ip", "cosine", "l2"]), st.integers(0, 100))
def test_the_natural_unit_fits_at_every_scale(scale, space, seed):
    from semrecall.check.inputs import Pairs
    from semrecall.space import space as named

    base, queries = vectors(40, seed) * scale, vectors(40, seed + 1) * scale
    exact = {s: named(s).exact_scores(base, queries) for s in ("ip", "cosine", "l2")}
    rows = np.arange(40)
    norms = [np.linalg.norm(v.astype(np.float64), axis=1) for v in (queries, base)]
    pairs = Pairs(rows, rows, exact[space].astype(np.float32).astype(float), *norms, exact)
    fit = {f.name: f.agree for f in fits(pairs) if f.natural}
    natural = {"ip": "inner products", "cosine": "cosine similarities", "l2": "Euclidean distances"}
    assert fit[natural[space]] == 1.0
    assert all(agree < 0.5 for name, agree in fit.items() if name != natural[space])


# -- is the truth true ----------------------------------------------------------------------------


def test_wrong_rows_of_a_truth_are_counted():
    ids = TRUTH["l2"].ids.matrix().copy()
    ids[4, 2] = ids[4, 3]  # one place of 300 lost to a repeat
    report = check(base=BASE, queries=QUERIES, truth=truth_of(ids, space="l2", k=K))
    assert the(report, "truth-wrong").level == "warning"
    assert "1 of 30 sampled rows" in the(report, "truth-wrong").found
    assert "1 of 300 places (0.3%)" in the(report, "truth-wrong").found
    assert the(report, "truth-wrong").examples == (4,)
    ids[:, -1] = (ids[:, -1] + 1) % N
    report = check(base=BASE, queries=QUERIES, truth=truth_of(ids, space="l2", k=K))
    assert the(report, "truth-wrong").level == "error"


def test_a_truth_without_a_space_is_recomputed_to_its_depth():
    ids = search(BASE, QUERIES, 20, "cosine").ids.matrix()
    report = check(base=BASE, queries=QUERIES, truth=ids)
    assert the(report, "truth-right").found.endswith("(to depth 20).")
    assert the(report, "near-ties").found.startswith("Ranks 20 and 21 in cosine")
    wrong = changed(ids, (2, 17), ids[2, 16])
    assert the(check(base=BASE, queries=QUERIES, truth=wrong), "truth-wrong").examples == (2,)


def test_ids_from_one():
    truth = truth_of(TRUTH["l2"].ids.matrix() + 1, space="l2", k=K)
    finding = only(check(base=BASE, queries=QUERIES, truth=truth), "ids-off-by-one", "error")
    assert finding.advice.startswith("With 1 subtracted")
    every = np.arange(1, N + 1).reshape(M, -1) if N % M == 0 else np.arange(1, N + 1)[None]
    report = check(base=BASE, truth=truth_of(every))
    assert "off by one" in the(report, "ids-not-in-base").advice


def test_rows_of_other_queries():
    ids = np.roll(TRUTH["l2"].ids.matrix(), 1, axis=0)
    report = check(base=BASE, queries=QUERIES, truth=truth_of(ids, space="l2", k=K))
    assert only(report, "queries-in-other-order", "error")


def test_a_shuffled_base():
    order = np.random.default_rng(0).permutation(N)
    truth = without_identity(TRUTH["l2"], flat_scores=None)
    report = check(base=BASE[order], queries=QUERIES, truth=truth)
    assert only(report, "truth-not-nearest", "error")


def test_a_filtered_truth_is_not_recomputed():
    mask = np.arange(N) % 2 == 0
    truth = search(BASE, QUERIES, K, "l2", allowed=mask)
    report = check(base=BASE, queries=QUERIES, truth=truth)
    assert serious(report) == []
    assert "truth-right" not in report.codes
    assert any("filtered" in line for line in report.sampled)


@pytest.mark.parametrize("space", ["ip", "l2"])
def test_a_truth_in_float32_is_right_up_to_rounding(space):
    # far from the origin the products that engines take in float32 lose most of their digits
    base, queries = (BASE * 1e-4 + 10, QUERIES) if space == "ip" else (BASE + 100, QUERIES + 100)
    products = queries @ base.T
    far = -products if space == "ip" else (base**2).sum(1) - 2 * products
    ids = np.argsort(far, axis=1, kind="stable")[:, :K]
    exact = search(base, queries, K, space).ids.matrix()
    assert not np.array_equal(np.sort(ids), np.sort(exact)), "nothing was swapped"
    report = check(base=base, queries=queries, truth=truth_of(ids, space=space, k=K))
    assert "truth-wrong" not in report.codes, report


def test_a_truth_may_choose_among_ties():
    base = np.repeat(vectors(10, 5), 100, axis=0)
    exact = search(base, QUERIES, 20, "l2")
    ids = np.stack([row[-20:] for row in exact.ids])  # all 100 of the nearest group tie
    report = check(base=base, queries=QUERIES, truth=truth_of(ids, space="l2", k=20))
    assert "truth-right" in report.codes
    assert not {"truth-space", "truth-not-nearest", "truth-wrong"} & set(report.codes)


def test_self_matches():
    truth = search(BASE, BASE[:M], K, "l2")
    report = check(base=BASE, queries=BASE[:M], truth=truth)
    assert serious(report) == []
    assert the(report, "self-matches").found.startswith("In 30 of 30 rows")
    ids = search(BASE, BASE[:M], K + 1, "l2").ids.matrix()[:, 1:]
    report = check(base=BASE, queries=BASE[:M], truth=truth_of(ids, space="l2", k=K))
    assert serious(report) == []
    assert {"self-left-out", "truth-right"} <= set(report.codes)


def test_case_a12_ties_go_on_beyond_the_truth():
    # 10 distinct vectors, 100 times each; the truth has 20 of the 100 that tie
    base = np.repeat(vectors(10, 5), 100, axis=0)
    exact = search(base, QUERIES, 20, "l2")
    ids = np.stack([row[:20] for row in exact.ids])
    report = check(base=base, queries=QUERIES, truth=truth_of(ids, space="l2", k=20))
    finding = the(report, "truth-depth")
    assert finding.level == "warning"
    assert finding.found.startswith("In 30 of 30 sampled rows ties at rank 20")
    assert "10 groups of equal vectors, the largest of 100" in the(report, "duplicates").found
    assert the(report, "duplicates").level == "warning"
    # the truth that keeps ties is deep enough
    assert "truth-depth" not in check(base=base, queries=QUERIES, truth=exact).codes


def test_case_c05_vectors_that_float32_hardly_tells_apart():
    rng = np.random.default_rng(0)
    b = rng.standard_normal(512)
    base = (b + 1e-6 * rng.standard_normal((500, 512))).astype(np.float32)
    queries = (b + 1e-6 * rng.standard_normal((20, 512))).astype(np.float32)
    report = check(base=base, queries=queries, space="l2")
    finding = the(report, "near-ties")
    assert finding.level == "warning"
    assert "equal to float32 in 100%" in finding.found


def test_near_ties_are_counted_by_hand():
    # distances to 0 at ranks 2 and 3: 2 and 2 (equal), 2 and 2.01 (0.5%), 2 and 3 (50%)
    base = np.zeros((9, 3), np.float32)
    base[:, 0] = [1, 2, -2, 0, 0, 0, 0, 0, 0]
    base[:, 1] = [0, 0, 0, 1, 2, -2.01, 0, 0, 0]
    base[:, 2] = [0, 0, 0, 0, 0, 0, 1, 2, -3]
    base += np.repeat(np.diag([1000, 2000, 4000]), 3, axis=0)
    queries = np.diag([1000, 2000, 4000]).astype(np.float32)
    run = truth_of(np.tile([0, 1], (3, 1)))
    finding = the(check(base=base, queries=queries, run=run, space="l2"), "near-ties")
    assert "Ranks 2 and 3 in l2, 3 queries: exactly equal in 33.3%" in finding.found
    assert "within 1% in 66.7%" in finding.found


def test_near_ties_from_the_scores_of_a_truth_alone():
    scores = [[3.0, 2.0, 2.0, 1.0], [3.0, 2.0, 1.0, 0.5]]
    truth = truth_of([[1, 2, 3, 4], [1, 2, 3, 4]], scores, space="ip")
    run = truth_of([[1, 2], [1, 2]])
    finding = the(check(truth=truth, run=run), "near-ties")
    assert "Ranks 2 and 3 in ip, 2 queries: exactly equal in 50.0%" in finding.found


# -- rows of truth and run ------------------------------------------------------------------------

LISTS = np.arange(60).reshape(6, 10)


def test_repeated_ids():
    ids = changed(LISTS, (2, 5), LISTS[2, 4])
    finding = only(check(truth=ids), "repeated-ids", "error")
    assert finding.found == "1 results of the truth repeat an id of their own row, in 1 row."
    assert finding.examples == (2,)
    assert only(check(run=ids), "repeated-ids", "warning")


def test_padding_is_noted_and_gaps_are_worse():
    padded = changed(LISTS, np.s_[3, 7:], -1)
    finding = only(check(run=padded), "missing-results", "note")
    assert finding.found.startswith("3 of 60 places of the run (5.0%) hold no result; 0 rows are")
    gap = changed(LISTS, (3, 4), -1)
    assert only(check(truth=gap), "gaps", "error").examples == (3,)
    assert only(check(run=gap), "gaps", "warning")


def test_rows_shorter_than_k():
    rows = [row.tolist() for row in TRUTH["l2"].ids]
    rows[3] = rows[3][:4]
    truth = Run.from_arrays(rows, space="l2", k=K)
    report = check(base=BASE, queries=QUERIES, truth=truth)
    assert the(report, "short-rows").level == "warning"
    assert the(report, "truth-wrong").found.startswith("1 of 30 sampled rows")
    # four rows of base: no more than four neighbours exist
    few = search(BASE[:4], QUERIES, K, "l2")
    report = check(base=BASE[:4], queries=QUERIES, truth=few)
    assert the(report, "short-rows").level == "note"


def test_the_same_results_for_all_queries():
    same = np.tile(np.arange(10), (6, 1))
    assert only(check(run=same), "same-results", "error").examples == (0, 1, 2)
    assert check(run=LISTS).findings == ()


def test_scores_in_the_wrong_direction():
    rising = np.tile(np.arange(10.0), (6, 1))
    report = check(run=truth_of(LISTS, rising, space="ip"))
    assert only(report, "reversed-scores", "error")
    report = check(run=truth_of(LISTS, -rising, space="l2"))
    assert only(report, "reversed-scores", "error")
    assert check(run=truth_of(LISTS, rising, space="l2")).ok
    assert check(run=truth_of(LISTS, rising)).ok  # nobody says which way is nearer


def test_rows_that_are_not_sorted():
    scores = changed(np.tile(np.arange(10.0), (6, 1)), (1, 9), 0.5)
    report = check(truth=truth_of(LISTS, scores, space="l2"))
    finding = only(report, "not-sorted", "error")
    assert finding.examples == (1,)
    assert only(check(run=truth_of(LISTS, scores)), "not-sorted", "warning")


def test_exact_scores_of_a_run_need_not_be_sorted():
    # an index that ranks by its codes; its results were scored again
    run = rescore(truth_of(TRUTH["l2"].ids.matrix()[:, ::-1]), BASE, QUERIES, "l2")
    assert serious(check(run=run)) == []
    assert the(check(run=run.replace(scores_by="index")), "reversed-scores")


def test_all_scores_equal():
    report = check(run=truth_of(LISTS, np.ones((6, 10)), space="ip"))
    assert "In 6 of 6 rows" in only(report, "equal-scores", "warning").found


def test_a_truth_shallower_than_the_run():
    report = check(truth=LISTS[:, :5], run=LISTS)
    assert only(report, "truth-shallower", "note").found == "The truth is 5 deep, the run 10."


# -- ids ------------------------------------------------------------------------------------------


def test_case_a24_text_and_integer_ids_are_the_same():
    report = check(truth=[[1, 2, 3]], run=[["1", "2", "3"]])
    assert serious(report) == []


def test_case_d12_deleted_ids_in_the_truth():
    kept = np.delete(np.arange(N), TRUTH["l2"].ids[0][1])
    base = Vectors.of(BASE[kept], ids=kept)
    report = check(base=base, queries=QUERIES, truth=without_identity(TRUTH["l2"]))
    finding = the(report, "ids-not-in-base")
    assert finding.level == "error"
    assert finding.examples == (TRUTH["l2"].ids[0][1],)
    assert "deleted" in finding.advice


def test_a_run_with_ids_beyond_the_base_is_a_warning():
    ids = changed(TRUTH["l2"].ids.matrix(), (0, 0), N)
    finding = only(check(base=BASE, run=ids), "ids-not-in-base", "warning")
    assert finding.examples == (N,)


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("{:05d}", "leading zeros"),
        ("doc{}", "a prefix before the number"),
        ("{}.0", "a fraction .0"),
        ("msmarco:{}", "a prefix ending in a colon"),
        ("a/b/{}", "the folder before the name"),
    ],
)
def test_document_ids_written_differently(written, reason):
    truth = truth_of([[written.format(i) for i in row] for row in TRUTH["l2"].ids])
    assert reason in only(check(base=BASE, truth=truth), "ids-not-in-base", "error").advice
    base = Vectors.of(BASE, ids=[written.format(i) for i in range(N)])
    report = check(base=base, run=TRUTH["l2"])
    assert reason in only(report, "ids-not-in-base", "error").advice
    report = check(truth=truth, run=TRUTH["l2"])
    assert reason in only(report, "document-ids", "error").advice


def name_of(number: int) -> str:
    """An id that shows nothing of its number."""
    return f"{number * 7919 % 10007:x}-{number * 104729 % 65537:x}z"


def test_row_numbers_against_ids():
    base = Vectors.of(BASE, ids=[name_of(i) for i in range(N)])
    report = check(base=base, truth=without_identity(TRUTH["l2"]))
    assert "row numbers" in the(report, "ids-not-in-base").advice
    truth = truth_of([[name_of(i) for i in row] for row in TRUTH["l2"].ids])
    assert "--base-ids" in the(check(base=BASE, truth=truth), "ids-not-in-base").advice


def test_query_ids_written_differently():
    run = truth_of(LISTS, query_ids=[f"{i:03d}" for i in range(1, 7)])
    truth = truth_of(LISTS, query_ids=range(1, 7))
    finding = only(check(truth=truth, run=run), "query-ids", "error")
    assert "leading zeros" in finding.advice
    half = truth_of(LISTS, query_ids=[1, 2, 3, "004", "005", "006"])
    assert "leading zeros" in the(check(truth=truth, run=half), "query-ids").advice


def test_swapped_columns():
    truth = truth_of(LISTS, query_ids=[f"q{i}" for i in range(6)])
    judgments = Judgments.from_arrays(range(60), ["q1"] * 60, [1] * 60)
    finding = the(check(truth=truth, judgments=judgments), "query-ids")
    assert finding.advice == "Query and document ids of the judgments are swapped."
    # a file of documents where queries were expected
    other = truth_of(LISTS, query_ids=[name_of(i) for i in range(6)])
    run = truth_of([[name_of(i) for i in range(6)]] * 6, query_ids=range(100, 106))
    finding = the(check(truth=other, run=run), "query-ids")
    assert "query ids of the truth are document ids of the run" in finding.advice


def test_query_vectors_without_ids():
    truth = truth_of(TRUTH["l2"].ids.matrix(), query_ids=[name_of(i) for i in range(M)])
    report = check(queries=QUERIES, truth=truth)
    assert "--query-ids" in only(report, "query-ids", "error").advice
    more = check(queries=QUERIES[:20], truth=TRUTH["l2"])
    assert "10 query ids of the truth do not occur" in the(more, "query-ids").found


def test_queries_that_the_run_lacks():
    truth, run = truth_of(LISTS), truth_of(LISTS[:4])
    finding = only(check(truth=truth, run=run), "queries-not-in-run", "warning")
    assert finding.found == "2 of 6 queries of the truth are not in the run."
    assert only(check(truth=run, run=truth), "queries-only-in-run", "note").examples == (4, 5)


@pytest.mark.parametrize(
    ("base", "queries", "about"),
    [
        (BASE[:-1], QUERIES, "rows 399, expected 400"),
        (BASE.astype(np.float16), QUERIES, "dtype float16, expected float32"),
        (changed(BASE, 0, 1.5), QUERIES, "same shape and type, but other values"),
        (BASE, QUERIES * 2, "same shape and type, but other values"),
        (BASE[:, :-1], QUERIES[:, :-1], "dimension 15, expected 16"),
    ],
)
def test_a_stale_truth(base, queries, about):
    report = check(base=base, queries=queries, truth=TRUTH["l2"])
    found = [f for f in report.findings if f.code == "stale"]
    assert found
    assert about in found[0].found
    assert all(f.level == "error" for f in found)


# -- judgments ------------------------------------------------------------------------------------


def test_grades_and_judged_share():
    # of the 60 results of the truth 12 are judged (2 a query), 6 of grade 1
    judgments = Judgments.from_arrays(
        np.repeat(np.arange(6), 2), LISTS[:, :2].ravel(), np.tile([1, 0], 6)
    )
    report = check(truth=LISTS, judgments=judgments)
    assert serious(report) == []
    assert the(report, "grades").found == "Grades: 0: 6, 1: 6 (12 pairs, 6 queries)."
    assert the(report, "judged-share").found == "20.0% of the top 10 of the truth is judged."


def test_nothing_of_the_truth_is_judged():
    judgments = Judgments.from_arrays(range(6), np.roll(LISTS[:, 0], 1), [1] * 6)
    report = check(truth=LISTS, judgments=judgments)
    assert only(report, "judged-share", "warning").found.startswith("0% of the top 10")


def test_queries_without_relevant_documents():
    judgments = Judgments.from_arrays(range(6), LISTS[:, 0], [1, 0, 0, 0, 0, 0])
    report = check(truth=LISTS, judgments=judgments)
    finding = only(report, "no-relevant", "warning")
    assert finding.found.startswith("5 of 6 judged queries of the truth (83.3%)")
    # of the queries that the run asks, only those count
    report = check(run=LISTS[:2], judgments=judgments)
    assert the(report, "no-relevant").level == "note"
    assert the(report, "no-relevant").found.startswith("1 of 2 judged queries of the run")


def test_judgments_without_a_grade():
    grades = np.array([1, np.nan, 0, np.nan, 1, 1])
    report = check(judgments=Judgments.from_arrays(range(6), LISTS[:, 0], grades))
    assert only(report, "no-grade", "note").examples == (10, 30)
    report = check(judgments=Judgments.from_arrays(range(6), LISTS[:, 0], grades * np.nan))
    assert the(report, "no-grade").level == "error"


def test_judged_documents_that_are_not_in_the_base():
    documents = changed(np.arange(200), [0, 1, 2], N + 5)
    judgments = Judgments.from_arrays(np.arange(200), documents, np.ones(200))
    finding = only(check(base=BASE, judgments=judgments), "ids-not-in-base", "warning")
    assert finding.found.startswith("1 id of the judgments are not in the base (3 of 200 places")


def test_judgments_of_other_documents():
    judgments = Judgments.from_arrays(range(6), [f"d{i}x" for i in range(6)], [1] * 6)
    report = check(run=LISTS, judgments=judgments)
    assert the(report, "document-ids").level == "error"


# -- streams, memory, sampling --------------------------------------------------------------------


class _Blocks:
    def __iter__(self):
        yield from np.array_split(BASE, 7)


def test_a_stream_is_checked_like_a_matrix():
    whole = check(base=BASE, queries=QUERIES, truth=TRUTH["l2"])
    stream = Vectors.from_blocks(_Blocks())
    report = check(base=stream, queries=QUERIES, truth=TRUTH["l2"])
    assert report.findings == whole.findings


def test_a_stream_that_can_be_read_once_says_what_was_left_out():
    stream = Vectors.from_blocks(iter(np.array_split(BASE, 7)))
    report = check(base=stream, queries=QUERIES, truth=TRUTH["l2"])
    assert serious(report) == []
    assert "scores-fit" in report.codes
    assert "truth-right" not in report.codes
    assert any("read once" in line for line in report.sampled)
    stream = Vectors.from_blocks(iter(np.array_split(BASE * 2, 7)))
    assert "stale" in check(base=stream, queries=QUERIES, truth=TRUTH["l2"]).codes


def test_a_stream_of_queries():
    stream = Vectors.from_blocks(iter(np.array_split(QUERIES, 3)))
    assert serious(check(base=BASE, queries=stream, truth=TRUTH["l2"])) == []


def test_a_memory_mapped_file(tmp_path):
    np.save(tmp_path / "base.npy", BASE)
    np.save(tmp_path / "queries.npy", QUERIES)
    report = check(
        base=tmp_path / "base.npy", queries=str(tmp_path / "queries.npy"), truth=TRUTH["l2"]
    )
    assert serious(report) == []
    assert "memory-mapped" in report.inputs["base"]


def test_sampling_is_said_and_repeatable():
    report = check(base=BASE, queries=QUERIES, truth=TRUTH["l2"], sample=7, seed=3)
    assert "All 7 sampled rows" in the(report, "truth-right").found
    assert report.sampled == (
        "7 of 30 queries (seed 3) were compared with exact search and rescored",
    )
    again = check(base=BASE, queries=QUERIES, truth=TRUTH["l2"], sample=7, seed=3)
    assert again.findings == report.findings
    everything = check(base=BASE, queries=QUERIES, truth=TRUTH["l2"], sample=None)
    assert "All 30 sampled rows" in the(everything, "truth-right").found


def test_only_queries_of_the_truth_are_sampled():
    half = without_identity(TRUTH["l2"].select(np.arange(0, M, 2)))
    report = check(base=BASE, queries=QUERIES, truth=half, sample=8)
    assert "All 8 sampled rows" in the(report, "truth-right").found
    assert report.sampled[0].startswith("8 of 15 queries")


def test_little_memory_counts_duplicates_in_a_part():
    base = np.repeat(vectors(10_000, 9, 4), 2, axis=0)
    report = check(base=base, memory=1 << 20)
    finding = the(report, "duplicates")
    assert "the largest of 2" in finding.found
    assert "(50.0%)" in finding.found
    assert any("equal rows were counted in" in line for line in report.sampled)


def test_progress_reaches_the_end():
    seen = {}
    check(
        base=BASE,
        queries=QUERIES,
        space="l2",
        progress=lambda what, done, total: seen.update({what: (done, total)}),
    )
    assert seen["reading the base"] == (N, N)
    assert seen["exact search, l2"] == (N, N)


# -- the scan -------------------------------------------------------------------------------------


@given(
    hnp.arrays(
        st.sampled_from([np.uint8, np.int8, np.float16, np.float32, np.float64]),
        st.tuples(st.integers(1, 40), st.integers(1, 11)),
        elements=st.integers(0, 2),
    )
)
def test_groups_are_those_of_equal_rows(matrix):
    groups = scan(Vectors.of(matrix)).duplicates.groups()
    _, inverse, counts = np.unique(matrix, axis=0, return_inverse=True, return_counts=True)
    members = [np.flatnonzero(inverse.ravel() == g) for g in np.flatnonzero(counts > 1)]
    slow = sorted((-len(rows), int(rows[0]), int(rows[1])) for rows in members)
    assert groups == [(-size, first, second) for size, first, second in slow]


@given(st.lists(st.lists(st.integers(0, 30), max_size=8), max_size=12), st.integers(2, 12))
def test_bounded_groups_are_some_of_all_groups(blocks, limit):
    """However small the memory, what is kept of the groups is right."""
    bounded, whole = Duplicates(limit=limit), Duplicates(limit=10**6)
    mixed = row_hashes(np.arange(31, dtype=np.float64)[:, None])
    start = 0
    for block in blocks:
        for kept in (bounded, whole):
            kept.add(start + np.arange(len(block)), mixed[np.array(block, int)])
        start += len(block)
    assert set(bounded.groups()) <= set(whole.groups())
    assert whole.compared == start
    assert len(bounded.hashes) <= max(limit // 2, 0)


def test_a_dropped_group_does_not_come_back_in_part():
    kept = Duplicates(limit=100)
    hashes = np.random.default_rng(0).integers(0, 2**64, 500, np.uint64)
    kept.add(np.arange(500), hashes)
    assert kept.halvings > 0
    kept.add(np.array([500, 501]), np.full(2, hashes.max()))
    assert kept.groups() == []


def test_a_base_of_one_vector_is_one_group_in_any_memory():
    kept = Duplicates(limit=10)
    kept.add(np.arange(1000), np.full(1000, 2**64 - 1, np.uint64))
    assert kept.groups() == [(1000, 0, 1)]


@given(st.integers(0, 63), st.integers(0, 3))
def test_a_change_of_any_one_bit_changes_the_whole_hash(bit, word):
    rows = np.zeros((2, 4), np.uint64)
    rows[1, word] = np.uint64(1 << bit)
    first, second = row_hashes(rows.view(np.float64).copy().view(np.uint8).reshape(2, -1))
    assert 8 <= int(first ^ second).bit_count() <= 56


def test_the_same_high_bit_in_another_place_is_another_row():
    # 2.0 is 0x40000000: multiplied by any odd number, 2^62 has one of two values in 64 bits
    rows = 2 * np.eye(64, dtype=np.float32)
    assert len(np.unique(row_hashes(rows))) == 64


def test_hashes_that_differ_only_in_high_bits_do_not_collide():
    # small whole numbers as float32: the low 16 bits of every word are zero
    rng = np.random.default_rng(0)
    rows = np.unique(rng.integers(0, 16, (20_000, 6)), axis=0).astype(np.float32)
    assert len(np.unique(row_hashes(rows))) == len(rows)


def test_bounded_duplicates_keep_whole_groups():
    kept = Duplicates(limit=100)
    rng = np.random.default_rng(0)
    hashes = rng.integers(0, 2**64, 500, np.uint64)
    for copy in range(3):
        kept.add(np.arange(500) + 500 * copy, hashes)
    groups = kept.groups()
    assert len(kept.hashes) <= 50
    assert kept.share == 0.5**kept.halvings < 1
    assert len(groups) == len(kept.hashes) > 5
    assert all(size == 3 and second == first + 500 for size, first, second in groups)
    assert kept.compared == 3 * len(groups)


@given(st.integers(1, 9), st.integers(0, 5))
def test_a_scan_does_not_depend_on_blocks(pieces, seed):
    matrix = changed(vectors(90, seed), (3, 1), np.nan)
    matrix[50] = 0
    whole = scan(Vectors.of(matrix))
    parts = scan(Vectors.from_blocks(np.array_split(matrix, pieces)))
    for name in ("rows", "bad", "zero", "norm_low", "norm_high", "unit", "fingerprint"):
        assert getattr(whole, name) == getattr(parts, name)
    assert np.array_equal(whole.low, parts.low)
    assert np.array_equal(whole.sample, parts.sample, equal_nan=True)
    assert whole.low.tolist() == np.delete(matrix, 3, axis=0).min(axis=0).tolist()


def test_the_sample_of_a_long_stream_is_spread():
    matrix = np.arange(30_000, dtype=np.float32)[:, None]
    sample = scan(Vectors.from_blocks(np.array_split(matrix, 11))).sample[:, 0]
    steps = np.unique(np.diff(sample))
    assert len(steps) == 1
    assert 4096 <= len(sample) <= 8192


# -- the report -----------------------------------------------------------------------------------


def test_the_report_as_text_table_and_frame():
    report = check(base=changed(BASE, (3, 0), np.nan), queries=QUERIES, space="l2")
    assert [f.level for f in report.findings] == sorted(
        (f.level for f in report.findings), key=["error", "warning", "note"].index
    )
    assert repr(report).startswith("Report(1 error, 0 warnings, ")
    for width in (80, 100):
        lines = report.text(width).split("\n")
        assert max(map(len, lines)) <= width
        assert "error    not-finite" in lines
        assert "         rows: 3" in lines
    table = report.to_arrow()
    assert table.column_names == [
        "level", "code", "about", "found", "advice", "examples", "examples_of",
    ]  # fmt: skip
    assert table.column("examples")[0].as_py() == ["3"]
    assert report.to_frame().shape == (len(report), 7)
    plain = report.to_dict()
    assert plain["counts"]["error"] == 1
    assert plain["ok"] is False
    assert plain["findings"][0]["examples"] == [3]


def test_an_empty_report_has_its_columns():
    assert check(run=LISTS).to_arrow().num_columns == 7


def test_counts_and_shares_read_well():
    assert [plural(1, "row"), plural(2000, "row")] == ["1 row", "2,000 rows"]
    assert plural(2, "query", "queries") == "2 queries"
    assert [percent(0, 5), percent(5, 5), percent(1, 3)] == ["0%", "100%", "33.3%"]
    assert [percent(1, 10**6), percent(10**6 - 1, 10**6)] == ["<0.1%", ">99.9%"]
