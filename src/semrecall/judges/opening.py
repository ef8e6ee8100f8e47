"""From a spec to a judge: `name?key=value&key=value`, or `python:module:function`."""

from __future__ import annotations

from typing import Any

from semrecall.errors import InputError
from semrecall.judges.contract import Judge
from semrecall.registry import load_judge, made, split_spec

__all__ = ["open_judge"]

_WORDS: dict[str, Any] = {"true": True, "false": False, "none": None}


def open_judge(spec: str | Judge, **options: Any) -> Judge:
    """The judge a spec asks for.

    spec: `name?key=value&key=value`, e.g. "llm?model=gpt-5-mini&reason=true", "recorded?labels=
        qrels.txt", or "python:my_module:function" for a function of a query and a document.
    options: more keys, for values that do not fit in a string.

    Raises InputError for unknown names and keys, MissingExtra where a package is not installed.
    """
    if isinstance(spec, Judge):
        return spec
    name, written = split_spec(spec, "judge", "llm?model=gpt-5-mini")
    given = {key: _value(text) for key, text in written.items()}
    both = sorted(given.keys() & options.keys())
    if both:
        raise InputError(f"{both[0]!r} is in the spec {spec!r} and among the options")
    given |= options
    if name.startswith("python:"):
        name, given["function"] = "python", name.removeprefix("python:")
    kind = load_judge(name)
    judge = made("judge", name, given, kind, "{name}?{option}=...")
    if not isinstance(judge, Judge):
        raise InputError(f"{name!r} is a {kind.__name__}; expected a semrecall.judges.Judge")
    return judge


def _value(text: str) -> Any:
    """Numbers, true, false and none as such; all else is text."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
