"""The text that Prometheus reads: the last look, and counts of all of them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from semrecall.formats import write_whole
from semrecall.measures import parse
from semrecall.watch.look import Look

__all__ = ["Board"]

_QUANTILES = (0.5, 0.95, 0.99)


class Board:
    """What is shown: `show` a Look, then `text` has it.

    system: the label of every value. truth: its file, whose time tells its age; None without.
    """

    def __init__(self, system: str, truth: Path | None = None) -> None:
        self.system, self._truth = system, truth
        self.looks = self.errors = self._latency_count = 0
        self._latency_sum = 0.0
        self._last: Look | None = None
        self._last_good: Look | None = None

    def show(self, look: Look) -> None:
        """Take a look in."""
        self.looks += 1
        self._last = look
        if look.error:
            self.errors += 1
            return
        self._last_good = look
        self._latency_count += len(look.latencies)
        self._latency_sum += float(look.latencies.sum())

    @property
    def text(self) -> str:
        """All values, in the text format of Prometheus.

        While the system does not answer, what was measured of it is not shown: old values would
        look like new ones.
        """
        return "".join(line + "\n" for line in self._lines())

    def write(self, path: str | Path) -> None:
        """To a file, whole or not at all, as the textfile collector wants it."""
        write_whole(path, self.text)

    # -- lines ----------------------------------------------------------------------------

    def _lines(self) -> Iterator[str]:
        look, good = self._last, self._last_good
        yield from self._one("looks_total", "counter", "Looks at the system.", self.looks)
        about = "Looks at which the system did not answer."
        yield from self._one("look_errors_total", "counter", about, self.errors)
        if look is None:
            return
        up = 0 if look.error else 1
        yield from self._one("up", "gauge", "Whether the system answered the last look.", up)
        about = "Time of the last look, seconds since 1970."
        yield from self._one("last_look_timestamp_seconds", "gauge", about, look.at)
        about = "How long the last look took."
        yield from self._one("look_duration_seconds", "gauge", about, look.seconds)
        if good is not None:
            about = "Time of the last look that was answered, seconds since 1970."
            yield from self._one("last_success_timestamp_seconds", "gauge", about, good.at)
            yield from self._latency(good, shown=not look.error)
        if not look.error:
            yield from self._measured(look)
            yield from self._gates(look)
        yield from self._truth_lines(look)

    def _measured(self, look: Look) -> Iterator[str]:
        families: dict[str, list[tuple[str, dict[str, str], float]]] = {}
        for mean in look.means:
            base = re.sub(r"\W", "_", parse(mean.measure).name.lower())
            families.setdefault(base, [])
            for end, value in (("", mean.mean), ("_low", mean.low), ("_high", mean.high)):
                families[base].append((end, {"measure": mean.measure}, value))
        whats = {"": "mean", "_low": "lower end of the interval", "_high": "upper end of it"}
        for base, values in families.items():
            for end, what in whats.items():
                rows = [(labels, value) for e, labels, value in values if e == end]
                yield from self._family(f"{base}{end}_ratio", "gauge", f"{base}: {what}.", rows)
        about = "Queries of the last look."
        yield from self._one("queries", "gauge", about, look.queries)
        about = "Whether results outside the truth were scored from vectors."
        yield from self._one("exact_scores", "gauge", about, int(look.scores_by == "exact"))
        about = "How far the scores of the system are off, 99th percentile."
        yield from self._one("score_error_ratio", "gauge", about, look.error_of_scores)

    def _gates(self, look: Look) -> Iterator[str]:
        rows = [({"gate": str(v.gate)}, float(v.passed)) for v in look.verdicts]
        if rows:
            yield from self._family("gate_passed", "gauge", "Whether a gate is passed.", rows)

    def _latency(self, look: Look, *, shown: bool) -> Iterator[str]:
        name = "semrecall_search_latency_seconds"
        yield f"# HELP {name} Latency of one query at a time; quantiles of the last look."
        yield f"# TYPE {name} summary"
        if shown and len(look.latencies):
            for q in _QUANTILES:
                yield f"{name}{self._labels({'quantile': f'{q:g}'})} {_number(look.latency(q))}"
        yield f"{name}_sum{self._labels({})} {_number(self._latency_sum)}"
        yield f"{name}_count{self._labels({})} {self._latency_count}"

    def _truth_lines(self, look: Look) -> Iterator[str]:
        if self._truth is not None and self._truth.exists():
            age = max(0.0, look.at - self._truth.stat().st_mtime)
            about = "Seconds since the file of the truth was written."
            yield from self._one("truth_age_seconds", "gauge", about, age)
        if look.error:
            return
        aging = look.aging
        about = "Share of the true neighbours that most likely are it no more."
        yield from self._one("truth_stale_ratio", "gauge", about, aging.stale)
        about = "Whether the truth has aged too far to be trusted."
        yield from self._one("truth_aged", "gauge", about, int(aging.aged))
        rows = [
            ({"by": name}, getattr(aging, name))
            for name in ("newcomers", "gone", "moved", "exact", "growth")
            if not math.isnan(getattr(aging, name))
        ]
        about = "What tells the age of the truth, as shares of the neighbours."
        yield from self._family("truth_change_ratio", "gauge", about, rows)
        for name, value, about in (
            ("truth_rows", aging.rows_then, "Vectors when the truth was made."),
            ("system_rows", aging.rows_now, "Vectors the system holds."),
        ):
            if value is not None:
                yield from self._one(name, "gauge", about, value)

    def _one(self, name: str, kind: str, about: str, value: float) -> Iterator[str]:
        return self._family(name, kind, about, [({}, value)])

    def _family(
        self, name: str, kind: str, about: str, rows: Iterable[tuple[dict[str, str], float]]
    ) -> Iterator[str]:
        yield f"# HELP semrecall_{name} {about}"
        yield f"# TYPE semrecall_{name} {kind}"
        for labels, value in rows:
            yield f"semrecall_{name}{self._labels(labels)} {_number(value)}"

    def _labels(self, more: dict[str, str]) -> str:
        pairs = {"system": self.system, **more}
        return "{" + ",".join(f'{k}="{_escaped(v)}"' for k, v in pairs.items()) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return repr(value) if isinstance(value, float) and not value.is_integer() else str(int(value))
