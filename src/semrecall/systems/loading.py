"""Libraries that crash each other in one process, loaded so that they do not.

usearch carries a C++ library of its own. Without that of the system in front of it, other libraries
that are imported later crash when they use regular expressions: faiss when it reads a factory
string, ScaNN when it reads a saved searcher.
"""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress
from functools import cache

from semrecall.errors import SystemFault

__all__ = ["before_usearch", "refuse_after_usearch"]


@cache
def before_usearch() -> bool:
    """Load what has to stand before usearch; False when usearch is there already."""
    if "usearch.compiled" in sys.modules:
        return False
    if sys.platform == "linux":
        with suppress(OSError):
            ctypes.CDLL("libstdc++.so.6", mode=ctypes.RTLD_GLOBAL)
    return True


def refuse_after_usearch(package: str, what: str) -> None:
    """SystemFault where someone else imported usearch before `package`, and `what` would crash."""
    loaded = [name for name in sys.modules if name in ("usearch.compiled", package)]
    # Where usearch is not loaded yet, this makes it safe for later.
    if before_usearch() or loaded[0] == package or sys.platform != "linux":
        return
    raise SystemFault(
        f"{what} would crash here: usearch was imported before {package}",
        hint=f"import {package} before usearch, or leave importing usearch to semrecall",
    )
