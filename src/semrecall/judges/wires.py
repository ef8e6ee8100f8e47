"""Two wires: how a judge's question becomes an HTTP request, and what came back, in one form.

`openai` is the chat-completions wire of OpenAI, Azure, Gemini, Ollama, vLLM, llama.cpp, OpenRouter
and others; `anthropic` is the messages wire. They differ in what they support, and say so only when
asked: the first real call is the probe. A `Manner` holds how an endpoint wants to be asked; when a
reply names something unsupported, `Manner.without` steps down, and the same question is sent again.
Nothing here opens a connection, and nothing raises on what an endpoint sends.
"""

from __future__ import annotations

import json
import math
import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from semrecall.errors import InputError
from semrecall.judges.contract import Scale, Status
from semrecall.judges.prompts import ImagePart, Messages, Prompt
from semrecall.judges.replies import clean

__all__ = [
    "WIRES",
    "Guess",
    "Heard",
    "Manner",
    "Sampling",
    "Wire",
    "label_confidence",
]

#: The name under which a model is given the schema.
_SCHEMA_NAME = "judgment"
_TOP_LOGPROBS = 8
_MESSAGE_LENGTH = 300


@dataclass(frozen=True)
class Sampling:
    """What is asked of a model. extra: further fields of the body, in the endpoint's own words."""

    model: str
    max_tokens: int = 512
    temperature: float | None = 0.0
    seed: int | None = None
    logprobs: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Manner:
    """How an endpoint wants to be asked, as far as it is known.

    form: how the answer's shape is enforced ("schema", "json", "tool", "plain"). limit: what the
    endpoint calls the bound on tokens; "" when it takes none. enum_as_text: labels are strings in
    the schema. dropped: parameters it refused.
    """

    form: str
    limit: str = "max_tokens"
    enum_as_text: bool = False
    dropped: frozenset[str] = frozenset()

    def without(self, unsupported: str, wire: Wire) -> Manner | None:
        """The next manner to try when this one was refused; None when there is none.

        It depends only on the manner that was used, so calls that are refused at the same time
        step down once, not once each.
        """
        if unsupported == "form":
            at = wire.forms.index(self.form) + 1
            return replace(self, form=wire.forms[at]) if at < len(wire.forms) else None
        if unsupported == "enum":
            return None if self.enum_as_text else replace(self, enum_as_text=True)
        dropped = self.dropped | {unsupported}
        if dropped == self.dropped:
            return None
        if unsupported == self.limit:
            names = [name for name in wire.limits if name not in dropped]
            if not names and wire.needs_limit:
                return None
            return replace(self, limit=names[0] if names else "", dropped=dropped)
        return replace(self, dropped=dropped)

    def to_json(self) -> str:
        """As text, for the ledger's note on an endpoint."""
        return json.dumps({**asdict(self), "dropped": sorted(self.dropped)})

    @classmethod
    def from_json(cls, text: str) -> Manner:
        """A manner of `to_json`."""
        values = json.loads(text)
        return cls(**{**values, "dropped": frozenset(values["dropped"])})


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


class Wire(ABC):
    """One way of speaking with an endpoint."""

    name: str
    default_base_url: str
    key_variable: str
    #: How an answer's shape can be enforced, best first.
    forms: tuple[str, ...]
    #: What the bound on tokens may be called.
    limits: tuple[str, ...]
    needs_limit: bool
    _path: str

    def url(self, base_url: str | None = None) -> str:
        """Where requests are posted. Raises InputError for an address that cannot be one."""
        return _base(base_url or self.default_base_url, self._path) + self._path

    def is_vendor(self, base_url: str | None = None) -> bool:
        """Whether this is the vendor's own endpoint, which wants a key."""
        return urlsplit(self.url(base_url)).hostname == urlsplit(self.default_base_url).hostname

    def key(
        self,
        base_url: str | None = None,
        variable: str | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> str | None:
        """The key from the environment; None where there is none and the endpoint may want none.

        variable: which one, instead of `key_variable`. Raises InputError where one is needed.
        """
        found = environment.get(variable or self.key_variable, "").strip()
        if found and not (found.isascii() and found.isprintable() and " " not in found):
            raise InputError(
                f"{variable or self.key_variable} holds blanks or characters no key has",
                hint="set it again, without quotation marks or line breaks",
            )
        if not found and (variable or self.is_vendor(base_url)):
            raise InputError(
                f"no key: {variable or self.key_variable} is not set",
                hint=f"export {variable or self.key_variable}=...; for an endpoint of your own "
                "name its address (--base-url)",
            )
        return found or None

    @abstractmethod
    def headers(self, key: str | None, base_url: str | None = None) -> dict[str, str]:
        """The headers of a request, with the key; do not store or show them."""

    @abstractmethod
    def manner(self, base_url: str | None = None) -> Manner:
        """How to ask an endpoint of which nothing is known yet."""

    @abstractmethod
    def request(
        self,
        messages: Messages,
        sampling: Sampling,
        manner: Manner,
        prompt: Prompt,
        *,
        reason: bool = False,
        ids: Sequence[str] = (),
    ) -> dict[str, Any]:
        """The body of a request."""

    def read(self, http_status: int, headers: Mapping[str, str], body: bytes | str) -> Heard:
        """What an endpoint's answer means. Never raises."""
        value = _json(body)
        if isinstance(value, list) and value:
            value = value[0]  # Gemini wraps its errors in a list
        error = _error(value)
        if http_status == 200 and error is None:
            if not isinstance(value, dict):
                return Heard(
                    Status.SERVER, message=_shown(body), hint=f"is this a {self.name} endpoint?"
                )
            return self._answer(value)
        heard = _failure(http_status, error or _Error(_shown(body)), self)
        wait = _retry_after(headers, error)
        return heard if wait is None else replace(heard, retry_after_seconds=wait)

    def read_item(self, result: Any) -> Heard:
        """What one message or error object of a batch means. Never raises."""
        return self.read(200, {}, json.dumps(result))

    @abstractmethod
    def _answer(self, value: dict[str, Any]) -> Heard:
        """What a reply without an error means."""


class _OpenAI(Wire):
    name = "openai"
    default_base_url = "https://api.openai.com/v1"
    key_variable = "OPENAI_API_KEY"
    forms = ("schema", "json", "tool", "plain")
    limits = ("max_completion_tokens", "max_tokens")
    needs_limit = False
    _path = "/chat/completions"

    def headers(self, key: str | None, base_url: str | None = None) -> dict[str, str]:
        found = {"Content-Type": "application/json"}
        if key:
            found["Authorization"] = f"Bearer {key}"
            if _habits(self.url(base_url)).key_header:
                found[_habits(self.url(base_url)).key_header] = key
        return found

    def manner(self, base_url: str | None = None) -> Manner:
        habits = _habits(self.url(base_url))
        return Manner(self.forms[0], habits.limit, habits.enum_as_text)

    def request(
        self,
        messages: Messages,
        sampling: Sampling,
        manner: Manner,
        prompt: Prompt,
        *,
        reason: bool = False,
        ids: Sequence[str] = (),
    ) -> dict[str, Any]:
        schema = prompt.schema(reason=reason, ids=ids, as_text=manner.enum_as_text)
        user: Any = messages.text_alone
        if user is None:
            user = [_openai_part(part) for part in messages.parts]
        body: dict[str, Any] = {
            "model": sampling.model,
            "messages": [
                {"role": "system", "content": messages.system},
                {"role": "user", "content": user},
            ],
        }
        if manner.limit:
            body[manner.limit] = sampling.max_tokens
        wanted = {"temperature": sampling.temperature, "seed": sampling.seed}
        if sampling.logprobs:
            wanted |= {"logprobs": True, "top_logprobs": _TOP_LOGPROBS}
        body |= {
            k: v
            for k, v in wanted.items()
            if v is not None and k.removeprefix("top_") not in manner.dropped
        }
        if manner.form == "schema":
            named = {"name": _SCHEMA_NAME, "strict": True, "schema": schema}
            body["response_format"] = {"type": "json_schema", "json_schema": named}
        elif manner.form == "json":
            body["response_format"] = {"type": "json_object"}
        elif manner.form == "tool":
            function = {"name": _SCHEMA_NAME, "parameters": schema}
            body["tools"] = [{"type": "function", "function": function}]
            body["tool_choice"] = {"type": "function", "function": {"name": _SCHEMA_NAME}}
        return {**body, **sampling.extra}

    def _answer(self, value: dict[str, Any]) -> Heard:
        usage = _dict(value.get("usage"))
        tokens = (_count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens")))
        choices = value.get("choices")
        if not isinstance(choices, list):
            return Heard(
                Status.SERVER,
                tokens_in=tokens[0],
                tokens_out=tokens[1],
                message=_shown(json.dumps(value)),
                hint="the reply has no choices; is this a chat-completions endpoint?",
            )
        choice = _dict(choices[0] if choices else None)
        inner = _error(choice)
        if inner is not None:
            return replace(_failure(200, inner, self), tokens_in=tokens[0], tokens_out=tokens[1])
        message = _dict(choice.get("message"))
        text = _tool_arguments(message.get("tool_calls")) or _text(message.get("content"))
        finish = str(choice.get("finish_reason") or "").lower()
        refusal = message.get("refusal")
        said = refusal if isinstance(refusal, str) else ""
        if finish.startswith("content_filter"):
            status = Status.FILTERED
        elif said.strip():
            status = Status.REFUSED
        elif finish in ("length", "max_tokens"):
            status = Status.TRUNCATED
        elif finish == "error":
            status = Status.SERVER
        else:
            status = Status.SETTLED if text.strip() else Status.EMPTY
        return Heard(
            status,
            text,
            *tokens,
            guesses=_guesses(choice.get("logprobs")),
            message=_shown(said),
            hint=_LONGER if status is Status.TRUNCATED else "",
        )


class _Anthropic(Wire):
    name = "anthropic"
    default_base_url = "https://api.anthropic.com"
    key_variable = "ANTHROPIC_API_KEY"
    forms = ("schema", "tool", "plain")
    limits = ("max_tokens",)
    needs_limit = True
    _path = "/v1/messages"

    def headers(self, key: str | None, base_url: str | None = None) -> dict[str, str]:
        found = {"Content-Type": "application/json", "anthropic-version": "2023-06-01"}
        if key:
            found["x-api-key"] = key
        return found

    def manner(self, base_url: str | None = None) -> Manner:
        return Manner(self.forms[0], "max_tokens")

    def request(
        self,
        messages: Messages,
        sampling: Sampling,
        manner: Manner,
        prompt: Prompt,
        *,
        reason: bool = False,
        ids: Sequence[str] = (),
    ) -> dict[str, Any]:
        schema = prompt.schema(reason=reason, ids=ids, as_text=manner.enum_as_text)
        user: Any = messages.text_alone
        if user is None:
            user = [_anthropic_part(part) for part in messages.parts]
        body: dict[str, Any] = {
            "model": sampling.model,
            "max_tokens": sampling.max_tokens,
            "system": messages.system,
            "messages": [{"role": "user", "content": user}],
        }
        if sampling.temperature is not None and "temperature" not in manner.dropped:
            body["temperature"] = sampling.temperature
        if manner.form == "schema":
            body["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
        elif manner.form == "tool":
            tool = {"name": _SCHEMA_NAME, "description": "Gives the label.", "input_schema": schema}
            body["tools"] = [tool]
            body["tool_choice"] = {"type": "tool", "name": _SCHEMA_NAME}
        return {**body, **sampling.extra}

    def _answer(self, value: dict[str, Any]) -> Heard:
        usage = _dict(value.get("usage"))
        # What is read from or written to the cache is not part of input_tokens.
        parts = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        counts = [c for part in parts if (c := _count(usage.get(part))) is not None]
        tokens = (sum(counts) if counts else None, _count(usage.get("output_tokens")))
        blocks = value.get("content")
        if not isinstance(blocks, list):
            return Heard(
                Status.SERVER,
                "",
                *tokens,
                message=_shown(json.dumps(value)),
                hint="the reply has no content; is this a messages endpoint?",
            )
        given = [
            json.dumps(block.get("input"), ensure_ascii=False)
            for block in blocks
            if isinstance(block, dict) and block.get("type") == "tool_use"
        ]
        text = clean(given[0]) if given else _text(blocks)
        stop = value.get("stop_reason")
        if stop == "refusal":
            status = Status.REFUSED
        elif stop == "max_tokens":
            status = Status.TRUNCATED
        elif stop == "model_context_window_exceeded":
            status = Status.TOO_LONG
        else:
            status = Status.SETTLED if text.strip() else Status.EMPTY
        return Heard(status, text, *tokens, hint=_LONGER if status is Status.TRUNCATED else "")


#: The wires by name.
WIRES: dict[str, Wire] = {wire.name: wire for wire in (_OpenAI(), _Anthropic())}

_LONGER = "allow longer replies: --max-tokens"


# -- where endpoints differ ------------------------------------------------------------------------


@dataclass(frozen=True)
class _Habits:
    """What is known of an endpoint before it is asked; everything else the first call tells."""

    limit: str = "max_tokens"
    enum_as_text: bool = False
    key_header: str = ""


#: By the end of the host's name. Sources: the vendors' references and their error messages, 2026.
#: Elsewhere (Ollama, vLLM, llama.cpp, ...) max_tokens is what all versions know; some ignore
#: max_completion_tokens without a word, and then write without a bound.
_HABITS = {
    # max_tokens is refused by reasoning models, max_completion_tokens by none
    "api.openai.com": _Habits(limit="max_completion_tokens"),
    ".openai.azure.com": _Habits(limit="max_completion_tokens", key_header="api-key"),
    # enums of its schemas hold strings only
    "generativelanguage.googleapis.com": _Habits(enum_as_text=True),
    "aiplatform.googleapis.com": _Habits(enum_as_text=True),
}

#: How endpoints word that they do not know or take something.
_REFUSING = re.compile(
    r"not support|n't support|unsupported|not (?:currently )?(?:available|enabled|permitted|allowed"
    r"|implemented|valid|recogni[sz]ed)|unavailable|unknown|unrecogni[sz]ed|unexpected|invalid"
    r"|extra inputs|extra_forbidden|deprecated|cannot find field|may not be|only the default"
    r"|incompatible|must be set|requires|not allowed|failed to",
    re.IGNORECASE,
)
#: What a refusal names, and what it means for the manner. The first that fits counts.
_REFUSED = (
    ("enum", re.compile(r"enum\b.*TYPE_STRING|enum\S* .{0,40}\bstring", re.IGNORECASE | re.DOTALL)),
    ("max_completion_tokens", re.compile(r"max_completion_tokens")),
    ("max_tokens", re.compile(r"max_tokens")),
    ("temperature", re.compile(r"temperature", re.IGNORECASE)),
    ("logprobs", re.compile(r"log_?probs", re.IGNORECASE)),
    ("seed", re.compile(r"\bseed\b", re.IGNORECASE)),
    (
        "form",
        re.compile(
            r"response[_ ]?(?:format|mime|schema)|json[_ ]?(?:schema|object|mode)|output_config"
            r"|output_format|output format|structured[_ ]output|guided|grammar|tool|function call",
            re.IGNORECASE,
        ),
    ),
)
_TOO_LONG = re.compile(
    r"context[_ ](?:length|window|size)|prompt is too long|input is too long|too many tokens"
    r"|maximum (?:context|input|prompt)|exceeds? (?:the )?(?:maximum|limit|available context)"
    r"|input token count|string_above_max_length|reduce the length",
    re.IGNORECASE,
)
_FILTERED = re.compile(
    r"content[_ ](?:filter|management|policy)|ResponsibleAIPolicy|safety (?:system|settings)"
    r"|data_inspection_failed|prohibited_content|blocked by .{0,20}(?:policy|safety)",
    re.IGNORECASE,
)
_NO_MONEY = re.compile(
    r"insufficient[_ ](?:quota|balance|funds|credits?)|billing_hard_limit|credit balance"
    r"|billing_error|usage limits?|spend(?:ing)? limit|out of credits|more credits|PerDay",
    re.IGNORECASE,
)
_IMAGES = re.compile(r"\bimages?\b|image_url|vision|multimodal", re.IGNORECASE)


# -- failures --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Error:
    """An error object, in one form. words: all of it as text, to look for what it names."""

    message: str
    code: str = ""
    kind: str = ""
    parameter: str = ""
    words: str = ""


#: Statuses by the type of an error that came without an HTTP status (in a batch, or with 200).
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


def _failure(http_status: int, error: _Error, wire: Wire) -> Heard:
    """What an error means: for the question, for the run, or for the manner of asking."""
    if http_status == 200:
        http_status = _HTTP_OF.get(error.kind) or _HTTP_OF.get(error.code) or 500
        if error.code.isdecimal() and 400 <= int(error.code[:4]) < 600:
            http_status = int(error.code)
    words = f"{error.code} {error.kind} {error.message} {error.words}"

    def heard(status: Status, hint: str = "", unsupported: str | None = None) -> Heard:
        return Heard(status, message=error.message, hint=hint, unsupported=unsupported)

    money = _NO_MONEY.search(words)
    if http_status == 402 or (http_status in (400, 403, 429) and money):
        return heard(
            Status.QUOTA, "the account is exhausted or at its limit; top it up, then resume"
        )
    if http_status == 429:
        return heard(Status.RATE_LIMITED)
    if http_status == 408:
        return heard(Status.TIMEOUT)
    if http_status == 409 or http_status >= 500:
        # llama.cpp and others answer what they cannot do with a 500 or a 501.
        refused = _unsupported(error) if http_status in (500, 501) else None
        return heard(Status.REJECTED if refused else Status.SERVER, unsupported=refused)
    if http_status == 413 or (http_status in (400, 422) and _TOO_LONG.search(words)):
        return heard(Status.TOO_LONG, "cut long documents: --max-document, --long")
    if http_status in (400, 403, 422):
        if _FILTERED.search(words):
            return heard(Status.FILTERED)
        refused = _unsupported(error)
        if refused:
            return heard(Status.REJECTED, unsupported=refused)
        if _IMAGES.search(error.message):
            return heard(Status.REJECTED, "this model or endpoint does not take such images")
        if re.search(r"api[_ ]key", error.message, re.IGNORECASE):
            http_status = 401
    return heard(Status.REJECTED, _hint(http_status, wire))


def _hint(http_status: int, wire: Wire) -> str:
    if 300 <= http_status < 400:
        return "the endpoint redirects; name its final address as base URL"
    tail = ", which mostly ends in /v1" if wire.name == "openai" else ""
    return _HINTS.get(http_status, "").format(variable=wire.key_variable, tail=tail)


def _unsupported(error: _Error) -> str | None:
    """Which part of the manner an error refuses; None when it is about something else."""
    if not _REFUSING.search(f"{error.code} {error.message}"):
        return None
    for name, pattern in _REFUSED:
        if error.parameter and pattern.search(error.parameter) and name != "enum":
            return name
    # "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead": the first counts.
    places = [
        (found.start() if name != "enum" else -1, name)
        for name, pattern in _REFUSED
        if (found := pattern.search(f"{error.message}"))
    ]
    return min(places)[1] if places else None


def _error(value: Any) -> _Error | None:
    """The error in a reply, of whatever make; None when there is none."""
    if not isinstance(value, dict):
        return None
    inner = value.get("error")
    if inner is None and value.get("object") == "error":
        inner = value  # vLLM's older form
    if inner is None and "detail" in value and "choices" not in value:
        inner = value["detail"]
    if not inner:
        return None
    words = _shown(json.dumps(inner, ensure_ascii=False), 4000)
    if not isinstance(inner, dict):
        return _Error(_shown(inner if isinstance(inner, str) else words), words=words)
    message = inner.get("message")
    return _Error(
        _shown(message) if isinstance(message, str) and message.strip() else _shown(words),
        code=_word(inner.get("code")),
        kind=_word(inner.get("type") or inner.get("status")),
        parameter=_word(inner.get("param")),
        words=words,
    )


def _word(value: Any) -> str:
    return str(value)[:100] if isinstance(value, str | int) and not isinstance(value, bool) else ""


_KEYS = re.compile(r"\b(?:sk|pk|rk|key|gsk|xai)[-_][\w*.-]{6,}|\bAIza[\w-]{10,}|(?i:bearer)\s+\S+")


def _shown(text: bytes | str, length: int = _MESSAGE_LENGTH) -> str:
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


def _retry_after(headers: Mapping[str, str], error: _Error | None) -> float | None:
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


# -- parts of bodies -------------------------------------------------------------------------------


def _base(base_url: str, path: str) -> str:
    """The address before the path; what people add to it by habit is taken off."""
    address = base_url.strip().rstrip("/")
    for ending in (path, path.removesuffix("/messages")):
        address = address.removesuffix(ending) if ending.startswith("/") else address
    try:
        parts = urlsplit(address)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        usable = False
    if not usable or parts.query or parts.fragment:
        raise InputError(
            f"{base_url!r} is no address of an endpoint",
            hint="it looks like https://api.openai.com/v1 or http://localhost:11434/v1",
        )
    if parts.username or parts.password:
        raise InputError(
            "the base URL holds a user name or password", hint="keys belong into the environment"
        )
    return address


def _habits(url: str) -> _Habits:
    host = urlsplit(url).hostname or ""
    for ending, habits in _HABITS.items():
        if host.endswith(ending):
            return habits
    return _Habits()


def _openai_part(part: Any) -> dict[str, Any]:
    if not isinstance(part, ImagePart):
        return {"type": "text", "text": part.text}
    url = part.url or f"data:{part.media_type};base64,{part.data}"
    return {"type": "image_url", "image_url": {"url": url}}


def _anthropic_part(part: Any) -> dict[str, Any]:
    if not isinstance(part, ImagePart):
        return {"type": "text", "text": part.text}
    if part.url:
        return {"type": "image", "source": {"type": "url", "url": part.url}}
    source = {"type": "base64", "media_type": part.media_type, "data": part.data}
    return {"type": "image", "source": source}


def _json(body: bytes | str) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _count(value: Any) -> int | None:
    """A number of tokens that a database can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value < 2**53 else None


def _text(content: Any) -> str:
    """The text of a message: a string, or the text blocks of a list; thoughts are left out."""
    if isinstance(content, str):
        return clean(content)
    if not isinstance(content, list):
        return ""
    texts = [
        block["text"]
        for block in content
        if isinstance(block, dict)
        and block.get("type") == "text"
        and isinstance(block.get("text"), str)
    ]
    return clean("".join(texts))


def _tool_arguments(calls: Any) -> str:
    """What a model called the tool with, as text."""
    for call in calls if isinstance(calls, list) else []:
        arguments = _dict(_dict(call).get("function")).get("arguments")
        if isinstance(arguments, str) and arguments.strip():
            return clean(arguments)
        if isinstance(arguments, dict):
            return clean(json.dumps(arguments, ensure_ascii=False))
    return ""


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


def _guesses(logprobs: Any) -> tuple[Guess, ...]:
    """The tokens of a reply with their log-probabilities; none where the endpoint gave none."""
    content = _dict(logprobs).get("content")
    found = []
    for token in content if isinstance(content, list) else []:
        raw = _raw(token)
        if raw is None:
            return ()
        options = {_dict(o).get("token"): _probability(o) for o in _top(token)}
        options.setdefault(_dict(token).get("token"), _probability(token))
        found.append(
            Guess(raw, tuple((t, p) for t, p in options.items() if isinstance(t, str) and p))
        )
    return tuple(found)


def _top(token: Any) -> list[Any]:
    top = _dict(token).get("top_logprobs")
    return (
        [o for o in top if isinstance(_dict(o).get("token"), str)] if isinstance(top, list) else []
    )


def _probability(option: Any) -> float:
    value = _dict(option).get("logprob")
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        return 0.0
    return math.exp(min(value, 0.0))


def _raw(token: Any) -> bytes | None:
    """The bytes of a token; a token alone may be half a character."""
    given = _dict(token).get("bytes")
    if isinstance(given, list):
        try:
            return bytes(given)
        except (ValueError, TypeError):
            return None
    text = _dict(token).get("token")
    return text.encode("utf-8", "replace") if isinstance(text, str) else None
