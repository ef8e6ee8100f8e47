"""The command line: one function per command, each one API call.

Data goes to stdout, everything else to stderr. Exit status: 0 done, 1 a gate failed, 2 the input
was wrong, 3 stopped before the end (a cap, a quota; run again to go on), 130 interrupted. A
command's module is imported only when that command runs.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
import warnings
from typing import Any, NoReturn

import click

__all__ = ["COMMANDS", "cli", "main"]

#: Command -> one line about it; the function is `semrecall.cli.<command>:command`.
COMMANDS: dict[str, str] = {
    "demo": "The whole story on built-in data: Python's own documentation.",
    "truth": "Find the exact nearest neighbours of every query.",
    "embed": "Make vectors of texts, by an endpoint, a model or a function.",
    "search": "Search a system with stated settings; record results and cost.",
    "sweep": "Measure quality against cost over the settings of one system or several.",
    "tune": "Find the cheapest setting that meets a target, and confirm it.",
    "stop": "Learn to end each query's search early, and see what that saves.",
    "judge": "Have a language model, or another judge, say which documents are relevant.",
    "label": "Say yourself which documents are relevant, on a page of this machine.",
    "ledger": "Show what a ledger of labels holds; labels out of it, and into it.",
    "score": "Measure runs against truth and judgments.",
    "run": "An experiment from its file: do what is out of date, and judge its gates.",
    "watch": "Score a running system on a schedule, and tell Prometheus.",
    "diff": "What changed from one result to another: measures, queries, settings, data.",
    "report": "One HTML page of all of it: what is lost, where, and what to do next.",
    "plan": "Plan labels: how many semantic recall takes, which ones, and when they are enough.",
    "pool": "List unjudged pairs, those first that could change most.",
    "compare": "Compare runs: differences, how sure they are, and which queries moved.",
    "split": "Divide queries into development and test, and store who is where.",
    "abstention": "Show whether a score threshold tells queries without an answer from the rest.",
    "agree": "How far two judges or more agree, and what it does to the measures.",
    "rag": "Measure what a generator read, and what it answered.",
    "waterfall": "Where relevant documents are lost: model, codes, index, rerank, context, answer.",
    "analyse": "How many exact neighbours matter, and whether their scores stand apart.",
    "tolerance": "Four ways to choose the tolerance x of tolerant recall.",
    "check": "Name what is wrong with data before it costs a day.",
    "convert": "Turn a file of vectors, results or judgments into another format.",
    "list": "List the measures, systems, judges, prompts and file formats.",
}


class _Commands(click.Group):
    """Loads a command's module when it is called, so that --help stays fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f"semrecall.cli.{name}")
        command = getattr(module, "command")  # noqa: B009
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from semrecall.registry import did_you_mean

            hint = did_you_mean(args[0], COMMANDS)
            raise click.UsageError(f"unknown command {args[0]!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a reader of our output (head, less) that goes away is no fault."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # Nothing more can be written, not even when Python closes the stream.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        return result

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _show_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        click.echo(f"semrecall {version('semrecall')}")
        ctx.exit()


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version,
    help="Print the version and exit.",
)  # fmt: skip
def cli() -> None:
    """Measure what a vector search really loses.

    Start with `semrecall demo`. Then: `truth` finds the exact neighbours, `search` asks your
    index, `score` compares the two. Every command explains itself with --help.
    """


def main() -> NoReturn:
    """Run the command line; every fault becomes one readable message and an exit status."""
    # Wrapped: who reads the documentation of warnings.showwarning still finds it (the demo does).
    warnings.showwarning = functools.wraps(warnings.showwarning)(_show_warning)
    try:
        status = cli.main(prog_name="semrecall", standalone_mode=False)
    except click.exceptions.Exit as done:
        status = done.exit_code
    except click.UsageError as error:
        message = " ".join(error.format_message().split())
        help_of = error.ctx.command_path if error.ctx else "semrecall"
        _fail(message[:1].lower() + message[1:], f"see {help_of} --help")
    except click.ClickException as error:
        _fail(error.format_message(), None)
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted; nothing half-written was left behind", err=True)
        sys.exit(130)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _fail(f"{where}{error.strerror or error}", None)
    except MemoryError:
        _fail("out of memory", "give less at once, or a smaller --memory")
    except ValueError as error:
        from semrecall.errors import SemrecallError, Stopped

        if not isinstance(error, SemrecallError):
            raise
        _fail(error.message, error.hint, 3 if isinstance(error, Stopped) else 2)
    sys.exit(status if isinstance(status, int) else 0)


def _fail(message: str, hint: str | None, status: int = 2) -> NoReturn:
    from semrecall.cli.sources import as_given

    click.echo(f"error: {as_given(message)}", err=True)
    if hint:
        click.echo(f"\nhint: {hint}", err=True)
    sys.exit(status)


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    from semrecall.errors import SemrecallWarning

    if issubclass(category, SemrecallWarning):
        click.echo(f"warning: {message}", err=True)
