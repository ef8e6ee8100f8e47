"""From a spec to a system: `name?key=value`, `name://host/path?key=value`, or a saved index.

`python:module:function?key=value` is a function, `http://host/path?template=FILE` an endpoint.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from semrecall.data import Vectors
from semrecall.errors import InputError
from semrecall.formats import read_vectors
from semrecall.registry import did_you_mean, load_system, split_spec, system_entries
from semrecall.systems.base import System

__all__ = ["base_vectors", "is_spec", "open_in", "open_system", "parse_spec"]


def open_system(spec: str, **options: Any) -> System:
    """The system a spec asks for.

    spec: `name?key=value&key=value`, e.g. "faiss?factory=IVF256,SQ8", "exact",
        "recorded?run=run.parquet"; `name://host:port/path?key=value` for a server, e.g.
        "qdrant://127.0.0.1:6333/docs"; "python:my_app.search:retrieve" for a function; or a path
        ending in ".faiss".
    options: more keys, for values that do not fit in a string (e.g. ids).

    A system made from a recipe still has to be built: `open_system(spec).build(base, "ip")`;
    one that was saved or recorded is ready. Raises InputError for unknown names and keys.
    """
    name, written = parse_spec(spec)
    kind = load_system(name)
    both = sorted(written.keys() & options.keys())
    if both:
        raise InputError(f"{both[0]!r} is in the spec {spec!r} and among the options")
    given = {**written, **options}
    for key in given:
        if key not in kind.options:
            hint = did_you_mean(key, kind.options) or f"{name} takes none"
            raise InputError(f"system {name!r} has no option {key!r}", hint=hint)
    system = kind(**given)
    if not isinstance(system, System):
        raise InputError(f"{name!r} is a {kind.__name__}; expected a semrecall.systems.System")
    system.spec = spec
    return system


def open_in(spec: str, space: Any = None) -> System:
    """The system a spec asks for; one that is searched as it is learns its space from here.

    space: of the scores, where the system does not know it itself and the spec does not say it.
    """
    name, options = parse_spec(spec)
    ready = options.keys() & {"function", "index", "path", "run", "url"}
    learns = ready and "space" not in options and "space" in load_system(name).options
    return open_system(spec, **({"space": space} if learns and space is not None else {}))


def parse_spec(spec: str) -> tuple[str, dict[str, str]]:
    """Name and options of a spec; values may hold anything but "&"."""
    text = spec.strip()
    if "?" not in text and text.endswith(".faiss"):
        return "faiss", {"index": text}
    name, options = split_spec(text, "system", "faiss?factory=IVF256,SQ8")
    if name.startswith("python:"):
        return "python", {"function": name.removeprefix("python:"), **options}
    scheme, slashes, _ = name.partition("://")
    if slashes:
        return scheme, {"url": name, **options}
    return name, options


def is_spec(text: str) -> bool:
    """Whether a text is the spec of a system rather than the path of a file."""
    name, question, _ = text.partition("?")
    return "://" in text or bool(question and name in system_entries())


def base_vectors(
    source: Any, *, dataset: str | None = None, ids: Any = None, whole: bool = False
) -> Vectors:
    """The vectors of a base: Vectors, an array, the path of a file, or those a database holds.

    source: a text with "://", or with the name of a system before a "?", is the spec of a system,
    which gives out what it holds in pages.
    dataset, ids: as in `read_vectors`, for a file. whole: whether to hold pages in memory, for
    work that needs rows in any order.
    """
    if not isinstance(source, str | Path):
        return Vectors.of(source, ids=ids)
    if not is_spec(str(source)):
        return read_vectors(source, dataset=dataset, ids=ids)
    if dataset is not None or ids is not None:
        raise InputError(f"{source} has ids of its own, and no data sets; expected neither")
    held = open_system(str(source)).vectors()
    if not whole or held.matrix is not None:
        return held
    return Vectors.of(np.concatenate([block for _, block in held.blocks(1 << 14)]), ids=held.ids)
