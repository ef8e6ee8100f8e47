"""Fixtures shared by the tests, and when a test may be skipped."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from semrecall.cli import main
from semrecall.errors import MissingExtra

# Tables are as wide as in a pipe, whatever the terminal.
os.environ["COLUMNS"] = "100"
# Threads of faiss that wait by spinning slow everything down on a busy machine.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# Whoever starts the tests in the background has them ignore Ctrl-C, and what they start as well.
signal.signal(signal.SIGINT, signal.default_int_handler)

SHARED = Path(__file__).resolve().parents[2] / "shared"
OPTIONAL = {
    "aiohttp",
    "apsw",
    "duckdb",
    "faiss",
    "fsspec",
    "h5py",
    "matplotlib",
    "numba",
    "optuna",
    "pandas",
    "polars",
    "psycopg",
    "sklearn",
    "sqlite_vec",
}

settings.register_profile("default", deadline=None, derandomize=True)
settings.load_profile("default")


@pytest.fixture(scope="session")
def shared() -> Callable[[str], Path]:
    """Path of a file of the shared research data; skips the test where it is missing."""

    def find(name: str) -> Path:
        path = SHARED / name
        if not path.exists():
            if os.environ.get("CI") and SHARED.exists():
                pytest.fail(f"{name} is missing from the shared data")
            pytest.skip(f"needs the shared research data: {name}")
        return path

    return find


@pytest.fixture
def semrecall_main(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Runs `semrecall ...` within this process, in `tmp_path`; gives status, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    default = warnings.showwarning

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["semrecall", *map(str, arguments)])
        capsys.readouterr()
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            with pytest.raises(SystemExit) as end:
                main()
        # The command line shows warnings in its own way.
        warnings.showwarning = default
        out, err = capsys.readouterr()
        status = end.value.code or 0
        assert isinstance(status, int)
        return status, out, err

    return run


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "environment(name): runs in an environment of its own only (make environment NAME=name)",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Each environment runs the tests that are marked for it; the usual one those that are not."""
    wanted = os.environ.get("SEMRECALL_ENVIRONMENT")
    others = [item for item in items if _environment(item) != wanted]
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if _environment(item) == wanted]


def _environment(item: pytest.Item) -> str | None:
    marker = item.get_closest_marker("environment")
    return None if marker is None else str(marker.args[0])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, Any, Any]:
    """A fixture that needs a package which is not installed skips the test."""
    return (yield from _without_extras())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, Any, Any]:
    """So does the test itself."""
    return (yield from _without_extras())


def _without_extras() -> Generator[None, Any, Any]:
    try:
        return (yield)
    except MissingExtra as missing:
        pytest.skip(missing.message)
    except ModuleNotFoundError as missing:
        if missing.name not in OPTIONAL:
            raise
        pytest.skip(f"needs the package {missing.name}, which is not installed")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    """Where nothing is missing (SEMRECALL_FULL), a skipped test is a failed one."""
    return _unskipped((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, Any, Any]:
    """So is a skipped file."""
    return _unskipped((yield))


def _unskipped(report: Any) -> Any:
    if os.environ.get("SEMRECALL_FULL") and report.skipped and not hasattr(report, "wasxfail"):
        path, line, reason = report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{path}:{line}: {reason}; SEMRECALL_FULL says that nothing is missing"
    return report
