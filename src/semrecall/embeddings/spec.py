"""From a spec to an embedder: `name?key=value&key=value`, or `python:module:function`."""

from __future__ import annotations

import inspect
from typing import Any

from semrecall.embeddings.base import Embedder
from semrecall.errors import InputError
from semrecall.registry import did_you_mean, load_embedder, split_spec

__all__ = ["open_embedder"]


def open_embedder(spec: str | Embedder, **options: Any) -> Embedder:
    """The embedder a spec asks for.

    spec: "openai?model=text-embedding-3-small", "sentence-transformers?model=NAME",
        "python:my_module:function", or an Embedder as it is.
    options: more keys, for values that do not fit in a string.

    Raises InputError for unknown names and keys, MissingExtra where a package is not installed.
    """
    if isinstance(spec, Embedder):
        return spec
    name, written = split_spec(spec, "embedder", "openai?model=text-embedding-3-small")
    if "prefix" in written and spec.rstrip().endswith(f"prefix={written['prefix']}"):
        # Models want the space of "query: ", which would be cut off as the end of the spec.
        written["prefix"] += spec[len(spec.rstrip()) :]
    given: dict[str, Any] = {**written, **options}
    if name.startswith("python:"):
        name, given["function"] = "python", name.removeprefix("python:")
    kind = load_embedder(name)
    parameters = inspect.signature(kind).parameters
    for key in given:
        if key not in parameters:
            hint = did_you_mean(key, parameters)
            raise InputError(f"embedder {name!r} has no option {key!r}", hint=hint)
    lacking = [n for n, p in parameters.items() if p.default is p.empty and n not in given]
    if lacking:
        raise InputError(
            f"embedder {name!r} needs {', '.join(lacking)}",
            hint=f'for example "{name}?{lacking[0]}=..."',
        )
    embedder = kind(**given)
    if not isinstance(embedder, Embedder):
        raise InputError(f"{name!r} is a {kind.__name__}; expected a semrecall.embeddings.Embedder")
    return embedder
