"""Models of sentence-transformers, on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from semrecall.embeddings.base import Embedder, checked, whole
from semrecall.errors import EmbeddingFault, InputError
from semrecall.registry import import_extra

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["SentenceTransformersEmbedder"]


class SentenceTransformersEmbedder(Embedder):
    """A SentenceTransformer.

    model: the name or folder of a model, or an object with its `encode(texts, ...)`.
    prompt: the name of a prompt of the model, e.g. "query". prefix: put before every text.
    device: "cpu", "cuda", ...; chosen by the library when None. batch: texts at a time.

    Raises MissingExtra without sentence-transformers.
    """

    def __init__(
        self,
        model: Any,
        prompt: str | None = None,
        prefix: str = "",
        device: str | None = None,
        batch: str | int = 64,
    ) -> None:
        self._called = model if isinstance(model, str) else type(model).__name__
        self._model = None if isinstance(model, str) else model
        self._prompt, self._prefix, self._device = prompt, prefix, device
        self.batch = whole(batch, "batch")

    @property
    def name(self) -> str:
        """The model."""
        return self._called

    @property
    def identity(self) -> Mapping[str, Any]:
        """Model, prompt and prefix."""
        return {
            "embedder": "sentence-transformers",
            "model": self._called,
            "prompt": self._prompt,
            "prefix": self._prefix,
        }

    def vectors(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """What the model says of these texts."""
        given: dict[str, Any] = {} if self._prompt is None else {"prompt_name": self._prompt}
        asked = [self._prefix + text for text in texts]
        model = self._opened()
        try:
            found = model.encode(
                asked,
                batch_size=self.batch,
                show_progress_bar=False,
                convert_to_numpy=True,
                **given,
            )
        except (RuntimeError, ValueError) as error:
            raise EmbeddingFault(f"{self._called} failed: {error}") from error
        return checked(found, texts, self._called)

    def _opened(self) -> Any:
        if self._model is None:
            library = import_extra(
                "sentence_transformers", "embeddings", "embedding with sentence-transformers"
            )
            try:
                self._model = library.SentenceTransformer(self._called, device=self._device)
            except (OSError, ValueError) as error:
                raise InputError(
                    f"the model {self._called!r} cannot be loaded: {' '.join(str(error).split())}",
                    hint="name a model that is on this machine, by its name or its folder",
                ) from error
        return self._model
