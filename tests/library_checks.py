"""What is checked of every library in this process: scores by hand, and a disk without room."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from semrecall.errors import InputError
from semrecall.systems import System, open_system


def check_scores_by_hand(spec: str, **knobs: Any) -> None:
    """Scores are in the natural unit of each space, whatever the library says itself."""
    base = np.array([[3, 4], [0, 0.5], [-6, -8]], dtype=np.float32)
    query = np.array([[3, 4]], dtype=np.float32)
    expected = {
        # ip: 3*3 + 4*4, 0.5*4, -(18 + 32); many a library says 1 - ip.
        "ip": [25, 2, -50],
        # cosine: the same direction, 4/5, the opposite; or 1 - cos.
        "cosine": [1, 0.8, -1],
        # l2: 0, sqrt(3*3 + 3.5*3.5), sqrt(9*9 + 12*12) = 15; or squares.
        "l2": [0, np.sqrt(21.25), 15],
    }
    for name, scores in expected.items():
        ids, found = open_system(spec).build(base, name, **knobs).search(query, 3)
        assert ids.tolist() == [[0, 1, 2]]
        assert found is not None
        np.testing.assert_allclose(found[0], scores, rtol=1e-6, atol=1e-6)


def check_a_full_disk(system: System, folder: Path) -> None:
    """An index that cannot be written in full is an error, and nothing is left of it."""
    with (
        little_room(),
        pytest.raises(InputError, match=r"saved: .* cannot write the index: ") as error,
    ):
        system.save(folder / "saved")
    assert "room" in (error.value.hint or "")
    assert not list(folder.iterdir())


@contextmanager
def little_room() -> Iterator[None]:
    """Files of this process end at 8 kB: as on a full disk, a write in the middle fails."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
