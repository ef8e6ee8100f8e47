"""How fast TREC runs are scored, beside pytrec_eval, ir_measures and ranx, and in how much memory.

    python benchmarks/bench_relevance.py [--peers PYTHON] [--queries 5000] [--depth 1000]

Measured are nDCG@10, R@100, RR and AP, means over all queries, from TREC files on disk and from
dicts that are there already. Every program runs in a fresh process, several times in turn with the
others; times are of the wall clock and of all processors together, from files with all imports;
memory is the peak. How many times ours a program takes is said of the same run: of the medians, of
the best, and of the processor time, which a busy machine changes least. `--peers` is the Python of
an environment with the other programs (`pip install pytrec_eval-terrier ir_measures ranx`); one
that is not installed there is left out.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import numpy as np

#: What every program runs first: dicts where they are asked for, then the clock starts.
START = """
import gc, json, sys, time
how, run_path, qrels_path = sys.argv[1:]
run, qrels = {}, {}
if how == "dicts":
    gc.disable()
    for line in open(run_path):
        query, _, document, _, score, _ = line.split()
        run.setdefault(query, {})[document] = float(score)
    for line in open(qrels_path):
        query, _, document, grade = line.split()
        qrels.setdefault(query, {})[document] = int(grade)
    gc.enable()
def first_of_two(work):
    # With dicts the imports are done before the clock starts, on two queries.
    if how == "dicts":
        two = list(qrels)[:2]
        work({q: run[q] for q in two}, {q: qrels[q] for q in two})
"""
END = """
start, used = time.perf_counter(), time.process_time()
means = work(run, qrels)
seconds, used = time.perf_counter() - start, time.process_time() - used
# Not getrusage: that starts from the peak of the process that started this one.
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if "VmHWM" in line)
found = {"seconds": seconds, "processor_seconds": used, "megabytes": peak / 1024}
print(json.dumps(found | {"means": means}))
"""

PROGRAMS = {
    "semrecall": """
def work(run, qrels):
    from semrecall.formats import read_judgments, read_run
    from semrecall.data import Judgments, Run
    from semrecall.measures import align, parse
    if how == "files":
        run, qrels = read_run(run_path), read_judgments(qrels_path)
    else:
        run, qrels = Run.from_dict(run), Judgments.from_dict(qrels)
    # Queries without a relevant document count as 0 with all of them.
    problem = align(run, None, qrels, no_relevant="zero")
    return [parse(n).values(problem).mean for n in ("nDCG@10", "R@100", "RR", "AP")]
first_of_two(work)
""",
    "pytrec_eval": """
def work(run, qrels):
    import pytrec_eval
    if how == "files":
        with open(qrels_path) as file:
            qrels = pytrec_eval.parse_qrel(file)
        with open(run_path) as file:
            run = pytrec_eval.parse_run(file)
    names = ("ndcg_cut.10", "recall.100", "recip_rank", "map")
    found = pytrec_eval.RelevanceEvaluator(qrels, set(names)).evaluate(run)
    return [
        sum(values[n.replace(".", "_")] for values in found.values()) / len(found) for n in names
    ]
first_of_two(work)
""",
    "ir_measures": """
def work(run, qrels):
    import ir_measures
    from ir_measures import AP, RR, R, nDCG
    if how == "files":
        qrels = ir_measures.read_trec_qrels(qrels_path)
        run = ir_measures.read_trec_run(run_path)
    wanted = [nDCG @ 10, R @ 100, RR, AP]
    found = ir_measures.calc_aggregate(wanted, qrels, run)
    return [found[m] for m in wanted]
first_of_two(work)
""",
    "ranx": """
def work(run, qrels):
    from ranx import Qrels, Run, evaluate
    if how == "files":
        qrels = Qrels.from_file(qrels_path, kind="trec")
        run = Run.from_file(run_path, kind="trec")
    else:
        qrels, run = Qrels(qrels), Run(run)
    wanted = ["ndcg@10", "recall@100", "mrr", "map"]
    found = evaluate(qrels, run, wanted, make_comparable=True)
    return [float(found[m]) for m in wanted]
first_of_two(work)
""",
}


SOURCES = ["files", "dicts"]


def write_files(folder: Path, queries: int, depth: int, judged: int, seed: int) -> tuple[str, str]:
    """A run and qrels: half of the judged documents of a query were found, the rest are strange."""
    random = np.random.default_rng(seed)
    run, qrels = folder / "made.run", folder / "made.qrels"
    with run.open("w") as results, qrels.open("w") as labels:
        for query in range(queries):
            found = random.choice(1_000_000, depth, replace=False)
            scores = np.sort(random.random(depth) * 30)[::-1]
            results.writelines(
                f"q{query} Q0 D{d:07d} {rank} {s:.6f} made\n"
                for rank, (d, s) in enumerate(zip(found.tolist(), scores.tolist(), strict=True), 1)
            )
            half = min(judged // 2, depth)
            some = np.concatenate(
                [random.choice(found, half, replace=False), random.integers(0, 1_000_000, half)]
            )
            some = np.unique(some)
            grades = random.integers(0, 4, len(some)).tolist()
            labels.writelines(
                f"q{query} 0 D{d:07d} {g}\n" for d, g in zip(some.tolist(), grades, strict=True)
            )
    return str(run), str(qrels)


def measured(python: str, name: str, how: str, files: tuple[str, str]) -> dict | None:
    """What one process reports; None where the program is not installed."""
    code = START + PROGRAMS[name] + END
    done = subprocess.run([python, "-c", code, how, *files], capture_output=True, text=True)
    if done.returncode:
        missing = "ModuleNotFoundError" in done.stderr
        if not missing:
            print(f"  {name} failed: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
        return None
    return json.loads(done.stdout.splitlines()[-1])


def compare(how: str, pythons: dict[str, str], files: tuple[str, str], repeats: int) -> None:
    """Print what all programs take, and how many times ours that is."""
    found: dict[str, list[dict]] = {}
    left = dict(pythons)
    for _ in range(repeats):
        # In turn, so that a busy minute of the machine is shared by all.
        for name, python in list(left.items()):
            report = measured(python, name, how, files)
            if report is None:
                del left[name]
                found.pop(name, None)
                continue
            found.setdefault(name, []).append(report)
    print(f"from {how}: {repeats} runs each")
    print(f"  {'':12} {'median':>9} {'best':>9} {'processor':>10} {'peak':>8}   times ours")
    own = summary(found["semrecall"]) if "semrecall" in found else None
    for name, reports in found.items():
        times = summary(reports)
        row = f"  {name:12} {times[0]:7.3f} s {times[1]:7.3f} s {times[2]:8.3f} s"
        row += f" {max(r['megabytes'] for r in reports):5.0f} MB"
        if own is not None and name != "semrecall":
            row += "  " + " ".join(f"{a / b:5.1f}" for a, b in zip(times, own, strict=True))
        print(row)
    for name, reports in found.items():
        print(f"  {name:12} means {' '.join(f'{m:.6f}' for m in reports[0]['means'])}")
    for name in pythons.keys() - left.keys():
        print(f"  {name:12} left out: not installed, or it failed")


def summary(reports: list[dict]) -> tuple[float, float, float]:
    """Median and best seconds of the wall clock, and median seconds of the processors."""
    seconds = [r["seconds"] for r in reports]
    return median(seconds), min(seconds), median(r["processor_seconds"] for r in reports)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--peers", default=sys.executable, help="Python with the other programs")
    options.add_argument("--queries", type=int, default=5_000)
    options.add_argument("--depth", type=int, default=1_000)
    options.add_argument("--judged", type=int, default=20)
    options.add_argument("--repeats", type=int, default=5)
    options.add_argument("--programs", nargs="+", choices=list(PROGRAMS), default=list(PROGRAMS))
    options.add_argument("--from", dest="sources", nargs="+", choices=SOURCES, default=SOURCES)
    options.add_argument("--seed", type=int, default=0)
    asked = options.parse_args()
    pythons = {n: sys.executable if n == "semrecall" else asked.peers for n in asked.programs}
    shapes = [(asked.queries, asked.depth), (50_000, 1)]
    for queries, depth in shapes:
        print(f"{queries:,} queries x {depth:,} results, {asked.judged} judgments a query")
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            files = write_files(Path(folder), queries, depth, asked.judged, asked.seed)
            for how in asked.sources:
                compare(how, pythons, files, asked.repeats)


if __name__ == "__main__":
    main()
