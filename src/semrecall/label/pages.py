"""The labelling page over HTTP: what the browser gets, and what it may say."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from semrecall.errors import InputError, LedgerFault, SemrecallError
from semrecall.label.disputes import Disputes
from semrecall.label.guard import Guard, Keys
from semrecall.label.progress import LEAST, Known, kappas, repeated, share_relevant
from semrecall.label.session import Behind, Session, Task, checked_name
from semrecall.label.shown import folded, language, picture, rubric, visible
from semrecall.text import json_value, plural

__all__ = ["Pages"]

_MAX_REASON = 2000
#: The numbers on agreement move in steps of so many labels, so that none tells of a single pair.
_STEP = 5
_STATIC = {
    "page.css": ("report/page.css", "text/css"),
    "label.css": ("label/static/label.css", "text/css"),
    "label.js": ("label/static/label.js", "text/javascript"),
    "icon.svg": ("label/static/icon.svg", "image/svg+xml"),
}
_Answer = Callable[[Request, dict[str, Any]], Response]


class Pages:
    """The web application of a session.

    name: whose page opens first; None asks. target_width: of the interval of the share of relevant
    pairs, at which the labels are said to be enough.
    """

    def __init__(
        self, session: Session, keys: Keys, *, name: str | None = None, target_width: float = 0.05
    ) -> None:
        self._session, self._keys, self._target = session, keys, target_width
        self._disputes = Disputes(session)
        self._name = None if name is None else checked_name(name)
        self._known: tuple[int, Known, dict[tuple[str, str], Known]] | None = None
        self._templates = Environment(
            loader=PackageLoader("semrecall.label"), autoescape=True, undefined=StrictUndefined
        )
        self._static = {
            name: (files("semrecall").joinpath(path).read_bytes(), kind)
            for name, (path, kind) in _STATIC.items()
        }

    def app(self) -> Starlette:
        """The ASGI application."""
        gets: dict[str, _Answer] = {
            "/": self._start,
            "/open/{token}": self._open,
            "/static/{file}": self._file,
            "/people": self._people,
            "/choose": self._choose,
            "/as/{name}": self._page,
            "/as/{name}/pair": self._pair,
            "/as/{name}/progress": self._progress,
            "/as/{name}/rest/{id}": self._rest,
            "/as/{name}/image/{id}": self._image,
        }
        posts: dict[str, _Answer] = {
            "/as/{name}/vote": self._vote,
            "/as/{name}/undo": self._undo,
            "/as/{name}/decide": self._decide,
            "/as/{name}/leave": self._leave,
        }
        routes = [Route(path, _answered(self, do), methods=["GET"]) for path, do in gets.items()]
        routes += [Route(path, _answered(self, do), methods=["POST"]) for path, do in posts.items()]
        return Starlette(routes=routes, middleware=[Middleware(Guard, keys=self._keys)])

    # -- pages --------------------------------------------------------------------------------

    def _open(self, request: Request, _: dict[str, Any]) -> Response:
        """Trade the token for a cookie; a page that moves on leaves no token in the history."""
        if not self._keys.admit(request.path_params["token"]):
            return self.html("problem.html", 403, text="This address is out of date.")
        page = self.html("open.html")
        page.set_cookie(
            self._keys.cookie_name, self._keys.cookie, httponly=True, samesite="strict", path="/"
        )
        return page

    def _start(self, _: Request, __: dict[str, Any]) -> Response:
        return RedirectResponse("/people" if self._name is None else _path(self._name), 303)

    def _people(self, _: Request, __: dict[str, Any]) -> Response:
        with self._session.current():
            people = {
                name: sum(t.repeat == 0 for t in person.votes)
                for name, person in sorted(self._session.people.items())
                if person.votes
            }
        rows = [(name, _path(name), plural(count, "pair")) for name, count in people.items()]
        return self.html("people.html", people=rows, pairs=len(self._session.questions))

    def _choose(self, request: Request, _: dict[str, Any]) -> Response:
        name = checked_name(request.query_params.get("name", ""))
        return RedirectResponse(_path(name), 303)

    def _page(self, request: Request, _: dict[str, Any]) -> Response:
        name, scale = checked_name(request.path_params["name"]), self._session.scale
        digits = all(grade in range(10) for grade in scale.grades)
        grades = [
            {
                "value": f"{grade:g}",
                "key": f"{grade:g}" if digits else str(place),
                "short": _short(scale.meanings[grade]),
                "meaning": scale.meanings[grade],
            }
            for place, grade in enumerate(scale.grades, 1)
        ]
        return self.html(
            "label.html",
            name=name,
            base=_path(name),
            grades=grades,
            rubric=rubric(self._session.prompt.text),
            ledger=str(self._session.ledger.path),
        )

    def _file(self, request: Request, _: dict[str, Any]) -> Response:
        data, kind = self._static.get(request.path_params["file"], (b"", ""))
        return Response(data, media_type=kind) if kind else Response("no such file\n", 404)

    def html(self, template: str, status: int = 200, **values: Any) -> HTMLResponse:
        """A page of a template."""
        return HTMLResponse(self._templates.get_template(template).render(values), status)

    # -- what the page asks ---------------------------------------------------------------------

    def _pair(self, request: Request, _: dict[str, Any]) -> Response:
        name = checked_name(request.path_params["name"])
        return self._state(name, request.query_params.get("queue", ""))

    def _rest(self, request: Request, _: dict[str, Any]) -> Response:
        question = self._session.questions[self._task(request).pair]
        return JSONResponse({"text": visible(folded(question.document.text)[1])})

    def _image(self, request: Request, _: dict[str, Any]) -> Response:
        image = self._session.questions[self._task(request).pair].document.image
        found = None if image is None else picture(image)
        if found is None or not found.media_type:
            return Response("no image\n", 404)
        return Response(found.data, media_type=found.media_type)

    def _progress(self, request: Request, _: dict[str, Any]) -> Response:
        name = checked_name(request.path_params["name"])
        share, agreed = self._statistics()
        enough = share.width <= self._target
        facts = [("share of relevant pairs", _width(share, self._target))]
        for pair, known in agreed.items():
            both = " and ".join(pair)
            facts.append((f"kappa of {both}", _value(known, self._target)))
        if not agreed:
            facts.append(("kappa", f"from {LEAST} pairs on that two people labelled"))
        return JSONResponse({
            "facts": facts, "enough": enough, "disputes": len(self._disputes.open(name)),
        })  # fmt: skip

    def _statistics(self) -> tuple[Known, dict[tuple[str, str], Known]]:
        with self._session.current():
            step = self._session.row // _STEP
        if self._known is None or self._known[0] != step:
            self._known = (step, share_relevant(self._session), kappas(self._session))
        return self._known[1:]

    # -- what a person says ---------------------------------------------------------------------

    def _vote(self, request: Request, said: dict[str, Any]) -> Response:
        name, task = checked_name(request.path_params["name"]), self._task(request, said)
        queue = str(said.get("queue", ""))
        self._session.vote(name, task, _grade(said), _reason(said), drawn=queue != "disputes")
        return self._state(name, queue)

    def _undo(self, request: Request, said: dict[str, Any]) -> Response:
        name, queue = checked_name(request.path_params["name"]), str(said.get("queue", ""))
        _, was = self._session.undo(name, decisions=queue == "disputes")
        note = was.reason.partition(": ")[2] if queue == "disputes" else was.reason
        return self._state(name, queue, was={"grade": was.grade, "note": note})

    def _decide(self, request: Request, said: dict[str, Any]) -> Response:
        name, grade = checked_name(request.path_params["name"]), _grade(said)
        if grade is None:
            raise InputError("a decision needs a grade")
        self._session.decide(name, self._task(request, said), grade, _reason(said))
        return self._state(name, "disputes")

    def _leave(self, request: Request, said: dict[str, Any]) -> Response:
        name = checked_name(request.path_params["name"])
        self._disputes.leave(name, self._task(request, said))
        return self._state(name, "disputes")

    # -- answers --------------------------------------------------------------------------------

    def _state(self, name: str, queue: str, **also: Any) -> Response:
        """What lies before the person now. Before their label nothing says what others said."""
        with self._session.current():
            if queue == "disputes":
                return JSONResponse(self._dispute(name) | also)
            tasks = self._session.tasks(name)
            person = self._session.person(name)
            state: dict[str, Any] = {
                "queue": "label",
                "pair": self._shown(name, tasks[0]) if tasks else None,
                "upcoming": self._shown(name, tasks[1]) if len(tasks) > 1 else None,
                "done": len(person.votes),
                "left": self._session.left(name),
                "pace": self._session.pace(name),
            }
            if not tasks:
                state["again"] = repeated(self._session, name)
        return JSONResponse(state | also)

    def _dispute(self, name: str) -> dict[str, Any]:
        task = self._disputes.next(name)
        labelled = task is not None and self._session.person(name).has_label(task.pair)
        state: dict[str, Any] = {
            "queue": "disputes",
            "pair": None if task is None else self._shown(name, task),
            "left": len(self._disputes.open(name)),
            "said": None,
        }
        if task is not None and labelled:
            own = self._session.person(name).votes[task]
            rows = [("you", own.grade, True, own.reason)] + [
                (said.judge, said.grade, said.of_scale, said.reason)
                for said in self._disputes.said(name, task)
            ]
            state["said"] = [
                {
                    "judge": visible(judge),
                    "grade": self._named(grade, of_scale),
                    "reason": visible(reason)[:_MAX_REASON],
                }
                for judge, grade, of_scale, reason in rows
            ]
        return state

    def _named(self, grade: float | None, of_scale: bool) -> str:
        """A grade with the short form of its meaning, where it is one of this scale."""
        if grade is None:
            return ""
        meaning = self._session.scale.meanings.get(grade) if of_scale else None
        return f"{grade:g}" + (
            f", {str(meaning).partition('. ')[0].rstrip('.')}" if meaning else ""
        )

    def _shown(self, name: str, task: Task) -> dict[str, Any]:
        """A pair as the browser gets it: texts and image, nothing of where it is from."""
        question, handle = self._session.questions[task.pair], self._session.handle(name, task)
        document, query = question.document, visible(question.query)
        first, rest = folded(document.text)
        shown: dict[str, Any] = {
            "id": handle,
            "query": query,
            "query_language": language(query),
            "text": visible(first),
            "language": language(first),
            "more": len(rest),
        }
        if document.image is not None:
            found = picture(document.image)
            shown["image"] = {
                "source": f"{_path(name)}/image/{handle}" if found.media_type else "",
                "address": visible(found.address),
                "fault": found.fault,
            }
        return shown

    def _task(self, request: Request, said: dict[str, Any] | None = None) -> Task:
        handle = request.path_params.get("id", "") if said is None else said.get("id", "")
        return self._session.task(checked_name(request.path_params["name"]), str(handle))


def _answered(self: Pages, answer: _Answer) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint that works in a thread, and tells faults in words."""

    async def endpoint(request: Request) -> Response:
        said: Any = {}
        try:
            if request.method == "POST":
                said = json_value(await request.body())
        except (ValueError, RecursionError):
            said = None
        try:
            if not isinstance(said, dict):
                raise InputError("expected a JSON object")
            return await run_in_threadpool(answer, request, said)
        except SemrecallError as error:
            status = {Behind: 409, LedgerFault: 507}.get(type(error), 400)
            hint = f" {error.hint[:1].upper()}{error.hint[1:]}." if error.hint else ""
            text = f"{error.message[:1].upper()}{error.message[1:]}.{hint}"
        except Exception as error:
            status, text = 500, f"The server failed at this: {type(error).__name__}: {error}"
        if "text/html" in request.headers.get("accept", ""):
            return self.html("problem.html", status, text=text)
        return JSONResponse({"problem": text}, status)

    return endpoint


def _path(name: str) -> str:
    return f"/as/{quote(name, safe='')}"


def _short(meaning: str) -> str:
    return meaning.partition(". ")[0].rstrip(".")


def _grade(said: dict[str, Any]) -> float | None:
    grade = said.get("grade")
    if grade is None or (isinstance(grade, int | float) and not isinstance(grade, bool)):
        return grade
    raise InputError("a grade is a number, or null to pass")


def _reason(said: dict[str, Any]) -> str:
    return visible(str(said.get("reason") or "")).strip()[:_MAX_REASON]


def _width(known: Known, target: float) -> str:
    if math.isinf(known.width):
        return f"from {LEAST} labels of 2 queries on"
    enough = "enough" if known.width <= target else f"enough at ±{target / 2:.3g}"
    return f"known to ±{known.width / 2:.3f}; {enough}"


def _value(known: Known, target: float) -> str:
    if math.isnan(known.value):
        return f"not defined: all {known.pairs} labels are alike"
    interval = "" if math.isinf(known.width) else f", {known.low:.2f} to {known.high:.2f}"
    enough = "; enough" if known.width <= target else ""
    return f"{known.value:.2f}{interval}, {known.pairs} pairs{enough}"
