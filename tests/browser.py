"""A headless Chromium for the tests of pages; where it is missing, they are skipped."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

__all__ = ["chromium"]

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")

_PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
if _PROGRAM is None:
    pytest.skip("needs Chromium (apt install chromium)", allow_module_level=True)


def chromium() -> Iterator[Any]:
    """A browser of Playwright's, closed in the end."""
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(
            executable_path=_PROGRAM, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield found
        found.close()
