"""What is sent to endpoints, and what their answers are taken for."""

from __future__ import annotations

import base64
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semrecall.errors import InputError
from semrecall.judges.contract import Document, Question, Scale, Status
from semrecall.judges.hearing import label_confidence
from semrecall.judges.prompts import load_prompt
from semrecall.judges.replies import parse_reply
from semrecall.judges.wires import WIRES, Heard, Manner, Sampling

OPENAI, ANTHROPIC = WIRES["openai"], WIRES["anthropic"]
PROMPT = load_prompt("relevance", "binary")
BINARY = Scale({0: "no", 1: "yes"})
FENCE = "0123456789abcdef"
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 16


def body_of(wire: Any, manner: Manner | None = None, image: str | None = None, **given: Any) -> Any:
    messages = PROMPT.messages([Question("q", "d", "tea", Document("green tea", image))], FENCE)
    sampling = Sampling("m", **given)
    return wire.request(messages, sampling, manner or wire.manner(), PROMPT)


def chat(content: Any = '{"label": 1}', finish: str = "stop", **more: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": content, **more.pop("message", {})}
    return {
        "choices": [{"index": 0, "message": message, "finish_reason": finish, **more}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 7},
    }


def claude(content: Any, stop: str = "end_turn", **usage: int) -> dict[str, Any]:
    usage = {"input_tokens": 90, "output_tokens": 5, **usage}
    return {"type": "message", "content": content, "stop_reason": stop, "usage": usage}


def read(wire: Any, value: Any, status: int = 200, headers: Any = None) -> Heard:
    return wire.read(status, headers or {}, json.dumps(value).encode())


# -- requests --------------------------------------------------------------------------------------


def test_openai_asks_with_a_schema_whose_labels_are_an_enum() -> None:
    body = body_of(OPENAI, seed=3)
    assert body["model"] == "m"
    assert body["max_completion_tokens"] == 512
    assert "max_tokens" not in body
    assert (body["temperature"], body["seed"]) == (0.0, 3)
    schema = body["response_format"]["json_schema"]
    assert schema["strict"] is True
    assert schema["schema"]["properties"] == {"label": {"type": "integer", "enum": [0, 1]}}
    system, user = body["messages"]
    assert system["role"] == "system"
    assert "related topic is not relevant" in system["content"]
    assert '{"query": "tea", "document": "green tea"}' in user["content"]
    assert "logprobs" not in body


def test_anthropic_asks_with_output_config() -> None:
    body = body_of(ANTHROPIC)
    assert body["max_tokens"] == 512
    assert body["output_config"]["format"]["type"] == "json_schema"
    assert body["output_config"]["format"]["schema"]["additionalProperties"] is False
    assert body["system"].startswith("You judge search results")
    assert [m["role"] for m in body["messages"]] == ["user"]


@pytest.mark.parametrize("wire", [OPENAI, ANTHROPIC], ids=lambda wire: wire.name)
def test_the_ladder_ends_in_plain(wire: Any) -> None:
    manner, forms, bodies = wire.manner(), [], []
    while manner is not None:
        forms.append(manner.form)
        bodies.append(body_of(wire, manner))
        manner = manner.without("form", wire)
    assert tuple(forms) == wire.forms
    for body, form in zip(bodies, forms, strict=True):
        assert ("tool_choice" in body) == (form == "tool")
        assert ("response_format" in body or "output_config" in body) == (
            form in ("schema", "json")
        )


def test_parameters_that_are_refused_are_renamed_or_left_out() -> None:
    manner = OPENAI.manner("http://localhost:11434/v1")
    assert manner.limit == "max_tokens"
    renamed = manner.without("max_tokens", OPENAI)
    assert renamed is not None
    assert "max_completion_tokens" in body_of(OPENAI, renamed)
    assert "max_tokens" not in body_of(OPENAI, renamed)
    unbounded = renamed.without("max_completion_tokens", OPENAI)
    assert unbounded is not None
    assert not {"max_tokens", "max_completion_tokens"} & body_of(OPENAI, unbounded).keys()
    quiet = manner.without("temperature", OPENAI)
    assert quiet is not None
    assert "temperature" not in body_of(OPENAI, quiet)
    assert quiet.without("temperature", OPENAI) is None
    plain = manner.without("logprobs", OPENAI)
    assert not {"logprobs", "top_logprobs"} & body_of(OPENAI, plain, logprobs=True).keys()
    assert {"logprobs", "top_logprobs"} <= body_of(OPENAI, manner, logprobs=True).keys()
    # Anthropic's bound is not optional.
    assert ANTHROPIC.manner().without("max_tokens", ANTHROPIC) is None


def test_a_model_without_a_system_role_gets_one_message() -> None:
    manner = OPENAI.manner().without("system", OPENAI)
    [only] = body_of(OPENAI, manner)["messages"]
    assert only["role"] == "user"
    assert only["content"].startswith("You judge search results")
    assert "green tea" in only["content"]


def test_labels_as_text_where_enums_hold_only_text() -> None:
    gemini = OPENAI.manner("https://generativelanguage.googleapis.com/v1beta/openai/")
    schema = body_of(OPENAI, gemini)["response_format"]["json_schema"]["schema"]
    assert schema["properties"]["label"] == {"type": "string", "enum": ["0", "1"]}
    assert OPENAI.manner().without("enum", OPENAI) == Manner(
        "schema", "max_completion_tokens", enum_as_text=True
    )


@pytest.mark.parametrize("wire", [OPENAI, ANTHROPIC], ids=lambda wire: wire.name)
def test_a_manner_survives_the_ledger(wire: Any) -> None:
    manner = wire.manner().without("form", wire).without("temperature", wire)
    assert Manner.from_json(manner.to_json()) == manner


def test_images_in_the_form_of_each_wire(tmp_path: Path) -> None:
    path = tmp_path / "picture.jpg"
    path.write_bytes(PNG)
    data = base64.b64encode(PNG).decode()
    [_, name, image, _] = body_of(OPENAI, image=str(path))["messages"][1]["content"]
    assert name == {"type": "text", "text": "image 1:"}
    # The name says JPEG, the bytes PNG.
    assert image == {
        "type": "image_url",
        "image_url": {"url": f"data:image/png;base64,{data}"},
    }
    [_, _, image, _] = body_of(ANTHROPIC, image=str(path))["messages"][0]["content"]
    assert image["source"] == {"type": "base64", "media_type": "image/png", "data": data}
    [_, _, image, _] = body_of(ANTHROPIC, image="https://x.org/a.png")["messages"][0]["content"]
    assert image["source"] == {"type": "url", "url": "https://x.org/a.png"}


def test_extra_fields_go_into_the_body() -> None:
    assert body_of(OPENAI, extra={"reasoning_effort": "low"})["reasoning_effort"] == "low"


# -- addresses and keys ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wire", "base", "url"),
    [
        ("openai", None, "https://api.openai.com/v1/chat/completions"),
        ("openai", "http://localhost:11434/v1/", "http://localhost:11434/v1/chat/completions"),
        ("openai", "http://[::1]:1/v1/chat/completions", "http://[::1]:1/v1/chat/completions"),
        ("anthropic", None, "https://api.anthropic.com/v1/messages"),
        ("anthropic", "https://api.anthropic.com/v1", "https://api.anthropic.com/v1/messages"),
        ("anthropic", "http://h/x/v1/messages", "http://h/x/v1/messages"),
    ],
)
def test_addresses(wire: str, base: str | None, url: str) -> None:
    assert WIRES[wire].url(base) == url


@pytest.mark.parametrize(
    "base", ["localhost:11434", "ftp://x", "http://", "http://h:x/", "http://h/?key=1", "http://[/"]
)
def test_what_is_no_address(base: str) -> None:
    with pytest.raises(InputError, match="no address"):
        OPENAI.url(base)


def test_a_key_does_not_belong_into_an_address() -> None:
    with pytest.raises(InputError, match="keys belong into the environment") as caught:
        OPENAI.url("http://user:secret@h/v1")
    assert "secret" not in str(caught.value)


def test_keys_come_from_the_environment_and_are_optional_elsewhere() -> None:
    assert OPENAI.key(environment={"OPENAI_API_KEY": " k \n"}) == "k"
    assert OPENAI.key("http://localhost:11434/v1", environment={}) is None
    with pytest.raises(InputError, match="OPENAI_API_KEY is not set"):
        OPENAI.key(environment={})
    with pytest.raises(InputError, match="GEMINI is not set"):
        OPENAI.key("http://h/v1", "GEMINI", environment={"OPENAI_API_KEY": "k"})
    with pytest.raises(InputError, match="blanks") as caught:
        OPENAI.key(environment={"OPENAI_API_KEY": "secret\nsecret"})
    assert "secret" not in str(caught.value)


def test_headers() -> None:
    assert OPENAI.headers("k")["Authorization"] == "Bearer k"
    assert "Authorization" not in OPENAI.headers(None)
    assert OPENAI.headers("k", "https://me.openai.azure.com/openai/v1")["api-key"] == "k"
    assert ANTHROPIC.headers("k")["x-api-key"] == "k"
    assert ANTHROPIC.headers(None)["anthropic-version"] == "2023-06-01"


# -- replies ---------------------------------------------------------------------------------------


def test_a_plain_reply() -> None:
    assert read(OPENAI, chat()) == Heard(Status.SETTLED, '{"label": 1}', 100, 7)
    text = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": '{"label": 1}'}]
    # Tokens from the cache are tokens in: 90 + 10 + 20.
    heard = read(
        ANTHROPIC,
        claude(text, cache_creation_input_tokens=10, cache_read_input_tokens=20),
    )
    assert heard == Heard(Status.SETTLED, '{"label": 1}', 120, 5)


def test_the_arguments_of_a_tool_are_the_reply() -> None:
    call = {"type": "function", "function": {"name": "judgment", "arguments": '{"label": 0}'}}
    heard = read(OPENAI, chat(None, "tool_calls", message={"tool_calls": [call]}))
    assert (heard.status, heard.text) == (Status.SETTLED, '{"label": 0}')
    call["function"] = {"name": "judgment", "arguments": {"label": 0}}
    heard = read(OPENAI, chat("", "tool_calls", message={"tool_calls": [call]}))
    assert parse_reply(heard.text, BINARY).found[0].grade == 0
    used = [{"type": "tool_use", "name": "judgment", "input": {"label": 0}}]
    heard = read(ANTHROPIC, claude(used, "tool_use"))
    assert parse_reply(heard.text, BINARY).found[0].grade == 0


@pytest.mark.parametrize(
    ("case", "wire", "value", "status"),
    [
        ("J05 cut", OPENAI, chat('{"reason": "the', "length"), Status.TRUNCATED),
        ("J05 cut", ANTHROPIC, claude([{"type": "text", "text": "{"}], "max_tokens"),
         Status.TRUNCATED),
        ("J06 empty", OPENAI, chat(""), Status.EMPTY),
        ("J06 null", OPENAI, chat(None), Status.EMPTY),
        ("J06 no choice", OPENAI, {"choices": []}, Status.EMPTY),
        ("J06 empty", ANTHROPIC, claude([]), Status.EMPTY),
        ("J07 filtered", OPENAI, chat("", "content_filter"), Status.FILTERED),
        ("J07 Gemini", OPENAI, chat(None, "content_filter: PROHIBITED_CONTENT"), Status.FILTERED),
        ("refused", OPENAI, chat(None, message={"refusal": "I cannot help."}), Status.REFUSED),
        ("refused", ANTHROPIC, claude([], "refusal"), Status.REFUSED),
        ("context full", ANTHROPIC, claude([], "model_context_window_exceeded"), Status.TOO_LONG),
        ("no choices", OPENAI, {"hello": 1}, Status.SERVER),
        ("no content", ANTHROPIC, {"hello": 1}, Status.SERVER),
        ("upstream", OPENAI, chat("", "error"), Status.SERVER),
        ("upstream", OPENAI, chat("", error={"code": 502, "message": "bad"}), Status.SERVER),
        ("200 with error", OPENAI, {"error": {"code": 429, "message": "slow"}},
         Status.RATE_LIMITED),
        ("batch item", ANTHROPIC, {"type": "error", "error": {"type": "overloaded_error"}},
         Status.SERVER),
    ],
)  # fmt: skip
def test_replies_that_are_no_label(case: str, wire: Any, value: Any, status: Status) -> None:
    assert read(wire, value).status is status


def openai_error(message: str, code: str | None = None, param: str | None = None) -> Any:
    kind = "invalid_request_error"
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def claude_error(message: str, kind: str = "invalid_request_error") -> Any:
    return {"type": "error", "error": {"type": kind, "message": message}}


def gemini_error(message: str, details: Any = None, code: int = 400) -> Any:
    return [{"error": {"code": code, "message": message, "details": details}}]


FAILURES = [
    # J08: Azure's content filter
    (400, {"error": {"code": "content_filter", "message": "The response was filtered", "innererror":
        {"code": "ResponsibleAIPolicyViolation"}}}, Status.FILTERED),
    (400, openai_error("This model's maximum context length is 8192 tokens. However, your messages "
        "resulted in 90000 tokens.", "context_length_exceeded", "messages"), Status.TOO_LONG),
    (400, openai_error("'max_tokens' or 'max_completion_tokens' is too large: 512. This model's "
        "maximum context length is 4096 tokens"), Status.TOO_LONG),
    (400, claude_error("prompt is too long: 210000 tokens > 200000 maximum"), Status.TOO_LONG),
    (413, "<html>Request Entity Too Large</html>", Status.TOO_LONG),
    (400, gemini_error("The input token count (1200000) exceeds the maximum number of tokens"),
        Status.TOO_LONG),
    (400, openai_error("Could not finish the message because max_tokens or model output limit was "
        "reached."), Status.TRUNCATED),
    # J18: the account is empty
    (429, openai_error("You exceeded your current quota, please check your plan and billing "
        "details.", "insufficient_quota"), Status.QUOTA),
    (402, {"error": {"message": "Insufficient Balance"}}, Status.QUOTA),
    (400, claude_error("Your credit balance is too low to access the Anthropic API."),
        Status.QUOTA),
    (400, claude_error("You have reached your specified API usage limits."), Status.QUOTA),
    (402, claude_error("pay", "billing_error"), Status.QUOTA),
    (429, gemini_error("You exceeded your current quota", [{"violations":
        [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]}], 429), Status.QUOTA),
    (429, gemini_error("You exceeded your current quota", [{"violations":
        [{"quotaId": "GenerateRequestsPerMinutePerProject"}]}], 429), Status.RATE_LIMITED),
    (429, openai_error("Rate limit reached for requests", "rate_limit_exceeded"),
        Status.RATE_LIMITED),
    (429, claude_error("slow down", "rate_limit_error"), Status.RATE_LIMITED),
    (529, claude_error("Overloaded", "overloaded_error"), Status.SERVER),
    (500, "oops", Status.SERVER),
    (503, openai_error("server busy, please try again. maximum pending requests exceeded"),
        Status.SERVER),
    (408, "", Status.TIMEOUT),
    (409, "", Status.SERVER),
    (401, openai_error("Incorrect API key provided", "invalid_api_key"), Status.REJECTED),
    (403, openai_error("Country not supported", "unsupported_country"), Status.REJECTED),
    (404, openai_error("The model `m` does not exist", "model_not_found"), Status.REJECTED),
    (301, "", Status.REJECTED),
    (400, gemini_error("API key not valid. Please pass a valid API key."), Status.REJECTED),
    (200, "<!doctype html><title>Chat</title>", Status.REJECTED),
    (200, '{"choices": [{"mess', Status.SERVER),
]  # fmt: skip


@pytest.mark.parametrize(
    ("http_status", "body", "status"), FAILURES, ids=[f"{s} {t}" for s, _, t in FAILURES]
)
@pytest.mark.parametrize("wire", [OPENAI, ANTHROPIC], ids=lambda wire: wire.name)
def test_failures(wire: Any, http_status: int, body: Any, status: Status) -> None:
    text = body if isinstance(body, str) else json.dumps(body)
    heard = wire.read(http_status, {}, text)
    assert heard.status is status
    assert heard.unsupported is None
    assert heard.text == ""


# Words of the endpoints themselves, from their users' reports.
REFUSALS = [
    (400, openai_error("Unsupported parameter: 'max_tokens' is not supported with this model. Use "
        "'max_completion_tokens' instead.", "unsupported_parameter", "max_tokens"), "max_tokens"),
    (400, {"error": {"message": "Unsupported parameter: 'max_tokens' is not supported with this "
        "model. Use 'max_completion_tokens' instead."}}, "max_tokens"),
    (400, openai_error("Unrecognized request argument supplied: max_completion_tokens"),
        "max_completion_tokens"),
    (400, openai_error("Unsupported value: 'temperature' does not support 0 with this model. Only "
        "the default (1) value is supported.", "unsupported_value", "temperature"), "temperature"),
    (400, claude_error("`temperature` is deprecated for this model."), "temperature"),
    (403, openai_error("You are not allowed to request logprobs from this model"), "logprobs"),
    (400, gemini_error("Logprobs is not enabled for models/gemini-2.5-pro"), "logprobs"),
    (400, openai_error("Invalid parameter: 'response_format' of type 'json_schema' is not supported"
        " with this model."), "form"),
    (400, openai_error("This response_format type is unavailable now"), "form"),
    (400, openai_error("This model does not support response format `json_schema`."), "form"),
    (400, claude_error("output_config: Extra inputs are not permitted"), "form"),
    (400, claude_error("Thinking may not be enabled when tool_choice forces tool use."), "form"),
    (400, {"error": {"message": "library/gemma:2b does not support tools", "type": "api_error"}},
        "form"),
    (400, {"object": "error", "message": '"auto" tool choice requires --enable-auto-tool-choice and'
        " --tool-call-parser to be set", "type": "BadRequestError", "code": 400}, "form"),
    (500, {"error": {"code": 500, "message": "failed to parse grammar", "type": "server_error"}},
        "form"),
    (422, {"detail": [{"type": "extra_forbidden", "loc": ["body", "response_format"],
        "msg": "Extra inputs are not permitted", "input": {"context length": "content filter"}}]},
        "form"),
    (400, gemini_error("Invalid value at 'generation_config.response_schema.properties[0].value"
        ".enum[0]' (TYPE_STRING), 0"), "enum"),
    (400, gemini_error('Invalid JSON payload received. Unknown name "seed": Cannot find field.'),
        "seed"),
    (400, {"object": "error", "message": "System role not supported", "code": 400}, "system"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("http_status", "body", "unsupported"), REFUSALS, ids=[f"{i} {t}" for i, (_, _, t) in
                                                           enumerate(REFUSALS)]
)  # fmt: skip
def test_refused_parameters_are_named(http_status: int, body: Any, unsupported: str) -> None:
    heard = read(OPENAI, body, http_status)
    assert (heard.status, heard.unsupported) == (Status.REJECTED, unsupported)


@pytest.mark.parametrize(
    "message",
    [
        "max_tokens is too large: 99999. This model supports at most 16384 completion tokens",
        "Invalid max_tokens value: integer above maximum value. Expected <= 4096",
        "temperature: must be less than or equal to 2",
        "invalid model ID",
    ],
)
def test_a_wrong_value_is_not_an_unsupported_parameter(message: str) -> None:
    heard = read(OPENAI, openai_error(message, param=message.split()[0].rstrip(":")), 400)
    assert (heard.status, heard.unsupported) == (Status.REJECTED, None)
    assert heard.message == message


def test_hints_say_what_to_do() -> None:
    assert "OPENAI_API_KEY" in read(OPENAI, openai_error("no"), 401).hint
    assert "ANTHROPIC_API_KEY" in read(ANTHROPIC, claude_error("no"), 401).hint
    assert "/v1" in read(OPENAI, {}, 404).hint
    assert "/v1" not in read(ANTHROPIC, {}, 404).hint
    assert "--max-tokens" in read(OPENAI, chat("{", "length")).hint


def test_messages_are_one_line_without_keys() -> None:
    heard = read(OPENAI, openai_error("Incorrect key:\n sk-proj-abcdef123456 \x1b[2J"), 401)
    assert heard.message == "Incorrect key: [key] [2J"
    heard = OPENAI.read(502, {}, "<html><body><h1>Bad  Gateway</h1></body></html>")
    assert heard.message == "Bad Gateway"
    assert len(read(OPENAI, openai_error("x" * 9000), 400).message) == 300


@pytest.mark.parametrize(
    ("headers", "body", "seconds"),
    [
        ({"Retry-After": "1"}, {}, 1.0),
        ({"retry-after": "600"}, {}, 600.0),
        ({"retry-after-ms": "1500", "retry-after": "2"}, {}, 1.5),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:30 GMT", "Date": "Wed, 21 Oct 2026 07:28:00 GMT"},
         {}, 30.0),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT", "Date": "Wed, 21 Oct 2026 07:28:30 GMT"},
         {}, 0.0),
        ({"retry-after": "soon"}, {}, None),
        ({"retry-after": "-5"}, {}, None),
        ({}, openai_error("Rate limit reached. Please try again in 7m12s."), 432.0),
        ({}, openai_error("Please try again in 20ms."), 0.02),
        ({}, gemini_error("slow", [{"retryDelay": "38s"}]), 38.0),
        ({}, "", None),
    ],
)  # fmt: skip
def test_how_long_to_wait(headers: dict[str, str], body: Any, seconds: float | None) -> None:
    assert read(OPENAI, body, 429, headers).retry_after_seconds == (
        None if seconds is None else pytest.approx(seconds)
    )


FIELDS = re.findall(
    r"\w+",
    "error message choices usage content code type finish_reason tool_calls function arguments "
    "logprobs token top_logprobs logprob bytes refusal text input detail loc prompt_tokens "
    "stop_reason status metadata param",
)
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=9) | st.integers(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(FIELDS),
            inner,
            max_size=6,
        )
    ),
    max_leaves=30,
)


@given(
    st.sampled_from([OPENAI, ANTHROPIC]),
    st.sampled_from([200, 400, 403, 422, 429, 500, 529, 301, 0, 999]),
    st.binary(max_size=60) | JSON.map(json.dumps) | st.text(max_size=40),
    st.dictionaries(st.sampled_from(["retry-after", "Retry-After-Ms", "date"]), st.text()),
)
def test_no_body_makes_it_raise(wire: Any, status: int, body: Any, headers: Any) -> None:
    heard = wire.read(status, headers, body)
    heard.text.encode()
    heard.message.encode()
    label_confidence(heard, 0, 1, BINARY)


# -- confidence ------------------------------------------------------------------------------------


def tokens(*said: tuple[str, dict[str, float]]) -> dict[str, Any]:
    """Log-probabilities of tokens, each with its alternatives."""
    return {
        "content": [
            {
                "token": token,
                "bytes": list(token.encode()),
                "logprob": math.log(options.get(token, 1.0)),
                "top_logprobs": [
                    {"token": t, "bytes": list(t.encode()), "logprob": math.log(p)}
                    for t, p in options.items()
                ],
            }
            for token, options in said
        ]
    }


def confidence(text: str, logprobs: Any, scale: Scale = BINARY) -> float | None:
    heard = read(OPENAI, chat(text, logprobs=logprobs))
    found = parse_reply(text, scale).found[0]
    assert found.grade is not None
    return label_confidence(heard, found.at, found.grade, scale)


def test_confidence_is_the_share_among_the_legal_labels() -> None:
    # 1 has 0.6 and " 1" has 0.1, 0 has 0.2; x is no label: (0.6 + 0.1) / 0.9
    options = {"1": 0.6, " 1": 0.1, "0": 0.2, "x": 0.1}
    said = tokens(('{"', {}), ("label", {}), ('":', {}), ("1", options), ("}", {}))
    assert confidence('{"label":1}', said) == pytest.approx(0.7 / 0.9)


def test_confidence_at_the_label_not_at_a_digit_of_the_reason() -> None:
    text = '{"reason": "1 of 2", "label": 1}'
    head, tail = '{"reason": "', ' of 2", "label": '
    said = tokens((head, {}), ("1", {"1": 0.1, "0": 0.9}), (tail, {}), ("1", {"1": 0.8, "0": 0.2}),
                  ("}", {}))  # fmt: skip
    assert confidence(text, said) == pytest.approx(0.8)


def test_confidence_in_other_scripts_and_half_characters() -> None:
    text = '{"reason": "ชา", "label": 0}'
    raw = text.encode()
    cut = raw.index("า".encode()) + 1  # within a character
    pieces = [raw[:cut], raw[cut:-2], b"0", b"}"]
    content = [
        {"token": p.decode("utf-8", "replace"), "bytes": list(p), "logprob": -0.1} for p in pieces
    ]
    content[2]["top_logprobs"] = [
        {"token": "0", "logprob": math.log(0.5)},
        {"token": "1", "logprob": math.log(0.25)},
    ]
    # 0.5 / (0.5 + 0.25)
    assert confidence(text, {"content": content}) == pytest.approx(2 / 3)


def test_confidence_after_thoughts_that_are_not_in_the_text() -> None:
    said = tokens(("thinking 0 ", {}), ('{"label":', {}), ("1", {"1": 0.75, "0": 0.25}), ("}", {}))
    assert confidence('{"label":1}', said) == pytest.approx(0.75)


@pytest.mark.parametrize(
    "logprobs",
    [
        None,
        {},
        {"content": None},
        tokens(('{"label":', {}), ("1}", {})) | {"content": [{"token": 5}]},
        tokens(("something else", {})),
        tokens(('{"label":', {}), ("0", {}), ("}", {})),
    ],
)
def test_no_confidence_where_the_endpoint_does_not_tell(logprobs: Any) -> None:
    assert confidence('{"label":1}', logprobs) is None
