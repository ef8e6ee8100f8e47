"""Findings on base and query vectors themselves: values, norms, types, equal rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from semrecall.check.inputs import Inputs
from semrecall.check.report import Finding, percent
from semrecall.check.scan import Scan
from semrecall.data import Vectors
from semrecall.text import plural

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["findings"]

#: Up to so many distinct values in every dimension are a grid of 8-bit codes.
_GRID = 256


def findings(inputs: Inputs) -> Iterator[Finding]:
    """Everything that base and queries tell without a truth or a run."""
    for name, vectors, seen in (
        ("base", inputs.base, inputs.base_scan),
        ("queries", inputs.queries, inputs.query_scan),
    ):
        if vectors is None or seen is None:
            continue
        if seen.rows == 0:
            yield Finding("error", "empty", name, f"The {name} file has no rows.")
            continue
        yield from _bad_rows(name, vectors, seen, inputs)
        if inputs.base is None or not inputs.bits:
            yield from _dimensions(name, seen)
            yield from _types(name, vectors, seen)
        yield from _equal_rows(name, seen, inputs)
    if inputs.base is None or not inputs.bits:
        yield from _norms(inputs)
    yield from _together(inputs)


# -- one file -------------------------------------------------------------------------------


def _bad_rows(name: str, vectors: Vectors, seen: Scan, inputs: Inputs) -> Iterator[Finding]:
    if seen.bad.count:
        cause = (
            " Values above 65,504 become infinite in float16."
            if vectors.dtype == np.float16
            else ""
        )
        what = (
            "Engines may return such a row anywhere or nowhere; exact search leaves it out."
            if name == "base"
            else "Such a query has no neighbours; measures leave it out and count it."
        )
        yield Finding(
            "error",
            "not-finite",
            name,
            f"{_rows(seen.bad.count, seen.rows)} of the {name} hold NaN or infinity.",
            f"{what}{cause} Find out where they come from (a failed embedding call?) and "
            "embed them again.",
            tuple(seen.bad.first),
        )
    if seen.zero.count:
        matters = inputs.stated_space is None or inputs.stated_space.directed
        yield Finding(
            "warning" if matters else "note",
            "zero-rows",
            name,
            f"{_rows(seen.zero.count, seen.rows)} of the {name} are zero vectors.",
            "A zero vector has no cosine, and an inner product of 0 with everything: engines "
            "say NaN, 0, 1 or top hit. Usually an empty text was embedded; leave such rows out."
            if matters
            else "They are ordinary points in l2 and of bits. Are they meant, or empty texts?",
            tuple(seen.zero.first),
        )
    if seen.beyond_float32.count:
        yield Finding(
            "warning",
            "beyond-float32",
            name,
            f"{_rows(seen.beyond_float32.count, seen.rows)} of the {name} hold values that "
            "float32 cannot (above 3.4e38).",
            "Engines store float32 and turn them into infinity. Rescale the vectors.",
            tuple(seen.beyond_float32.first),
        )


def _dimensions(name: str, seen: Scan) -> Iterator[Finding]:
    if seen.directed < 2:
        return
    constant = np.flatnonzero(seen.low == seen.high)
    if len(constant) == 0:
        return
    d = len(seen.low)
    yield Finding(
        "warning" if 2 * len(constant) >= d else "note",
        "constant-dimensions",
        name,
        f"{len(constant):,} of {d:,} dimensions of the {name} "
        f"{'has' if len(constant) == 1 else 'have'} the same value in every row.",
        "They tell no two rows apart. Padding, a dead unit of the model, or a column that was "
        "read wrongly?",
        tuple(constant[:5].tolist()),
        "dimensions",
    )


def _types(name: str, vectors: Vectors, seen: Scan) -> Iterator[Finding]:
    dtype = vectors.dtype
    if seen.narrower is not None and seen.directed:
        yield Finding(
            "note",
            "narrower-type",
            name,
            f"Every value of the {name} ({dtype}) is exactly a {seen.narrower}.",
            f"Stored as {seen.narrower} it takes "
            f"{np.dtype(seen.narrower).itemsize / dtype.itemsize:.3g} times the space, and the "
            "truth stays the same.",
        )
    elif dtype == np.float64:
        yield Finding(
            "note",
            "wider-than-engines",
            name,
            f"The {name} are float64, with digits that float32 cannot hold.",
            "Engines round to float32, so near ties may swap against a truth made from float64. "
            "Round before you make the truth, or read recall with ties and trecall.",
        )
    elif dtype.kind == "f" and len(seen.sample) >= 2000:
        most = _most_distinct(seen.sample)
        if most <= _GRID:
            yield Finding(
                "note",
                "quantised",
                name,
                f"No dimension of the {name} has more than {most:,} distinct values in "
                f"{len(seen.sample):,} sampled rows, although they are {dtype}.",
                "These are decoded 8-bit codes, not the model's own vectors. A truth made from "
                "them hides what quantisation loses.",
            )
    if dtype.kind in "iu":
        yield from _integers(name, vectors, seen)


def _integers(name: str, vectors: Vectors, seen: Scan) -> Iterator[Finding]:
    limits = np.iinfo(vectors.dtype)
    largest = max(abs(limits.min), limits.max)
    if vectors.dimension * largest**2 > 2**24:
        yield Finding(
            "note",
            "integer-sums",
            name,
            f"Sums over {vectors.dimension:,} products of {vectors.dtype} values can reach "
            f"{vectors.dimension * largest**2:,}, and float32 holds whole numbers up to "
            f"{2**24:,} only.",
            "semrecall sums exactly. An engine that sums in float32 may swap near ties; one that "
            "sums in the vectors' own 8 bits is wrong everywhere.",
        )
    if len(seen.sample) == 0:
        return
    ends = (seen.sample == limits.max) | ((seen.sample == limits.min) & (limits.min < 0))
    share = float(ends.mean())
    if share > 0.02:
        yield Finding(
            "warning",
            "clipped",
            name,
            f"{share:.1%} of the values of the {name} (sampled rows) are {limits.max}"
            f"{f' or {limits.min}' if limits.min < 0 else ''}, the ends of {vectors.dtype}.",
            "They were probably cut off when they were quantised. Use a smaller scale.",
        )


def _equal_rows(name: str, seen: Scan, inputs: Inputs) -> Iterator[Finding]:
    groups = seen.duplicates.groups()
    if not groups:
        return
    compared = seen.duplicates.compared
    extra = sum(size - 1 for size, _, _ in groups)
    largest = groups[0][0]
    about = "" if seen.duplicates.halvings == 0 else f" among {compared:,} sampled rows"
    found = (
        f"{plural(extra, 'row')} of the {name} ({percent(extra, compared)}) "
        f"{'repeats' if extra == 1 else 'repeat'} an earlier row{about}: "
        f"{plural(len(groups), 'group')} of equal vectors, the largest of {largest:,}."
    )
    if name == "queries":
        advice = "Repeated queries count several times in every mean, and intervals get too narrow."
        level = "warning" if 2 * extra > compared else "note"
    elif largest > inputs.k:
        level = "warning"
        advice = (
            f"A group larger than k = {inputs.k:,} fills whole result lists with ties, and ids "
            "at rank k are arbitrary. Remove duplicates, or keep all ties in the truth (semrecall "
            "truth does) and read recall with ties, not recall(ties=no)."
        )
    else:
        level = "note"
        advice = (
            "Equal vectors tie everywhere: recall counts ties as hits, recall(ties=no) does not."
        )
    yield Finding(
        "warning" if level == "warning" else "note",
        "duplicates",
        name,
        found,
        advice,
        groups[0][1:],
        "first rows of the largest group",
    )


def _most_distinct(sample: NDArray[np.float64]) -> int:
    """The largest number of distinct values that any dimension of the sample has."""
    ordered = np.sort(sample, axis=0)
    return int((ordered[1:] != ordered[:-1]).sum(axis=0).max()) + 1


# -- norms ----------------------------------------------------------------------------------


def _norms(inputs: Inputs) -> Iterator[Finding]:
    """What the norms mean for the choice of a space; measured overlaps are in `neighbours`."""
    seen = inputs.base_scan
    if seen is None or seen.directed == 0:
        return
    if seen.is_unit:
        yield Finding(
            "note",
            "unit-norms",
            "base",
            "All base vectors have norm 1 (within 0.001): ip, cosine and l2 rank them alike.",
        )
    elif seen.equal_norms:
        yield Finding(
            "note",
            "equal-norms",
            "base",
            f"All base vectors have the same norm, {seen.norm_high:.4g}: ip, cosine and l2 rank "
            "them alike up to rounding.",
        )
    elif seen.nearly_unit >= 0.99 * seen.directed:
        space = inputs.stated_space
        yield Finding(
            "note" if space is not None and space.name == "cosine" else "warning",
            "nearly-unit",
            "base",
            f"Base vectors have norms from {seen.norm_low:.4g} to {seen.norm_high:.4g}: nearly "
            f"1, but only {percent(seen.unit, seen.directed)} are 1 within 0.001.",
            "If they were meant to be normalised, something changed them since (quantisation, "
            "truncated dimensions, an average of chunks). Under ip and l2 the norm then decides "
            "near ties: normalise again, or state space cosine.",
        )
    else:
        yield Finding(
            "note",
            "norms-vary",
            "base",
            f"Base vectors are not normalised: norms from {seen.norm_low:.4g} to "
            f"{seen.norm_high:.4g}.",
            ""
            if inputs.can_search
            else "ip, cosine and l2 give different neighbours; index and truth must use one.",
        )


# -- base and queries together --------------------------------------------------------------


def _together(inputs: Inputs) -> Iterator[Finding]:
    base, queries = inputs.base, inputs.queries
    if base is None or queries is None:
        return
    if base.dimension != queries.dimension:
        yield Finding(
            "error",
            "dimension",
            "queries",
            f"Queries have {queries.dimension:,} dimensions, the base has {base.dimension:,}.",
            "No score between them exists. Were both made by the same model, with the same "
            "truncation, and are these the right two files?",
        )
        return
    seen, asked = inputs.base_scan, inputs.query_scan
    assert seen is not None
    assert asked is not None
    yield from _swapped(inputs, seen.rows, asked.rows)
    yield from _scales(base, queries, seen, asked)
    yield from _queries_in_base(inputs, seen, asked)


def _swapped(inputs: Inputs, rows: int, asked: int) -> Iterator[Finding]:
    if asked <= rows:
        return
    truth = inputs.truth
    fits = truth is not None and len(truth) == rows and len(truth) != asked
    found = f"There are more queries ({asked:,}) than base rows ({rows:,})"
    if fits:
        yield Finding(
            "error",
            "swapped-vectors",
            "queries",
            f"{found}, and the truth has a row for each of {rows:,} queries.",
            "Base and queries are swapped: exchange the two files.",
        )
    else:
        yield Finding(
            "note",
            "more-queries-than-base",
            "queries",
            f"{found}.",
            "Are base and queries swapped?",
        )


def _scales(base: Vectors, queries: Vectors, seen: Scan, asked: Scan) -> Iterator[Finding]:
    if seen.directed == 0 or asked.directed == 0:
        return
    middle = [float(np.sqrt(scanned.norm_low * scanned.norm_high)) for scanned in (seen, asked)]
    apart = max(middle) / min(middle)
    mixed = (base.dtype.kind in "iu") != (queries.dtype.kind in "iu")
    if base.dtype.kind + queries.dtype.kind in ("iu", "ui"):
        yield Finding(
            "warning",
            "signed-and-unsigned",
            "queries",
            f"The base is {base.dtype}, the queries are {queries.dtype}.",
            "One of them was shifted by 128 or read with the wrong type.",
        )
    elif apart > (4 if mixed else 100):
        yield Finding(
            "warning",
            "scales-differ",
            "queries",
            f"Norms of the queries ({queries.dtype}) are about {middle[1]:.3g}, those of the base "
            f"({base.dtype}) about {middle[0]:.3g}.",
            "Was only one of them quantised, scaled or normalised? l2 is meaningless across "
            "scales; ip and cosine rank as before.",
        )


def _queries_in_base(inputs: Inputs, seen: Scan, asked: Scan) -> Iterator[Finding]:
    if asked.directed == 0:
        return
    found = np.flatnonzero(np.isin(inputs.query_hashes, seen.hits))
    if len(found) == 0:
        return
    share = percent(len(found), asked.rows)
    drawn = len(found) >= 0.9 * asked.rows
    yield Finding(
        "note",
        "queries-in-base" if drawn else "some-queries-in-base",
        "queries",
        f"{len(found):,} of {asked.rows:,} queries ({share}) are also rows of the base.",
        "The queries were drawn from the base: the nearest neighbour of each is itself, a hit that "
        "every index finds, and recall@1 says nothing. Real queries are harder."
        if drawn
        else "Their nearest neighbour is themselves.",
        tuple(found[:5].tolist()),
        "query rows",
    )


def _rows(count: int, whole: int) -> str:
    return f"{count:,} of {whole:,} rows ({percent(count, whole)})"
