"""Redis: vector sets (VADD, VSIM), which Redis 8 has."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from semrecall.data import Vectors
from semrecall.errors import InputError, MismatchError, SystemFault
from semrecall.registry import import_extra
from semrecall.space import COSINE, Space
from semrecall.space import space as space_of
from semrecall.systems.answers import Row, matrix_of
from semrecall.systems.base import Knob
from semrecall.systems.collection import Collection, CollectionSystem, one_of
from semrecall.systems.connection import plain_error
from semrecall.systems.stored import stored_blocks

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["RedisSystem"]

_ROWS = 1000
#: The quantisations of VADD -> what VINFO calls them.
_QUANTS = {"noquant": "f32", "q8": "int8", "bin": "bin"}
_KNOBS = (
    Knob("m", "build", 4, 512, 16, "links of each vector", "log"),
    Knob("ef_construction", "build", 1, 1_000_000, 200, "candidates when building", "log"),
    Knob(
        "ef",
        "search",
        1,
        1_000_000,
        None,
        "candidates when searching (at least k)",
        "log",
        from_k=True,
    ),
    # Not on a logarithmic scale, so not tuned unasked: it acts only where there are filters.
    Knob("filter_ef", "search", 1, 1_000_000, None, "candidates tried against a filter"),
)


class RedisSystem(CollectionSystem):
    """A vector set. Redis compares by cosine alone, and keeps vectors scaled to length one.

    quant: noquant, q8 (Redis' own choice) or bin, when it is built. db: the number of the database.
    Filters are Redis' expressions on attributes: '.year > 1950'. User and password come from
    REDIS_USERNAME and REDIS_PASSWORD.
    """

    engine, port, key = "redis", 6379, "REDIS_PASSWORD"
    example = "redis://127.0.0.1:6379/key"
    noun = "key"
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
        key: str | None = None,
        db: str | int = 0,
        quant: str = "noquant",
        replace: str | bool = False,
        timeout: str | float = 60.0,
    ) -> None:
        super().__init__(url, None, key, replace, timeout)
        assert self.address is not None
        self.quant = one_of(quant, list(_QUANTS), "quant")
        self._library = import_extra("redis", "redis", "searching in Redis")
        self._secret = os.environ.get("REDIS_PASSWORD")
        try:
            number = int(db)
        except ValueError:
            raise InputError(f"db is {db!r}; expected a whole number") from None
        retry = import_extra("redis.retry", "redis", "searching in Redis")
        backoff = import_extra("redis.backoff", "redis", "searching in Redis")
        lost = (self._library.exceptions.ConnectionError,)
        self._client = self._library.Redis(
            retry=retry.Retry(backoff.ConstantBackoff(0.1), 2, supported_errors=lost),
            host=self.address.host, port=self.address.port, db=number,
            username=os.environ.get("REDIS_USERNAME"), password=self._secret,
            ssl=str(url).startswith("rediss:"), protocol=2,
            socket_timeout=self.timeout, socket_connect_timeout=self.timeout,
        )  # fmt: skip

    # -- what it is -----------------------------------------------------------------------

    @property
    def knobs(self) -> tuple[Knob, ...]:
        """EF and FILTER-EF of VSIM; M and EF of VADD."""
        return _KNOBS

    @property
    def _place(self) -> str:
        return f"redis at {self.address}"

    def _names(self) -> Sequence[str]:
        found = self._do(lambda c: list(c.scan_iter(count=_ROWS, _type="vectorset")))
        return sorted(name.decode("utf-8", "replace") for name in found)

    def _refuse_existing(self) -> None:
        # A key of another type stands in the way, too.
        key = self.collection
        if key is not None and not self.replace and self._do(lambda c: c.exists(key)):
            raise InputError(
                f"the key {key!r} exists in {self._place}; it is left as it is",
                hint="search it without giving a base; or build another key, or say replace=true",
            )

    def _look(self) -> Collection | None:
        key = self.collection
        assert key is not None
        kind = self._do(lambda c: c.type(key)).decode()
        if kind == "none":
            return None
        if kind != "vectorset":
            raise InputError(f"the key {key!r} in {self._place} is a {kind}, not a vector set")
        told = self._do(lambda c: c.execute_command("VINFO", key))
        pairs = told.items() if isinstance(told, dict) else zip(told[::2], told[1::2], strict=True)
        info = {_text(name): _text(value) for name, value in pairs}
        quant = str(info.get("quant-type", "?"))
        return Collection(
            key, "", "", int(info["vector-dim"]), COSINE, int(info["size"]),
            integer_ids=False, index="HNSW", scores=quant == "f32",
            details={"quant": quant, "m": int(info.get("hnsw-m", 0)), **self._version()},
        )  # fmt: skip

    def _version(self) -> dict[str, str]:
        return {"server": str(self._do(lambda c: c.info("server"))["redis_version"])}

    # -- made -----------------------------------------------------------------------------

    def _space_to_build(self, space: str | Space) -> Space:
        if space_of(space) != COSINE:
            raise MismatchError(
                f"Redis compares vectors by cosine alone; found space {space}",
                hint="scale the vectors to length one: their inner product is their cosine",
            )
        return COSINE

    def _fill(self, base: Vectors, space: Space, knobs: Mapping[str, Any]) -> None:
        more = self._added_with(knobs)
        for ids, block in stored_blocks(base, space, _ROWS):
            with self._client.pipeline(transaction=False) as line:
                for name, row in zip(ids, block.astype("<f4", copy=False), strict=True):
                    values = ("FP32", row.tobytes(), str(name))
                    line.execute_command("VADD", self.collection, *values, *more)
                self._begun = True
                self._do(lambda _, line=line: _answers(line))

    def _dropping(self) -> Callable[[], Any]:
        return partial(self._client.delete, self.collection)

    def snippet(self, settings: Mapping[str, Any]) -> str:
        """The command of a search."""
        words = {"ef": "EF", "filter_ef": "FILTER-EF"}
        given = "".join(f" {words[name]} {value}" for name, value in settings.items())
        return f"VSIM {self._shown} FP32 <vector> WITHSCORES COUNT <k>{given}"

    def build_snippet(self, knobs: Mapping[str, Any]) -> str:
        """The command that adds a vector."""
        words = " ".join(map(str, self._added_with(knobs)))
        return f"VADD {self._shown} FP32 <vector> <id> {words}"

    def _added_with(self, knobs: Mapping[str, Any]) -> list[Any]:
        """What every vector is added with."""
        more = [self.quant.upper(), "EF", int(knobs.get("ef_construction", 200))]
        return [*more, "M", int(knobs.get("m", 16))]

    # -- searched -------------------------------------------------------------------------

    def search(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        filters: Sequence[Any] | None = None,
        **settings: Any,
    ) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Ids (n, at most k) and cosines; those of quantised vectors are estimates."""
        turned = self.turned("search", settings)
        more: list[Any] = []
        for name, word in (("ef", "EF"), ("filter_ef", "FILTER-EF")):
            if name in turned:
                more += [word, int(turned[name])]
        return self._similar(queries, k, filters, more)

    def exact(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        filters: Sequence[Any] | None = None,
        **given: Any,
    ) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """The neighbours by a scan of all vectors (TRUTH), as they are kept."""
        return self._similar(queries, k, filters, ["TRUTH"])

    def _similar(
        self, queries: NDArray[np.float32], k: int, filters: Sequence[Any] | None, more: list[Any]
    ) -> tuple[NDArray[Any], NDArray[Any] | None]:
        matrix, key = self._asked(queries, k), self.collection
        with self._client.pipeline(transaction=False) as line:
            for at, row in enumerate(matrix):
                wanted = list(more)
                if filters is not None and filters[at] not in (None, ""):
                    wanted += ["FILTER", _expression(filters[at])]
                line.execute_command(
                    "VSIM", key, "FP32", row.tobytes(), "WITHSCORES", "COUNT", k, *wanted
                )
            replies = self._do(lambda _: _answers(line))
        if not all(replies) and not self._do(lambda c: c.exists(key)):
            # Redis finds nothing in what is not there.
            raise SystemFault(
                f"the key {key!r} is gone from {self._place}",
                hint="did the server restart without having saved it? build it again",
            )
        ids, scores = matrix_of([_row(reply) for reply in replies], k)
        # 1 is the same direction, 0 the opposite one.
        return ids, None if scores is None else 2 * scores - 1

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
        found = self._do(lambda c: c.execute_command("VRANDMEMBER", key, rows))
        names = sorted(_text(name) for name in found)
        for start in range(0, len(names), _ROWS):
            part = names[start : start + _ROWS]
            block = np.empty((len(part), 0), dtype=np.float32)
            if vectors:
                with self._client.pipeline(transaction=False) as line:
                    for name in part:
                        line.execute_command("VEMB", key, name)
                    told = self._do(lambda _, line=line: _answers(line))
                if any(row is None for row in told):
                    raise SystemFault(f"the key {key!r} changed while it was read")
                block = np.array(told, dtype=np.float64).astype(np.float32)
            yield part, block

    # -- asked ----------------------------------------------------------------------------

    def _do(self, work: Any) -> Any:
        """What the work with the client returns; faults of the server in its own words."""
        errors = self._library.exceptions
        try:
            return work(self._client)
        except errors.AuthenticationError as error:
            raise SystemFault(
                f"{self._place} refused the password: {self._words(error)}",
                hint="set REDIS_PASSWORD, and REDIS_USERNAME where users have names",
            ) from error
        except errors.TimeoutError as error:
            raise SystemFault(
                f"{self._place} did not answer within {self.timeout:g} s",
                hint="timeout=SECONDS waits longer",
            ) from error
        except errors.ConnectionError as error:
            raise SystemFault(
                f"{self._place} cannot be reached: {self._words(error)}",
                hint="is the server running, and is this its address?",
            ) from error
        except errors.ResponseError as error:
            hint = None
            if "unknown command" in str(error):
                hint = "vector sets need Redis 8; this server is older, or has none"
            elif "NOAUTH" in str(error):
                hint = "set REDIS_PASSWORD"
            raise SystemFault(f"{self._place} refused: {self._words(error)}", hint=hint) from error

    def _words(self, error: Exception) -> str:
        return plain_error(error, self._secret)


def _answers(line: Any) -> list[Any]:
    """The replies to the commands of a pipeline; the first refusal is raised as it was said."""
    replies = line.execute(raise_on_error=False)
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    return list(replies)


def _expression(given: Any) -> str:
    if isinstance(given, str):
        return given
    raise InputError(
        f"the filter {given!r} is no expression of Redis", hint='write e.g. ".year > 1950"'
    )


def _row(reply: Any) -> Row:
    """Elements and scores of a reply, best first."""
    if isinstance(reply, dict):
        return [_text(name) for name in reply], [float(score) for score in reply.values()]
    return [_text(name) for name in reply[::2]], [float(score) for score in reply[1::2]]


def _text(value: Any) -> Any:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
