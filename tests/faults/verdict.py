"""What is wrong after a fault, by kind; nothing of it may ever be found."""

import contextlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from faults.arena import Arena, Contents, contents, different, manifests

from gprune.pipeline import runs
from gprune.pipeline.stages import KINDS
from gprune.store import DAMAGED, Store
from gprune.system.errors import GpruneError

LOST, WRONG, UNTRUE, FAILED = "results lost", "wrong results", "untrue states", "not recovered"
FINDINGS = (LOST, WRONG, UNTRUE, FAILED)


@dataclass(slots=True)
class Verdict:
    """What one scenario has found."""

    scenario: str
    """what was tried"""
    tries: int = 0
    """how often"""
    counts: Counter[str] = field(default_factory=Counter)
    """findings by kind"""
    sentences: list[str] = field(default_factory=list)
    """each finding in words"""

    def add(self, kind: str, sentence: str) -> None:
        """Enters a finding."""
        self.counts[kind] += 1
        self.sentences.append(f"{self.scenario}: {kind}: {sentence}")

    @property
    def row(self) -> str:
        """One line of the table."""
        result = "".join(f"{self.counts[kind]:>16}" for kind in FINDINGS)
        return f"{self.scenario:<34}{self.tries:>6}{result}"


def intact_results(cache: Path) -> dict[str, int]:
    """The results that a cache calls whole, with the inode of each manifest."""
    store = Store(cache)
    results = {}
    for manifest in manifests(cache):
        stage, key = manifest.parent.parent.name, manifest.parent.name
        with contextlib.suppress(GpruneError):
            store.check(stage, key, KINDS[stage].record)
            results[f"{stage}/{key}"] = manifest.stat().st_ino
    return results


def judge_broken(verdict: Verdict, arena: Arena, cache: Path, fault: str, before: dict[str, int]) -> dict[str, int]:
    """Looks at a cache right after a fault, before anything mends it.

    Returns:
        The results that are whole, which nothing may lose from now on.
    """
    present = intact_results(cache)
    _judge_lost(verdict, fault, before, present)
    actual, expected = contents(cache), contents(arena.undisturbed)
    for name in present:
        if actual.get(name) != expected.get(name):
            verdict.add(WRONG, f"{fault}: {name} is called whole and differs")
    state = shown_state(cache, arena.name)
    if state in ("running", "done"):
        verdict.add(UNTRUE, f"{fault}: the run reads {state!r}")
    return present


def _judge_lost(verdict: Verdict, fault: str, before: dict[str, int], current: dict[str, int]) -> None:
    for name, inode in before.items():
        if current.get(name) != inode:
            verdict.add(LOST, f"{fault}: {name} was whole and was made again")


def judge_mended(verdict: Verdict, arena: Arena, cache: Path, fault: str, code: int, before: dict[str, int]) -> None:
    """Looks at a cache after the study was run again: done, nothing lost, nothing different."""
    if code != 0:
        verdict.add(FAILED, f"{fault}: run again, it ended with {code}")
        return
    _judge_lost(verdict, fault, before, intact_results(cache))
    actual: Contents = contents(cache)
    for name in different(actual, contents(arena.undisturbed)):
        verdict.add(WRONG, f"{fault}: {name} differs from the undisturbed run's")
    for left in cache.glob("*/*.state"):
        if left.parent.name != DAMAGED:
            verdict.add(UNTRUE, f"{fault}: finished, {left.name} is left")
    if shown_state(cache, arena.name) != "done":
        verdict.add(UNTRUE, f"{fault}: finished, the run reads {shown_state(cache, arena.name)!r}")


def shown_state(cache: Path, run: str) -> str:
    """What the app says of a run; empty where there is none."""
    record = runs.read(Store(cache), run)
    return "" if record is None else runs.current_state(cache, record)
