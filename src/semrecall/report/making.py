"""How the page of an evaluation was made: versions, hashes, and commands to make it again."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from html import escape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semrecall.report.parts import made_section
from semrecall.text import one_line

if TYPE_CHECKING:
    from semrecall.evaluate import Result

__all__ = ["result_making"]

#: Larger files are named without a hash: vectors, whose hashes the truth knows.
_LARGEST = 1 << 28


def result_making(result: Result, command: str | None, sources: Mapping[str, str | Path]) -> str:
    """The section of a page."""
    versions = dict(result.versions) | _version_of("matplotlib")
    facts = [
        ("versions", ", ".join(f"{k} {v}" for k, v in versions.items())),
        ("intervals", "; ".join(result.interval_methods)),
    ]
    truth = result.truth
    if truth is not None:
        by = "vectors in float64" if truth.scores_by == "exact" else "index"
        facts.append(("truth", f"to depth {truth.depth:,}, scores by the {by}"))
        facts += [(f"truth: {key}", _fact(value)) for key, value in truth.identity.items()]
    facts += [(what, _hashed(path)) for what, path in sources.items()]
    return made_section(facts) + _again(result, command)


def _again(result: Result, command: str | None) -> str:
    if not command:
        return ""
    lines = [f'pip install "semrecall[report]=={result.versions["semrecall"]}"', one_line(command)]
    code = "\n".join(map(escape, lines))
    return (
        "<p>To make it again, from the same files:</p>"
        f'<div class="scroll" tabindex="0"><pre><code>{code}</code></pre></div>'
    )


def _version_of(package: str) -> dict[str, str]:
    try:
        return {package: version(package)}
    except PackageNotFoundError:
        return {}


def _hashed(path: str | Path) -> str:
    """The name of a file, and the SHA-256 of its bytes where it is a file of moderate size."""
    file = Path(path)
    if not file.is_file():
        return one_line(str(path))
    size = file.stat().st_size
    if size > _LARGEST:
        return f"{one_line(str(path))}, {size:,} bytes"
    with file.open("rb") as source:
        digest = hashlib.file_digest(source, "sha256").hexdigest()
    return f"{one_line(str(path))}, sha256 {digest}"


def _fact(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_fact(item)}" for key, item in value.items())
    if isinstance(value, list):
        return "; ".join(map(_fact, value[:5])) + ("; ..." if len(value) > 5 else "")
    return f"{value:,}" if isinstance(value, int) else one_line(str(value))
