"""The labelling page in a real browser: keyboard alone, reload, two people, hostile text, roles."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from browser import chromium
from label_server import Site, pairs, served, session_of

from semrecall.judges import Document, Question
from semrecall.label import Session

pytest.importorskip("uvicorn", reason="needs the extra label")
pytest.importorskip("jinja2", reason="needs the extra label")
pytest.importorskip("playwright.sync_api", reason="needs playwright")

HOSTILE = (
    "<script>window.pwned=1;fetch('http://example.com/')</script><img src=x onerror='pwned=1'>"
    "<style>*{display:none}</style><svg onload=pwned=1> &lt; javascript:pwned=1 {{7*7}} "
    "\u202egnirts \x00\x00 \ud800 </div></article><meta http-equiv=refresh content='0;url=http://example.com'>"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    yield from chromium()


class Windows:
    """Serves pages, and opens them in windows of their own that note every complaint."""

    def __init__(self, browser: Any) -> None:
        self.browser, self.contexts, self.heard = browser, [], []

    @contextmanager
    def on(self, session: Session) -> Iterator[Site]:
        with served(session) as site:
            try:
                yield site
            finally:
                for context in self.contexts:
                    context.close()

    def __call__(self, site: Site, name: str = "", **options: Any) -> Any:
        context = self.browser.new_context(**options)
        self.contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.on("console", lambda message: self.heard.append(message.text))
        page.on("pageerror", lambda error: self.heard.append(str(error)))
        page.on("request", lambda asked: self.note(asked.url, site))
        page.goto(site.entrance)
        page.wait_for_url(lambda url: "/open/" not in url)
        if name:
            page.goto(f"{site.address}/as/{name}")
            page.wait_for_selector("#pair:not([hidden]), #end:not([hidden])")
        return page

    def note(self, url: str, site: Site) -> None:
        if not url.startswith(f"{site.address}/"):
            self.heard.append(url)


@pytest.fixture
def opened(browser: Any) -> Iterator[Windows]:
    """Windows of which none may complain or ask another server."""
    windows = Windows(browser)
    yield windows
    assert windows.heard == []


def press(page: Any, key: str) -> None:
    """A key, and then what the server made of it."""
    with page.expect_response(lambda reply: reply.request.method == "POST"):
        page.keyboard.press(key)
    page.wait_for_selector("#answer[aria-busy=false]", state="attached")


def text(page: Any) -> str:
    return page.inner_text("#text")


def labels(session: Session, name: str) -> dict[str, Any]:
    with session.current():
        votes = session.person(name).votes
        return {session.questions[t.pair].document.text: v.grade for t, v in votes.items()}


def test_the_token_leaves_the_address_bar_and_a_name_is_asked(opened):
    with opened.on(session_of(pairs(2, 3))) as site:
        page = opened(site)
        page.wait_for_url(f"{site.address}/people")
        assert page.evaluate("document.activeElement.id") == "name"
        page.keyboard.type("Anna B.")
        page.keyboard.press("Enter")
        page.wait_for_url(f"{site.address}/as/Anna%20B.")
        page.wait_for_selector("#pair:not([hidden])")
        assert page.evaluate("document.cookie") == ""


def test_five_pairs_by_keyboard_alone_with_undo_skip_and_a_note(opened):
    session = session_of(pairs(3, 3), repeats=0)
    with opened.on(session) as site:
        page, said = opened(site, "anna"), {}
        said[text(page)] = 2
        press(page, "2")
        wrong = text(page)
        press(page, "0")
        press(page, "u")
        assert text(page) == wrong
        assert "Undone" in page.inner_text("#status")
        said[wrong] = 3
        press(page, "3")
        said[text(page)] = None
        page.keyboard.press("s")
        page.wait_for_selector("#skip-dialog[open]")
        press(page, "1")
        said[text(page)] = 1
        page.keyboard.press("n")
        page.keyboard.type("0 nearly 3")  # digits in a note are no labels
        page.keyboard.press("Escape")
        press(page, "1")
        said[text(page)] = 0
        # The rest by Tab and Enter, without single keys.
        for _ in range(20):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.dataset.grade") == "0":
                break
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid"
        press(page, "Enter")
        assert "Recorded: 0" in page.inner_text("#status")
        assert "4 left" in page.inner_text("#status")
        assert page.inner_text("#left").startswith("4 left")
        assert labels(session, "anna") == said
    with session.current():
        reasons = [vote.reason for vote in session.person("anna").votes.values() if vote.reason]
    assert sorted(reasons) == ["0 nearly 3", "I cannot tell"]


def test_single_keys_can_be_turned_off(opened):
    session = session_of(pairs(2, 3))
    with opened.on(session) as site:
        page = opened(site, "anna")
        page.keyboard.press("?")
        page.wait_for_selector("#help-dialog[open]")
        page.focus("#keys")
        page.keyboard.press("Space")
        page.keyboard.press("Escape")
        page.keyboard.press("2")
        page.reload()
        page.wait_for_selector("#pair:not([hidden])")
        page.keyboard.press("2")
        assert labels(session, "anna") == {}
        with page.expect_response("**/vote"):
            page.click("button[data-grade='2']")
        assert list(labels(session, "anna").values()) == [2]


def test_a_reload_in_the_middle_loses_nothing(opened):
    session = session_of(pairs(3, 3), repeats=0)
    with opened.on(session) as site:
        page = opened(site, "anna")
        press(page, "1")
        press(page, "2")
        before = text(page)
        page.keyboard.press("n")
        page.keyboard.type("half a thought")
        page.reload()
        page.wait_for_selector("#pair:not([hidden])")
        assert text(page) == before
        assert page.input_value("#note") == "half a thought"
        press(page, "0")
        assert len(labels(session, "anna")) == 3


def test_two_people_at_once_to_the_end(opened):
    session = session_of(pairs(4, 3), overlap=0.5, repeats=0)
    with opened.on(session) as site:
        windows = {name: opened(site, name) for name in ("anna", "ben")}
        for turn in range(12):
            for name, page in windows.items():
                if page.is_visible("#pair"):
                    press(page, str((turn + (name == "ben")) % 2 * 3))
        for page in windows.values():
            page.wait_for_selector("#end:not([hidden])")
            assert "That was the last pair" in page.inner_text("#end")
        with session.current():
            people = [session.people[name] for name in windows]
            assert {task.pair for person in people for task in person.votes} == set(range(12))
            both = set.intersection(*({task.pair for task in p.votes} for p in people))
            assert both == session.shared


def test_hostile_text_is_only_text(opened):
    questions = [
        Question("q", f"d{n}", HOSTILE, Document(HOSTILE + "word " * 3000)) for n in range(3)
    ]
    with opened.on(session_of(questions, repeats=0)) as site:
        page = opened(site, "anna")
        assert "<script>window.pwned=1" in text(page)
        assert "U+202E" in text(page)
        assert "U+0000 ×2" in text(page)
        assert "<img src=x" in page.inner_text("#query")
        assert page.locator("#text .mark").count() == 3
        page.click("#all")
        page.wait_for_selector("#all", state="hidden")
        assert len(text(page)) > 15_000
        press(page, "0")
        assert page.evaluate("window.pwned") is None
        assert page.url == f"{site.address}/as/anna"


def test_a_text_of_two_megabytes_opens_whole(opened):
    questions = [Question("q", "d", "long", Document("word " * 400_000 + "the end"))]
    with opened.on(session_of(questions, repeats=0)) as site:
        page = opened(site, "anna")
        assert len(text(page)) < 8000
        assert "more characters" in page.inner_text("#all")
        page.click("#all")
        page.wait_for_selector("#all", state="hidden")
        assert page.text_content("#text").endswith("the end")


def test_directions_and_languages(opened):
    texts = {"ar": "الرباط هي عاصمة المغرب", "th": "แกงเขียวหวานเป็นแกงกะทิชนิดหนึ่งของไทย" * 4}
    questions = [Question(n, n, n, Document(t)) for n, t in texts.items()]
    with opened.on(session_of(questions, repeats=0)) as site:
        page, seen = opened(site, "anna", viewport={"width": 360, "height": 740}), {}
        for _ in range(2):
            style = "(e => [getComputedStyle(e).direction, e.parentElement.lang, e.clientHeight])"
            found = page.evaluate(f"{style}(document.querySelector('#text p'))")
            seen[page.inner_text("#query")] = found
            assert page.evaluate("document.documentElement.scrollWidth") <= 360
            press(page, "1")
        assert seen["ar"][0] == "rtl"
        assert seen["th"][:2] == ["ltr", "th"]
        assert seen["th"][2] > 60  # broken into several lines, without a space


def test_a_disagreement_is_blind_then_open_then_decided(opened):
    session = session_of(pairs(1, 4), overlap=1.0, repeats=0)
    for name, grade in (("ben", 3), ("cleo", 0)):
        while tasks := session.tasks(name):
            session.vote(name, tasks[0], grade, f"{name} thinks so")
    with opened.on(session) as site:
        page = opened(site, "anna")
        page.wait_for_selector("#switch:not([hidden])")
        assert page.inner_text("#switch") == "Disagreements 4"
        with page.expect_response("**/pair?queue=disputes"):
            page.keyboard.press("d")
        page.get_by_text("Disagreement: your own label first", exact=True).wait_for()
        assert "thinks so" not in page.content()
        press(page, "2")
        page.wait_for_selector("#others:not([hidden])")
        said = page.inner_text("#said")
        assert "ben thinks so" in said
        assert "cleo thinks so" in said
        page.keyboard.press("n")
        page.keyboard.type("settled")
        page.keyboard.press("Escape")
        press(page, "0")
        assert "Decided: 0" in page.inner_text("#status")
        assert page.inner_text("#left") == "3 to decide"
        before = text(page)
        press(page, "1")
        assert text(page) == before
        press(page, "s")  # leaves it as it is
        assert text(page) != before
        assert page.inner_text("#left") == "3 to decide"
        page.keyboard.press("d")
        page.get_by_text("Query", exact=True).wait_for()
    kept = session.ledger.judgments("human:adjudicated")
    assert kept.details["reason"].tolist() == ["by anna: settled"]


def test_a_vote_that_is_not_recorded_is_told_and_the_pair_comes_back(opened, monkeypatch):
    from semrecall.errors import LedgerFault

    session = session_of(pairs(2, 3), repeats=0)
    with opened.on(session) as site:
        page = opened(site, "anna")
        before = text(page)

        def full(*_: object) -> int:
            raise LedgerFault("the disk is full", hint="free some space")

        monkeypatch.setattr(session.ledger, "vote", full)
        with page.expect_response("**/vote"):
            page.keyboard.press("2")
        page.wait_for_selector("#problem:not([hidden])")
        assert "The disk is full" in page.inner_text("#problem")
        assert text(page) == before
        monkeypatch.undo()
        press(page, "2")
        assert page.is_hidden("#problem")
        assert labels(session, "anna") == {before: 2}
    assert [line for line in opened.heard if "507" not in line] == []
    opened.heard.clear()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1200])
def test_roles_names_and_contrast(opened, theme, width):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe")
    session = session_of(pairs(2, 3), overlap=1.0, repeats=0)
    for grade, name in ((0, "ben"), (3, "cleo")):
        while tasks := session.tasks(name):
            session.vote(name, tasks[0], grade, "because")
    with opened.on(session) as site:
        page = opened(site, "anna", color_scheme=theme, viewport={"width": width, "height": 740})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        faults = []
        for step in ("start", "s", "Escape", "?", "Escape", "n", "Escape", "d", "2", "people"):
            if step == "people":
                page.goto(f"{site.address}/people")
            elif step != "start":
                page.keyboard.press(step)
                page.wait_for_timeout(100)
            found = axe.Axe().run(page).response["violations"]
            faults += [f"{step}: {fault['id']}: {fault['nodes'][0]['html']}" for fault in found]
    assert faults == []
