"""Whether the compiled loops can be had, and whether they are there already."""

from __future__ import annotations

import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from semrecall.errors import SemrecallWarning

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["compiled", "loaded"]

_NAME = "semrecall.exact.{}"


@cache
def compiled(module: str = "kernels") -> ModuleType | None:
    """The compiled loops; None without numba, or on a processor without what they need.

    Loading them takes about a second, and a few more the first time on a machine. Where numba is
    there and cannot compile them, a warning says so: all results are the same without. An
    interrupt waits for the end of it.
    """
    try:
        with _interrupts_later():
            return import_module(_NAME.format(module))
    except ImportError:
        return None
    except Exception as fault:  # whatever a compiler can fail with
        first = str(fault).strip().partition("\n")[0]
        message = f"exact search goes on without compiled loops, which numba did not make: {first}"
        warnings.warn(message, SemrecallWarning, stacklevel=2)
        return None


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """Ctrl-C is held back: where a compiler lets go of an object, Python would swallow it."""
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not ours or threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if pressed:
            raise KeyboardInterrupt


def loaded(module: str = "kernels") -> ModuleType | None:
    """The compiled loops where something was worth loading them before."""
    return compiled(module) if _NAME.format(module) in sys.modules else None
