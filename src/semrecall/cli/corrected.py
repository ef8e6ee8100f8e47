"""What `score` says beside semantic recall by labels as they are: corrected, or of a sample."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from semrecall.cli.columns import LABELS, judgments_in

if TYPE_CHECKING:
    from semrecall.correction import Correction
    from semrecall.evaluate import Result
    from semrecall.measures import Measure

__all__ = ["correct_options", "corrections", "show_corrections"]

Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--correct-with",
        type=LABELS,
        metavar="FILE[:COLUMN]",
        help="Labels of people for some of the pairs: corrects srecall by --judgments.",
    ),
    click.option(
        "--correct-rel",
        type=float,
        metavar="GRADE",
        help="Least relevant grade of people.  [default: rel of the measure]",
    ),
    click.option(
        "--correct-method",
        type=click.Choice(["auto", "queries", "pairs", "rates"]),
        default="auto",
        show_default=True,
        help="Whole queries labelled, pairs with probabilities, or false positive rate.",
    ),
)


def correct_options(command: Command) -> Command:
    """Decorator: the options of the correction by people's labels."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def corrections(given: dict[str, Any], result: Result) -> list[Correction]:
    """Corrections by the labels given; without any, estimates where the judgments are a sample."""
    if given["correct_with"]:
        return _by_people(given, result)
    judged = result.judgments
    chances = None if judged is None else judged.details.get("probability")
    if result.truth is None or chances is None or not any(_below_one(c) for c in chances.tolist()):
        return []
    return _of_sample(result)


def show_corrections(found: list[Correction], format: str) -> None:  # noqa: A002
    """Print them under the table of the values."""
    from semrecall.cli.tables import print_rows

    for correction in found:
        click.echo()
        if format == "table":
            click.echo(str(correction))
        else:
            titles = {"over": "over", "judge": "judge", "corrected": "corrected", "low": "low",
                      "high": "high", "label_low": "low, these queries",
                      "label_high": "high, these queries"}  # fmt: skip
            click.echo(f"{correction.title}\n")
            print_rows(correction.rows(), format, titles=titles, notes=correction.notes())


def _by_people(given: dict[str, Any], result: Result) -> list[Correction]:
    from semrecall.cli.hints import hints_for
    from semrecall.correction import correct_problem
    from semrecall.errors import InputError

    if result.truth is None or result.judgments is None:
        lacking = "--truth" if result.truth is None else "--judgments"
        raise InputError(
            f"--correct-with is given without {lacking}",
            hint="it corrects semantic recall by the labels of a judge, which --judgments names",
        )
    for option in ("same_as", "same_text", "spans"):
        if given[option]:
            raise InputError(
                f"--correct-with and --{option.replace('_', '-')} do not go together: people "
                "labelled documents, not classes or spans of them"
            )
    measures = _semantic(result)
    if not measures:
        raise InputError(
            "--correct-with corrects srecall, which is not measured", hint="add -m srecall@100"
        )
    with hints_for("judgments", given["correct_with"]):
        people = judgments_in(given["correct_with"], given["conflicts"])
    return [
        correct_problem(
            result.problems[run],
            result.truth,
            result.judgments,
            people,
            measure,
            run_name=run,
            method=given["correct_method"],
            human_rel=given["correct_rel"],
            confidence=given["confidence"],
        )
        for measure in measures
        for run in result.runs
    ]


def _of_sample(result: Result) -> list[Correction]:
    """Estimates from labels of sampled pairs; what stands in their way is said, not raised."""
    from semrecall.correction import correct_problem
    from semrecall.errors import InputError

    assert result.truth is not None
    assert result.judgments is not None
    found: list[Correction] = []
    for measure in _semantic(result):
        for run in result.runs:
            try:
                found.append(
                    correct_problem(
                        result.problems[run], result.truth, None, result.judgments, measure,
                        run_name=run, confidence=result.confidence,
                    )
                )  # fmt: skip
            except InputError as error:
                click.echo(
                    f"note: the judgments are a sample, which {measure} does not heed; an "
                    f"estimate that does is not to be had: {error.message}",
                    err=True,
                )
                return found
    return found


def _semantic(result: Result) -> list[Measure]:
    return [m for m in result.measures if m.name == "srecall"]


def _below_one(chance: Any) -> bool:
    try:
        return float(chance) < 1
    except (TypeError, ValueError):
        return False
