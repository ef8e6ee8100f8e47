"""Labels on character spans of documents, chunks of any chunking, and judgments of one from other.

Positions count characters (Unicode code points, as Python strings do) from 0; an end is exclusive.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from semrecall.data.ids import Ids, concatenate, ids, unify
from semrecall.data.judgments import Judgments
from semrecall.data.matching import difference
from semrecall.errors import InputError, MismatchError, SemrecallWarning

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["DEFAULT_RULE", "Chunks", "Overlap", "Spans", "judge_chunks"]

DEFAULT_RULE = "50%"


@dataclass(frozen=True, eq=False, repr=False)
class Spans:
    """Labelled spans: what in a document matters for a query, shape (m,) each.

    starts, ends: int64; -1 and -1 mean the whole document. grades: float64, how much it matters;
    a grade of 0 says that it does not.
    """

    queries: Ids
    documents: Ids
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    grades: NDArray[np.float64]

    def __post_init__(self) -> None:
        _check_lengths(
            len(self.queries),
            {
                "document ids": len(self.documents),
                "starts": len(self.starts),
                "ends": len(self.ends),
                "grades": len(self.grades),
            },
        )
        gone = self.queries.missing | self.documents.missing
        if gone.any():
            raise InputError(f"span {int(np.argmax(gone))} has no query id or no document id")
        _check_positions("span", self.starts, self.ends, (self.starts == -1) & (self.ends == -1))
        wrong = ~np.isfinite(self.grades)
        if wrong.any():
            raise InputError(f"span {int(np.argmax(wrong))} has no finite grade")

    @classmethod
    def from_arrays(
        cls,
        query_ids: Any,
        doc_ids: Any,
        starts: ArrayLike | None = None,
        ends: ArrayLike | None = None,
        grades: ArrayLike | None = None,
    ) -> Spans:
        """Spans from columns (m,); without starts and ends whole documents, without grades all 1.

        A NaN in both starts and ends is a whole document too.
        """
        queries = ids(query_ids, what="query ids")
        if (starts is None) != (ends is None):
            raise InputError("starts and ends belong together; found one of them")
        whole = np.full(len(queries), -1, dtype=np.int64)
        return cls(
            queries,
            ids(doc_ids, what="document ids"),
            whole if starts is None else _positions(starts, "starts", gap=-1),
            whole if ends is None else _positions(ends, "ends", gap=-1),
            np.ones(len(queries)) if grades is None else np.asarray(grades, dtype=np.float64),
        )

    def __len__(self) -> int:
        return len(self.queries)

    def __repr__(self) -> str:
        whole = int((self.starts < 0).sum())
        also = f", {whole:,} of whole documents" if whole else ""
        queries = len(np.unique(self.queries.codes))
        return f"Spans({len(self):,} spans, {queries:,} queries{also})"


@dataclass(frozen=True, eq=False, repr=False)
class Chunks:
    """The pieces of a chunking: ids, distinct, their documents, and where they lie, (n,) each."""

    ids: Ids
    documents: Ids
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]

    def __post_init__(self) -> None:
        lengths = {"document ids": len(self.documents)}
        lengths |= {"starts": len(self.starts), "ends": len(self.ends)}
        _check_lengths(len(self.ids), lengths)
        gone = self.ids.missing | self.documents.missing
        if gone.any():
            raise InputError(f"chunk {int(np.argmax(gone))} has no id or no document id")
        twice = self.ids.first_duplicate()
        if twice is not None:
            raise InputError(f"two chunks have the id {self.ids[twice[0]]!r}")
        _check_positions("chunk", self.starts, self.ends)

    @classmethod
    def from_arrays(
        cls, chunk_ids: Any, doc_ids: Any, starts: ArrayLike, ends: ArrayLike
    ) -> Chunks:
        """Chunks from columns (n,)."""
        return cls(
            ids(chunk_ids, what="chunk ids"),
            ids(doc_ids, what="document ids"),
            _positions(starts, "starts"),
            _positions(ends, "ends"),
        )

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        documents = len(np.unique(self.documents.codes))
        return f"Chunks({len(self):,} chunks of {documents:,} documents)"


@dataclass(frozen=True)
class Overlap:
    """When a chunk is relevant for a span: the overlap is at least a share, or so many characters.

    of: what `share` is a share of: the "smaller" of span and chunk, the "span" or the "chunk".
    characters: at least so many, or all there are where span or chunk are shorter; the share is
        not looked at then.
    """

    share: float = 0.5
    of: str = "smaller"
    characters: int | None = None

    @classmethod
    def parse(cls, rule: str | Overlap) -> Overlap:
        """A rule from "50%", "50% of span", "50% of chunk", "20 characters" or "touch"."""
        if isinstance(rule, Overlap):
            return rule
        text = " ".join(str(rule).lower().split())
        if text == "touch":
            return cls(characters=1)
        number = re.fullmatch(r"(\d+) ?(?:c|chars?|characters?)", text)
        if number and int(number[1]) >= 1:
            return cls(characters=int(number[1]))
        share = re.fullmatch(r"(\d+(?:\.\d+)?) ?%(?: of (?:the )?(smaller|span|chunk))?", text)
        if share and 0 < float(share[1]) <= 100:
            return cls(float(share[1]) / 100, share[2] or "smaller")
        raise InputError(
            f"{rule!r} is no rule of overlap",
            hint='write "50%" (of the smaller of span and chunk), "80% of span", "80% of chunk", '
            '"20 characters" or "touch"',
        )

    def __str__(self) -> str:
        if self.characters is not None:
            plural = "" if self.characters == 1 else "s"
            return f"at least {self.characters:,} character{plural}"
        of = "smaller of span and chunk" if self.of == "smaller" else self.of
        return f"at least {self.share * 100:g}% of the {of}"

    def holds(
        self,
        overlap: NDArray[np.int64],
        span: NDArray[np.int64],
        chunk: NDArray[np.int64],
    ) -> NDArray[np.bool_]:
        """Whether it holds for overlaps (m,) in characters of spans and chunks of these lengths."""
        smaller = np.minimum(span, chunk)
        if self.characters is not None:
            return np.asarray(overlap >= np.minimum(self.characters, smaller))
        whole = {"smaller": smaller, "span": span, "chunk": chunk}[self.of]
        return np.asarray((overlap > 0) & (overlap >= self.share * whole))


def judge_chunks(
    spans: Spans, chunks: Chunks, rule: str | Overlap = DEFAULT_RULE, *, rest: bool = True
) -> Judgments:
    """Judgments of chunks from labels on spans, so that another chunking needs no new labels.

    rule: when a chunk is relevant for a span (see `Overlap`). Its grade is the highest of the spans
        it is relevant for. The default, half of the smaller of the two, is the highest share at
        which every span has a relevant chunk wherever chunks lie end to end.
    rest: the other chunks of a labelled document get grade 0, because the labels say where in the
        document the answer is; False leaves them unjudged. Labels on whole documents make every
        chunk of the document relevant.

    Warns of spans that no chunk matches; raises MismatchError when no labelled document has chunks.
    """
    overlap = Overlap.parse(rule)
    span_docs, chunk_docs = unify(spans.documents, chunks.documents)
    span, chunk = _pairs(span_docs, chunk_docs)
    if len(spans) and len(span) == 0:
        found = difference(spans.documents, chunks.documents)
        raise MismatchError(
            f"no labelled document has a chunk: labels are on documents like "
            f"{spans.documents[0]!r}, chunks of documents like "
            + (repr(chunks.documents[0]) if len(chunks) else "none"),
            hint=str(found) if found else "are these chunks of the labelled documents?",
        )
    begin = np.maximum(spans.starts[span], chunks.starts[chunk])
    end = np.minimum(spans.ends[span], chunks.ends[chunk])
    whole = spans.starts[span] < 0
    lengths = chunks.ends[chunk] - chunks.starts[chunk]
    common = np.where(whole, lengths, np.maximum(end - begin, 0))
    span_lengths = np.where(whole, lengths, spans.ends[span] - spans.starts[span])
    relevant = overlap.holds(common, span_lengths, lengths)
    _warn_of_lost(spans, span, relevant, overlap)
    _warn_of_beyond(spans, chunks, span, chunk)
    use = np.flatnonzero(relevant | rest)
    # What matters for one span is not the rest of another: a match comes first, then the grade.
    grades = np.where(relevant, spans.grades[span], 0.0)[use]
    queries, names = spans.queries[span[use]], chunks.ids[chunk[use]]
    order = np.lexsort((-grades, ~relevant[use], names.codes, queries.codes))
    new = np.ones(len(order), dtype=bool)
    new[1:] = (np.diff(names.codes[order]) != 0) | (np.diff(queries.codes[order]) != 0)
    kept = np.sort(order[new])
    return _with_silent(Judgments(queries[kept], names[kept], grades[kept]), spans, span)


def _with_silent(judgments: Judgments, spans: Spans, span: NDArray[np.int64]) -> Judgments:
    """Queries none of whose documents has a chunk stay, with no grade: they do not vanish."""
    heard = np.unique(spans.queries.codes[span])
    silent = np.flatnonzero(~np.isin(spans.queries.codes, heard))
    if len(silent) == 0:
        return judgments
    _, first = np.unique(spans.queries.codes[silent], return_index=True)
    added = silent[np.sort(first)]
    reasons = [""] * len(judgments) + ["the labelled document has no chunk"] * len(added)
    return Judgments(
        concatenate([judgments.queries, spans.queries[added]]),
        concatenate([judgments.documents, spans.documents[added]]),
        np.append(judgments.grades, np.full(len(added), np.nan)),
        {"reason": np.array(reasons, dtype=object)},
    )


def _pairs(
    spans: NDArray[np.int64], chunks: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Every (span, chunk) of the same document, as two columns of positions."""
    order = np.argsort(chunks, kind="stable")
    first = np.searchsorted(chunks[order], spans, side="left")
    counts = np.searchsorted(chunks[order], spans, side="right") - first
    span = np.repeat(np.arange(len(spans)), counts)
    before = np.repeat(np.cumsum(counts) - counts, counts)
    return span, order[np.repeat(first, counts) + np.arange(len(span)) - before]


def _warn_of_lost(
    spans: Spans, span: NDArray[np.int64], relevant: NDArray[np.bool_], rule: Overlap
) -> None:
    matched = np.zeros(len(spans), dtype=bool)
    matched[span[relevant]] = True
    there = np.zeros(len(spans), dtype=bool)
    there[span] = True
    for count, what in (
        (int((~there).sum()), "are on documents without a chunk"),
        (int((there & ~matched).sum()), f"are matched by no chunk ({rule})"),
    ):
        if count:
            warnings.warn(
                f"{count:,} of {len(spans):,} labelled spans {what}; they count for nothing",
                SemrecallWarning,
                stacklevel=3,
            )


def _warn_of_beyond(
    spans: Spans, chunks: Chunks, span: NDArray[np.int64], chunk: NDArray[np.int64]
) -> None:
    """Positions behind the last chunk are a sign of another unit, or of another text."""
    last = np.zeros(len(spans), dtype=np.int64)
    np.maximum.at(last, span, chunks.ends[chunk])
    beyond = np.flatnonzero((last > 0) & (spans.ends > last))
    if len(beyond):
        at = int(beyond[0])
        warnings.warn(
            f"{len(beyond):,} of {len(spans):,} labelled spans end behind the last chunk of their "
            f"document, first: document {spans.documents[at]!r}, {spans.starts[at]:,} to "
            f"{spans.ends[at]:,}, where the chunks end at {last[at]:,}; do all positions count "
            "characters of one text?",
            SemrecallWarning,
            stacklevel=3,
        )


def _check_lengths(m: int, lengths: dict[str, int]) -> None:
    for what, found in lengths.items():
        if found != m:
            raise InputError(f"{m:,} ids but {found:,} {what}")


def _check_positions(
    what: str,
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    allowed: NDArray[np.bool_] | None = None,
) -> None:
    wrong = (starts < 0) | (ends <= starts)
    if allowed is not None:
        wrong &= ~allowed
    if wrong.any():
        at = int(np.argmax(wrong))
        raise InputError(
            f"{what} {at} goes from {starts[at]} to {ends[at]}; expected 0 <= start < end",
            hint="positions count characters from 0, and the end is exclusive",
        )


def _positions(values: ArrayLike, what: str, gap: int | None = None) -> NDArray[np.int64]:
    """Whole numbers; where `gap` is given, it stands for None and NaN."""
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{what} are not numbers: {error}") from error
    if gap is not None:
        numbers = np.where(np.isnan(numbers), gap, numbers)
    wrong = ~(numbers == np.floor(numbers)) | (np.abs(numbers) > 2.0**53)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise InputError(f"{what}: value {numbers[at]:g} at position {at} is not a whole number")
    return numbers.astype(np.int64)
