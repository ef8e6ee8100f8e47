"""Any endpoint that is asked and answers in JSON over HTTP, described by a small template."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self
from urllib.parse import quote

from semrecall.errors import FormatError, InputError, SystemFault
from semrecall.registry import did_you_mean, positive
from semrecall.systems.answers import Row, as_id
from semrecall.systems.asked import AskedSystem
from semrecall.text import json_read
from semrecall.web import Client, in_parallel

if TYPE_CHECKING:
    from semrecall.space import Space

__all__ = ["HttpSystem", "Template", "read_path"]

_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_OF_QUERIES = {"text": "text", "texts": "text", "vector": "vector", "vectors": "vector"}
_LEFT_OUT = object()


@dataclass(frozen=True)
class Template:
    """How an endpoint is asked, and where its answer lies in the reply.

    method, path, headers, body: of the request. Placeholders in path and body: {vector} or {text}
        of one query, or {vectors} or {texts} of a batch; {k}; {filter} or {filters}; and the name
        of each knob. A value that is a placeholder alone becomes what it stands for; where that is
        nothing (no filter, a knob that is not turned) its key is left out. `${NAME}` in a header
        is a variable of the environment.
    ids, scores: where they lie, as keys parted by dots; [] goes through a list: "hits[].id".
    rows: of a batch, where the list with an entry for each query lies; ids and scores are within.
    unit, space: of the scores. knobs: as `parse_knobs` reads them. batch: queries a request.
    """

    ids: str
    method: str = "POST"
    path: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    scores: str | None = None
    rows: str | None = None
    unit: str | None = None
    space: str | None = None
    knobs: str = ""
    batch: int = 64

    @classmethod
    def read(cls, path: str | Path) -> Template:
        """The template in a JSON file; FormatError where it is none."""
        try:
            found = json_read(Path(path).read_text(encoding="utf-8-sig"))
        except FileNotFoundError:
            raise InputError(f"{path}: no such file; expected a template in JSON") from None
        except ValueError as error:
            raise FormatError(f"{path}: is no JSON ({error})") from error
        if not isinstance(found, dict):
            raise FormatError(f"{path}: is a JSON {type(found).__name__}; expected an object")
        return cls.of(found, str(path))

    @classmethod
    def of(cls, found: Mapping[str, Any], where: str = "the template") -> Template:
        """The template with these fields; FormatError for others and for wrong ones."""
        known = {f.name: str(f.type) for f in fields(cls)}
        for name, value in found.items():
            if name not in known:
                raise FormatError(f"{where}: unknown key {name!r}", hint=did_you_mean(name, known))
            wanted = {"headers": Mapping, "batch": int}.get(name, str)
            if name != "body" and (not isinstance(value, wanted) or isinstance(value, bool)):
                raise FormatError(f"{where}: {name} is {value!r}; expected a {wanted.__name__}")
        if "ids" not in found:
            raise FormatError(f"{where}: no key 'ids'", hint='say where they lie: "hits[].id"')
        return cls(**found)

    def placeholders(self) -> set[str]:
        """Names of all placeholders in path and body."""
        return set(_PLACEHOLDER.findall(self.path)) | set(_placeholders(self.body))


class HttpSystem(AskedSystem):
    """An endpoint that a template describes.

    template: the path of a JSON file, or the fields of a `Template`. timeout: seconds a request
    may take. concurrency: requests at a time, where a request is one query.
    """

    options: ClassVar = {
        "url": "where the endpoint is, as in http://host:8000",
        "template": "JSON file that says how it is asked and where its answer lies",
        "timeout": "seconds that a request may take; 30 when left out",
        "concurrency": "requests at a time; 4 when left out",
        "space": "ip, cosine or l2, where the template does not say",
    }
    telling_space = 'say it in the template: "space": "ip", or "unit": "squared-l2"'
    buildable = False
    remote = True

    def __init__(
        self,
        url: str | None = None,
        template: str | Path | Mapping[str, Any] | None = None,
        timeout: str | float = 30.0,
        concurrency: str | int = 4,
        space: str | Space | None = None,
    ) -> None:
        if url is None or template is None:
            raise InputError(
                "the system 'http' needs an address and a template",
                hint='for example "http://127.0.0.1:8000?template=search.json"',
            )
        form = Template.of(template) if isinstance(template, Mapping) else Template.read(template)
        self.template = form
        super().__init__(form.space or space, form.unit, form.knobs)
        self.concurrency = int(positive(concurrency, "concurrency"))
        names = form.placeholders()
        kinds = {_OF_QUERIES[name] for name in names if name in _OF_QUERIES}
        if len(kinds) != 1:
            raise InputError(
                "the template names " + ("both a text and a vector" if kinds else "no query"),
                hint="put {vector}, {vectors}, {text} or {texts} into its body or its path; for "
                "both at once, write a Python function: python:module:function",
            )
        self.batched = bool(names & {"texts", "vectors"})
        if self.batched != (form.rows is not None):
            raise InputError(
                "{texts} and {vectors} ask for a batch, whose answers lie at 'rows'",
                hint='give both, e.g. "rows": "responses", or ask one at a time with {vector}',
            )
        self.by_text = kinds == {"text"}
        self.filtered = bool(names & {"filter", "filters"})
        unknown = (
            names - set(_OF_QUERIES) - {"k", "filter", "filters"} - {n.name for n in self._knobs}
        )
        if unknown:
            raise InputError(
                f"the template has a placeholder {{{min(unknown)}}} that is no knob of it",
                hint=f'add it to its knobs: "knobs": "{min(unknown)}:1:1000"',
            )
        self._client = Client(
            url,
            headers=form.headers,
            timeout_seconds=positive(timeout, "timeout"),
            fault=SystemFault,
        )

    # -- what it is -----------------------------------------------------------------------

    @property
    def _called(self) -> str:
        return self.spec or self._client.url

    def describe(self) -> dict[str, Any]:
        """Where it is and how it is asked; never a header."""
        form = self.template
        return {"system": "http", "url": self._client.url, "method": form.method, "path": form.path}

    def snippet(self, settings: Mapping[str, Any]) -> str:
        """The body of a request with these settings."""
        given = {"k": "{k}", **{name: f"{{{name}}}" for name in _OF_QUERIES}, **settings}
        return json.dumps(_filled(self.template.body, given), indent=2)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    # -- searched -------------------------------------------------------------------------

    def build(self, base: Any, space: str | Space, ids: Any = None, **knobs: Any) -> Self:
        """Refused: an endpoint is searched as it is."""
        raise InputError(f"{self._called} is searched as it is, and not built")

    def _rows(
        self, asked: Any, filters: Sequence[Any] | None, k: int, settings: Mapping[str, Any]
    ) -> list[Row]:
        fixed = {n.name: n.default for n in self._knobs if n.default is not None}
        fixed |= {**settings, "k": k}
        queries = list(asked) if self.by_text else [row.tolist() for row in asked]
        wanted = [None] * len(queries) if filters is None else list(filters)
        step = self.template.batch if self.batched else 1
        parts = [
            (queries[at : at + step], wanted[at : at + step], fixed)
            for at in range(0, len(queries), step)
        ]
        return [row for part in in_parallel(self._ask, parts, self.concurrency) for row in part]

    def _ask(self, part: tuple[list[Any], list[Any], Mapping[str, Any]]) -> list[Row]:
        """The answers to one request: of these queries, with these filters."""
        (queries, filters, fixed), form = part, self.template
        kind = "text" if self.by_text else "vector"
        given = {**fixed, f"{kind}s": queries, kind: queries[0], "filter": filters[0]}
        given["filters"] = None if all(wanted is None for wanted in filters) else filters
        path = _PLACEHOLDER.sub(
            lambda match: quote(_plain(given.get(match[1])), safe=""), form.path
        )
        body = None if form.body is None else _filled(form.body, given)
        reply = self._client.json(form.method.upper(), path, body)
        if form.rows is None:
            return [self._row(reply)]
        rows = read_path(reply, form.rows)
        if not isinstance(rows, list) or len(rows) != len(queries):
            found = f"{len(rows)} answers" if isinstance(rows, list) else "no list"
            raise SystemFault(
                f"{self._client.url} was asked {len(queries)} queries and has {found} at "
                f"{form.rows!r}"
            )
        return [self._row(row) for row in rows]

    def _row(self, reply: Any) -> Row:
        ids = _listed(read_path(reply, self.template.ids), self.template.ids)
        if self.template.scores is None:
            return [as_id(i) for i in ids], None
        scores = _listed(read_path(reply, self.template.scores), self.template.scores)
        numbers = [isinstance(s, int | float) and not isinstance(s, bool) for s in scores]
        if len(scores) != len(ids) or not all(numbers):
            raise SystemFault(
                f"the reply has {len(ids)} ids and {sum(numbers)} numbers for scores; expected "
                "one for each"
            )
        return [as_id(i) for i in ids], [float(s) for s in scores]


def read_path(found: Any, path: str) -> Any:
    """What lies at a path in JSON: keys parted by dots, [3] for an item, [] for each of a list.

    Lists of lists, where a path has several [], become one list. Raises
    SystemFault naming what is there.
    """
    steps = re.findall(r"\[\d*\]|[^.\[\]]+", path.removeprefix("$").removeprefix("."))
    for at, step in enumerate(steps):
        if step == "[]":
            rest = "".join(s if s.startswith("[") else f".{s}" for s in steps[at + 1 :])
            inner = [read_path(item, rest) for item in _listed(found, path)]
            deeper = "[]" in rest
            return [value for part in inner for value in part] if deeper else inner
        if step.startswith("["):
            items = _listed(found, path)
            if int(step[1:-1]) >= len(items):
                raise SystemFault(f"the reply has {len(items)} items where {path!r} leads")
            found = items[int(step[1:-1])]
        elif isinstance(found, Mapping) and step in found:
            found = found[step]
        else:
            keys = ", ".join(map(str, found)) if isinstance(found, Mapping) else None
            raise SystemFault(
                f"the reply has no {step!r} where {path!r} leads",
                hint=f"there are {keys}" if keys else f"there is {str(found)[:80]!r}",
            )
    return found


def _listed(found: Any, path: str) -> list[Any]:
    if not isinstance(found, list):
        raise SystemFault(f"the reply has no list where {path!r} leads: {str(found)[:80]!r}")
    return found


def _placeholders(body: Any) -> Iterator[str]:
    if isinstance(body, str):
        yield from _PLACEHOLDER.findall(body)
    elif isinstance(body, Mapping | list):
        for value in body.values() if isinstance(body, Mapping) else body:
            yield from _placeholders(value)


def _filled(body: Any, given: Mapping[str, Any]) -> Any:
    """The body with its placeholders filled in; what stands for nothing is left out."""
    if isinstance(body, str):
        whole = _PLACEHOLDER.fullmatch(body)
        if whole is not None:
            value = given.get(whole[1])
            return _LEFT_OUT if value is None else value
        return _PLACEHOLDER.sub(lambda match: _plain(given.get(match[1])), body)
    if isinstance(body, Mapping):
        filled = {key: _filled(value, given) for key, value in body.items()}
        return {key: value for key, value in filled.items() if value is not _LEFT_OUT}
    if isinstance(body, list):
        return [value for item in body if (value := _filled(item, given)) is not _LEFT_OUT]
    return body


def _plain(value: Any) -> str:
    """A value within a text."""
    if isinstance(value, list):
        return ",".join(map(str, value))
    return "" if value is None else str(value)
