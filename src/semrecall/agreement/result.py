"""Agreement: what several judges of the same pairs agree on. Made by `agree`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from semrecall.agreement.labels import Labels
from semrecall.agreement.pair import Estimate, Pair, Sampling
from semrecall.agreement.rows import SelfAgreement
from semrecall.agreement.sensitivity import Sensitivity
from semrecall.data.frames import to_library
from semrecall.errors import InputError
from semrecall.registry import did_you_mean

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["TABLES", "Agreement", "JudgeCounts", "QueryAgreement"]

Table = Literal["pairs", "queries", "measures", "labels"]
TABLES: tuple[Table, ...] = ("pairs", "queries", "measures", "labels")


@dataclass(frozen=True)
class JudgeCounts:
    """A judge: from which grade it says relevant, how many pairs it has, how many are graded.

    inside: graded pairs that count for agreement: all, or those among the first of the truth.
    relevant: the share of these that it calls relevant; NaN without any. no_grade: why pairs have
    no grade, {status or reason: count}.
    """

    name: str
    rel: float
    pairs: int
    graded: int
    inside: int
    relevant: float
    no_grade: Mapping[str, int]


@dataclass(frozen=True)
class QueryAgreement:
    """One query: its pairs with two labels or more, and the share of equal ones among them.

    For three judges or more, the share of equal labels among all pairs of labels.
    """

    query: str | int
    pairs: int
    agreement: float


@dataclass(frozen=True, eq=False, repr=False)
class Agreement:
    """How far judges agree on the pairs that they have in common.

    judges: what each gave. pairs: two judges each, in every combination. alphas: Krippendorff's
    alpha over all judges by level: "nominal", of the two sides; "ordinal" and "interval", of the
    grades where there is a scale in common. units: pairs with two labels or more, over which it
    is. by_query: in the order of the file. below: queries under this agreement are `low`.
    by_self: judges who graded pairs more than once. measures: None where no run was given.
    inside: the k of the truth within whose first neighbours pairs lie; None for all pairs.
    """

    judges: tuple[JudgeCounts, ...]
    pairs: tuple[Pair, ...]
    alphas: Mapping[str, Estimate]
    units: int
    queries: int
    by_query: tuple[QueryAgreement, ...]
    below: float
    by_self: tuple[SelfAgreement, ...]
    measures: Sensitivity | None
    inside: int | None
    sampling: Sampling
    notes: tuple[str, ...]
    labels: Labels

    # -- one number -------------------------------------------------------------------------------

    def pair(self, first: str | None = None, second: str | None = None) -> Pair:
        """What two judges agree on; their names may be left out where there are two alone."""
        names = [judge.name for judge in self.judges]
        for name in (first, second):
            if name is not None and name not in names:
                raise InputError(f"no judge {name!r}", hint=did_you_mean(name, names))
        asked = {name for name in (first, second) if name is not None}
        found = [pair for pair in self.pairs if asked <= {pair.first, pair.second}]
        if len(found) != 1:
            raise InputError(
                f"there are {len(found)} pairs of judges; expected the names of two",
                hint=f"judges: {', '.join(names)}",
            )
        return found[0]

    def __getitem__(self, name: str) -> Estimate:
        """An estimate of the only pair of judges, e.g. `agreement["kappa"]`; see `Pair`."""
        found = self.pair().values
        if name not in found:
            raise InputError(f"no estimate {name!r}", hint=did_you_mean(name, found))
        return found[name]

    @property
    def agreement(self) -> float:
        """Raw agreement of the only pair of judges; NaN where it is undefined."""
        return self["agreement"].value

    @property
    def kappa(self) -> float:
        """Cohen's kappa of the only pair of judges; NaN where all labels are one class."""
        return self["kappa"].value

    @property
    def low(self) -> list[QueryAgreement]:
        """Queries below the threshold: the lowest first, of equal ones that of most pairs."""
        found = [query for query in self.by_query if query.agreement < self.below]
        return sorted(found, key=lambda query: (query.agreement, -query.pairs))

    # -- out --------------------------------------------------------------------------------------

    def rows(self, table: Table = "pairs") -> list[dict[str, Any]]:
        """One of TABLES as mappings.

        "pairs": an estimate a row, with its two judges. "queries": a query a row. "measures": a
        measure of a run under one set of labels a row. "labels": a pair of query and document a
        row, with the grade of each judge.
        """
        if table not in TABLES:
            raise InputError(f"unknown table {table!r}", hint=did_you_mean(table, TABLES))
        if table == "queries":
            return [vars(query) for query in self.by_query]
        if table == "measures":
            return [] if self.measures is None else [vars(row) for row in self.measures.rows]
        return self._label_rows() if table == "labels" else self._pair_rows()

    def _pair_rows(self) -> list[dict[str, Any]]:
        found = [
            {"first": pair.first, "second": pair.second, "estimate": name, **vars(value)}
            | {"pairs": pair.pairs, "queries": pair.queries}
            for pair in self.pairs
            for name, value in pair.values.items()
        ]
        found += [
            {"first": "", "second": "", "estimate": f"alpha_{level}", **vars(value)}
            | {"pairs": self.units, "queries": self.queries}
            for level, value in self.alphas.items()
        ]
        for own in self.by_self:
            for name, value in (("self_agreement", own.agreement), ("self_alpha", own.alpha)):
                head = {"first": own.judge, "second": own.judge, "estimate": name}
                found.append(head | vars(value) | {"pairs": own.pairs, "queries": None})
        return found

    def _label_rows(self) -> list[dict[str, Any]]:
        labels = self.labels
        rows: NDArray[np.int64] = np.flatnonzero(labels.inside & (labels.graded.sum(axis=0) > 1))
        queries = labels.query_ids[labels.queries[rows]]
        heads = zip(queries, labels.documents[rows], labels.grades[:, rows].T.tolist(), strict=True)
        return [
            {"query_id": query, "doc_id": document, **dict(zip(labels.names, grades, strict=True))}
            for query, document, grades in heads
        ]

    def to_frame(self, table: Table = "pairs", library: str = "pandas") -> Any:
        """The rows of a table as a frame: "pandas", "polars" or "arrow"."""
        import pyarrow as pa

        return to_library(pa.Table.from_pylist(self.rows(table)), library)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the single labels as plain mappings and lists, for JSON."""
        return {
            "judges": [vars(judge) for judge in self.judges],
            "inside": self.inside,
            "pairs": [pair.to_dict() for pair in self.pairs],
            "alpha": {level: vars(found) for level, found in self.alphas.items()},
            "alpha_pairs": self.units,
            "queries": self.queries,
            "below": self.below,
            "low_queries": [vars(query) for query in self.low],
            "self": [
                {"judge": own.judge, "pairs": own.pairs}
                | {"agreement": vars(own.agreement), "alpha": vars(own.alpha)}
                for own in self.by_self
            ],
            "measures": None if self.measures is None else self.measures.to_dict(),
            "notes": list(self.notes),
            "intervals": vars(self.sampling),
        }

    def to_html(self, path: str | Path, **options: Any) -> None:
        """Write one self-contained HTML file; options as in `report.agreement.write_html`."""
        # Loaded by name: the report stands above, and reads nothing but an Agreement.
        import importlib

        importlib.import_module("semrecall.report.agreement").write_html(self, path, **options)

    def __str__(self) -> str:
        from semrecall.agreement.table import text

        return text(self)

    def __repr__(self) -> str:
        names = ", ".join(judge.name for judge in self.judges)
        shown = "; ".join(
            f"{pair.first} and {pair.second}: agreement {pair['agreement'].value:.4f}, "
            f"kappa {pair['kappa'].value:.4f}"
            for pair in self.pairs[:3]
        )
        return f"Agreement({names}{': ' if shown else ''}{shown})"
