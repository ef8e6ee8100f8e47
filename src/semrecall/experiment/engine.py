"""Steps in order: what is up to date stays, what is not is made, and what fails fails alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from semrecall.errors import InputError, SemrecallError, Stopped
from semrecall.experiment.contents import Contents
from semrecall.experiment.manifest import Manifest, Record, versions
from semrecall.registry import did_you_mean

__all__ = ["Done", "Step", "forced", "run_steps"]

State = Literal["made", "up to date", "failed", "stopped", "waits", "to do"]
#: What a step is made from: {name: path of a file}, and what else decides what comes out.
Plan = tuple[Mapping[str, Any], Mapping[str, Any]]


@dataclass(frozen=True)
class Step:
    """One step. Its outputs are files of the results folder.

    plan: what it is made from, given the names of the steps before it that are there. make: does
    it, and says what there is to know. needs: steps without which it cannot be; takes: steps of
    which it takes what there is. always: why it is done every time, or "". groups: what --force
    calls it together with others.
    """

    name: str
    outputs: tuple[str, ...]
    plan: Callable[[Collection[str]], Plan]
    make: Callable[[Collection[str]], Sequence[str]]
    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    always: str = ""
    groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class Done:
    """What became of a step. why: why it was (or would be) done, or why it was not."""

    name: str
    state: State
    why: tuple[str, ...] = ()
    seconds: float = 0.0
    error: Exception | None = None
    notes: tuple[str, ...] = ()

    @property
    def there(self) -> bool:
        """Whether its outputs are of this experiment, or will be when it was done."""
        return self.state in ("made", "up to date", "to do")

    @property
    def reason(self) -> str:
        """Why, in one line."""
        if self.error is not None:
            return getattr(self.error, "message", None) or str(self.error)
        return "; ".join(self.why[:3]) + ("; ..." if len(self.why) > 3 else "")


def forced(names: Iterable[str], steps: Sequence[Step]) -> set[str]:
    """The steps that --force names: one, those of a group, or all."""
    known = {step.name for step in steps}
    groups: dict[str, set[str]] = {"all": known}
    for step in steps:
        for name in step.groups:
            groups.setdefault(name, set()).add(step.name)
    found: set[str] = set()
    for name in names:
        if name not in known | groups.keys():
            raise InputError(
                f"no step {name!r} to force", hint=did_you_mean(name, known | groups.keys())
            )
        found |= {name} if name in known else groups[name]
    return found


def run_steps(
    steps: Sequence[Step],
    manifest: Manifest,
    contents: Contents,
    *,
    force: Collection[str] = (),
    dry: bool = False,
    tell: Callable[[str], None] = lambda line: None,
    clock: Callable[[], float] = time.perf_counter,
) -> list[Done]:
    """Do what is not up to date; the manifest is written after each step that was done.

    dry: do nothing, and say what would be done. tell: gets a line when a step begins and ends.
    """
    outcomes: dict[str, Done] = {}
    for step in steps:
        done = _one(step, outcomes, manifest, contents, step.name in force, dry, tell, clock)
        outcomes[step.name] = done
        if not dry and done.state == "made":
            contents.save()
        if not dry:
            tell(_line(done))
    return list(outcomes.values())


def _one(
    step: Step,
    outcomes: Mapping[str, Done],
    manifest: Manifest,
    contents: Contents,
    force: bool,
    dry: bool,
    tell: Callable[[str], None],
    clock: Callable[[], float],
) -> Done:
    lacking = [name for name in step.needs if not outcomes[name].there]
    if lacking:
        return Done(step.name, "waits", (f"waits for {lacking[0]}",))
    there = [name for name in (*step.needs, *step.takes) if outcomes[name].there]
    try:
        inputs, options = step.plan(there)
        pending = [name for name in there if outcomes[name].state == "to do"]
        hashes = _hashes(inputs, contents, must=not pending)
        why = _why(step, manifest, contents, hashes, options, force)
        if dry:
            why = why or [f"after {name}" for name in pending]
        if not why:
            return Done(step.name, "up to date")
        if dry:
            return Done(step.name, "to do", tuple(why))
        tell(f"{step.name}: {'; '.join(why[:3])} ...")
        start = clock()
        notes = tuple(step.make(there))
        seconds = clock() - start
        made = {name: str(contents.of(manifest.folder / name)) for name in step.outputs}
        manifest.steps[step.name] = Record(hashes, options, made, versions(), seconds, notes)
        manifest.write()
        return Done(step.name, "made", tuple(why), seconds, notes=notes)
    except (SemrecallError, OSError, MemoryError) as error:
        return Done(step.name, "stopped" if isinstance(error, Stopped) else "failed", error=error)


def _hashes(inputs: Mapping[str, Any], contents: Contents, *, must: bool) -> dict[str, str]:
    found = {}
    for name, path in inputs.items():
        digest = contents.of(path)
        if digest is None and must:
            raise InputError(f"{name}: there is no {path}")
        found[name] = digest or ""
    return found


def _why(
    step: Step,
    manifest: Manifest,
    contents: Contents,
    hashes: Mapping[str, str],
    options: Mapping[str, Any],
    force: bool,
) -> list[str]:
    """Why a step has to be done; empty where it is up to date."""
    if force:
        return ["forced"]
    record = manifest.steps.get(step.name)
    if record is None:
        return ["not made yet"]
    why = record.differs(hashes, options)
    for name in step.outputs:
        digest = contents.of(manifest.folder / name)
        if digest is None:
            why.append(f"{name} is gone")
        elif digest != record.outputs.get(name):
            why.append(f"{name} was changed since")
    return why or ([step.always] if step.always else [])


def _line(done: Done) -> str:
    if done.state == "made":
        return f"{done.name}: made in {done.seconds:.1f} s"
    if done.state == "up to date":
        return f"{done.name}: up to date"
    return (
        f"{done.name}: {done.state}: {done.reason}"
        if done.state != "waits"
        else (f"{done.name}: {done.reason}")
    )
