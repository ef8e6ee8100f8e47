"""Records of a RAG system: a question, what was read, what was answered, what is right.

Our own form is JSON lines with `question`, `contexts` (ids and texts), `answer`, `reference`; the
names that common frameworks give these fields are understood, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from semrecall.errors import FormatError, InputError

__all__ = ["Context", "Record", "marks", "records"]

#: Names of each field, ours first. A dot leads into an object.
_NAMES: dict[str, tuple[str, ...]] = {
    "id": ("id", "query_id", "question_id", "_id", "record_id", "example_id"),
    "question": (
        "question", "user_input", "input", "query", "main_input", "inputs.question", "inputs.query",
        "inputs.input",
    ),
    "contexts": (
        "contexts", "retrieved_contexts", "retrieval_context", "source_nodes", "documents",
        "outputs.contexts", "outputs.documents", "outputs.source_documents",
    ),
    "context_ids": ("context_ids", "retrieved_context_ids"),
    "answer": (
        "answer", "response", "actual_output", "output", "main_output", "prediction",
        "outputs.answer", "outputs.output",
    ),
    "reference": (
        "reference", "ground_truth", "ground_truths", "expected_output", "reference_answer",
        "expected_response", "reference_outputs.answer", "reference_outputs.output",
    ),
    "relevant": ("relevant", "reference_context_ids", "relevant_ids", "expected_ids"),
    "reference_contexts": ("reference_contexts", "context"),
    "spans": ("spans", "reference_spans"),
    "claims": ("claims", "answer_claims"),
    "reference_claims": ("reference_claims",),
    "citations": ("citations",),
}  # fmt: skip
_TEXT = ("text", "page_content", "content", "document", "node.text", "text_resource.text")
_TEXT_ID = ("id", "doc_id", "document_id", "id_", "chunk_id", "node.id_", "metadata.id")


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
    and of the reference, where they are given. citations: for each claim the ids of the contexts
    it cites; None where the answer is not known to cite. columns: whatever else the record has.
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


def records(source: str | Path | Iterable[Mapping[str, Any] | Record]) -> list[Record]:
    """Records from JSON lines, a JSON list, parquet, or mappings.

    Raises FormatError that names the line and what it lacks, InputError for ids that repeat.
    """
    if isinstance(source, str | Path):
        found = [_record(row, at, place) for at, (place, row) in enumerate(_rows(Path(source)), 1)]
    else:
        found = [
            one if isinstance(one, Record) else _record(one, at, f"record {at}")
            for at, one in enumerate(source, 1)
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


def _rows(path: Path) -> Iterable[tuple[str, Any]]:
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        for at, row in enumerate(pq.read_table(path).to_pylist(), 1):
            yield f"{path}, row {at}", {k: v for k, v in row.items() if v is not None}
        return
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise FormatError(f"{path} is not UTF-8 text: byte {error.start}") from error
    if text.lstrip().startswith("["):
        try:
            whole = json.loads(text)
        except json.JSONDecodeError as error:
            raise FormatError(f"{path}, line {error.lineno}: no JSON ({error.msg})") from error
        for at, row in enumerate(whole, 1):
            yield f"{path}, record {at}", row
        return
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield f"{path}, line {number}", json.loads(line)
            except json.JSONDecodeError as error:
                raise FormatError(f"{path}, line {number}: no JSON ({error.msg})") from error


def _record(row: Any, at: int, place: str) -> Record:
    if not isinstance(row, Mapping):
        raise FormatError(f"{place}: a {type(row).__name__}; expected an object with a question")
    given = {name: _first(row, names) for name, names in _NAMES.items()}
    question = _said(given["question"])
    if not question:
        raise FormatError(
            f"{place}: no question; expected one of {', '.join(_NAMES['question'][:4])}"
        )
    name = str(at) if given["id"] is None else str(given["id"])
    used = {n.partition(".")[0] for names in _NAMES.values() for n in names}
    try:
        contexts = _contexts(given["contexts"], given["context_ids"])
        return Record(
            name, question, contexts, _said(given["answer"]), _said(given["reference"]),
            _relevant(given, contexts), _spans(given["spans"]), _texts(given["claims"], "claims"),
            _texts(given["reference_claims"], "reference_claims"),
            _citations(given["citations"], contexts),
            {k: v for k, v in row.items() if k not in used and isinstance(v, str | int | float)},
        )  # fmt: skip
    except InputError as fault:
        raise FormatError(f"{place}: {fault.message}", hint=fault.hint) from fault


def _first(row: Mapping[str, Any], names: Sequence[str]) -> Any:
    for name in names:
        value: Any = row
        for part in name.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        if value is not None:
            return value
    return None


def _said(value: Any) -> str:
    """A text; of several (old reference lists) the first."""
    if isinstance(value, list | tuple):
        value = value[0] if value else ""
    return "" if value is None else str(value).strip()


def _contexts(given: Any, names: Any) -> tuple[Context, ...]:
    if given is None:
        given = [""] * len(names or ())
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise InputError(f"contexts are a {type(given).__name__}; expected a list of passages")
    if names is not None and len(names) != len(given):
        raise InputError(f"{len(given)} contexts and {len(names)} ids of contexts")
    found = [
        _context(one, at, None if names is None else str(names[at - 1]))
        for at, one in enumerate(given, 1)
    ]
    twice = len(found) - len({context.id for context in found})
    if twice:
        # The same passage may be read twice; a verdict belongs to its place.
        seen: dict[str, int] = {}
        for at, context in enumerate(found):
            seen[context.id] = seen.get(context.id, 0) + 1
            if seen[context.id] > 1:
                found[at] = Context(
                    f"{context.id} ({seen[context.id]})", context.text, context.document,
                    context.start, context.end,
                )  # fmt: skip
    return tuple(found)


def _context(given: Any, at: int, name: str | None) -> Context:
    if isinstance(given, str):
        return Context(name or str(at), given)
    if not isinstance(given, Mapping):
        raise InputError(f"context {at} is a {type(given).__name__}; expected a text or an object")
    own = _first(given, _TEXT_ID)
    start, end = given.get("start"), given.get("end")
    return Context(
        name or (str(at) if own is None else str(own)), _said(_first(given, _TEXT)),
        None if given.get("document_id") is None else str(given["document_id"]),
        None if start is None else int(start), None if end is None else int(end),
    )  # fmt: skip


def _relevant(given: Mapping[str, Any], contexts: Sequence[Context]) -> tuple[str, ...] | None:
    """Ids of the relevant contexts; by text, where only their texts are given."""
    if given["relevant"] is not None:
        return tuple(dict.fromkeys(str(one) for one in given["relevant"]))
    texts = given["reference_contexts"]
    if not isinstance(texts, list | tuple) or not texts:
        return None
    by_text = {_plain(context.text): context.id for context in contexts}
    plain = dict.fromkeys(_plain(_said(one if isinstance(one, str) else _first(one, _TEXT)))
                          for one in texts)  # fmt: skip
    return tuple(by_text.get(text, f"not retrieved: {text[:40]}") for text in plain)


def _plain(text: str) -> str:
    return " ".join(text.split())


def _spans(given: Any) -> tuple[tuple[str, int, int], ...] | None:
    if given is None:
        return None
    found = []
    for one in given:
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
    if isinstance(given, str) or not all(isinstance(one, str) for one in given):
        raise InputError(f"{what} are no list of texts")
    return tuple(one.strip() for one in given if one.strip())


_MARK = re.compile(r"\[([^\[\]]{1,80})\]")


def _citations(given: Any, contexts: Sequence[Context]) -> tuple[tuple[str, ...], ...] | None:
    """For each claim the ids of what it cites; a number that is no id is a place, from 1 on."""
    if given is None:
        return None
    known = {context.id for context in contexts}
    found = []
    for cited in given:
        names = [str(one) for one in ([cited] if isinstance(cited, str | int) else cited)]
        found.append(tuple(_named(name, contexts, known) for name in names))
    return tuple(found)


def _named(name: str, contexts: Sequence[Context], known: set[str]) -> str:
    if name in known or not name.isdecimal() or not 1 <= int(name) <= len(contexts):
        return name
    return contexts[int(name) - 1].id


def marks(text: str, contexts: Sequence[Context]) -> tuple[str, tuple[str, ...]]:
    """A sentence without its marks such as [2] or [doc7], and the contexts they name."""
    known = {context.id for context in contexts}
    cited: list[str] = []

    def taken(match: re.Match[str]) -> str:
        names = [_named(part.strip(), contexts, known) for part in match[1].split(",")]
        if not all(name in known for name in names):
            return match[0]
        cited.extend(names)
        return ""

    bare = _MARK.sub(taken, text)
    return " ".join(re.sub(r"\s+([.,;:!?])", r"\1", bare).split()), tuple(dict.fromkeys(cited))
