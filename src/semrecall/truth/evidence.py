"""What tells which rows of a base changed since a truth was made, and whether it can be."""

from __future__ import annotations

from typing import Any

import numpy as np

from semrecall.data import Run, Vectors
from semrecall.data.ids import codes_in, ids, unify
from semrecall.data.matching import difference
from semrecall.data.vectors import identity_difference, identity_of
from semrecall.errors import InputError, MismatchError
from semrecall.exact.answer import Answer
from semrecall.exact.search import Scan
from semrecall.space import Space, space
from semrecall.truth.rows import Changes, Growing, RowHashes, places_before

__all__ = [
    "check_evidence",
    "compared",
    "hashes_of",
    "looked_over",
    "named_changes",
    "same_kind",
]

_BLOCK = 1 << 16
_FEW = 2048  # rows that stay in cache while they are compared


def same_kind(old: Run, base: Vectors, queries: Vectors, geometry: str | Space) -> Space:
    """The space asked for; raises where a truth of other vectors or of another kind is given."""
    wanted = space(geometry)
    if not {"base", "queries", "k"} <= set(old.identity) or old.scores_by != "exact":
        raise InputError(
            "the run to update does not know what it was made from",
            hint="only what semrecall truth wrote as .parquet can be updated",
        )
    if old.identity.get("filter") is not None:
        raise InputError(
            "a filtered truth cannot be updated: what its filters allow may have changed, too",
            hint="make it anew: rows that share a filter are searched together",
        )
    if old.space != wanted:
        raise MismatchError(f"the truth to update is in space {old.space}; {wanted} was asked for")
    for what, vectors in (("base", base), ("queries", queries)):
        known = old.identity[what]
        if (known["dimension"], known["dtype"]) != (vectors.dimension, vectors.dtype.name):
            raise MismatchError(
                f"the {what} vectors are {vectors.dtype} of {vectors.dimension} dimensions; those "
                f"of the truth to update are {known['dtype']} of {known['dimension']}",
                hint="every score may be another: make the truth anew",
            )
    return wanted


def check_evidence(was: Any, changed: Any, rows: Any) -> None:
    """Raise InputError where nothing tells what changed, or several things do."""
    given = [
        name
        for name, value in (("was", was), ("changed", changed), ("rows", rows))
        if value is not None
    ]
    if len(given) > 1:
        raise InputError(f"{given[0]} and {given[1]} both tell what changed; give one of them")
    if not given:
        raise InputError(
            "nothing tells which rows changed since the truth was made",
            hint="give the old base (--was FILE, was=), or the ids of all new and changed rows "
            "(--changed FILE, changed=); a truth made with --keep-rows knows by itself",
        )


def looked_over(base: Vectors, geometry: Space, *, hashed: bool) -> tuple[Answer, RowHashes | None]:
    """What an answer says of the rows of a base beside neighbours, and their hashes."""
    growing = Growing() if hashed else None
    with Scan(geometry, np.empty((0, base.dimension)), 1, threads=1) as scan:
        for start, block in base.blocks(_BLOCK):
            scan.over(start, block)
            if growing is not None:
                growing.add(block)
            base.release()
        return scan.answer(), None if growing is None else growing.finished(base.given_ids)


def hashes_of(was: Vectors, old: Run, geometry: Space) -> RowHashes:
    """Row hashes of the base given as the old one; MismatchError where it is seen not to be it."""
    looked, hashes = looked_over(was, geometry, hashed=True)
    assert hashes is not None
    fingerprint = looked.sample.fingerprint(was.dtype, was.dimension)
    _check(old, was, len(hashes.hashes), fingerprint)
    return hashes


def compared(was: Vectors, base: Vectors, old: Run) -> Changes:
    """What changed since the older base `was`, a matrix: rows are compared byte by byte.

    Raises MismatchError where it is seen not to be the one that the truth was made from.
    """
    _check(old, was, len(was), was.fingerprint)
    at = places_before(was.given_ids, base.given_ids, len(was), len(base))
    fresh = np.ones(len(base), dtype=bool)
    words = np.dtype(f"u{base.dtype.itemsize}")
    for start, block in base.blocks(_FEW):
        mine = at[start : start + len(block)]
        known = np.flatnonzero(mine >= 0)
        before = np.ascontiguousarray(was.take(mine[known])).view(words)
        now = np.ascontiguousarray(block[known]).view(words)
        fresh[start + known] = (before != now).any(axis=1)
        base.release()
        was.release()
    return Changes.of(at, fresh, len(was))


def _check(old: Run, was: Vectors, rows: int, fingerprint: str) -> None:
    differs = identity_difference(old.identity["base"], identity_of(was, rows, fingerprint))
    if differs:
        raise MismatchError(
            f"the base given as the old one is not that of the truth to update: {differs}",
            hint="give the base that it was made from",
        )


def named_changes(changed: Any, base: Vectors, old: Run) -> Changes:
    """What the user says is new or changed."""
    names = ids(changed, what="changed ids")
    rows, before = len(base), int(old.identity["base"]["rows"])
    at = codes_in(*unify(names, base.ids))
    inside = np.unique(at[at >= 0])
    if len(names) and len(inside) == 0:
        found = difference(names, base.ids)
        raise MismatchError(
            f"none of the {len(names):,} changed ids is in the base, the first is {names[0]!r}",
            hint=str(found) if found else "ids of deleted rows need not be named",
        )
    if base.given_ids is None and rows < before:
        raise MismatchError(
            f"the base has {rows:,} rows, the truth was made from {before:,}, and rows go by "
            "number: after a deletion all numbers behind it are other rows",
            hint="give the rows ids (--base-ids), or show the old base (--was)",
        )
    if rows - before > len(inside):
        raise MismatchError(
            f"the base has {rows - before:,} rows more than the truth was made from, but only "
            f"{len(inside):,} are named as new or changed"
        )
    fresh = np.zeros(rows, dtype=bool)
    fresh[inside] = True
    return Changes(fresh, 0, 0, 0)
