"""Records of a RAG system: a question, what was read, what was answered, what is right.

Our own form is JSON lines with `question`, `contexts` (ids and texts), `answer`, `reference`; the
names that common frameworks give these fields are understood, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from semrecall.errors import FormatError, InputError
from semrecall.rag.reading import is_absent, rows_of

__all__ = ["Context", "Record", "records", "run_name"]

#: Names of each field, ours first. A dot leads into an object, or is part of the name of a column.
_NAMES: dict[str, tuple[str, ...]] = {
    "id": ("id", "query_id", "question_id", "_id", "record_id", "example_id"),
    "question": (
        "question", "user_input", "input", "query", "main_input", "inputs.question", "inputs.query",
        "inputs.input", "input.question", "input.query", "input.input",
    ),
    "contexts": (
        "contexts", "retrieved_contexts", "retrieval_context", "retrievalContext", "source_nodes",
        "documents", "outputs.contexts", "outputs.documents", "outputs.source_documents",
        "outputs.context",
    ),
    "context_ids": ("context_ids", "retrieved_context_ids"),
    "answer": (
        "answer", "response", "actual_output", "actualOutput", "main_output", "output",
        "prediction", "outputs.answer", "outputs.response", "outputs.output", "output.answer",
    ),
    "reference": (
        "reference", "ground_truth", "ground_truths", "expected_output", "expectedOutput",
        "reference_answer", "expected_response", "reference_outputs.answer",
        "reference_outputs.output", "reference.answer", "reference.output",
    ),
    "relevant": ("relevant", "reference_context_ids", "relevant_ids", "expected_ids"),
    "reference_contexts": ("reference_contexts", "expected_chunks", "context"),
    "spans": ("spans", "reference_spans"),
    "claims": ("claims", "answer_claims"),
    "reference_claims": ("reference_claims",),
    "citations": ("citations",),
}  # fmt: skip
_USED = {name.partition(".")[0] for names in _NAMES.values() for name in names}
_TEXT = (
    "text",
    "page_content",
    "content",
    "document",
    "context",
    "node.text",
    "text_resource.text",
)
_TEXT_ID = ("id", "doc_id", "document_id", "id_", "chunk_id", "node.id_", "metadata.id")
#: Where records hold more columns.
_MORE = ("metadata", "additional_metadata", "additionalMetadata")


@dataclass(frozen=True)
class Context:
    """One passage that was read. document, start, end: where it stands, for spans; else None."""

    id: str
    text: str
    document: str | None = None
    start: int | None = None
    end: int | None = None


@dataclass(frozen=True)
class Record:
    """One question. contexts: as they were read, best first. reference: "" where there is none.

    relevant: ids of the contexts that hold the answer; None where they are not known. spans:
    (document, start, end) of what holds it. claims, reference_claims: the statements of the answer
    and of the reference, where they are given. citations: for each claim, or each sentence of the
    answer, the ids or places of the contexts it cites; None where marks in the answer say so, if
    anything. columns: whatever else the record has. lacks: "answer" and "contexts" where the record
    says nothing of them; an answer that is there and empty is one that says nothing.
    """

    id: str
    question: str
    contexts: tuple[Context, ...] = ()
    answer: str = ""
    reference: str = ""
    relevant: tuple[str, ...] | None = None
    spans: tuple[tuple[str, int, int], ...] | None = None
    claims: tuple[str, ...] | None = None
    reference_claims: tuple[str, ...] | None = None
    citations: tuple[tuple[str, ...], ...] | None = None
    columns: Mapping[str, Any] = field(default_factory=dict)
    lacks: frozenset[str] = frozenset()


def records(source: Any) -> list[Record]:
    """Records from JSON lines, JSON, parquet (a path), a frame, or mappings.

    Raises FormatError that names the line and what it lacks, InputError for ids that repeat.
    """
    names = _NAMES["question"]
    found = [
        row if isinstance(row, Record) else _record(row, at, place)
        for at, (place, row) in enumerate(rows_of(source, lambda row: _first(row, names)), 1)
    ]
    seen: dict[str, int] = {}
    for at, record in enumerate(found, 1):
        if seen.setdefault(record.id, at) != at:
            raise InputError(
                f"records {seen[record.id]} and {at} have one id, {record.id!r}",
                hint="give each question an id of its own, or none at all",
            )
    if not found:
        raise InputError("there is no record; expected at least one question")
    return found


def run_name(source: Any) -> str:
    """What the answers are called beside others: the name of their file."""
    return Path(source).name.partition(".")[0] if isinstance(source, str | Path) else "answers"


def _record(row: Any, at: int, place: str) -> Record:
    if not isinstance(row, Mapping):
        raise FormatError(f"{place}: a {type(row).__name__}; expected an object with a question")
    given = {name: _first(row, names) for name, names in _NAMES.items()}
    try:
        question = _said(given["question"])
        if not question:
            asked = ", ".join(_NAMES["question"][:4])
            raise InputError(f"no question; expected one of {asked}")
        contexts = _contexts(given["contexts"], given["context_ids"])
        claims = _texts(given["claims"], "claims")
        of_reference = _texts(given["reference_claims"], "reference_claims")
        return Record(
            str(at) if given["id"] is None else str(given["id"]), question, contexts,
            _said(given["answer"]) or " ".join(claims or ()),
            _said(given["reference"]) or " ".join(of_reference or ()),
            _relevant(given, contexts), _spans(given["spans"]), claims, of_reference,
            _citations(given["citations"]), _columns(row), _lacking(given),
        )  # fmt: skip
    except InputError as fault:
        raise FormatError(f"{place}: {fault.message}", hint=fault.hint) from fault


def _lacking(given: Mapping[str, Any]) -> frozenset[str]:
    """Which parts a record says nothing of."""
    parts = {"answer": ("answer", "claims"), "contexts": ("contexts", "context_ids")}
    lacking = (what for what, names in parts.items() if all(given[name] is None for name in names))
    return frozenset(lacking)


def _columns(row: Mapping[str, Any]) -> dict[str, Any]:
    """What a record can be sliced by: its other plain fields, and those of its metadata."""
    inside = [row[name] for name in _MORE if isinstance(row.get(name), Mapping)]
    found = {str(k): v for more in inside for k, v in more.items()}
    found |= {str(k): v for k, v in row.items() if str(k).partition(".")[0] not in _USED}
    return {k: v for k, v in found.items() if isinstance(v, str | int | float)}


def _first(row: Mapping[str, Any], names: Sequence[str]) -> Any:
    for name in names:
        value: Any = row.get(name)
        if value is None and "." in name:
            value = row
            for part in name.split("."):
                value = value.get(part) if isinstance(value, Mapping) else None
        # An object is looked into by the names with a dot.
        if not is_absent(value) and not isinstance(value, Mapping):
            return value
    return None


def _said(value: Any) -> str:
    """A text; of several (old reference lists) the first."""
    if isinstance(value, list | tuple):
        if any(isinstance(one, Mapping) for one in value):
            raise InputError(
                "a conversation of several turns; expected one question and one answer",
                hint="write each turn as a record of its own",
            )
        value = value[0] if value else ""
    return "" if value is None else str(value).strip()


def _list(given: Any, what: str) -> list[Any]:
    """A list, also of a frame's cell; InputError for what is none."""
    found = given.tolist() if hasattr(given, "tolist") else given
    if not isinstance(found, list | tuple):
        raise InputError(f"{what}: a {type(given).__name__}; expected a list")
    return list(found)


def _contexts(given: Any, names: Any) -> tuple[Context, ...]:
    ids = None if names is None else [str(name) for name in _list(names, "ids of contexts")]
    passages = [""] * len(ids or ()) if given is None else _list(given, "contexts")
    if ids is not None and len(ids) != len(passages):
        raise InputError(f"{len(passages)} contexts and {len(ids)} ids of contexts")
    found = [
        _context(one, at, None if ids is None else ids[at - 1])
        for at, one in enumerate(passages, 1)
    ]
    # The same passage may be read twice; a verdict belongs to its place.
    seen: dict[str, int] = {}
    for at, context in enumerate(found):
        seen[context.id] = seen.get(context.id, 0) + 1
        if seen[context.id] > 1:
            found[at] = replace(context, id=f"{context.id} ({seen[context.id]})")
    return tuple(found)


def _context(given: Any, at: int, name: str | None) -> Context:
    if isinstance(given, str):
        return Context(name or str(at), given)
    if not isinstance(given, Mapping):
        raise InputError(f"context {at} is a {type(given).__name__}; expected a text or an object")
    own = _first(given, _TEXT_ID)
    start, end = given.get("start"), given.get("end")
    try:
        placed = [None if place is None else int(place) for place in (start, end)]
    except (TypeError, ValueError):
        raise InputError(
            f"context {at} runs from {start!r} to {end!r}; expected whole numbers"
        ) from None
    return Context(
        name or (str(at) if own is None else str(own)), _said(_first(given, _TEXT)),
        None if given.get("document_id") is None else str(given["document_id"]), *placed,
    )  # fmt: skip


def _relevant(given: Mapping[str, Any], contexts: Sequence[Context]) -> tuple[str, ...] | None:
    """Ids of the relevant contexts; by text, where only their texts are given."""
    if given["relevant"] is not None:
        return tuple(dict.fromkeys(str(one) for one in _list(given["relevant"], "relevant")))
    texts = given["reference_contexts"]
    if texts is None or isinstance(texts, str) or not _list(texts, "reference contexts"):
        return None
    by_text = {_plain(context.text): context.id for context in reversed(contexts)}
    plain = dict.fromkeys(
        _plain(_said(one if isinstance(one, str) else _first(one, _TEXT)))
        for one in _list(texts, "reference contexts")
    )
    return tuple(by_text.get(text, f"not retrieved: {text}") for text in plain)


def _plain(text: str) -> str:
    return " ".join(text.split())


def _spans(given: Any) -> tuple[tuple[str, int, int], ...] | None:
    if given is None:
        return None
    found = []
    for one in _list(given, "spans"):
        try:
            span = (str(one["document_id"]), int(one["start"]), int(one["end"]))
        except (TypeError, KeyError, ValueError):
            raise InputError(
                "a span lacks document_id, start or end, or they are no whole numbers"
            ) from None
        if not 0 <= span[1] < span[2]:
            raise InputError(f"a span runs from {span[1]} to {span[2]}; expected 0 <= start < end")
        found.append(span)
    return tuple(found)


def _texts(given: Any, what: str) -> tuple[str, ...] | None:
    if given is None:
        return None
    listed = _list(given, what)
    if not all(isinstance(one, str) for one in listed):
        raise InputError(f"{what} are no list of texts")
    return tuple(one.strip() for one in listed if one.strip())


def _citations(given: Any) -> tuple[tuple[str, ...], ...] | None:
    if given is None:
        return None
    each = ([c] if isinstance(c, str | int) else _list(c, "citations")
            for c in _list(given, "citations"))  # fmt: skip
    return tuple(tuple(str(one) for one in cited) for cited in each)
