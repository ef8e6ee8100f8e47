"""What an endpoint said, in one form: statuses, waits, refused parameters, token probabilities.

Endpoints word the same failure in many ways; the tables here hold the ways that are known. What
fits none of them is REJECTED with the endpoint's own words. Nothing raises on what is sent.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

from semrecall.judges.contract import Scale, Status
from semrecall.judges.replies import clean

__all__ = [
    "LONGER",
    "EndpointError",
    "Guess",
    "Heard",
    "as_dict",
    "error_of",
    "failure",
    "guesses",
    "label_confidence",
    "retry_after_seconds",
    "shown",
]

_MESSAGE_LENGTH = 300
LONGER = "allow longer replies: --max-tokens"


@dataclass(frozen=True)
class Guess:
    """One token of a reply: its bytes, and (text, probability) of what could have stood there."""

    raw: bytes
    options: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Heard:
    """What an endpoint said.

    status: SETTLED when a text came back whole and is there to be parsed; otherwise what went
    wrong. unsupported: what the endpoint refused ("form", "enum", or a parameter), for
    `Manner.without`. message: its own words, on one line, without keys; hint: what to do.
    """

    status: Status
    text: str = ""
    tokens_in: int | None = None
    tokens_out: int | None = None
    retry_after_seconds: float | None = None
    guesses: tuple[Guess, ...] = ()
    unsupported: str | None = None
    message: str = ""
    hint: str = ""


# -- how endpoints word it -------------------------------------------------------------------------

#: That they do not know or take something.
_REFUSING = re.compile(
    r"not support|n't support|unsupported|not (?:currently )?(?:available|enabled|permitted|allowed"
    r"|implemented|valid|recogni[sz]ed)|unavailable|unknown|unrecogni[sz]ed|unexpected|invalid"
    r"|extra inputs|extra_forbidden|deprecated|cannot find field|may not be|only the default"
    r"|incompatible|must be set|requires|failed to",
    re.IGNORECASE,
)
#: That a bound is wrong, not its name: no other manner helps.
_TOO_MUCH = re.compile(
    r"too (?:large|high|big)|above|at most|less than|greater than|exceed|<=|>=|higher than"
    r"|maximum allowed|out of range",
    re.IGNORECASE,
)
#: What a refusal names, and what it means for the manner.
_REFUSED = {
    name: re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for name, pattern in {
        "enum": r"enum\b.{0,200}TYPE_STRING|enum.{0,60}\bstrings?\b",
        "max_completion_tokens": r"max_completion_tokens",
        "max_tokens": r"max_tokens",
        "temperature": r"temperature",
        "logprobs": r"log_?probs",
        "seed": r"\bseed\b",
        "system": r"system['`\"]? (?:role|message|instruction)|role.{0,20}['`\"]system['`\"]",
        "form": r"response[_ ]?(?:format|mime|schema)|json[_ ]?(?:schema|object|mode)|output_config"
        r"|output[_ ]format|structured[_ ]output|guided|grammar|\btools?\b|tool[_ ]choice"
        r"|function call",
    }.items()
}
_TOO_LONG = re.compile(
    r"context[_ ](?:length|window|size)|prompt is too long|input is too long|too many tokens"
    r"|maximum (?:context|input|prompt)|available context|input token count|reduce the length"
    r"|string_above_max_length",
    re.IGNORECASE,
)
_CUT = re.compile(r"max_tokens or model output limit was reached", re.IGNORECASE)
_FILTERED = re.compile(
    r"content[_ ](?:filter|management|policy)|ResponsibleAIPolicy|safety (?:system|settings)"
    r"|data_inspection_failed|prohibited_content|blocked by .{0,20}(?:policy|safety)",
    re.IGNORECASE,
)
_NO_MONEY = re.compile(
    r"insufficient[_ ](?:quota|balance|funds|credits?)|billing_hard_limit|credit balance"
    r"|billing_error|api usage limits?|spend(?:ing)? limit|out of credits|more credits|PerDay",
    re.IGNORECASE,
)
_IMAGES = re.compile(r"\bimages?\b|image_url|vision|multimodal", re.IGNORECASE)
_NO_KEY = re.compile(r"api[_ ]key", re.IGNORECASE)
#: The status of an error that came without one (in a batch, or under HTTP 200), by its type.
_HTTP_OF = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "api_error": 500,
    "server_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
_HINTS = {
    401: "{variable} is missing, wrong or expired",
    403: "the key may not use this model or endpoint",
    404: "check the name of the model and the base URL{tail}",
}


# -- failures --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EndpointError:
    """An error object, in one form. words: all of it as text, to look for what it names."""

    message: str
    code: str = ""
    kind: str = ""
    parameter: str = ""
    words: str = ""


def failure(http_status: int, error: EndpointError, variable: str, tail: str = "") -> Heard:
    """What an error means: for the question, for the run, or for the manner of asking.

    variable: which one holds the key; tail: how a base URL mostly ends, for the hint on 404.
    """
    if 200 <= http_status < 300:
        http_status = _without_http(error)
    words = f"{error.code} {error.kind} {error.message} {error.words}"

    def heard(status: Status, hint: str = "", unsupported: str | None = None) -> Heard:
        return Heard(status, message=error.message, hint=hint, unsupported=unsupported)

    if http_status == 402 or (http_status in (400, 403, 429) and _NO_MONEY.search(words)):
        return heard(Status.QUOTA, "the account is exhausted or at its limit; top it up and resume")
    if http_status in (408, 429):
        return heard(Status.TIMEOUT if http_status == 408 else Status.RATE_LIMITED)
    if http_status == 409 or http_status >= 500:
        # Servers of one's own answer 500 or 501 to what they cannot do at all.
        refused = _unsupported(error) if http_status in (500, 501) else None
        return heard(Status.REJECTED if refused else Status.SERVER, "", refused)
    asked_wrong = http_status in (400, 403, 422)
    if http_status == 413 or (asked_wrong and _TOO_LONG.search(words)):
        return heard(Status.TOO_LONG, "cut long documents: --context-tokens, --long-documents")
    if asked_wrong and _CUT.search(words):
        return heard(Status.TRUNCATED, LONGER)
    if asked_wrong and _FILTERED.search(words):
        return heard(Status.FILTERED)
    if asked_wrong and (refused := _unsupported(error)):
        return heard(Status.REJECTED, "", refused)
    if asked_wrong and _IMAGES.search(error.message):
        return heard(Status.REJECTED, "this model or endpoint does not take such images")
    if http_status == 400 and _NO_KEY.search(error.message):
        http_status = 401
    if 300 <= http_status < 400:
        return heard(Status.REJECTED, "the endpoint redirects; give its final address as base URL")
    hint = _HINTS.get(http_status, "").format(variable=variable, tail=tail)
    return heard(Status.REJECTED, hint)


def _without_http(error: EndpointError) -> int:
    """The HTTP status that fits an error which came with 200 or none."""
    if error.code.isdecimal() and 400 <= int(error.code) < 600:
        return int(error.code)
    return _HTTP_OF.get(error.kind) or _HTTP_OF.get(error.code) or 500


def _unsupported(error: EndpointError) -> str | None:
    """Which part of the manner an error refuses; None when it is about something else."""
    said = f"{error.code} {error.message}"
    if not _REFUSING.search(said) or _TOO_MUCH.search(said):
        return None
    if _REFUSED["enum"].search(error.message):
        return "enum"
    for name, pattern in _REFUSED.items():
        if pattern.search(error.parameter):
            return name
    # "'max_tokens' is not supported, use 'max_completion_tokens'": what comes first is refused.
    places = [
        (found.start(), name)
        for name, pattern in _REFUSED.items()
        if (found := pattern.search(error.message))
    ]
    return min(places)[1] if places else None


def error_of(value: Any) -> EndpointError | None:
    """The error in a reply, of whatever make; None when there is none."""
    if not isinstance(value, dict):
        return None
    inner = value.get("error")
    if inner is None and value.get("object") == "error":
        inner = value  # vLLM's older form
    if inner is None and "choices" not in value and "content" not in value:
        inner = value.get("detail")  # FastAPI's
    if not inner:
        return None
    if isinstance(inner, list):
        return EndpointError(shown("; ".join(map(_complaint, inner))))
    if not isinstance(inner, dict):
        return EndpointError(shown(str(inner)))
    message = inner.get("message")
    # Not all of the object: some endpoints send the whole question back.
    inside = [
        inner.get("innererror"),
        inner.get("details"),
        as_dict(inner.get("metadata")).get("raw"),
    ]
    words = json.dumps([i for i in inside if i is not None], ensure_ascii=False)
    return EndpointError(
        shown(message if isinstance(message, str) and message.strip() else json.dumps(inner)),
        code=_word(inner.get("code")),
        kind=_word(inner.get("type") or inner.get("status")),
        parameter=_word(inner.get("param")),
        words=shown(words, 4000),
    )


def _complaint(value: Any) -> str:
    """One fault found by a validator: where, and what."""
    fault = as_dict(value)
    where = fault.get("loc")
    place = ".".join(map(str, where)) if isinstance(where, list) else ""
    return f"{place}: {fault.get('msg')}" if fault else str(value)


def as_dict(value: Any) -> dict[str, Any]:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def _word(value: Any) -> str:
    return str(value)[:100] if isinstance(value, str | int) and not isinstance(value, bool) else ""


_KEYS = re.compile(r"\b(?:sk|pk|rk|key|gsk|xai)[-_][\w*.-]{6,}|\bAIza[\w-]{10,}|(?i:bearer)\s+\S+")


def shown(text: bytes | str, length: int = _MESSAGE_LENGTH) -> str:
    """Words of an endpoint on one line, without keys and mark-up, shortened."""
    if isinstance(text, bytes):
        text = text[: 4 * length].decode("utf-8", "replace")
    text = text[: 4 * length]
    if text.lstrip().startswith("<"):
        text = re.sub(r"<[^>]*>", " ", text)
    printable = "".join(c if c.isprintable() else " " for c in clean(text))
    line = " ".join(_KEYS.sub("[key]", printable).split())
    return line if len(line) <= length else f"{line[: length - 1]}…"


_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SPAN = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|s|m|h|d)(?![a-z])")


def retry_after_seconds(headers: Mapping[str, str], error: EndpointError | None) -> float | None:
    """How long an endpoint asks to wait, in seconds: by header, else by its words."""
    by_name = {str(k).lower(): str(v).strip() for k, v in headers.items()}
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = by_name.get(name, "")
        if re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,9})?", value):
            return float(value) * unit
    if "retry-after" in by_name:
        at, now = _date(by_name["retry-after"]), _date(by_name.get("date", ""))
        if at is not None:
            return max(at - (time.time() if now is None else now), 0.0)
    words = "" if error is None else f"{error.message} {error.words}"
    asked = re.search(
        r"(?:try again in|retryDelay\W{1,4})\s*((?:[0-9.]{1,12}(?:ms|s|m|h|d))+)", words
    )
    if asked:
        return sum(float(n) * _UNITS[unit] for n, unit in _SPAN.findall(asked[1])) or None
    return None


def _date(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


# -- confidence ------------------------------------------------------------------------------------


def label_confidence(heard: Heard, at: int | None, grade: int, scale: Scale) -> float | None:
    """The probability of the chosen label among the legal ones, where the label stands.

    at: the place of the label in `heard.text`, from the parser. None when the endpoint gave no
    log-probabilities, or they do not tell: a label of several tokens, a text that does not fit.
    """
    if at is None or not heard.guesses:
        return None
    spoken = b"".join(guess.raw for guess in heard.guesses)
    whole = heard.text.encode("utf-8", "replace")
    start = spoken.rfind(whole)
    if start < 0:
        return None
    place = start + len(heard.text[:at].encode("utf-8", "replace"))
    end = 0
    for guess in heard.guesses:
        end += len(guess.raw)
        if end > place:
            return _share(guess, grade, scale)
    return None


def _share(guess: Guess, grade: int, scale: Scale) -> float | None:
    """The share of a grade in what could have stood at one token."""
    if _as_grade(guess.raw.decode("utf-8", "replace"), scale) != grade:
        return None
    mass = dict.fromkeys(scale.grades, 0.0)
    for text, probability in guess.options:
        found = _as_grade(text, scale)
        if found is not None:
            mass[found] += probability
    total = sum(mass.values())
    return mass[grade] / total if total > 0 and mass[grade] > 0 else None


def _as_grade(token: str, scale: Scale) -> int | None:
    """The grade a token spells, whatever white space or punctuation it carries."""
    digits = re.fullmatch(r"[\s:\"']*(-?[0-9]{1,9})[\s\"',}\]]*", token)
    return int(digits[1]) if digits and int(digits[1]) in scale.meanings else None


def guesses(logprobs: Any) -> tuple[Guess, ...]:
    """The tokens of a reply with their log-probabilities; none where the endpoint gave none."""
    content = as_dict(logprobs).get("content")
    found = []
    for token in content if isinstance(content, list) else []:
        raw = _raw(token)
        if raw is None:
            return ()
        options = {as_dict(o).get("token"): _probability(o) for o in _top(token)}
        options.setdefault(as_dict(token).get("token"), _probability(token))
        found.append(
            Guess(raw, tuple((t, p) for t, p in options.items() if isinstance(t, str) and p))
        )
    return tuple(found)


def _top(token: Any) -> list[Any]:
    top = as_dict(token).get("top_logprobs")
    return (
        [o for o in top if isinstance(as_dict(o).get("token"), str)]
        if isinstance(top, list)
        else []
    )


def _probability(option: Any) -> float:
    value = as_dict(option).get("logprob")
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        return 0.0
    return math.exp(min(value, 0.0))


def _raw(token: Any) -> bytes | None:
    """The bytes of a token; a token alone may be half a character."""
    given = as_dict(token).get("bytes")
    if isinstance(given, list):
        try:
            return bytes(given)
        except (ValueError, TypeError):
            return None
    text = as_dict(token).get("token")
    return text.encode("utf-8", "replace") if isinstance(text, str) else None
