"""Redis: vector sets (VADD, VSIM), which Redis 8 has."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from semrecall.data import Vectors
from semrecall.errors import InputError, SystemFault
from semrecall.space import COSINE
from semrecall.systems.base import Knob
from semrecall.systems.collection import (
    Asked,
    Collection,
    CollectionSystem,
    Found,
    Recipe,
    built_with,
    one_of,
)
from semrecall.systems.connection import Session

if TYPE_CHECKING:
    from numpy.typing import NDArray


__all__ = ["RedisSystem"]

_ROWS = 1000
#: The quantisations of VADD.
_QUANTS = ("noquant", "q8", "bin")
_KNOBS = (
    Knob("m", "build", 4, 512, 16, "links of each vector", "log"),
    Knob("ef_construction", "build", 1, 1_000_000, 200, "candidates when building", "log"),
    Knob("ef", "search", 1, 1_000_000, None, "candidates when searching (at least k)", "log",
         from_k=True),
    # Not on a logarithmic scale, so not tuned unasked: it acts only where there are filters.
    Knob("filter_ef", "search", 1, 1_000_000, None, "candidates tried against a filter"),
)  # fmt: skip
#: Search knobs -> words of VSIM.
_WORDS = {"ef": "EF", "filter_ef": "FILTER-EF"}


class RedisSystem(CollectionSystem):
    """A vector set. Redis compares by cosine alone, and keeps vectors scaled to length one.

    quant: noquant, q8 (Redis' own choice) or bin, when it is built. db: the number of the database.
    Filters are Redis' expressions on attributes: '.year > 1950'. User and password come from
    REDIS_USERNAME and REDIS_PASSWORD.
    """

    engine = title = module = "redis"
    port, key = 6379, "REDIS_PASSWORD"
    example, noun = "redis://127.0.0.1:6379/key", "key"
    # 1 is the same direction, 0 the opposite one.
    metrics: ClassVar = {"cosine": "half-cosine"}
    options: ClassVar[Mapping[str, str]] = {
        "url": "where the server is, as in redis://host:6379/key; rediss:// is encrypted",
        "key": "the key of the vector set",
        "db": "the number of the database; 0 when left out",
        "quant": "noquant, q8 or bin, when it is built; noquant when left out",
        "replace": "true: build may drop what is at this key",
        "timeout": "seconds a command may take; 60 when left out",
    }

    def __init__(
        self,
        url: str | None = None,
        db: str | int = 0,
        quant: str = "noquant",
        **options: Any,
    ) -> None:
        super().__init__(url, **options)
        self.quant = one_of(quant, _QUANTS, "quant")
        try:
            self.db = int(db)
        except ValueError:
            raise InputError(f"db is {db!r}; expected a whole number") from None
        self._encrypted = str(url).startswith("rediss:")

    def _open(self) -> Session:
        assert self.address is not None
        retry, backoff = self._import("redis.retry"), self._import("redis.backoff")
        lost = (self._library.exceptions.ConnectionError,)
        client = self._library.Redis(
            retry=retry.Retry(backoff.ConstantBackoff(0.1), 2, supported_errors=lost),
            host=self.address.host, port=self.address.port, db=self.db,
            username=os.environ.get("REDIS_USERNAME"), password=os.environ.get(self.key),
            ssl=self._encrypted, protocol=2,
            socket_timeout=self.timeout, socket_connect_timeout=self.timeout,
        )  # fmt: skip
        return Session(client, client.close)

    # -- what it is -----------------------------------------------------------------------

    @property
    def knobs(self) -> tuple[Knob, ...]:
        """EF and FILTER-EF of VSIM; M and EF of VADD."""
        return _KNOBS

    def _names(self) -> Sequence[str]:
        found = self._client.scan_iter(count=_ROWS, _type="vectorset")
        return sorted(name.decode("utf-8", "replace") for name in found)

    def _exists(self) -> bool:
        # A key of another type stands in the way, too.
        return bool(self._client.exists(self.named))

    def _look(self, name: str) -> Collection | None:
        kind = self._client.type(name).decode()
        if kind == "none":
            return None
        if kind != "vectorset":
            raise InputError(f"the key {name!r} in {self._place} is a {kind}, not a vector set")
        told = self._client.execute_command("VINFO", name)
        pairs = told.items() if isinstance(told, dict) else zip(told[::2], told[1::2], strict=True)
        info = {_text(word): _text(value) for word, value in pairs}
        quant = str(info.get("quant-type", "?"))
        return Collection(
            name, "", "", int(info["vector-dim"]), COSINE, int(info["size"]),
            index="HNSW", scores=quant == "f32",
            details={
                "quant": quant, "m": int(info.get("hnsw-m", 0)),
                "server": str(self._client.info("server")["redis_version"]),
            },
        )  # fmt: skip

    # -- made -----------------------------------------------------------------------------

    def _block_rows(self, dimension: int) -> int:
        return _ROWS

    def _create(self, recipe: Recipe) -> None:
        """The first vector makes the set."""
        self._words = self._added_with(recipe.knobs)

    def _insert(self, ids: list[Any], block: NDArray[np.float32]) -> None:
        rows = zip(ids, block.astype("<f4", copy=False), strict=True)
        self._each(
            ("VADD", self.collection, "FP32", row.tobytes(), str(name), *self._words)
            for name, row in rows
        )

    def _dropping(self) -> Callable[[], Any]:
        return partial(self._client.delete, self.collection)

    def snippet(self, settings: Mapping[str, Any]) -> str:
        """The command of a search."""
        given = "".join(f" {_WORDS[name]} {value}" for name, value in settings.items())
        return f"VSIM {self._shown} FP32 <vector> WITHSCORES COUNT <k>{given}"

    def build_snippet(self, knobs: Mapping[str, Any]) -> str:
        """The command that adds a vector."""
        words = " ".join(map(str, self._added_with(knobs)))
        return f"VADD {self._shown} FP32 <vector> <id> {words}"

    def _added_with(self, knobs: Mapping[str, Any]) -> list[Any]:
        """What every vector is added with."""
        made = built_with(_KNOBS, knobs)
        return [self.quant.upper(), "EF", made["ef_construction"], "M", made["m"]]

    # -- searched -------------------------------------------------------------------------

    def _scored(self, wanted: Mapping[str, Any]) -> bool:
        """Those of quantised vectors are told, too, though they are estimates."""
        return True

    def _nearest(self, asked: Asked) -> Sequence[Found]:
        """Exact search is a scan of all vectors (TRUTH), as they are kept."""
        key = self.collection
        more: list[Any] = ["TRUTH"] if asked.wanted is None else []
        for name, value in (asked.wanted or {}).items():
            more += [_WORDS[name], value]
        replies = self._each(
            (
                "VSIM",
                key,
                "FP32",
                row.tobytes(),
                "WITHSCORES",
                "COUNT",
                asked.k,
                *more,
                *_filter(given),
            )
            for row, given in zip(asked.matrix, asked.filters, strict=True)
        )
        if not all(replies) and not self._client.exists(key):
            # Redis finds nothing in what is not there.
            raise SystemFault(
                f"the key {key!r} is gone from {self._place}",
                hint="did the server restart without having saved it? build it again",
            )
        return [_row(reply) for reply in replies]

    # -- given out ------------------------------------------------------------------------

    def vectors(self) -> Vectors:
        """The vectors it holds, read in pages; InputError when they are quantised."""
        if not self._held().scores:
            raise InputError(f"{self._title} holds quantised vectors, not those it was given")
        return super().vectors()

    def codes(self) -> Vectors | None:
        """The vectors as the quantiser kept them; None where they are kept as float32."""
        return None if self._held().scores else super().vectors()

    def _pages(self, *, vectors: bool) -> Iterator[tuple[list[str], NDArray[np.float32]]]:
        # VRANDMEMBER with a count gives distinct elements: all of them.
        key, rows = self.collection, self._held().rows
        found = self._client.execute_command("VRANDMEMBER", key, rows)
        names = sorted(_text(name) for name in found)
        for start in range(0, len(names), _ROWS):
            part = names[start : start + _ROWS]
            told = self._each(("VEMB", key, name) for name in part) if vectors else [()] * len(part)
            if any(row is None for row in told):
                raise SystemFault(f"the key {key!r} changed while it was read")
            yield part, np.array(told, dtype=np.float64).astype(np.float32)

    # -- asked ----------------------------------------------------------------------------

    def _each(self, commands: Iterable[Sequence[Any]]) -> list[Any]:
        """The replies to commands that are sent at once; the first refusal is raised as said."""
        with self._client.pipeline(transaction=False) as line:
            for command in commands:
                line.execute_command(*command)
            replies = line.execute(raise_on_error=False)
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return list(replies)

    def _failures(self) -> tuple[type[BaseException], ...]:
        return (self._library.exceptions.RedisError,)

    def _happened(self, error: Any, said: str, doing: str) -> str:
        errors = self._library.exceptions
        if isinstance(error, errors.AuthenticationError):
            return f"refused the password: {said}"
        if isinstance(error, errors.TimeoutError):
            return f"did not answer within {self.timeout:g} s"
        lost = isinstance(error, errors.ConnectionError)
        return f"cannot be reached: {said}" if lost else f"refused: {said}"

    def _hint(self, error: Any, said: str) -> str | None:
        errors = self._library.exceptions
        if isinstance(error, errors.AuthenticationError) or "NOAUTH" in said:
            return "set REDIS_PASSWORD, and REDIS_USERNAME where users have names"
        if isinstance(error, errors.TimeoutError):
            return "timeout=SECONDS waits longer"
        if isinstance(error, errors.ConnectionError):
            return "is the server running, and is this its address?"
        older = "vector sets need Redis 8; this server is older, or has none"
        return older if "unknown command" in said else None


def _filter(given: Any) -> list[str]:
    if given in (None, ""):
        return []
    if isinstance(given, str):
        return ["FILTER", given]
    raise InputError(
        f"the filter {given!r} is no expression of Redis", hint='write e.g. ".year > 1950"'
    )


def _row(reply: Any) -> Found:
    """Elements and scores of a reply, best first."""
    if isinstance(reply, dict):
        return [_text(name) for name in reply], [float(score) for score in reply.values()]
    return [_text(name) for name in reply[::2]], [float(score) for score in reply[1::2]]


def _text(value: Any) -> Any:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
