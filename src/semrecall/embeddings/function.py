"""Any Python callable as an embedder."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from semrecall.embeddings.base import Embedder, checked, whole
from semrecall.errors import EmbeddingFault, InputError, SemrecallError
from semrecall.registry import import_object

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["FunctionEmbedder"]

#: Methods by which models are asked: of sentence-transformers and its like, LangChain, LlamaIndex.
_METHODS = ("encode", "embed_documents", "get_text_embedding_batch", "embed")


class FunctionEmbedder(Embedder):
    """A function of a list of texts that returns a matrix (n, d).

    function: "module:function" or the function itself; an object that has `encode`,
        `embed_documents`, `get_text_embedding_batch` or `embed` will do.
    version: change it when the function changes, or a cache gives the old vectors. The source of
        a plain function counts by itself.
    """

    def __init__(
        self,
        function: Callable[[list[str]], Any] | str,
        batch: str | int = 64,
        version: str = "",
    ) -> None:
        found: Any = function
        if isinstance(function, str):
            found = import_object(function, "my_app.models:embed")
        if not callable(found) or not (inspect.isroutine(found) or isinstance(found, type)):
            method = next((m for m in _METHODS if callable(getattr(found, m, None))), None)
            found = getattr(found, method) if method else found
        if not callable(found):
            raise InputError(f"{function!r} is no function and has no {', '.join(_METHODS)}")
        self._function = found
        called = getattr(found, "__qualname__", type(found).__name__)
        self._called = function if isinstance(function, str) else called
        self._version, self.batch = version, whole(batch, "batch")

    @property
    def name(self) -> str:
        """The name of the function."""
        return f"python:{self._called}"

    @property
    def identity(self) -> Mapping[str, Any]:
        """The name of the function, its source where there is one, and the version."""
        try:
            source = inspect.getsource(self._function)
        except (OSError, TypeError):
            source = ""
        return {
            "embedder": "python",
            "function": self._called,
            "source": hashlib.sha256(source.encode()).hexdigest(),
            "version": self._version,
        }

    def vectors(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """What the function returns."""
        try:
            found = self._function(list(texts))
        except SemrecallError:
            raise
        except Exception as error:
            raise EmbeddingFault(f"{self.name} failed: {type(error).__name__}: {error}") from error
        return checked(found, texts, self.name)
