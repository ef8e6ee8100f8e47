"""The worker behind `vizier.py`: Google Vizier over lines of JSON on standard input and output.

It may run under another Python than semrecall's, so it imports nothing of semrecall. It runs
Vizier's default algorithm (GP_UCB_PE) without its server, over a study in memory.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def main() -> None:
    """Answer every line until there is no more."""
    # Libraries may print: what they say goes to standard error.
    out, sys.stdout = sys.stdout, sys.stderr
    first = json.loads(sys.stdin.readline())
    study = Study(first["space"], first["seed"])
    print(json.dumps({"ready": True}), file=out, flush=True)
    for line in sys.stdin:
        message = json.loads(line)
        answer = study.ask() if "ask" in message else study.tell(message["tell"])
        print(json.dumps(answer), file=out, flush=True)


class Study:
    """One study: a space, what was suggested, and what was measured."""

    def __init__(self, space: list[dict[str, Any]], seed: int) -> None:
        from jax import config, random
        from vizier import pyvizier as vz
        from vizier._src.algorithms.designers.gp_ucb_pe import VizierGPUCBPEBandit
        from vizier.algorithms import CompletedTrials

        config.update("jax_enable_x64", True)
        self.vz, self.completed = vz, CompletedTrials
        problem = vz.ProblemStatement()
        _add(vz, problem.search_space.root, space)
        information = vz.MetricInformation(name="value", goal=vz.ObjectiveMetricGoal.MINIMIZE)
        problem.metric_information.append(information)
        self.designer: Any = VizierGPUCBPEBandit(problem, rng=random.PRNGKey(seed))
        self.trials = 0
        self.asked: Any = None

    def ask(self) -> dict[str, Any]:
        """The next suggestion."""
        self.trials += 1
        self.asked = self.designer.suggest(1)[0].to_trial(self.trials)
        return {"point": self.asked.parameters.as_dict()}

    def tell(self, told: dict[str, float] | None) -> dict[str, Any]:
        """What came of it; nothing where it could not be searched."""
        from vizier.algorithms import ActiveTrials

        if told is None:
            self.asked.complete(self.vz.Measurement(), infeasibility_reason="failed")
        else:
            self.asked.complete(self.vz.Measurement(metrics={"value": _penalised(told)}))
        self.designer.update(self.completed([self.asked]), ActiveTrials())
        return {"told": True}


def _penalised(told: dict[str, float]) -> float:
    """Cost on a logarithmic scale; a shortfall weighs more than any saving makes good."""
    import math

    short = max(told["shortfall"], 0.0)
    return math.log(max(told["cost"], 1e-12)) + (10.0 + 100.0 * short if short > 0 else 0.0)


def _add(vz: Any, root: Any, ranges: list[dict[str, Any]]) -> None:
    for one in ranges:
        if not one["ordered"]:
            root.add_categorical_param(one["name"], one["listed"])
            continue
        scale = vz.ScaleType.LOG if one["log"] else vz.ScaleType.LINEAR
        if one["listed"]:
            root.add_discrete_param(one["name"], one["listed"])
        elif one["whole"] and not one["log"]:
            root.add_int_param(one["name"], int(one["low"]), int(one["high"]))
        else:
            # Whole numbers on a logarithmic scale are rounded by who asked.
            root.add_float_param(
                one["name"], float(one["low"]), float(one["high"]), scale_type=scale
            )


if __name__ == "__main__":
    main()
