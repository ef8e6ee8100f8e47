"""Reports in a real browser: no complaint, no request, axe clean, both themes, narrow and wide."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import test_report as small
from browser import chromium

import semrecall as sr
from semrecall.report import html_report

pytest.importorskip("matplotlib", reason="needs matplotlib")
pytest.importorskip("playwright.sync_api", reason="needs playwright")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe")

HOSTILE = (
    "<script>window.pwned=1</script><img src=http://example.com/x onerror='pwned=1'>"
    "<style>*{{display:none}}</style><svg onload=pwned=1> <!-- contents --> javascript:pwned=1 "
    "\u202egnirts \x00 ผลลัพธ์ภาษาไทย </table></details><meta http-equiv=refresh content='0;url=//x'>"
).format()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    yield from chromium()


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with everything on it, all texts and names hostile."""
    named = HOSTILE.replace("{", "{{").replace("}", "}}") + "{}"
    exact, found, labels = small.parts(names=named)
    codes = small.parts(lost=0.05, names=named)[1]
    queries = list(exact.queries)
    columns = {"query_id": queries, HOSTILE: [HOSTILE, "en"] * (len(queries) // 2)}
    result = sr.evaluate(
        found, small.MEASURES, truth=exact, judgments=labels, codes=codes, columns=columns,
        by=["sn", HOSTILE],
    )  # fmt: skip
    rng = np.random.default_rng(0)
    grades = labels.grades.copy()
    flipped = rng.random(len(grades)) < 0.1
    grades[flipped] = 1 - grades[flipped]
    agreement = sr.agree({HOSTILE: labels, "human": labels.replace(grades=grades)}, truth=exact)
    waterfall = sr.waterfall(
        labels, truth=exact, codes=codes, runs={"index": found, HOSTILE: found}, cuts={HOSTILE: 3}
    )
    path = tmp_path_factory.mktemp("report") / "full.html"
    result.to_html(
        path, query_texts=dict.fromkeys(queries, HOSTILE), agreement=agreement,
        document_texts={str(d): HOSTILE for d in exact.documents}, sweep=swept(),
        waterfall=waterfall, command=f"semrecall report {HOSTILE}",
    )  # fmt: skip
    return path


def swept() -> Any:
    from test_sweep import sweep

    return sweep(settings={"visit": [2, 10, 40]}, by="sn")


def opened(browser: Any, path: Path, width: int, theme: str, media: str = "screen") -> Any:
    """The page, and what it complained of or asked for."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
    page, heard = context.new_page(), []
    page.emulate_media(media=media, color_scheme=theme)
    page.on("console", lambda message: heard.append(message.text))
    page.on("pageerror", lambda error: heard.append(str(error)))
    page.on(
        "request", lambda asked: heard.append(asked.url) if asked.url != path.as_uri() else None
    )
    page.goto(path.as_uri())
    return page, heard


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1440])
def test_nothing_is_asked_complained_of_or_hidden(browser, full, width, theme):
    page, heard = opened(browser, full, width, theme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("window.pwned") is None
    assert page.evaluate("getComputedStyle(document.querySelector('h1')).display") == "block"
    colors = page.evaluate(
        "(({color, backgroundColor}) => [color, backgroundColor])(getComputedStyle(document.body))"
    )
    light = ["rgb(26, 29, 33)", "rgb(255, 255, 255)"]
    assert (colors == light) == (theme == "light")
    assert heard == []
    page.context.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_accessibility(browser, full, theme):
    page, _ = opened(browser, full, 768, theme)
    page.evaluate("document.querySelectorAll('details').forEach((d) => (d.open = true))")
    found = axe.Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    page.context.close()


def test_contents_and_details_by_keyboard(browser, full):
    page, _ = opened(browser, full, 1440, "light")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('nav') !== null")
    page.keyboard.press("Enter")
    assert "#part-" in page.url
    page.focus("summary >> nth=-1")
    page.keyboard.press("Enter")
    page.wait_for_selector("details[open] td")
    page.context.close()


def test_printed_it_is_black_on_white_without_links_and_fits(browser, full):
    # A4 less the margins that browsers leave.
    page, _ = opened(browser, full, 718, "dark", media="print")
    assert page.evaluate("document.documentElement.scrollWidth") <= 718
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.is_visible("nav")
    # Charts have the colours of the light theme, not the pale ones for a dark ground.
    drawn = "getComputedStyle(document.documentElement).getPropertyValue('--series-1')"
    assert page.evaluate(drawn) == "#3b6fb6"
    page.context.close()


def test_ten_thousand_queries_open_at_once_and_stay_small(browser, tmp_path):
    rng = np.random.default_rng(1)
    n, k = 10_000, 100
    true = rng.integers(0, 10**9, (n, k))
    scores = np.sort(rng.random((n, k)))[:, ::-1]
    got = np.where(rng.random((n, k)) < 0.1, 10**9 + true, true)
    exact = sr.Run.from_arrays(true, scores, space="ip", k=k)
    run = sr.Run.from_arrays(got, scores, space="ip", name="big")
    judged = sr.Judgments.from_arrays(
        np.repeat(np.arange(n), k), true.reshape(-1), (rng.random(n * k) < 0.3).astype(float)
    )
    measures = [f"{name}@{k}" for name in ("recall", "srecall", "trecall")]
    result = sr.evaluate(run, measures, truth=exact, judgments=judged, by="sn")
    path = tmp_path / "big.html"
    texts = dict.fromkeys(map(str, true.reshape(-1).tolist()), "a long passage of text " * 40)
    path.write_text(html_report(result, document_texts=texts), encoding="utf-8")
    assert path.stat().st_size < 3_000_000
    start = time.perf_counter()
    page, heard = opened(browser, path, 1440, "light")
    page.wait_for_selector("h1")
    assert page.evaluate("document.querySelectorAll('details tr').length") > 1_000
    taken = page.evaluate("performance.timing.loadEventEnd - performance.timing.navigationStart")
    assert taken < 2_000
    assert time.perf_counter() - start < 6  # on a machine that does other things, too
    assert heard == []
    page.context.close()
