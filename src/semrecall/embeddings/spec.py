"""From a spec to an embedder: `name?key=value&key=value`, or `python:module:function`."""

from __future__ import annotations

from typing import Any

from semrecall.embeddings.base import Embedder
from semrecall.errors import InputError
from semrecall.registry import load_embedder, made, split_spec

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
    embedder = made("embedder", name, given, kind, "{name}?{option}=...")
    if not isinstance(embedder, Embedder):
        raise InputError(f"{name!r} is a {kind.__name__}; expected a semrecall.embeddings.Embedder")
    return embedder
