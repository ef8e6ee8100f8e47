"""Reading a label out of what a model wrote. Never raises, never guesses.

What counts is a JSON object with a label, alone or in prose, once. Everything else has a status of
its own; none of them is a grade. An object that a model copies out of a document must not win:

- objects with different labels are AMBIGUOUS;
- an object inside a string, or after a malformed one, does not count, since a model that forgets
  to escape a quotation mark lays open what the document says;
- an object in prose that stands in the judged text just so is a quotation.

"1" and 1.0 are 1. true, false, null and every other value are ILLEGAL: a model that answers so has
not read what it was asked, and on a graded scale "true" has no meaning. Documents are told apart by
id, never by position.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from semrecall.judges.contract import Scale, Status

__all__ = ["Found", "Parsed", "clean", "parse_items", "parse_reply"]

#: What stands for the label of an object that names two different ones.
_TWICE = object()

_WHITE = " \t\r\n"
_THOUGHT_END = re.compile(r"</(?:think|thinking|reasoning)>", re.IGNORECASE)
_THOUGHT_START = re.compile(r"<(?:think|thinking|reasoning)>", re.IGNORECASE)
_FENCE_MARK = re.compile(r"(?:```|~~~)[\w-]*")
_STARTS_JSON = re.compile(r"\[|\{[ \t\r\n]*[\"}]")
#: The start of an object, well formed or not, as opposed to a brace in prose.
_LOOKS_LIKE_OBJECT = re.compile(r"\{\s*(?:[\"'`\\\u2018-\u201f«‹]|\w+\s*[:=])")
#: What is left over when a model's reason held a quotation mark, and its object ended too early.
_LEFT_OVER = re.compile(r"[\"'\u2018-\u201f]label[\"'\u2018-\u201f]\s*:")
_LABEL = re.compile(r'(?<!\\)"label"\s*:\s*"?')
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,9}(?:\.0+)?")
_SURROGATES = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Found:
    """What the reply says of one document. at: where in the text its label stands."""

    status: Status
    grade: int | None = None
    reason: str = ""
    at: int | None = None


@dataclass(frozen=True)
class Parsed:
    """What a reply says. found: one for each id asked, in that order; one if none was asked.

    mode: how the label was found: "" for bare JSON, else of "+think", "+fence", "+prose". flags:
    "unknown ids", "a label without an id".
    """

    found: tuple[Found, ...]
    mode: str = ""
    flags: tuple[str, ...] = ()

    @property
    def status(self) -> Status:
        """SETTLED when every document has its grade, else what is wrong with the first without."""
        wrong = [f.status for f in self.found if f.status is not Status.SETTLED]
        return wrong[0] if wrong else Status.SETTLED


@dataclass(frozen=True)
class _Said:
    """One label that stands in the reply."""

    id: str | None
    label: Any
    reason: str
    at: int


def parse_reply(text: str, scale: Scale, ids: Sequence[str] = (), *, judged: str = "") -> Parsed:
    """The label in a reply, or for several documents the label of each id.

    judged: the texts the model was shown; an object that stands in them word for word is no
    answer where it appears in prose. See the head of this file for the rules.
    """
    objects, mode, wrong = _counting(text, judged)
    said = [s for value, at, end in objects for s in _labels(value, text, at, end, ids)]
    if wrong or not said:
        return _all(wrong or Status.UNPARSED, ids, mode)
    if not ids:
        return Parsed((_settle(said, scale),), mode)
    return _by_id(said, scale, ids, mode)


def parse_items(text: str, *, judged: str = "") -> Parsed:
    """The list of texts in a reply, {"items": [...]}, as JSON in the reason of one that is found.

    Its grade says whether there is any item. The rules are those of labels: two lists that differ
    are ambiguous, and one that holds anything but texts is illegal.
    """
    objects, mode, wrong = _counting(text, judged)
    lists = [o["items"] for o, _, _ in objects if isinstance(o, Mapping) and "items" in o]
    if wrong or not lists:
        return _all(wrong or Status.UNPARSED, (), mode)
    if any(other != lists[0] for other in lists):
        return _all(Status.AMBIGUOUS, (), mode)
    if not isinstance(lists[0], list) or not all(isinstance(one, str) for one in lists[0]):
        return _all(Status.ILLEGAL, (), mode)
    items = list(dict.fromkeys(filter(None, (clean(one).strip() for one in lists[0]))))
    found = Found(Status.SETTLED, int(bool(items)), json.dumps(items, ensure_ascii=False))
    return Parsed((found,), mode)


def clean(text: str) -> str:
    """Text that can be stored: half surrogate pairs become replacement characters."""
    return _SURROGATES.sub("\ufffd", text)


def _all(status: Status, ids: Sequence[str], mode: str = "") -> Parsed:
    return Parsed((Found(status),) * (len(ids) or 1), mode)


def _by_id(said: Sequence[_Said], scale: Scale, ids: Sequence[str], mode: str) -> Parsed:
    by_id: dict[str, list[_Said]] = {}
    for one in said:
        if one.id is None and len(ids) == 1:
            by_id.setdefault(ids[0], []).append(one)
        elif one.id is not None:
            by_id.setdefault(one.id, []).append(one)
    flags = []
    if by_id.keys() - set(ids):
        flags.append("unknown ids")
    if len(ids) > 1 and any(one.id is None for one in said):
        flags.append("a label without an id")
    found = [_settle(by_id[i], scale) if i in by_id else Found(Status.MISSING) for i in ids]
    return Parsed(tuple(found), mode, tuple(flags))


def _settle(said: Sequence[_Said], scale: Scale) -> Found:
    """One label of all that were given to one document."""
    legal = [(grade, one) for one in said if (grade := _grade(one.label, scale)) is not None]
    if len({grade for grade, _ in legal}) > 1 or any(one.label is _TWICE for one in said):
        return Found(Status.AMBIGUOUS)
    if not legal:
        return Found(Status.ILLEGAL, reason=said[-1].reason)
    grade, last = legal[-1]
    return Found(Status.SETTLED, grade, last.reason, last.at)


def _grade(label: Any, scale: Scale) -> int | None:
    """A grade of the scale, or None."""
    if isinstance(label, str) and _WHOLE_NUMBER.fullmatch(label.strip()):
        label = float(label)
    if isinstance(label, bool) or not isinstance(label, int | float):
        return None
    return int(label) if label in scale.meanings else None


# -- objects in text -------------------------------------------------------------------------------


class _Object(dict[str, Any]):
    """A JSON object that remembers whether it names two different labels."""


def _pairs(pairs: list[tuple[str, Any]]) -> _Object:
    made = _Object(pairs)
    labels = [value for name, value in pairs if name == "label"]
    if any(str(value) != str(labels[0]) for value in labels):
        made["label"] = _TWICE
    return made


_DECODER = json.JSONDecoder(strict=False, object_pairs_hook=_pairs)


def _counting(text: str, judged: str) -> tuple[list[tuple[Any, int, int]], str, Status | None]:
    """The objects that count, the mode, and what is wrong with the reply as a whole."""
    if not text.strip():
        return [], "", Status.EMPTY
    objects, start, mode, broken = _objects(text)
    if not text[start:].strip():
        return [], "+think", Status.EMPTY
    if broken:
        return [], mode, Status.UNPARSED
    if "+prose" in mode:
        objects = [o for o in objects if text[o[1] : o[2]] not in judged]
    return objects, mode, None


def _objects(text: str) -> tuple[list[tuple[Any, int, int]], int, str, bool]:
    """Outermost objects with where they stand; where thoughts end; the mode; whether broken."""
    whole = _decode(text, len(text) - len(text.lstrip(_WHITE)))
    if whole is not None and not text[whole[2] :].strip():
        return [whole], 0, "", False
    start = _after_thoughts(text)
    mode = "+think" if start else ""
    found: list[tuple[Any, int, int]] = []
    rest, at = [], start
    while True:
        brace = text.find("{", at)
        if brace < 0:
            break
        one = _decode(text, brace)
        if one is None and _LOOKS_LIKE_OBJECT.match(text, brace):
            return found, start, mode, True
        rest.append(text[at : brace if one else brace + 1])
        if one:
            found.append(one)
        at = one[2] if one else brace + 1
    rest.append(text[at:])
    around = "".join(rest)
    if _LEFT_OVER.search(around) or around.count("}") > around.count("{"):
        return found, start, mode, True
    if _FENCE_MARK.search(around):
        mode += "+fence"
        around = _FENCE_MARK.sub("", around)
    # A list of objects is no prose.
    if around.strip(_WHITE + "[],"):
        mode += "+prose"
    return found, start, mode, False


def _decode(text: str, at: int) -> tuple[Any, int, int] | None:
    """The JSON object or list that starts at a place, with its start and end."""
    # A failed attempt costs time in proportion to the whole text.
    if not _STARTS_JSON.match(text, at):
        return None
    try:
        value, end = _DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):
        return None
    return value, at, end


def _after_thoughts(text: str) -> int:
    """Where the answer starts: after the last thought; at the end when a thought never ends."""
    start = 0
    for found in _THOUGHT_END.finditer(text):
        start = found.end()
    if start == 0 and _THOUGHT_START.match(text.lstrip()):
        return len(text)
    return start


def _labels(value: Any, text: str, at: int, end: int, ids: Sequence[str]) -> Iterator[_Said]:
    """Every label in a decoded object or list, with the place of its value in the text."""
    places = (m.end() for m in _LABEL.finditer(text, at, end))
    for name, label, reason in _walk(value, ids, depth=0):
        yield _Said(name, label, reason, next(places, at))


def _walk(value: Any, ids: Sequence[str], depth: int) -> Iterator[tuple[str | None, Any, str]]:
    """(id, label, reason) of every label in an object or list."""
    if isinstance(value, list):
        for one in value:
            if isinstance(one, Mapping):
                yield from _walk(one, ids, depth)
    elif "label" in value:
        name, reason = value.get("id"), value.get("reason")
        yield (
            str(name) if isinstance(name, str | int) else None,
            value["label"],
            clean(reason) if isinstance(reason, str) else "",
        )
    elif isinstance(value.get("labels"), list):
        yield from _walk(value["labels"], ids, depth)
    elif ids and value and set(value) <= set(ids):
        for name, label in value.items():
            yield name, label.get("label") if isinstance(label, Mapping) else label, ""
    elif depth == 0:
        # {"labels": {"d1": 1}}, {"name": "judge", "arguments": {"label": 1}}: one level down.
        inside = [v for v in value.values() if isinstance(v, Mapping)]
        if len(inside) == 1:
            yield from _walk(inside[0], ids, depth=1)
