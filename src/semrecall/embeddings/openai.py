"""Embeddings over the wire of OpenAI, which many endpoints speak: vLLM, Ollama, llama.cpp, ..."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from semrecall.embeddings.base import Embedder, checked, whole
from semrecall.errors import EmbeddingFault, InputError
from semrecall.registry import positive
from semrecall.web import Client, Reply

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["OpenAIEmbedder"]

_HOME = "https://api.openai.com/v1"
_BUSY = (429, 503, 529)
_TRIES = 6
_LONGEST_WAIT_SECONDS = 60.0


class OpenAIEmbedder(Embedder):
    """An endpoint that answers `POST base_url/embeddings`.

    model: its name there. base_url: OpenAI's own when None; a host alone gets /v1.
    key_env: the variable of the environment with the key; a key is needed at OpenAI's own only.
    dimensions: ask for shorter vectors, where the model can. prefix: put before every text, as
        some models want it ("query: ").
    batch: texts a request. at_once: requests at a time. timeout: seconds a request may take.

    Where the endpoint is busy (429, 503) it is asked again after the time it names, at most five
    times. Raises InputError where a key is needed and there is none.
    """

    def __init__(
        self,
        model: str,
        base_url: str | None = None,
        key_env: str = "OPENAI_API_KEY",
        dimensions: str | int | None = None,
        prefix: str = "",
        batch: str | int = 64,
        at_once: str | int = 4,
        timeout: str | float = 60.0,
    ) -> None:
        self.model, self._prefix = model, prefix
        self.batch, self.at_once = whole(batch, "batch"), whole(at_once, "at_once")
        self._dimensions = None if dimensions is None else whole(dimensions, "dimensions")
        url = (base_url or _HOME).rstrip("/")
        if urlsplit(url).path in ("", "/"):
            url += "/v1"
        headers = {}
        if os.environ.get(key_env):
            headers["Authorization"] = f"Bearer ${{{key_env}}}"
        elif url == _HOME:
            raise InputError(
                f"the environment variable {key_env} is not set, and {_HOME} wants a key",
                hint=f"export {key_env}=..., or name an endpoint of yours: base_url=...",
            )
        seconds = positive(timeout, "timeout")
        self._client = Client(url, headers=headers, timeout_seconds=seconds, fault=EmbeddingFault)

    @property
    def name(self) -> str:
        """The model, and where it is when it is not OpenAI's."""
        home = "" if self._client.url == _HOME else f" at {self._client.url}"
        return f"{self.model}{home}"

    @property
    def identity(self) -> Mapping[str, Any]:
        """Address, model, dimensions and prefix."""
        return {
            "embedder": "openai",
            "url": self._client.url,
            "model": self.model,
            "dimensions": self._dimensions,
            "prefix": self._prefix,
        }

    def vectors(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """The vectors of one request."""
        body: dict[str, Any] = {
            "model": self.model,
            "input": [self._prefix + text for text in texts],
            "encoding_format": "float",
        }
        if self._dimensions is not None:
            body["dimensions"] = self._dimensions
        found = self._asked(body)
        data = found.get("data") if isinstance(found, Mapping) else None
        if not isinstance(data, list) or not all(isinstance(row, Mapping) for row in data):
            raise EmbeddingFault(f"{self.name} replied without a list 'data': {str(found)[:200]}")
        places = [row.get("index", at) for at, row in enumerate(data)]
        if sorted(places) != list(range(len(texts))):
            raise EmbeddingFault(
                f"{self.name} was given {len(texts)} texts and replied with {len(data)} vectors"
            )
        ordered = sorted(zip(places, data, strict=True), key=lambda pair: pair[0])
        return checked([row.get("embedding") for _, row in ordered], texts, self.name)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _asked(self, body: Mapping[str, Any]) -> Any:
        for tries in range(1, _TRIES + 1):
            reply = self._client.ask("POST", "/embeddings", body)
            if reply.status not in _BUSY or tries == _TRIES or "quota" in str(reply.data):
                break
            time.sleep(_wait(reply, tries))
        if reply.status >= 300:
            raise self._client.refused("POST", "/embeddings", reply)
        return reply.data


def _wait(reply: Reply, tries: int) -> float:
    """Seconds to wait: as the endpoint says, else longer from try to try."""
    try:
        said = float(reply.headers.get("retry-after", ""))
    except ValueError:
        said = 0.5 * 2**tries
    return min(max(said, 0.05), _LONGEST_WAIT_SECONDS)
