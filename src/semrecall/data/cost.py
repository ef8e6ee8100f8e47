"""Cost: what each query cost a system."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data.ids import Ids
from semrecall.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Cost"]

FIELDS = ("distance_computations", "bytes_read", "cpu_seconds", "latency_seconds")


@dataclass(frozen=True, eq=False, repr=False)
class Cost:
    """Cost per query, shape (n,) each; None where the system does not say, NaN for a query that
    was not measured. A counter that the library leaves at 0 is unavailable, not free, and is None.

    distance_computations: vectors compared, all stages.
    bytes_read: bytes those computations touch, all stages (coarse, codes, refine).
    cpu_seconds, latency_seconds: measured; latency is of one query at a time.
    settings: the search knobs the cost belongs to.
    details: further figures of the whole run, e.g. distance computations by stage.
    """

    queries: Ids
    distance_computations: NDArray[np.float64] | None = None
    bytes_read: NDArray[np.float64] | None = None
    cpu_seconds: NDArray[np.float64] | None = None
    latency_seconds: NDArray[np.float64] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in FIELDS:
            column = getattr(self, name)
            if column is None:
                continue
            values = np.array(column, dtype=np.float64)
            if values.shape != (len(self.queries),):
                raise InputError(
                    f"{name} has shape {values.shape} for {len(self.queries):,} queries"
                )
            values.flags.writeable = False
            object.__setattr__(self, name, values)
        object.__setattr__(self, "settings", MappingProxyType(dict(self.settings)))
        object.__setattr__(self, "details", MappingProxyType(dict(self.details)))

    def __len__(self) -> int:
        return len(self.queries)

    def mean(self, name: str) -> float:
        """Mean of one of the four figures over the queries measured; NaN when there are none."""
        if name not in FIELDS:
            raise InputError(f"unknown cost {name!r}; expected one of {', '.join(FIELDS)}")
        column = getattr(self, name)
        measured = column[~np.isnan(column)] if column is not None else ()
        return float(np.mean(measured)) if len(measured) else float("nan")

    def __repr__(self) -> str:
        known = [f"{n} {self.mean(n):.4g}" for n in FIELDS if getattr(self, n) is not None]
        return f"Cost({len(self):,} queries, mean {', '.join(known) or 'unknown'})"

    def to_arrow(self) -> Any:
        """An arrow table: query_id and the figures that are known."""
        import pyarrow as pa

        columns = {"query_id": self.queries.to_arrow()}
        columns |= {n: pa.array(getattr(self, n)) for n in FIELDS if getattr(self, n) is not None}
        return pa.table(columns)
