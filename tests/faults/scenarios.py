"""Faults of one process: killed, out of disk, damaged results, several at once, a clock that goes back."""

import contextlib
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import damage
from faults import victims
from faults.arena import Arena, contents, different
from faults.verdict import FAILED, UNTRUE, WRONG, Verdict, judge_broken, judge_mended, shown_state

from gprune.store import Store

PAGE = os.sysconf("SC_PAGE_SIZE")


def kills_at_random(arena: Arena, tries: int, seed: int) -> Verdict:
    """A run is killed at a random instant, and run again."""
    verdict, chance = Verdict("killed at random instants"), random.Random(seed)
    for number in range(tries):
        cache, instant = arena.cache("killed"), chance.uniform(0.0, 1.1 * arena.seconds)
        victims.run(arena.study, cache, kill_after=instant)
        _recover(verdict, arena, cache, f"{number}: after {instant:.2f} s")
    return verdict


def kills_at_operations(arena: Arena, tries: int, seed: int) -> Verdict:
    """A run is killed right before an operation on files, of each kind in turn, and run again."""
    verdict, chance = Verdict("killed at file operations"), random.Random(seed)
    kinds = sorted(arena.operations)
    for number in range(tries):
        kind = kinds[number % len(kinds)]
        place, cache = chance.randint(1, arena.operations[kind]), arena.cache("killed")
        victims.run(arena.study, cache, victims.killed_at(kind, place, cache))
        _recover(verdict, arena, cache, f"{kind} number {place}")
    return verdict


def _recover(verdict: Verdict, arena: Arena, cache: Path, what: str) -> None:
    verdict.tries += 1
    finished = shown_state(cache, arena.name) == "done" and not different(
        contents(cache), contents(arena.undisturbed)
    )
    there = {} if finished else judge_broken(verdict, arena, cache, what)
    judge_mended(verdict, arena, cache, what, victims.run(arena.study, cache).code, there)


def full_disks(arena: Arena, tries: int, seed: int) -> Verdict:
    """The disk is full after a part of the run; then there is room, and it runs again."""
    del seed
    verdict = Verdict("full disk")
    needed = sum(path.stat().st_size // PAGE * PAGE + PAGE for path in arena.undisturbed.rglob("*"))
    for number in range(tries):
        size = int(needed * (number + 0.5) / tries) // PAGE * PAGE + PAGE
        with _disk(arena.cache("disk"), size) as disk:
            if disk is None:
                verdict.skipped = "this process may not mount a file system"
                return verdict
            verdict.tries += 1
            cache, what = disk / "cache", f"{size} of {needed} bytes"
            full = victims.run(arena.study, cache)
            there = judge_broken(verdict, arena, cache, what) if full.code else {}
            if full.code and not _says_full(full):
                verdict.add(UNTRUE, f"{what}: exit {full.code}, saying {full.said[-300:]!r}")
            subprocess.run(["mount", "-o", f"remount,size={20 * needed}", str(disk)], check=True)
            judge_mended(verdict, arena, cache, what, victims.run(arena.study, cache).code, there)
    return verdict


def _says_full(outcome: victims.Outcome) -> bool:
    named = "is full" in outcome.said or "free some space" in outcome.said
    return outcome.code == 2 and named and "Traceback" not in outcome.said


@contextlib.contextmanager
def _disk(place: Path, size: int) -> Iterator[Path | None]:
    """A file system of its own of so many bytes; None where this process may not have one."""
    place.mkdir(parents=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "gprune", str(place)], capture_output=True
    )
    try:
        yield place if mounted.returncode == 0 else None
    finally:
        if mounted.returncode == 0:
            subprocess.run(["umount", "-l", str(place)], check=True)


def flipped_bits(arena: Arena, tries: int, seed: int) -> Verdict:
    """One bit of one stored file is the other way round; the run is run again."""
    verdict, chance = Verdict("flipped bits"), random.Random(seed)
    for _ in range(tries):
        cache = arena.copied("flipped")
        ((path, bit),) = damage.random_flips(Store(cache), 1, chance.randrange(10**9))
        damage.flip_bit(path, bit)
        _repair(verdict, arena, cache, f"bit {bit} of {path.relative_to(cache)}")
    return verdict


def damaged_manifests(arena: Arena, tries: int, seed: int) -> Verdict:
    """A manifest is damaged in each of many ways; the run is run again."""
    verdict, chance = Verdict("damaged manifests"), random.Random(seed)
    kinds = sorted(damage.MANIFESTS)
    for number in range(tries):
        cache, kind = arena.copied("manifest"), kinds[number % len(kinds)]
        store = Store(cache)
        folder = store.folder(*chance.choice(damage.results(store)))
        damage.MANIFESTS[kind](folder, chance)
        _repair(verdict, arena, cache, f"{kind}: {folder.relative_to(cache)}")
    return verdict


def _repair(verdict: Verdict, arena: Arena, cache: Path, what: str) -> None:
    verdict.tries += 1
    outcome = victims.run(arena.study, cache)
    if outcome.code != 0 or "Traceback" in outcome.said:
        verdict.add(FAILED, f"{what}: exit {outcome.code}, saying {outcome.said[-300:]!r}")
    for name in different(contents(cache), contents(arena.undisturbed)):
        verdict.add(WRONG, f"{what}: {name} differs after the repair")


def four_starters(arena: Arena, tries: int, seed: int) -> Verdict:
    """Four start the same study at once; three are stopped, each in its own way; one goes to the end."""
    verdict, chance = Verdict("four starters, three stopped"), random.Random(seed)
    ways = (signal.SIGTERM, signal.SIGINT, signal.SIGKILL)
    for number in range(tries):
        cache = arena.cache("four")
        pids = []
        for index in range(4):
            pids.append(victims.start(arena.study, cache, victims.undisturbed, arena.home / f"four-{index}"))
            time.sleep(chance.uniform(0.0, 0.1))
        survivor = chance.choice(pids)
        stopped = [pid for pid in pids if pid != survivor]
        for pid, way in zip(stopped, ways, strict=True):
            time.sleep(chance.uniform(0.0, arena.seconds / 2))
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, way)
        for pid in stopped:
            victims.wait(pid)
        code = victims.wait(survivor)
        verdict.tries += 1
        judge_mended(verdict, arena, cache, f"try {number}", code, {})
    return verdict


def clocks_set_back(arena: Arena, tries: int, seed: int) -> Verdict:
    """The clock goes back by hours in the middle of a run; a later run finds all in order."""
    verdict, chance = Verdict("clock set back"), random.Random(seed)
    for _ in range(tries):
        cache, hours, after = arena.cache("clock"), chance.uniform(0.1, 48), chance.randint(1, 300)
        outcome = victims.run(arena.study, cache, victims.clock_set_back(3600 * hours, after))
        verdict.tries += 1
        what = f"{hours:.1f} hours after {after} looks at the clock"
        judge_mended(verdict, arena, cache, what, outcome.code, {})
        record = (cache / "runs" / arena.name / "run.json").read_text()
        if '"seconds": -' in record:
            verdict.add(UNTRUE, f"{what}: the record has negative seconds")
        judge_mended(verdict, arena, cache, what, victims.run(arena.study, cache).code, {})
    return verdict
