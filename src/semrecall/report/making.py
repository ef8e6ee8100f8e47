"""How a page was made: versions, systems, hashes of what was read, commands to make it again."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semrecall.formats.files import files_at
from semrecall.registry import system_entries
from semrecall.report.parts import made_section
from semrecall.text import one_line, plural

if TYPE_CHECKING:
    from semrecall.data import Cost
    from semrecall.evaluate import Result

__all__ = [
    "Source", "again", "extras_of", "result_making", "source_facts", "system_facts",
    "truth_command", "versions",
]  # fmt: skip

#: Larger files are named without a hash: vectors, whose hashes the truth knows.
_LARGEST = 1 << 28
#: Of more runs the settings are not listed.
_LISTED = 40
#: What a system says of itself that is another each time it is built, or is told elsewhere.
_FLEETING = ("system", "version", "build_seconds", "memory_bytes")


@dataclass(frozen=True)
class Source:
    """What was read: a file, a folder, a pattern, a list of these, or the address of a database.

    shown: what it was called where it was given, such as "-". digest: its hash, where it is known.
    """

    path: Any
    shown: str = ""
    digest: str = ""


def result_making(
    result: Result,
    command: str | None,
    sources: Mapping[str, Any],
    *,
    costs: Mapping[str, Cost] | None = None,
    systems: Collection[str] = (),
    made: Iterable[tuple[str, str]] = (),
    earlier: Sequence[str] = (),
) -> str:
    """The section of the page of an evaluation.

    costs: of the runs, which say what was searched. systems: names of further ones, or specs.
    made: more that is known of how the runs came about. earlier: commands that made what was read.
    """
    known = dict(costs or {})
    facts = [
        ("versions", versions(result.versions, known)),
        ("intervals", "; ".join(result.interval_methods)),
    ]
    truth = result.truth
    if truth is not None:
        by = "vectors in float64" if truth.scores_by == "exact" else "index"
        facts.append(("truth", f"to depth {truth.depth:,}, scores by the {by}"))
        facts += [(f"truth: {key}", _fact(value)) for key, value in truth.identity.items()]
    facts += [*made, *system_facts(known), *source_facts(sources)]
    extras = {"report", *extras_of([*systems, *map(_system_of, known.values())])}
    searches = [
        str(cost.details["command"]) for cost in known.values() if "command" in cost.details
    ]
    return made_section(facts) + again(command, extras, list(dict.fromkeys([*earlier, *searches])))


def versions(
    known: Mapping[str, str] | None = None, costs: Mapping[str, Cost] | None = None
) -> str:
    """Versions of what computed the page, and of the libraries that were searched."""
    found = dict(known or {"semrecall": version("semrecall")}) | _version_of("matplotlib")
    for cost in (costs or {}).values():
        told = cost.details.get("system", {})
        if _system_of(cost) and told.get("version"):
            found[_system_of(cost)] = str(told["version"])
    return ", ".join(f"{name} {number}" for name, number in found.items())


def system_facts(costs: Mapping[str, Cost]) -> list[tuple[str, str]]:
    """What was searched, and with which settings, as the costs of the runs say."""
    systems: dict[str, list[str]] = {}
    for run, cost in costs.items():
        told = cost.details.get("system")
        if isinstance(told, Mapping):
            parts = [f"{k} {_fact(v)}" for k, v in told.items() if k not in _FLEETING and v != ""]
            systems.setdefault(f"{_system_of(cost)}: {', '.join(parts)}", []).append(run)
    facts = []
    for text, runs in systems.items():
        whose = "system" if len(systems) == 1 else f"system of {', '.join(map(one_line, runs[:3]))}"
        facts.append((whose + ", ..." * (len(systems) > 1 and len(runs) > 3), text))
    facts += [
        (f"search of {one_line(run)}", ", ".join([*_settings(cost), *_asked(cost)]))
        for run, cost in list(costs.items())[:_LISTED]
        if cost.settings or "k" in cost.details
    ]
    return facts


def _settings(cost: Cost) -> list[str]:
    return [f"{knob} {_fact(value)}" for knob, value in cost.settings.items()]


def _asked(cost: Cost) -> list[str]:
    told = cost.details
    parts = [f"k {told['k']:,}"] if "k" in told else []
    return parts + ([plural(told["queries"], "query", "queries")] if "queries" in told else [])


def _system_of(cost: Cost) -> str:
    told = cost.details.get("system")
    return str(told.get("system", "")) if isinstance(told, Mapping) else ""


def extras_of(systems: Iterable[str]) -> set[str]:
    """The extras that systems need, by names or specs (faiss?factory=IVF16,SQ8)."""
    entries = system_entries()
    names = {spec.split("?")[0].split(":")[0].strip() for spec in systems if spec}
    return {extra for name in names if name in entries and (extra := entries[name].extra)}


def source_facts(sources: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Every file that was read, by what it is, and its hash. Values are paths, or `Source`s."""
    return [
        (what, _hashed(source if isinstance(source, Source) else Source(source)))
        for what, source in sources.items()
    ]


def truth_command(result: Result, base: str | None, queries: str | None, file: str) -> list[str]:
    """The command that makes the truth of a result anew; empty where it is not known."""
    import shlex

    truth = result.truth
    identity = {} if truth is None else truth.identity
    if not (base and queries) or identity.get("filter") or not {"k", "space"} <= identity.keys():
        return []
    given = ["semrecall", "truth", base, queries, "-k", str(identity["k"])]
    return [shlex.join([*given, "--space", str(identity["space"]), "-o", file])]


def again(command: str | None, extras: Collection[str], earlier: Sequence[str] = ()) -> str:
    """The commands that make the page once more; "" where the last of them is not known."""
    if not command:
        return ""
    needed = f"[{','.join(sorted(extras))}]" if extras else ""
    install = f'pip install "semrecall{needed}=={version("semrecall")}"'
    code = "\n".join(escape(one_line(line)) for line in [install, *earlier, command])
    return (
        "<p>To make it again, from the same files:</p>"
        f'<div class="scroll" tabindex="0"><pre><code>{code}</code></pre></div>'
    )


def _version_of(package: str) -> dict[str, str]:
    try:
        return {package: version(package)}
    except PackageNotFoundError:
        return {}


def _hashed(source: Source) -> str:
    """What was read as it was called, and the SHA-256 of its bytes where that can be had."""
    path = source.path
    several = isinstance(path, list | tuple)
    shown = source.shown or (", ".join(map(str, path)) if several else str(path))
    name = one_line(shown)
    if source.digest:
        return f"{name}, sha256 {source.digest}"
    files = _files(path)
    if not files:
        return name
    size = sum(file.stat().st_size for file in files)
    if size > _LARGEST:
        return f"{name}, {size:,} bytes, not hashed"
    if len(files) == 1 and not several:
        return f"{name}, sha256 {_digest(files[0])}"
    whole = hashlib.sha256("\n".join(map(_digest, files)).encode()).hexdigest()
    return f"{name}, {plural(len(files), 'file')}, sha256 of their hashes {whole}"


def _files(path: Any) -> list[Path]:
    """The files behind a path, a folder, a pattern, or a list of these; none of an address."""
    if isinstance(path, list | tuple):
        return [file for one in path for file in _files(one)]
    return files_at(str(path))


def _digest(file: Path) -> str:
    with file.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


def _fact(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_fact(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return "; ".join(map(_fact, value[:5])) + ("; ..." if len(value) > 5 else "")
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return one_line(str(value))
