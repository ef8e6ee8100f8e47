"""What every judge is: questions in, replies out, and a ledger that keeps each of them."""

from __future__ import annotations

import copy
import hashlib
import json
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Any, Protocol, Self

from semrecall.errors import InputError

__all__ = [
    "Answer",
    "Document",
    "Judge",
    "Memory",
    "Question",
    "Record",
    "Reply",
    "Scale",
    "Status",
    "digest",
]


class Status(StrEnum):
    """What became of one question in one attempt. Only `SETTLED` comes with a grade."""

    SETTLED = "settled"
    # What the judge said cannot be taken as a label.
    UNPARSED = "unparsed"  # no JSON object with a label
    AMBIGUOUS = "ambiguous"  # several labels that differ
    ILLEGAL = "illegal"  # a label outside the scale
    MISSING = "missing"  # a reply about several documents left this one out
    TRUNCATED = "truncated"  # the reply was cut at its token limit
    EMPTY = "empty"
    # The judge would not say.
    FILTERED = "filtered"  # a content filter stood in between
    REFUSED = "refused"
    TOO_LONG = "too long"  # the document does not fit
    TIED = "tied"  # a panel, or repeats, without a majority
    SKIPPED = "skipped"  # a person passed
    UNKNOWN = "unknown"  # recorded labels do not have the pair
    # Nobody has said anything yet.
    WAITING = "in a batch"  # handed in, and not collected
    NOT_ASKED = "not asked"
    # The world failed: asked again by the next run.
    RATE_LIMITED = "rate limited"
    SERVER = "server error"
    TIMEOUT = "timeout"
    CONNECTION = "no connection"
    QUOTA = "quota exhausted"
    REJECTED = "rejected"  # the endpoint refuses the request itself: key, model, parameter

    @property
    def passing(self) -> bool:
        """Whether the next run asks again by itself."""
        return self in _PASSING


_PASSING = frozenset(
    {
        Status.RATE_LIMITED,
        Status.SERVER,
        Status.TIMEOUT,
        Status.CONNECTION,
        Status.QUOTA,
        Status.REJECTED,
    }
)


@dataclass(frozen=True)
class Scale:
    """The grades (numbers) of a judge, and what each means. `relevant`: the lowest that counts."""

    meanings: Mapping[Any, str]
    relevant: float = 1

    def __post_init__(self) -> None:
        if len(self.meanings) < 2:
            raise InputError(f"a scale has at least two grades; found {list(self.meanings)}")
        if self.relevant not in self.meanings:
            raise InputError(
                f"relevant is grade {self.relevant}; the scale has {list(self.meanings)}"
            )

    @property
    def grades(self) -> tuple[float, ...]:
        """The grades, lowest first."""
        return tuple(sorted(self.meanings))


@dataclass(frozen=True)
class Document:
    """What is judged: a text, an image (path or URL), or both."""

    text: str = ""
    image: str | None = None

    @property
    def digest(self) -> bytes:
        """The same for texts that differ only in white space or Unicode form.

        A local image counts by its bytes.
        """
        text = _plain(self.text)
        if self.image is None:
            return hashlib.sha256(len(text).to_bytes(8, "big") + text).digest()
        return digest(text, _image_digest(self.image))


@dataclass(frozen=True)
class Question:
    """One pair as a judge sees it. Ids say where an answer belongs; a judge of texts hides them.

    repeat: 0, or which further time the same pair is asked. key: under which the ledger keeps it.
    tried: how often each status was met before, in this run or an earlier one.
    """

    query_id: str | int
    doc_id: str | int
    query: str
    document: Document
    repeat: int = 0
    key: bytes = b""
    tried: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """What became of a question: a grade, or a status that says why there is none.

    grade: one of the judge's scale when settled, else None. confidence: the judge's own
    probability of its label. final: whether this run asks no more. flags: what happened on the
    way ("input cut", "judged again").
    """

    question: Question
    status: Status
    grade: float | None = None
    reason: str = ""
    confidence: float | None = None
    final: bool = True
    flags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if (self.status is Status.SETTLED) != (self.grade is not None):
            raise InputError(f"an answer is {self.status.value!r} with the grade {self.grade}")


@dataclass(frozen=True)
class Reply:
    """One call and all it answered: the unit the ledger writes in one transaction.

    status: of the call as a whole. mode: how the label was asked for and found ("schema",
    "json", "tool", "plain"; "+fence", "+prose"). raw: the text that came back. tokens: None where
    the endpoint did not say. cost: in the currency of the prices given; None when unknown.
    maybe_charged: no reply came, and the endpoint may have counted the call all the same. calls:
    0 where nothing was called.
    """

    answers: tuple[Answer, ...]
    status: Status = Status.SETTLED
    mode: str = ""
    raw: str = ""
    http_status: int | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    latency_seconds: float | None = None
    cost: float | None = None
    maybe_charged: bool = False
    calls: int = 1


#: Takes a reply as soon as it is known; returns when it is safely kept.
Record = Callable[[Reply], None]


class Memory(Protocol):
    """Remarks by name, such as a ledger keeps."""

    def note(self, name: str) -> str | None:
        """The remark of that name."""

    def set_note(self, name: str, value: str) -> None:
        """Keep a remark; an earlier one of that name is replaced."""


class Judge(ABC):
    """Maps questions to answers.

    `answer` takes questions one by one, as many at a time as it can work on, and hands every
    reply to `record` at once; each question ends with one answer that is final. The order in
    which answers come is free: a question carries its ids and key.
    """

    #: Who the labels are by; the column `judge` of what comes out.
    name: str
    scale: Scale
    #: Judges that are asked in its place, one by one; `combine` makes one answer of theirs.
    members: Sequence[Judge] = ()
    #: Where it may keep what it learns of the world (what an endpoint can do) for later runs.
    memory: Memory | None = None
    #: Whether it needs the texts; one that knows pairs by id does not.
    reads_texts: bool = True

    @property
    @abstractmethod
    def identity(self) -> Mapping[str, Any]:
        """All that may change an answer, as JSON: endpoint, model, prompt, sampling, schema."""

    @abstractmethod
    def answer(self, questions: Iterable[Question], record: Record) -> None:
        """Answer all questions."""

    @cached_property
    def fingerprint(self) -> bytes:
        """A hash of the identity: judges that may answer differently never share an answer."""
        text = json.dumps({"judge": type(self).__name__, **self.identity}, sort_keys=True)
        return hashlib.sha256(text.encode()).digest()

    def key(self, question: Question) -> bytes:
        """Under what the ledger keeps the answer: by text, so that equal texts are paid once."""
        parts = self._fingerprinted.copy()
        parts.update(
            _text_digest(question.query)
            + question.document.digest
            + question.repeat.to_bytes(4, "big")
        )
        return parts.digest()[:16]

    @cached_property
    def _fingerprinted(self) -> hashlib._Hash:
        return hashlib.sha256(self.fingerprint)

    def copied(self) -> Self:
        """A copy that may become a judge of another identity."""
        other = copy.copy(self)
        for name in ("fingerprint", "_fingerprinted"):
            vars(other).pop(name, None)
        return other

    def passed_over(self, question: Question) -> Reply | None:
        """The reply of a judge of texts to an image alone; None where there is a text."""
        if question.document.image is None or question.document.text:
            return None
        answer = Answer(question, Status.SKIPPED, reason="an image; this judge reads texts")
        return Reply((answer,), answer.status, calls=0)

    def combine(self, question: Question, answers: Sequence[Answer]) -> Answer:
        """One answer of those of the members, in their order."""
        raise NotImplementedError(f"{type(self).__name__} has no members")

    def remarks(self) -> Sequence[str]:
        """What a reader of the labels should know of how they came about in this run."""
        return ()

    def close(self) -> None:  # noqa: B027 - most judges hold nothing open
        """Let go of connections and models."""


def digest(*parts: bytes | str) -> bytes:
    """A hash of parts in order, each with its length, so that no two sequences share one."""
    whole = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        whole.update(len(data).to_bytes(8, "big"))
        whole.update(data)
    return whole.digest()


#: What Python takes for white space among the ASCII characters, as spaces.
_SPACED = bytes(32 if chr(byte).isspace() and byte < 128 else byte for byte in range(256))


def _plain(text: str) -> bytes:
    """The text in NFC with single spaces, as UTF-8. Most texts are ASCII, with few line breaks."""
    if not text.isascii():
        plain = " ".join(unicodedata.normalize("NFC", text).split())
        return plain.encode("utf-8", "surrogatepass")
    data = text.encode().translate(_SPACED).strip(b" ")
    while b"  " in data:
        data = data.replace(b"  ", b" ")
    return data


@lru_cache(maxsize=4096)
def _text_digest(text: str) -> bytes:
    return digest(_plain(text))


def _image_digest(image: str) -> bytes:
    """Of the bytes of a local file, or of the address."""
    if "://" in image or image.startswith("data:"):
        return digest("url", image)
    try:
        with open(image, "rb") as file:
            return digest("file", hashlib.file_digest(file, "sha256").digest())
    except OSError as error:
        raise InputError(
            f"the image {image} cannot be read: {error.strerror}",
            hint="paths of images count from the folder of the file that names them",
        ) from error
