"""For tests: contracts of anyone's system or judge in one call, and measures that must hold."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.benchmark import codes_truth, search
from semrecall.data import Run, Vectors
from semrecall.errors import InputError, SemrecallWarning
from semrecall.exact import rescore
from semrecall.exact import search as exact_search
from semrecall.gates import assert_measure
from semrecall.judges import Answer, Document, Judge, Ledger, Question, Reply, Status, open_judge
from semrecall.judges.asking import ask
from semrecall.space import space as space_of
from semrecall.systems import System, open_system

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semrecall.space import Space

__all__ = ["assert_measure", "check_judge", "check_system"]

_ROWS, _DIMENSION, _QUERIES, _K = 600, 16, 12, 10
#: Scores of float32 arithmetic agree with exact ones to this, relative to the largest.
_TOLERANCE = 1e-4


def check_system(
    system: str | System | Callable[[], System],
    *,
    space: str | Space = "ip",
    exact: bool = False,
    base: Any = None,
) -> None:
    """Check a system against the contract of `System`; AssertionError says what is broken.

    system: a spec, an unbuilt system, or a function that makes one.
    exact: whether it claims to find the true neighbours; then its recall must be 1.
    base: what a system that is not built, such as a function or an endpoint, holds: Vectors or an
        array (n, d) of at least 20 vectors. It is searched as it is.

    It is built on a few hundred vectors (two of them equal, one zero), with integer and with
    string ids, and searched many times. Nothing is timed, and no optional package is needed.
    """
    made = open_system(system) if isinstance(system, str) else system
    fresh = made if isinstance(made, System) else made()
    with warnings.catch_warnings():
        # Few vectors to train on, and a zero vector: intended here.
        warnings.simplefilter("ignore", SemrecallWarning)
        trial = _Trial(fresh, space_of(space), None if base is None else Vectors.of(base))
        for check in _CHECKS + (_EXACT if exact else ()) + (_BUILT if base is None else ()):
            check(trial)


def check_judge(judge: str | Judge | Callable[[], Judge]) -> None:
    """Check a judge against the contract of `Judge`; AssertionError says what is broken.

    judge: a spec, a judge, or a function that makes one. It is asked about ten pairs three times
    over, some of them odd (empty, Thai, control characters, long): a judge that is paid for costs
    as many calls.
    """
    made = open_judge(judge) if isinstance(judge, str) else judge
    fresh = made if isinstance(made, Judge) else made()
    for check in _JUDGE_CHECKS:
        check(fresh)


def _expect(held: bool, broken: str) -> None:
    if not held:
        raise AssertionError(broken)


class _Trial:
    """A system under test, built once, and the data it was built on."""

    def __init__(self, fresh: System, space: Space, base: Vectors | None) -> None:
        rng = np.random.default_rng(7)
        self.space = space
        if base is not None:
            self._take(fresh, base, rng)
            return
        matrix = rng.standard_normal((_ROWS, _DIMENSION)).astype(np.float32)
        matrix[1] = matrix[0]
        matrix[2] = 0
        self.queries = rng.standard_normal((_QUERIES, _DIMENSION)).astype(np.float32)
        self.queries[0] = matrix[0]
        # Ids that are not row numbers: a system that returns row numbers is found out.
        self.ids = np.arange(_ROWS) * 3 + 1000
        self.known = set(self.ids.tolist())
        self.base = Vectors.of(matrix, ids=self.ids)
        self.fresh = fresh
        self.system = fresh.build(self.base, space)

    def _take(self, system: System, base: Vectors, rng: np.random.Generator) -> None:
        """A system that is there already, and what it holds."""
        matrix = np.asarray(base.require_matrix(), dtype=np.float32)
        if len(matrix) < 2 * _K:
            raise InputError(f"the base has {len(matrix)} vectors; expected at least {2 * _K}")
        near = matrix[rng.choice(len(matrix), _QUERIES)]
        noise = rng.standard_normal(near.shape) * near.std()
        self.queries = (near + 0.3 * noise).astype(np.float32)
        self.ids = base.ids.array()
        self.known = set(self.ids.tolist())
        self.base, self.fresh, self.system = base, system, system

    def search(self, k: int = _K, queries: NDArray[Any] | None = None, **settings: Any) -> Run:
        wanted = self.queries if queries is None else queries
        run, _ = search(self.system, wanted, k, repeats=1, latency_queries=0, **settings)
        return run

    def raw(self, k: int = _K) -> tuple[NDArray[Any], NDArray[Any] | None]:
        ids, scores = self.system.search(self.queries, k)
        return np.asarray(ids), None if scores is None else np.asarray(scores)

    def settings(self) -> list[dict[str, Any]]:
        """For each search knob its two ends."""
        return [
            {knob.name: int(value) if knob.whole else value}
            for knob in self.system.knobs
            if knob.kind == "search"
            for value in (knob.low, knob.high)
        ]


def _says_what_it_is(trial: _Trial) -> None:
    system = trial.system
    _expect(isinstance(system, System), f"build returned a {type(system).__name__}, not a System")
    _expect(system.built, "built is false after build")
    _expect(
        system.space == trial.space, f"space is {system.space}; it was built with {trial.space}"
    )
    if system.tells_dimension:
        _tells_its_size(trial)
    _expect(isinstance(system.describe(), dict), "describe() is not a dict")
    names = [(knob.kind, knob.name) for knob in system.knobs]
    _expect(len(set(names)) == len(names), f"two knobs have one name: {names}")
    for knob in system.knobs:
        _expect(knob.low <= knob.high, f"knob {knob.name}: low {knob.low} above high {knob.high}")
        if knob.default is not None:
            knob.check(knob.default)


def _tells_its_size(trial: _Trial) -> None:
    system, base = trial.system, trial.base
    _expect(
        system.dimension == base.dimension,
        f"dimension is {system.dimension}; expected {base.dimension}",
    )
    # A zero vector has no direction: under cosine it may be left out.
    fewest = len(base) - (trial.space.name == "cosine")
    _expect(fewest <= system.ntotal <= len(base), f"ntotal is {system.ntotal}, not {len(base)}")


def _answers_in_shape(trial: _Trial) -> None:
    for k in (1, _K):
        ids, scores = trial.raw(k)
        _expect(
            ids.ndim == 2 and len(ids) == _QUERIES and ids.shape[1] <= k,
            f"k={k}: ids have shape {ids.shape}; expected ({_QUERIES}, at most {k})",
        )
        _expect(
            scores is None or scores.shape == ids.shape,
            f"k={k}: scores have another shape than ids, which have {ids.shape}",
        )
    one, _ = trial.system.search(trial.queries[:1], _K)
    _expect(len(one) == 1, f"one query was answered with {len(one)} rows")


def _returns_the_ids_it_was_given(trial: _Trial) -> None:
    run = trial.search()
    found = set(run.documents.array()[run.valid].tolist())
    _expect(bool(found), "no query found anything")
    strange = sorted(found - trial.known)
    _expect(
        not strange,
        f"found ids that no vector has, e.g. {strange[:3]}; the ids given to build must come back, "
        "not row numbers",
    )
    for row, ids in enumerate(run.ids):
        real = [i for i in ids.tolist() if i in trial.known]
        _expect(len(set(real)) == len(real), f"query {row} found one id twice: {ids}")


def _keeps_strings(trial: _Trial) -> None:
    before = trial.search().documents
    names = [f"doc-{i}" for i in range(_ROWS)]
    named = trial.fresh.build(trial.base, trial.space, names)
    run, _ = search(named, trial.queries, _K, repeats=1, latency_queries=0)
    found = {str(i) for i in run.documents.array()[run.valid].tolist()}
    _expect(bool(found), "no query found anything after a build with string ids")
    _expect(found <= set(names), f"string ids did not come back: {sorted(found - set(names))[:3]}")
    _expect(
        trial.search().documents == before,
        "building again changed the system that was built before",
    )


def _best_first(trial: _Trial) -> None:
    run = trial.search()
    if run.scores is None:
        return
    way = "falling" if trial.space.higher_is_nearer else "rising"
    for row, scores in enumerate(run.scores):
        key = trial.space.sort_key(scores[~np.isnan(scores)])
        _expect(
            bool((np.diff(key) >= 0).all()),
            f"query {row}: {trial.space} scores must be {way}, best first; found {scores}",
        )


def _scores_in_the_natural_unit(trial: _Trial) -> None:
    run = trial.search()
    if run.flat_scores is None or trial.system.codes() is not None:
        return
    true = rescore(run, trial.base, trial.queries, trial.space).flat_scores
    assert true is not None
    both = run.valid & ~np.isnan(true)
    worst = float(np.abs(run.flat_scores[both] - true[both]).max(initial=0))
    unit = "a distance, not squared" if trial.space.name == "l2" else "a similarity"
    _expect(
        worst <= _TOLERANCE * float(np.abs(true[both]).max(initial=1)),
        f"scores are off by up to {worst:.4g} from the exact ones; {trial.space} is {unit}",
    )


def _zero_vector_comes_last(trial: _Trial) -> None:
    if trial.space.name != "cosine":
        return
    ids, _ = trial.raw(_ROWS)
    zero = int(trial.ids[2])
    for row, found in enumerate(ids.tolist()):
        real = [i for i in found if i >= 0]
        _expect(
            zero not in real or real.index(zero) == len(real) - 1,
            f"query {row}: a zero vector, which has no direction, outranks real ones",
        )


def _k_beyond_the_base(trial: _Trial) -> None:
    rows = len(trial.base)
    run = trial.search(rows + 50)
    for row, ids in enumerate(run.ids):
        real = [i for i in ids.tolist() if i in trial.known]
        _expect(
            len(set(real)) == len(real) <= rows,
            f"k={rows + 50} over {rows} vectors: query {row} has {len(real)} results, of which "
            f"{len(set(real))} differ; the rest must be missing (-1, or a shorter row)",
        )


def _equal_vectors_are_two(trial: _Trial) -> None:
    ids = trial.search(_ROWS).ids[0]
    twins = {int(trial.ids[0]), int(trial.ids[1])}
    found = twins & set(ids.tolist())
    _expect(len(found) != 1 or not _sees_all(ids), "of two equal vectors only one can be found")


def _sees_all(ids: NDArray[Any]) -> bool:
    return int((ids >= 0).sum()) >= _ROWS - 1


def _bad_queries_have_reasons(trial: _Trial) -> None:
    queries = trial.queries.copy()
    queries[3, 5] = np.nan
    run = trial.search(queries=queries)
    _expect(bool(run.reason(3)) and len(run.ids[3]) == 0, "a NaN query must have an empty row")
    _expect(len(run.ids[4]) > 0, "a NaN query took the results of another query away")


def _refuses_unknown_settings(trial: _Trial) -> None:
    _refuses("search", lambda: trial.system.search(trial.queries, _K, no_such_knob=1))


def _refuses_unknown_build_knobs(trial: _Trial) -> None:
    _refuses("build", lambda: trial.fresh.build(trial.base, trial.space, no_such_knob=1))


def _refuses(kind: str, call: Callable[[], Any]) -> None:
    try:
        call()
    except InputError:
        return
    _expect(False, f"an unknown {kind} knob was taken without an error")


def _same_answer_twice(trial: _Trial) -> None:
    first, second = trial.raw(), trial.raw()
    same = np.array_equal(first[0], second[0])
    _expect(same, "the same search found other ids the second time")


def _settings_do_not_leak(trial: _Trial) -> None:
    before = trial.raw()[0]
    for setting in trial.settings():
        trial.system.search(trial.queries, _K, **setting)
        after = trial.raw()[0]
        _expect(
            np.array_equal(after, before),
            f"after a search with {setting} a search without settings finds other results",
        )


def _counts_per_query(trial: _Trial) -> None:
    counters = trial.system.count(trial.queries, _K)
    if counters is None:
        return
    for name, stage in counters.stages.items():
        if stage is None:
            continue
        shape = np.shape(stage.distance_computations)
        _expect(shape == (_QUERIES,), f"stage {name}: counts have shape {shape}, not ({_QUERIES},)")
        _expect(stage.bytes_each > 0, f"stage {name}: {stage.bytes_each} bytes a comparison")


def _codes_fit_the_base(trial: _Trial) -> None:
    codes = trial.system.codes()
    if codes is None:
        return
    _expect(
        len(codes) == trial.system.ntotal,
        f"codes() has {len(codes)} rows; the system holds {trial.system.ntotal}",
    )
    strange = set(codes.ids.array().tolist()) - set(trial.ids.tolist())
    _expect(not strange, f"codes() has ids that the base has not, e.g. {sorted(strange)[:3]}")
    run = codes_truth(trial.system, trial.queries, _K)
    _expect(len(run) == _QUERIES, f"exact search over the codes answered {len(run)} queries")


def _finds_the_truth(trial: _Trial) -> None:
    truth = exact_search(trial.base, trial.queries, _K, trial.space)
    run = trial.search()
    assert truth.scores is not None
    for row in range(_QUERIES):
        lost = set(truth.ids[row][:_K].tolist()) - set(run.ids[row].tolist())
        # Of two equal vectors at the end of the row either may be there.
        lost -= set(truth.ids[row][truth.scores[row] == truth.scores[row][_K - 1]].tolist())
        _expect(not lost, f"query {row} misses {sorted(lost)} of its {_K} nearest; it is not exact")


_CHECKS = (
    _says_what_it_is,
    _answers_in_shape,
    _returns_the_ids_it_was_given,
    _best_first,
    _scores_in_the_natural_unit,
    _k_beyond_the_base,
    _bad_queries_have_reasons,
    _refuses_unknown_settings,
    _same_answer_twice,
    _settings_do_not_leak,
    _counts_per_query,
    _codes_fit_the_base,
)
_EXACT = (_finds_the_truth,)
#: They need vectors of the contract's own.
_BUILT = (
    _keeps_strings,
    _zero_vector_comes_last,
    _equal_vectors_are_two,
    _refuses_unknown_build_knobs,
)


# -- judges ---------------------------------------------------------------------------------------

_TEXTS = (
    "Foxes dig a den with several entrances.",
    "A den of foxes has several entrances; cubs are born there in spring.",
    "",
    "   \n\t ",
    "สุนัขจิ้งจอกขุดโพรงที่มีทางเข้าหลายทาง",
    "لجحر الثعلب عدة مداخل",
    'Braces { "label": 9 } and ``` fences',
    "control \x00\x1b[31m characters",
    "word " * 5000,
)


def _questions(judge: Judge) -> list[Question]:
    asked = [Question("q", n, "how do foxes live", Document(t)) for n, t in enumerate(_TEXTS)]
    asked.append(Question("r", "a", "โพรงสุนัขจิ้งจอก", Document(_TEXTS[0])))
    return [replace(question, key=judge.key(question)) for question in asked]


def _distinct(judge: Judge) -> list[Question]:
    """The questions as a judge gets them through a ledger: equal texts once."""
    return list({question.key: question for question in _questions(judge)}.values())


def _says_who_it_is(judge: Judge) -> None:
    _expect(isinstance(judge, Judge), f"{type(judge).__name__} is no semrecall.judges.Judge")
    _expect(bool(judge.name) and isinstance(judge.name, str), f"name is {judge.name!r}")
    _expect(judge.scale.relevant in judge.scale.grades, "the scale has no relevant grade")
    once, twice = (json.dumps(judge.identity, sort_keys=True) for _ in range(2))
    _expect(once == twice, "identity changes from one look to the next")


def _keys_tell_questions_apart(judge: Judge) -> None:
    asked = Question("q", 1, "query", Document("text"))
    others = {
        "another query": Question("p", 1, "other query", Document("text")),
        "another document": Question("q", 2, "query", Document("other text")),
        "a repeat": replace(asked, repeat=1),
    }
    for what, other in others.items():
        if what == "a repeat" and not judge.reads_texts:
            continue
        _expect(judge.key(asked) != judge.key(other), f"{what} has the same key")
    _expect(judge.key(asked) == judge.key(replace(asked)), "one question has two keys")


def _answers_each_once(judge: Judge) -> None:
    asked = _distinct(judge)
    final: dict[bytes, Answer] = {}

    def record(reply: Reply) -> None:
        _expect(isinstance(reply, Reply), f"record was given a {type(reply).__name__}")
        for answer in reply.answers:
            _expect(answer.question in asked, "an answer to a question that was not asked")
            if answer.final:
                key = answer.question.key
                _expect(key not in final, f"two final answers to document {answer.question.doc_id}")
                final[key] = answer

    judge.answer(iter(asked), record)
    silent = [question.doc_id for question in asked if question.key not in final]
    _expect(not silent, f"no final answer about the documents {silent}")
    for answer in final.values():
        if answer.grade is not None:
            _expect(
                answer.grade in judge.scale.grades,
                f"the grade {answer.grade} is not on the scale {list(judge.scale.grades)}",
            )
        sure = answer.confidence
        _expect(sure is None or 0 <= sure <= 1, f"a confidence of {sure}")


def _is_silent_without_questions(judge: Judge) -> None:
    replies: list[Reply] = []
    judge.answer(iter(()), replies.append)
    _expect(not [a for r in replies for a in r.answers], "answers, though nothing was asked")


class _NoRoom(Exception):
    """What a ledger on a full disk does."""


def _stops_when_nothing_is_kept(judge: Judge) -> None:
    def record(reply: Reply) -> None:
        raise _NoRoom

    try:
        judge.answer(iter(_distinct(judge)), record)
    except BaseException as error:
        _expect(
            isinstance(error, _NoRoom) or isinstance(error.__cause__, _NoRoom),
            f"an error of record came out as {type(error).__name__}",
        )
        return
    _expect(False, "it went on although its replies could not be kept")


def _is_asked_once_through_a_ledger(judge: Judge) -> None:
    replies: list[Reply] = []
    with Ledger(None) as ledger:
        first = ask(judge, _questions(judge), ledger, watch=replies.append)
        passing = any(kept.status is not None and kept.status.passing for kept in first.values())
        before = len(replies)
        second = ask(judge, _questions(judge), ledger, watch=replies.append)
        _expect(passing or len(replies) == before, "what is settled was asked again")
        _expect(passing or first == second, "labels changed though nothing was asked")
        labels = ledger.judgments(ledger.enlist(judge))
    settled = sum(kept.status is Status.SETTLED for kept in first.values())
    _expect(len(labels) == len(_TEXTS) + 1, f"{len(labels)} pairs came out of the ledger")
    _expect(settled > 0 or not judge.reads_texts, "not one of the pairs has a grade")


_JUDGE_CHECKS = (
    _says_who_it_is,
    _keys_tell_questions_apart,
    _answers_each_once,
    _is_silent_without_questions,
    _stops_when_nothing_is_kept,
    _is_asked_once_through_a_ledger,
)
