"""Two wires: how a judge's question becomes an HTTP request, and what came back, in one form.

`openai` is the chat-completions wire of OpenAI, Azure, Gemini, Ollama, vLLM, llama.cpp, OpenRouter
and others; `anthropic` is the messages wire. They differ in what they support, and say so only when
asked: the first real call is the probe. A `Manner` holds how an endpoint wants to be asked; when a
reply names something unsupported, `Manner.without` steps down, and the same question is sent again.
Nothing here opens a connection, and nothing raises on what an endpoint sends.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from semrecall.errors import InputError
from semrecall.judges.contract import Status
from semrecall.judges.hearing import (
    LONGER,
    EndpointError,
    Heard,
    as_dict,
    error_of,
    failure,
    guesses,
    retry_after_seconds,
    shown,
)
from semrecall.judges.prompts import ImagePart, Messages, Prompt, TextPart
from semrecall.judges.replies import clean

__all__ = ["WIRES", "Heard", "Manner", "Sampling", "Wire"]

#: The name under which a model is given the schema.
_SCHEMA_NAME = "judgment"
_TOP_LOGPROBS = 8


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
    #: How a base URL mostly ends, for the hint when nothing is found.
    _tail: str = ""

    def url(self, base_url: str | None = None) -> str:
        """Where requests are posted. Raises InputError for an address that cannot be one."""
        return self.root(base_url) + self._path

    def root(self, base_url: str | None = None) -> str:
        """What the addresses of the endpoint start with. Raises as `url` does."""
        return _base(base_url or self.default_base_url, self._path)

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
        schema = prompt.schema(reason=reason, ids=ids, as_text=manner.enum_as_text)
        return {**self._body(messages, sampling, manner, schema), **sampling.extra}

    @abstractmethod
    def _body(
        self, messages: Messages, sampling: Sampling, manner: Manner, schema: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The body, without the fields that are the user's own."""

    def read(self, http_status: int, headers: Mapping[str, str], body: bytes | str) -> Heard:
        """What an endpoint's answer means. Never raises."""
        value = _json(body)
        if isinstance(value, list) and value:
            value = value[0]  # Gemini wraps its errors in a list
        error = error_of(value)
        if 200 <= http_status < 300 and error is None:
            return self._answer(value) if isinstance(value, dict) else _no_json(body, self.name)
        heard = failure(
            http_status, error or EndpointError(shown(body)), self.key_variable, self._tail
        )
        wait = retry_after_seconds(headers, error)
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
    _tail = ", which mostly ends in /v1"

    def headers(self, key: str | None, base_url: str | None = None) -> dict[str, str]:
        if not key:
            return {}
        own = _habits(self.url(base_url)).key_header
        return {"Authorization": f"Bearer {key}", **({own: key} if own else {})}

    def manner(self, base_url: str | None = None) -> Manner:
        habits = _habits(self.url(base_url))
        return Manner(self.forms[0], habits.limit, habits.enum_as_text)

    def _body(
        self, messages: Messages, sampling: Sampling, manner: Manner, schema: Mapping[str, Any]
    ) -> dict[str, Any]:
        turns = [{"role": "system", "content": messages.system}]
        if "system" in manner.dropped:
            turns, messages = [], messages.in_one()
        turns.append({"role": "user", "content": _content(messages, _openai_image)})
        body: dict[str, Any] = {"model": sampling.model, "messages": turns}
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
        return body

    def _answer(self, value: dict[str, Any]) -> Heard:
        usage = as_dict(value.get("usage"))
        tokens = (_count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens")))
        choices = value.get("choices")
        if not isinstance(choices, list):
            return _lacking("choices", "a chat-completions", value, tokens)
        choice = as_dict(choices[0] if choices else None)
        inner = error_of(choice)
        if inner is not None:
            return replace(
                failure(200, inner, self.key_variable), tokens_in=tokens[0], tokens_out=tokens[1]
            )
        message = as_dict(choice.get("message"))
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
            guesses=guesses(choice.get("logprobs")),
            message=shown(said),
            hint=LONGER if status is Status.TRUNCATED else "",
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
        return {"anthropic-version": "2023-06-01", **({"x-api-key": key} if key else {})}

    def manner(self, base_url: str | None = None) -> Manner:
        return Manner(self.forms[0], "max_tokens")

    def _body(
        self, messages: Messages, sampling: Sampling, manner: Manner, schema: Mapping[str, Any]
    ) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": sampling.model,
            "max_tokens": sampling.max_tokens,
            "system": messages.system,
            "messages": [{"role": "user", "content": _content(messages, _anthropic_image)}],
        }
        if sampling.temperature is not None and "temperature" not in manner.dropped:
            body["temperature"] = sampling.temperature
        if manner.form == "schema":
            body["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
        elif manner.form == "tool":
            tool = {"name": _SCHEMA_NAME, "description": "Gives the label.", "input_schema": schema}
            body["tools"] = [tool]
            body["tool_choice"] = {"type": "tool", "name": _SCHEMA_NAME}
        return body

    def _answer(self, value: dict[str, Any]) -> Heard:
        usage = as_dict(value.get("usage"))
        # What is read from or written to the cache is not part of input_tokens.
        parts = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        counts = [c for part in parts if (c := _count(usage.get(part))) is not None]
        tokens = (sum(counts) if counts else None, _count(usage.get("output_tokens")))
        blocks = value.get("content")
        if not isinstance(blocks, list):
            return _lacking("content", "a messages", value, tokens)
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
        return Heard(status, text, *tokens, hint=LONGER if status is Status.TRUNCATED else "")


#: The wires by name.
WIRES: dict[str, Wire] = {wire.name: wire for wire in (_OpenAI(), _Anthropic())}


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

# -- parts of bodies -------------------------------------------------------------------------------


def _no_json(body: bytes | str, wire: str) -> Heard:
    """A reply that is no JSON object: a web page is another address, all else a mishap."""
    start = body[:200].decode("utf-8", "replace") if isinstance(body, bytes) else body[:200]
    status = Status.REJECTED if start.lstrip().startswith("<") else Status.SERVER
    return Heard(status, message=shown(body), hint=f"is the base URL that of an {wire} endpoint?")


def _lacking(
    field_name: str, kind: str, value: Any, tokens: tuple[int | None, int | None]
) -> Heard:
    hint = f"the reply has no {field_name}; is this {kind} endpoint?"
    return Heard(Status.SERVER, "", *tokens, message=shown(json.dumps(value)), hint=hint)


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


def _content(messages: Messages, image: Callable[[ImagePart], Any]) -> Any:
    """The user's message: a string where there are no images, which every endpoint takes."""
    texts = [part.text for part in messages.parts if isinstance(part, TextPart)]
    if len(texts) == len(messages.parts):
        return "\n".join(texts)
    return [
        {"type": "text", "text": part.text} if isinstance(part, TextPart) else image(part)
        for part in messages.parts
    ]


def _openai_image(part: ImagePart) -> dict[str, Any]:
    url = part.url or f"data:{part.media_type};base64,{part.data}"
    return {"type": "image_url", "image_url": {"url": url}}


def _anthropic_image(part: ImagePart) -> dict[str, Any]:
    if part.url:
        return {"type": "image", "source": {"type": "url", "url": part.url}}
    source = {"type": "base64", "media_type": part.media_type, "data": part.data}
    return {"type": "image", "source": source}


def _json(body: bytes | str) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


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
        arguments = as_dict(as_dict(call).get("function")).get("arguments")
        if isinstance(arguments, str) and arguments.strip():
            return clean(arguments)
        if isinstance(arguments, dict):
            return clean(json.dumps(arguments, ensure_ascii=False))
    return ""
