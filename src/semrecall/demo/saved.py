"""The demonstration data as files, for trying the other commands."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from semrecall.demo.story import Problem
from semrecall.formats import write
from semrecall.formats.files import write_text

__all__ = ["save"]


def save(problem: Problem, folder: str | Path) -> dict[Path, str]:
    """Write the problem to a folder, made when it does not exist; what each file holds.

    base.parquet and queries.parquet (ids and vectors), docs.jsonl and queries.jsonl (id, text;
    the queries with their topic), labels.jsonl (query_id, doc_id, grade).
    """
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    topics = dict(zip(problem.topics["query_id"], problem.topics["topic"], strict=True))
    write(problem.base, target / "base.parquet")
    write(problem.queries, target / "queries.parquet")
    _lines(
        target / "docs.jsonl",
        ({"id": doc, "text": text} for doc, text in problem.documents.items()),
    )
    _lines(
        target / "queries.jsonl",
        (
            {"id": query, "text": text, "topic": topics[query]}
            for query, text in problem.questions.items()
        ),
    )
    write(problem.judgments, target / "labels.jsonl")
    return {
        target / "base.parquet": f"{len(problem.base):,} vectors, with their ids",
        target / "queries.parquet": f"{len(problem.queries):,} query vectors",
        target / "docs.jsonl": "the texts of the documents",
        target / "queries.jsonl": "the texts and topics of the queries",
        target / "labels.jsonl": f"{len(problem.judgments):,} graded pairs",
    }


def _lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    write_text(path, (f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows))
