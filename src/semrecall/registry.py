"""Names of systems, judges and embedders: name -> "module:object", near names, which extra.

A plug-in adds its own through the entry point groups `semrecall.systems`, `semrecall.judges` and
`semrecall.embedders`.
"""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from semrecall.errors import InputError, MissingExtra

__all__ = [
    "EMBEDDERS",
    "JUDGES",
    "SYSTEMS",
    "Entry",
    "did_you_mean",
    "embedder_entries",
    "import_extra",
    "import_object",
    "judge_entries",
    "load_embedder",
    "load_judge",
    "load_system",
    "made",
    "positive",
    "split_spec",
    "system_entries",
]


@dataclass(frozen=True)
class Entry:
    """Where a name lives, which extra it needs, and one line about it."""

    target: str
    extra: str | None
    about: str


SYSTEMS: dict[str, Entry] = {
    "chroma": Entry("semrecall.systems.chroma:ChromaSystem", "chroma", "Chroma"),
    "duckdb": Entry(
        "semrecall.systems.duckdb:DuckdbSystem", "duckdb", "DuckDB: exact search in SQL"
    ),
    "elasticsearch": Entry(
        "semrecall.systems.elasticsearch:ElasticsearchSystem", None, "Elasticsearch, by its address"
    ),
    "exact": Entry("semrecall.systems.exact:ExactSystem", None, "exact search by semrecall itself"),
    "faiss": Entry(
        "semrecall.systems.faiss:FaissSystem", "faiss", "any faiss index, by factory string or file"
    ),
    "lancedb": Entry("semrecall.systems.lancedb:LancedbSystem", "lancedb", "LanceDB"),
    "milvus": Entry("semrecall.systems.milvus:MilvusSystem", "milvus", "Milvus, Milvus Lite"),
    "pgvector": Entry(
        "semrecall.systems.pgvector:PgvectorSystem", "pgvector", "PostgreSQL with pgvector"
    ),
    "postgresql": Entry(
        "semrecall.systems.pgvector:PgvectorSystem", "pgvector", "the same by its usual address"
    ),
    "hnswlib": Entry(
        "semrecall.systems.hnswlib:HnswlibSystem", "hnswlib", "hnswlib, built here or saved"
    ),
    "http": Entry("semrecall.systems.http:HttpSystem", None, "any JSON endpoint, by a template"),
    "https": Entry("semrecall.systems.http:HttpSystem", None, "the same, encrypted"),
    "opensearch": Entry(
        "semrecall.systems.opensearch:OpensearchSystem", None, "OpenSearch, by its address"
    ),
    "python": Entry(
        "semrecall.systems.function:FunctionSystem",
        None,
        "a Python function or a retriever: python:module:function",
    ),
    "qdrant": Entry("semrecall.systems.qdrant:QdrantSystem", "qdrant", "Qdrant, Qdrant Edge"),
    "recorded": Entry(
        "semrecall.systems.recorded:RecordedSystem", None, "results recorded in a file"
    ),
    "redis": Entry("semrecall.systems.redis:RedisSystem", "redis", "vector sets of Redis 8"),
    "rediss": Entry("semrecall.systems.redis:RedisSystem", "redis", "the same, encrypted"),
    "scann": Entry("semrecall.systems.scann:ScannSystem", "scann", "ScaNN, built here or saved"),
    "sqlite-vec": Entry(
        "semrecall.systems.sqlitevec:SqliteVecSystem", "sqlite-vec", "SQLite with sqlite-vec"
    ),
    "usearch": Entry(
        "semrecall.systems.usearch:UsearchSystem", "usearch", "usearch, built here or saved"
    ),
    "weaviate": Entry(
        "semrecall.systems.weaviate:WeaviateSystem", None, "Weaviate, by its address"
    ),
    "voyager": Entry(
        "semrecall.systems.voyager:VoyagerSystem", "voyager", "Voyager, built here or saved"
    ),
}

JUDGES: dict[str, Entry] = {
    "llm": Entry(
        "semrecall.judges.llm:LLMJudge", "llm", "a language model, over HTTP (OpenAI or Anthropic)"
    ),
    "crossencoder": Entry(
        "semrecall.judges.crossencoder:CrossEncoderJudge",
        "crossencoder",
        "a cross-encoder, its scores cut into grades",
    ),
    "recorded": Entry("semrecall.judges.recorded:RecordedJudge", None, "labels recorded in a file"),
    "panel": Entry("semrecall.judges.panel:Panel", None, "several judges as one, by majority"),
    "python": Entry(
        "semrecall.judges.function:FunctionJudge", None, "a Python function: python:module:function"
    ),
}

EMBEDDERS: dict[str, Entry] = {
    "openai": Entry(
        "semrecall.embeddings.openai:OpenAIEmbedder", None, "an OpenAI-compatible endpoint"
    ),
    "sentence-transformers": Entry(
        "semrecall.embeddings.sentence_transformers:SentenceTransformersEmbedder",
        "embeddings",
        "a model of sentence-transformers, on this machine",
    ),
    "python": Entry(
        "semrecall.embeddings.function:FunctionEmbedder",
        None,
        "a Python function: python:module:function",
    ),
}


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """A hint naming the known names closest to `name`, or all of them when none is close."""
    names = sorted(set(known))
    lowered = {n.lower(): n for n in names}
    close = difflib.get_close_matches(name.lower(), lowered, n=3, cutoff=0.6)
    if close:
        return "did you mean " + " or ".join(lowered[c] for c in close) + "?"
    return "known: " + ", ".join(names) if names else None


def import_extra(module: str, extra: str, needed_for: str) -> Any:
    """Import an optional package, or raise MissingExtra naming the extra that installs it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name and error.name.split(".")[0] != module.split(".")[0]:
            raise
        raise MissingExtra(module.split(".")[0], extra, needed_for) from error


def import_object(path: str, example: str) -> Any:
    """What "module:name" names; modules of the working folder are found too.

    The name may have dots: "my_app.search:index.query". Raises InputError, with near names.
    """
    module, colon, name = path.partition(":")
    if not colon or not module or not name:
        raise InputError(
            f"{path!r} names no function", hint=f"write module:function, e.g. {example}"
        )
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        raise InputError(f"module {module!r} cannot be imported: {error}") from error
    what = f"module {module!r}"
    for part in name.split("."):
        if not hasattr(found, part):
            public = [n for n in dir(found) if not n.startswith("_")]
            raise InputError(f"{what} has no {part!r}", hint=did_you_mean(part, public))
        found, what = getattr(found, part), f"{path!r}: {part}"
    return found


def system_entries() -> dict[str, Entry]:
    """All systems by name: our own, and those that installed packages add."""
    return _with_plugins(SYSTEMS, "semrecall.systems")


def judge_entries() -> dict[str, Entry]:
    """All judges by name: our own, and those that installed packages add."""
    return _with_plugins(JUDGES, "semrecall.judges")


def embedder_entries() -> dict[str, Entry]:
    """All embedders by name: our own, and those that installed packages add."""
    return _with_plugins(EMBEDDERS, "semrecall.embedders")


def load_embedder(name: str) -> Any:
    """The class of the embedder called `name`; InputError with near names when there is none."""
    return _load(name, embedder_entries(), "embedder")


def load_system(name: str) -> Any:
    """The class of the system called `name`; InputError with near names when there is none."""
    return _load(name, system_entries(), "system")


def load_judge(name: str) -> Any:
    """The class of the judge called `name`; InputError with near names when there is none."""
    return _load(name, judge_entries(), "judge")


def split_spec(spec: str, what: str, example: str) -> tuple[str, dict[str, str]]:
    """Name and options of `name?key=value&key=value`; values may hold anything but "&"."""
    name, _, rest = spec.strip().partition("?")
    options: dict[str, str] = {}
    for piece in filter(None, rest.split("&")):
        key, equals, value = piece.partition("=")
        if not equals or not key or not value:
            raise InputError(
                f"{piece!r} in the {what} {spec!r} is not key=value",
                hint=f'for example "{example}"',
            )
        if key in options:
            raise InputError(f"{key!r} occurs twice in the {what} {spec!r}")
        options[key] = value
    if not name:
        raise InputError(f"the {what} {spec!r} has no name", hint=f'for example "{example}"')
    return name, options


def made(what: str, name: str, given: dict[str, Any], kind: Any, example: str) -> Any:
    """`kind(**given)`, its options checked: an InputError names unknown ones and those lacking.

    what: the word for it in messages, e.g. "judge". example: how {option} of {name} is written.
    """
    import inspect

    parameters = inspect.signature(kind).parameters
    known = [n for n, p in parameters.items() if p.kind is not p.VAR_POSITIONAL]
    for key in given:
        if key not in known:
            hint = did_you_mean(key, known)
            raise InputError(f"{what} {name!r} has no option {key!r}", hint=hint)
    lacking = [n for n in known if parameters[n].default is parameters[n].empty]
    lacking = [n for n in lacking if n not in given]
    if lacking:
        raise InputError(
            f"{what} {name!r} needs {', '.join(lacking)}",
            hint=f'for example "{example.format(name=name, option=lacking[0])}"',
        )
    return kind(**given)


def positive(given: str | float, name: str) -> float:
    """A number above 0 of an option; InputError for others."""
    try:
        number = float(given)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise InputError(f"{name} is {given!r}; expected a number above 0")
    return number


def _with_plugins(own: dict[str, Entry], group: str) -> dict[str, Entry]:
    from importlib.metadata import entry_points

    found = dict(own)
    for point in entry_points(group=group):
        found.setdefault(point.name, Entry(point.value, None, f"from {point.value}"))
    return found


def _load(name: str, entries: dict[str, Entry], what: str) -> Any:
    if name not in entries:
        raise InputError(f"unknown {what} {name!r}", hint=did_you_mean(name, entries))
    module, _, attribute = entries[name].target.partition(":")
    return getattr(importlib.import_module(module), attribute)
