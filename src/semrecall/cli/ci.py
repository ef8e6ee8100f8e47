"""What a continuous integration reads: JUnit XML, a summary of GitHub Actions, annotations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from semrecall.cli.outputs import OutputPath

if TYPE_CHECKING:
    from semrecall.gates import Verdict

__all__ = ["Case", "annotate", "append_summary", "case_of", "ci_options", "gates_table", "junit"]

Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--junit", type=OutputPath(".xml", dir_okay=False), metavar="FILE",
        help="Write the gates as JUnit XML.",
    ),
    click.option(
        "--summary", type=click.Path(dir_okay=False), metavar="FILE", envvar="GITHUB_STEP_SUMMARY",
        help="Append the results as markdown.  [default: $GITHUB_STEP_SUMMARY]",
    ),
)  # fmt: skip


def ci_options(command: Command) -> Command:
    """Decorator: the options `--junit` and `--summary`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True)
class Case:
    """One thing that passed, failed (a gate), was an error (a step), or was not looked at.

    message: why it did not pass. line: of the file it stands in, where there is one.
    """

    suite: str
    name: str
    outcome: Literal["passed", "failure", "error", "skipped"]
    message: str = ""
    seconds: float | None = None
    line: int | None = None


def case_of(verdict: Verdict, line: int | None = None) -> Case:
    """The case of a gate's verdict."""
    outcome: Literal["passed", "failure"] = "passed" if verdict.passed else "failure"
    return Case("gates", f"{verdict.gate} of {verdict.run}", outcome, verdict.message, line=line)


def junit(cases: Iterable[Case], path: str) -> None:
    """Write cases as JUnit XML, a test suite for each name of one."""
    from xml.etree.ElementTree import Element, ElementTree, SubElement, indent

    from semrecall.formats import writing
    from semrecall.text import one_line

    root = Element("testsuites", name="semrecall")
    suites: dict[str, list[Case]] = {}
    for case in cases:
        suites.setdefault(case.suite, []).append(case)
    for name, members in suites.items():
        counts = {
            key: str(sum(case.outcome == outcome for case in members))
            for key, outcome in (
                ("failures", "failure"), ("errors", "error"), ("skipped", "skipped"),
            )
        }  # fmt: skip
        suite = SubElement(root, "testsuite", {"name": name, "tests": str(len(members)), **counts})
        for case in members:
            timed = {} if case.seconds is None else {"time": f"{case.seconds:.3f}"}
            title = one_line(case.name)
            named = {"classname": f"semrecall.{name}", "name": title, **timed}
            element = SubElement(suite, "testcase", named)
            if case.outcome != "passed":
                SubElement(element, case.outcome, message=one_line(case.message))
    indent(root)
    root.tail = "\n"
    with writing(path) as temporary:
        ElementTree(root).write(temporary, encoding="utf-8", xml_declaration=True)


def annotate(cases: Iterable[Case], file: str | None = None) -> None:
    """Tell GitHub Actions, where it runs us, of each case that failed, at its line of the file."""
    import os

    if os.environ.get("GITHUB_ACTIONS") != "true":
        return
    for case in cases:
        if case.outcome in ("failure", "error"):
            at = {} if file is None else {"file": file, "line": case.line or 1}
            named = ",".join(f"{k}={_property(str(v))}" for k, v in at.items())
            click.echo(f"::error {named}::{_data(case.message)}".replace(" ::", "::"), err=True)


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def gates_table(found: Sequence[Verdict]) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Rows and headings of a table of verdicts; the interval as a text."""
    rows = [
        {
            "gate": str(v.gate),
            "run": v.run,
            "value": v.value,
            "interval": _interval(v),
            "result": "passed" if v.passed else "FAILED",
        }
        for v in found
    ]
    return rows, {key: key for key in ("gate", "run", "value", "interval", "result")}


def _interval(verdict: Verdict) -> str:
    if verdict.low != verdict.low:
        return "-"
    return f"{verdict.low:.4f} to {verdict.high:.4f}"


def append_summary(path: str, title: str, parts: Iterable[str]) -> None:
    """Add a heading and parts in markdown to the end of a file."""
    with open(path, "a", encoding="utf-8") as file:
        file.write("\n".join([f"## {title}\n", *filter(None, parts)]) + "\n")
