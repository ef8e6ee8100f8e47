"""Pairs of query and document, to be judged or labelled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data.ids import Ids, ids
from semrecall.data.judgments import Judgments
from semrecall.data.rows import picked
from semrecall.data.run import Run
from semrecall.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Pairs"]


@dataclass(frozen=True, eq=False, repr=False)
class Pairs:
    """Distinct pairs (m,), in the order in which to judge them.

    details: further columns (m,): `probability` with which a pair was picked, `picked`, and what
    else a file of pairs says.
    """

    queries: Ids
    documents: Ids
    details: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.queries) != len(self.documents):
            raise InputError(f"{len(self.queries):,} query ids, {len(self.documents):,} documents")
        gone = self.queries.missing | self.documents.missing
        if gone.any():
            raise InputError(f"pair {int(np.argmax(gone))} lacks a query id or a document id")
        for name, column in self.details.items():
            if len(column) != len(self.queries):
                raise InputError(f"{len(self.queries):,} pairs but {len(column):,} of {name}")
        chances = self.probabilities
        if chances is not None and not bool(((chances > 0) & (chances <= 1)).all()):
            at = int(np.argmin((chances > 0) & (chances <= 1)))
            raise InputError(
                f"pair {at} was picked with probability {chances[at]:g}; expected more than 0, "
                "at most 1"
            )
        object.__setattr__(self, "details", MappingProxyType(dict(self.details)))

    @classmethod
    def of(cls, source: Any, *, k: int | None = None) -> Pairs:
        """Pairs of a Run (its first k results a query), Judgments, Pairs, or (query, document)s.

        Anything with `queries` and `documents` (a pool) will do. Repeated pairs count once.
        Probabilities of judgments are taken over where all have one.
        """
        if isinstance(source, Pairs):
            return source
        if isinstance(source, Run):
            return cls._of_run(source, k)
        if isinstance(source, Judgments) or hasattr(source, "documents"):
            chances = getattr(source, "probabilities", None)
            if isinstance(source, Judgments):
                chances = source.details.get("probability")
                if chances is not None and np.isnan(np.asarray(chances, dtype=np.float64)).any():
                    chances = None  # some were picked otherwise, as from a queue of disputes
            details = {} if chances is None else {"probability": np.asarray(chances)}
            return cls.of_columns(source.queries, source.documents, details)
        rows = list(source)
        if any(len(row) != 2 for row in rows):
            raise InputError("expected pairs of (query id, document id)")
        return cls.of_columns([q for q, _ in rows], [d for _, d in rows])

    @classmethod
    def of_columns(
        cls, query_ids: Any, doc_ids: Any, details: Mapping[str, NDArray[Any]] | None = None
    ) -> Pairs:
        """Pairs from columns of equal length; of repeated ones the first stays."""
        queries, documents = ids(query_ids, what="query ids"), ids(doc_ids, what="document ids")
        if len(queries) != len(documents):
            raise InputError(f"{len(queries):,} query ids, {len(documents):,} document ids")
        both = np.stack([queries.codes, documents.codes], axis=1)
        _, first = np.unique(both, axis=0, return_index=True)
        keep = np.sort(first)
        kept = {name: np.asarray(column)[keep] for name, column in (details or {}).items()}
        return cls(queries[keep], documents[keep], kept)

    @classmethod
    def _of_run(cls, run: Run, k: int | None) -> Pairs:
        if k is not None and k < 1:
            raise InputError(f"k is {k}; expected at least 1")
        lengths = np.diff(run.offsets)
        rows = np.repeat(np.arange(len(run)), lengths)
        ranks = np.arange(len(rows)) - run.offsets[:-1][rows]
        keep = run.valid if k is None else run.valid & (ranks < k)
        return cls.of_columns(run.queries[rows[keep]], run.documents[keep])

    def __len__(self) -> int:
        return len(self.queries)

    def __iter__(self) -> Iterator[tuple[str | int, str | int]]:
        return zip(self.queries, self.documents, strict=True)

    def __repr__(self) -> str:
        return f"Pairs({len(self):,} pairs, {len(np.unique(self.queries.codes)):,} queries)"

    @property
    def probabilities(self) -> NDArray[np.float64] | None:
        """With which each pair was picked, (m,); None where that was not recorded."""
        column = self.details.get("probability")
        return None if column is None else np.asarray(column, dtype=np.float64)

    def select(self, keep: Any) -> Pairs:
        """Some of the pairs, by position, mask or slice."""
        chosen = picked(len(self), keep)
        return Pairs(
            self.queries[chosen],
            self.documents[chosen],
            {name: column[chosen] for name, column in self.details.items()},
        )
