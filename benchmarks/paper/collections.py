"""The collections: vectors, exact neighbours, and who says what is relevant."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

import semrecall as sr

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


@dataclass(frozen=True, eq=False)
class Collection:
    """One collection under one judge.

    rel: from which grade a label means relevant. exhaustive: whether what the labels do not name
    is known not to be relevant. factory: the IVF index that is built over it.
    """

    name: str
    note: str
    base: sr.Vectors
    queries: sr.Vectors
    labels: sr.Judgments
    k: int
    rel: int
    exhaustive: bool
    factory: str

    @cached_property
    def truth(self) -> sr.Run:
        """The exact neighbours."""
        return sr.truth(self.base, self.queries, self.k, "ip")

    @property
    def measures(self) -> tuple[str, str, str]:
        """Recall, semantic and tolerant recall."""
        rel = "" if self.rel == 1 else f"(rel={self.rel})"
        return f"recall@{self.k}", f"srecall{rel}@{self.k}", f"trecall@{self.k}"

    @cached_property
    def analysis(self) -> Any:
        """What the exact neighbours are worth."""
        return sr.analyse(self.truth, self.judgments, rel=self.rel)

    @cached_property
    def judgments(self) -> sr.Judgments:
        """The labels; with grade 0 for neighbours they do not name where they are exhaustive."""
        if not self.exhaustive:
            return self.labels
        known = {
            (str(q), str(d)): g
            for q, d, g in zip(
                self.labels.queries, self.labels.documents, self.labels.grades, strict=True
            )
        }
        pairs = [
            (q, d) for q, row in zip(self.truth.queries, self.truth.ids, strict=True) for d in row
        ]
        grades = [known.get((str(q), str(d)), 0.0) for q, d in pairs]
        return sr.Judgments.from_arrays([q for q, _ in pairs], [d for _, d in pairs], grades)

    def evaluate(self, run: sr.Run, measures: Any = None, **options: Any) -> sr.Result:
        """Measures of a run, with exact scores."""
        return sr.evaluate(
            run, measures or self.measures, truth=self.truth, judgments=self.judgments,
            base=self.base, queries=self.queries, **options,
        )  # fmt: skip


def collections() -> list[Collection]:
    """All of them, the largest first."""
    return [
        _pool("human", "human grades (NIST), relevant from 2 on"),
        _pool("umbrela_gpt4", "labels of GPT-4 (UMBRELA), relevant from 2 on"),
        _cranfield(),
        _xquad(),
    ]


def pool_labels(column: str) -> sr.Judgments:
    """One column of labels of dl-pool."""
    table = pq.read_table(DATA / "dl-pool" / "labels.parquet")
    table = table.filter(table[column].is_valid())
    return sr.Judgments.from_arrays(
        table["query_id"], table["doc_id"], table[column].to_numpy().astype(float)
    )


def _pool(column: str, note: str) -> Collection:
    folder = DATA / "dl-pool"
    judge = "human" if column == "human" else "GPT-4"
    return Collection(
        f"dl-pool, {judge}", note,
        _vectors(folder / "docs.minilm.f16.npy", _ids(folder / "docs.parquet", "doc_id")),
        _vectors(folder / "queries.minilm.f32.npy", _ids(folder / "queries.parquet", "query_id")),
        pool_labels(column), 100, 2, False, "IVF176,SQ8",
    )  # fmt: skip


def _cranfield() -> Collection:
    folder = DATA / "cranfield"
    return Collection(
        "cranfield", "human, every document judged for every question",
        _vectors(folder / "docs.minilm.f32.npy", _ids(folder / "docs.parquet")),
        _vectors(folder / "queries.minilm.f32.npy", _ids(folder / "queries.parquet")),
        sr.read(folder / "qrels.txt"), 20, 1, True, "IVF32,SQ8",
    )  # fmt: skip


def _xquad() -> Collection:
    folder = DATA / "xquad-th"
    queries = _ids(folder / "queries300.parquet")
    return Collection(
        "xquad-th", "the one paragraph (in Thai) that a question was asked about",
        _vectors(folder / "docs.e5q4.f32.npy", _ids(folder / "docs.parquet")),
        _vectors(folder / "queries300.e5q4.f32.npy", queries),
        sr.read(folder / "qrels.txt"), 10, 1, True, "IVF6,SQ8",
    )  # fmt: skip


def _ids(path: Path, column: str | int = 0) -> Any:
    return pq.read_table(path).column(column)


def _vectors(path: Path, ids: Any) -> sr.Vectors:
    return sr.Vectors.of(np.load(path).astype(np.float32), ids=ids)
