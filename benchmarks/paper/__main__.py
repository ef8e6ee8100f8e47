"""Writes docs/paper.md and its figures.

    cd benchmarks && python -m paper [-o ../docs/paper.md]

Data: the shared research data (not part of the project). Takes some minutes on two cores.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from paper import sections
from paper.collections import collections

HERE = Path(__file__).parent


def main() -> None:
    """Run everything and fill the page's frame."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=HERE.parents[1] / "docs" / "paper.md")
    output = parser.parse_args().output
    folder = output.parent / "figures"
    folder.mkdir(exist_ok=True)
    found = collections()
    filled = {
        "overview": sections.overview(found),
        "judges": sections.judges(found),
        "distribution": sections.distribution(found, folder),
        "scores": sections.scores(found),
        "correlation": sections.correlation(found),
        "groups": sections.groups(found, folder),
        "quantisation": sections.quantisation(found),
        "cost": sections.cost(found, folder),
        "tolerances": sections.tolerances(found, folder),
        "precision": sections.precision(found),
    }
    text = (HERE / "frame.md").read_text(encoding="utf-8")
    for name, lines in filled.items():
        print(name, flush=True)
        text = text.replace(f"<!-- {name} -->\n", "\n".join(lines) + "\n")
    output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
