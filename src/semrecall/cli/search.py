"""semrecall search: ask a system with stated settings; record results and cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from semrecall.cli.embedding import queries_given, set_options
from semrecall.cli.outputs import OutputPath, WritingCommand, command_line
from semrecall.cli.tables import format_option

if TYPE_CHECKING:
    from semrecall.data import Cost, Run, Vectors
    from semrecall.systems import System

__all__ = ["command", "knobs_of"]

_FILE = click.Path()

#: Key of a row of the cost table -> its heading.
_TITLES = {
    "distance_computations": "distances",
    "bytes_read": "bytes read",
    "queries_per_second": "queries/s",
    "latency_p50_ms": "p50 ms",
    "latency_p99_ms": "p99 ms",
    "cpu_ms": "CPU ms",
}


@click.command("search", cls=WritingCommand)
@click.argument("spec")
@click.option("--base", type=_FILE, help="Base vectors; a saved or recorded system needs none.")
@click.option("--queries", type=_FILE, help="Query vectors.")
@set_options
@click.option("-k", type=int, default=100, show_default=True, help="Results per query.")
@click.option(
    "--space", type=click.Choice(["ip", "cosine", "l2"]),
    help="Inner product, cosine similarity, or Euclidean distance; needed to build.",
)  # fmt: skip
@click.option(
    "--set", "settings", multiple=True, metavar="KNOB=VALUE",
    help="A search knob; several values (nprobe=1,2,4) are searched one after another.",
)  # fmt: skip
@click.option(
    "--stop", "stop", type=_FILE, metavar="FILE",
    help="End each search by a rule that semrecall stop learned, in place of --set.",
)  # fmt: skip
@click.option(
    "--build", "build_knobs", multiple=True, metavar="KNOB=VALUE", help="A build knob, e.g. seed=7."
)
@click.option(
    "-o", "--output", type=OutputPath(),
    help="Where the run goes; with several values a pattern, e.g. run-{nprobe}.parquet.",
)  # fmt: skip
@click.option("--cost", type=OutputPath(), help="Cost per query; a pattern like -o.")
@click.option(
    "--codes", type=OutputPath(), help="The run of exact search over the quantised vectors."
)
@click.option("--save", type=OutputPath(), help="Save the built index, e.g. index.faiss.")
@click.option("--rescore", is_flag=True, help="Exact scores, recomputed from the base vectors.")
@click.option("--repeats", type=click.IntRange(min=1), default=3, show_default=True,
              help="How often the batch is searched; times are the median.")  # fmt: skip
@click.option("--latency-queries", type=click.IntRange(min=0), default=300, show_default=True,
              help="Queries searched once more, one at a time.")  # fmt: skip
@click.option("--base-dataset", help="Part of the base file: HDF5 data set or parquet column.")
@click.option("--queries-dataset", help="Part of the queries file.")
@click.option("--base-ids", type=_FILE, help="Ids of the base rows, one a line, or .npy.")
@click.option("--query-ids", type=_FILE, help="Ids of the queries, one a line, or .npy.")
@format_option
def command(
    spec: str,
    k: int,
    space: str | None,
    settings: tuple[str, ...],
    build_knobs: tuple[str, ...],
    rescore: bool,
    repeats: int,
    latency_queries: int,
    format: str,  # noqa: A002
    **files: Any,
) -> None:
    """Search a system with stated settings; record results and cost.

    SPEC is name?key=value: faiss?factory=IVF256,SQ8, faiss?index=saved.faiss, exact, or
    recorded?run=run.parquet; a path ending in .faiss will do, too. python:module:function is a
    function of yours, http://host:port?template=FILE any endpoint. The system is built once and
    searched with each setting. Cost is counted where the system counts: distance computations
    and bytes, all stages, per query.

    \b
    Example:
      semrecall search faiss?factory=IVF256,SQ8 --base base.fbin --queries queries.fbin \\
          --space ip -k 100 --set nprobe=1,2,4,8,16 -o run-{nprobe}.parquet
      semrecall search python:my_app.search:retrieve --eval-set eval.jsonl -k 10 -o run.parquet
    """
    from contextlib import ExitStack

    from semrecall.benchmark import codes_truth, search
    from semrecall.errors import InputError
    from semrecall.formats import write
    from semrecall.systems import open_in

    grid = list(_grid(settings))
    _check_files(files, grid)
    if rescore and files["base"] is None:
        raise InputError("--rescore needs the base vectors", hint="give --base FILE")
    with ExitStack() as own:
        opened = open_in(spec, space)
        own.callback(opened.close)
        asked = _asked(files, opened)
        base = _base(files)
        system = _built(opened, base, space, knobs_of(build_knobs, "--build"))
        if system is not opened:
            own.callback(system.close)
        searched = _stopped(system, files["stop"])
        # All settings are checked before the first search: a sweep must not fail at its end.
        for setting in grid:
            searched.turned("search", setting)
        if files["save"] is not None:
            system.save(files["save"])
        if files["codes"] is not None:
            write(codes_truth(system, asked.get("queries"), k), files["codes"])
        rows = []
        for setting in grid:
            _tell(f"searching {_title(setting)}")
            run, cost = search(
                searched, **asked, k=k, repeats=repeats, latency_queries=latency_queries,
                rescore_base=base if rescore else None, **setting,
            )  # fmt: skip
            _record(run, cost, setting, files)
            rows.append(_row(setting, cost))
        _print(rows, list(grid[0]), format, searched, k)


def _stopped(system: System, rule: str | None) -> System:
    """The system with the rule of a file on it."""
    if rule is None:
        return system
    from semrecall.stopping import read_stop_rule

    return read_stop_rule(rule).on(system)


def _asked(files: dict[str, Any], system: System) -> dict[str, Any]:
    """The queries: vectors, and of an evaluation set texts and filters, as `search` takes them."""
    from semrecall.errors import InputError

    found = queries_given(files, embed=not system.by_text)
    found.pop("judgments", None)
    path = files["eval_set"]
    if found["queries"] is None and not system.by_text:
        raise InputError(
            f"{system.spec!r} is asked with vectors, and {path} has none",
            hint="give --queries FILE, or make them of the texts with --embed SPEC",
        )
    if "filters" in found and not system.filtered:
        raise InputError(
            f"{system.spec!r} takes no filters, and {path} has some",
            hint="--ignore-filters searches without them",
        )
    return found


def _tell(message: str) -> None:
    """Say what is going on, to somebody who watches."""
    import sys

    if sys.stderr.isatty():
        click.echo(f"{message} ...", err=True)


def _title(setting: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in setting.items()) or "with defaults"


def _grid(pairs: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Every combination of the values of the knobs; one empty setting when none is given."""
    from itertools import product

    values: dict[str, list[Any]] = {}
    for pair in pairs:
        name, listed = _pair(pair, "--set")
        for text in listed.split(","):
            value = _value(text)
            if value not in values.setdefault(name, []):
                values[name].append(value)
    for combination in product(*values.values()):
        yield dict(zip(values, combination, strict=True))


def knobs_of(pairs: Sequence[str], option: str) -> dict[str, Any]:
    """Each knob with its one value."""
    from semrecall.errors import InputError

    found: dict[str, Any] = {}
    for pair in pairs:
        name, text = _pair(pair, option)
        if name in found:
            raise InputError(f"{option} {name} is given twice; expected one value")
        found[name] = _value(text)
    return found


def _pair(text: str, option: str) -> tuple[str, str]:
    from semrecall.errors import InputError

    name, equals, value = text.partition("=")
    if not equals or not name.strip() or not value.strip():
        raise InputError(f"{option} {text!r} is not KNOB=VALUE", hint=f"e.g. {option} nprobe=8")
    return name.strip(), value.strip()


def _value(text: str) -> int | float | str:
    """A number, or the word that it is: the knob knows whether it may be one."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text.strip()


def _check_files(files: dict[str, Any], grid: Sequence[dict[str, Any]]) -> None:
    """Files to write have a format and a directory, before the work is done and not after."""
    from pathlib import Path

    from semrecall.errors import InputError
    from semrecall.formats.table import format_for

    names = list(grid[0])
    varied = [name for name in names if len({setting[name] for setting in grid}) > 1]
    _check_pattern("-o", files["output"], names, varied)
    _check_pattern("--cost", files["cost"], names, varied)
    for option in ("output", "codes", "cost", "save"):
        pattern = files[option]
        if pattern is None:
            continue
        path = Path(_named(pattern, grid[0]))
        if option in ("output", "codes"):
            format_for(path, "run", None, writing=True)
        if not path.absolute().parent.is_dir():
            raise InputError(f"{path}: the directory {path.parent} does not exist")


def _check_pattern(
    option: str, pattern: str | None, names: Sequence[str], varied: Sequence[str]
) -> None:
    """Each setting must have a file of its own, named by knobs that exist."""
    import re

    from semrecall.errors import InputError

    if pattern is None:
        return
    used = re.findall(r"\{(.*?)\}", pattern)
    strange = [name for name in used if name not in names]
    if strange:
        raise InputError(
            f"{option} {pattern!r} names {{{strange[0]}}}, which is not set",
            hint=f"set are {', '.join(names)}" if names else f"give --set {strange[0]}=VALUE",
        )
    lacking = [name for name in varied if name not in used]
    if lacking:
        raise InputError(
            f"{option} {pattern!r} is one file for several values of {lacking[0]}",
            hint=f"name the knob in it, e.g. run-{{{lacking[0]}}}.parquet",
        )


def _base(files: dict[str, str | None]) -> Vectors | None:
    from semrecall.systems import base_vectors

    if files["base"] is None:
        return None
    ids = files["base_ids"]
    return base_vectors(files["base"], dataset=files["base_dataset"], ids=ids, whole=True)


def _built(
    system: System, base: Vectors | None, space: str | None, knobs: dict[str, Any]
) -> System:
    import time

    from semrecall.errors import InputError

    system.turned("build", knobs)
    if not system.buildable or (system.built and base is None):
        return system
    if base is None:
        if system.named or "://" in system.spec:
            # A database says itself what it has not.
            _ = system.ntotal
        raise InputError(f"{system.spec!r} has to be built", hint="give --base FILE")
    if space is None and not system.built:
        raise InputError("building needs --space", hint="--space ip, cosine or l2")
    _tell(f"building {system.spec}")
    start = time.perf_counter()
    built = system.build(base, space or system.space, **knobs)
    click.echo(
        f"{built.spec}: {built.ntotal:,} x {built.dimension}, {built.space}, ready in "
        f"{time.perf_counter() - start:.1f} s",
        err=True,
    )
    return built


def _record(run: Run, cost: Cost, setting: dict[str, Any], files: dict[str, Any]) -> None:
    from semrecall.formats import write, write_cost

    if files["output"] is not None:
        path = _named(files["output"], setting)
        write(run, path)
        click.echo(f"{path}: {run!r}", err=True)
    if files["cost"] is not None:
        details = {**cost.details, "command": command_line()}
        write_cost(replace(cost, details=details), _named(files["cost"], setting))


def _named(pattern: str, setting: dict[str, Any]) -> str:
    for name, value in setting.items():
        pattern = pattern.replace(f"{{{name}}}", str(value))
    return pattern


def _row(setting: dict[str, Any], cost: Cost) -> dict[str, Any]:
    def milliseconds(seconds: float | None) -> float | None:
        return None if seconds is None or seconds != seconds else 1000 * seconds

    counted = {name: cost.mean(name) for name in ("distance_computations", "bytes_read")}
    return {
        **setting,
        **{name: None if mean != mean else mean for name, mean in counted.items()},
        "queries_per_second": cost.details.get("queries_per_second"),
        "latency_p50_ms": milliseconds(cost.details.get("latency_p50_seconds")),
        "latency_p99_ms": milliseconds(cost.details.get("latency_p99_seconds")),
        "cpu_ms": milliseconds(cost.mean("cpu_seconds")),
        "stages": cost.details.get("stages"),
    }


def _print(
    rows: list[dict[str, Any]], names: Sequence[str], style: str, system: System, k: int
) -> None:
    from semrecall.cli.tables import print_rows

    shown = rows if style in ("json", "csv") else [_rounded(row) for row in rows]
    print_rows(
        shown,
        style,
        titles={name: name for name in names} | _TITLES,
        document={"system": system.describe(), "k": k, "settings": rows},
        notes=["distances, bytes read and CPU: means per query"],
        digits=3,
    )


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    """Counts as whole numbers: a fraction of a byte is noise to a reader."""
    whole = ("distance_computations", "bytes_read", "queries_per_second")
    return {n: round(v) if n in whole and v is not None else v for n, v in row.items()}
