"""Fixtures shared by the tests."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

# Threads of faiss that wait by spinning slow everything down on a busy machine.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

SHARED = Path(__file__).resolve().parents[2] / "shared"

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
