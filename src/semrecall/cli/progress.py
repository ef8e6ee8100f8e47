"""How far long work is, on a terminal; and sizes as users write them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["Meter", "bytes_of", "progress_bar"]

_BAR_CELLS = 24
_EVERY_SECONDS = 0.25


class Meter:
    """One line: the share done, the rate of this run, and the time left at that rate.

    row_bytes: of one of the things that are counted; None: rows are shown, not bytes. What was
    done before the first report (by a run that was ended) counts as done, not as speed.
    """

    def __init__(self, label: str, row_bytes: int | None) -> None:
        self._label, self._row_bytes = label, row_bytes
        self._first: tuple[float, float] | None = None

    def line(self, done: float, total: int | None, now: float) -> str:
        """The line to show at a time in seconds."""
        if self._first is None:
            self._first = (done, now)
        before, begun = self._first
        rate = (done - before) / (now - begun) if now > begun and done > before else 0.0
        words = [self._label]
        if total:
            share = min(done / total, 1.0)
            full = int(share * _BAR_CELLS)
            words.append(f"[{'#' * full}{'-' * (_BAR_CELLS - full)}] {share:4.0%}")
        of = f" of {self._amount(total)}" if total else ""
        words.append(f"{self._amount(done)}{of}")
        if rate:
            words.append(f"{self._amount(rate)}/s")
            if total:
                words.append(f"{duration((total - done) / rate)} left")
        return "  ".join(words)

    def _amount(self, rows: float) -> str:
        if self._row_bytes is None:
            return f"{rows:,.0f} rows"
        return size(rows * self._row_bytes)


@contextmanager
def progress_bar(label: str, row_bytes: int | None = None) -> Iterator[Any]:
    """A function to report rows done and rows in all to; None where stderr is no terminal."""
    import sys
    import time

    import click

    if not sys.stderr.isatty():
        yield None
        return
    meter, shown = Meter(label, row_bytes), 0.0

    def progress(done: float, total: int | None) -> None:
        nonlocal shown
        now = time.monotonic()
        line = meter.line(done, total, now)
        if now - shown >= _EVERY_SECONDS or done == total:
            shown = now
            click.echo(f"\r\033[K{line[:99]}", nl=False, err=True)

    try:
        yield progress
    finally:
        click.echo("", err=True)


def size(count: float) -> str:
    """Bytes in words: 1.5 GB."""
    for unit in ("bytes", "KB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            break
        count /= 1000
    return f"{count:,.0f} {unit}" if unit == "bytes" or count >= 100 else f"{count:.3g} {unit}"


def duration(seconds: float) -> str:
    """Seconds in words: 2 h 05 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def bytes_of(text: str) -> int:
    """Bytes of a size such as 500MB, 8GB or 1.5GiB; InputError for anything else."""
    import re

    from semrecall.errors import InputError

    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)(i?)b?\s*", text.lower())
    if match is None:
        raise InputError(f"memory is {text!r}; expected a size such as 500MB or 8GB")
    number, unit, binary = match.groups()
    base = 1024 if binary else 1000
    return int(float(number) * base ** (" kmgt".index(unit or " ")))
