"""Faults of one process, killed at any file operation or out of disk, and damaged results."""

import contextlib
import os
import random
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import damage
from faults import victims
from faults.arena import Arena, contents, different, manifests
from faults.verdict import UNTRUE, WRONG, Verdict, intact_results, judge_broken, judge_mended, shown_state

PAGE = os.sysconf("SC_PAGE_SIZE")


def kills_at_operations(arena: Arena, tries: int, seed: int) -> Verdict:
    """A run is killed right before an operation on files, of each kind in turn, and run again."""
    verdict, chance = Verdict("killed at file operations"), random.Random(seed)
    kinds = sorted(arena.operations)
    for number in range(tries):
        kind = kinds[number % len(kinds)]
        location, cache = chance.randint(1, arena.operations[kind]), arena.cache("killed")
        victims.run(arena.study, cache, victims.killed_at(kind, location, cache))
        _recover(verdict, arena, cache, f"{kind} number {location}")
    return verdict


def kills_at_events(arena: Arena, tries: int, seed: int) -> Verdict:
    """A run is killed right before the first result or file of each kind appears, and run again."""
    del tries, seed
    killed = -signal.SIGKILL
    return _at_events(arena, "killed before each kind of file", victims.kill_itself, lambda _, end: end.code == killed)


def full_at_events(arena: Arena, tries: int, seed: int) -> Verdict:
    """The disk is full when a result or file of each kind is written; then there is room, and it runs again."""
    del tries, seed

    def is_right(event: str, ended: victims.Outcome) -> bool:
        # a state of a learning that cannot be written costs no result
        return ended.code == 0 if event.endswith(".state") else _says_full(ended)

    return _at_events(arena, "disk full at each kind of file", victims.fill_disk, is_right)


def _at_events(
    arena: Arena, title: str, disturb: Callable[[], None], is_right: Callable[[str, victims.Outcome], bool]
) -> Verdict:
    verdict = Verdict(title)
    for event in arena.events:
        cache = arena.cache("disturbed")
        ended = victims.run(arena.study, cache, victims.disturbed_at(event, cache, disturb))
        if not is_right(event, ended):
            verdict.add(UNTRUE, f"{event}: exit {ended.code}, saying {ended.said[-300:]!r}")
        _recover(verdict, arena, cache, event)
    return verdict


def _recover(verdict: Verdict, arena: Arena, cache: Path, fault: str) -> None:
    verdict.tries += 1
    finished = shown_state(cache, arena.name) == "done" and not different(contents(cache), contents(arena.undisturbed))
    present = {} if finished else judge_broken(verdict, arena, cache, fault)
    judge_mended(verdict, arena, cache, fault, victims.run(arena.study, cache).code, present)


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
            cache, fault = disk / "cache", f"{size} of {needed} bytes"
            full = victims.run(arena.study, cache)
            present = judge_broken(verdict, arena, cache, fault) if full.code else {}
            if full.code and not _says_full(full):
                verdict.add(UNTRUE, f"{fault}: exit {full.code}, saying {full.said[-300:]!r}")
            subprocess.run(["mount", "-o", f"remount,size={20 * needed}", str(disk)], check=True)
            judge_mended(verdict, arena, cache, fault, victims.run(arena.study, cache).code, present)
    return verdict


def damaged_results(arena: Arena, tries: int, seed: int) -> Verdict:
    """Some results of a finished run are damaged, each in a way of its own, and the study is run again."""
    verdict, chance = Verdict("damaged results"), random.Random(seed)
    for number in range(tries):
        cache = arena.cache("spoilt")
        shutil.copytree(arena.undisturbed, cache)
        places = manifests(cache)
        ways = chance.sample(sorted(damage.MANIFESTS), 8)
        for manifest, way in zip(chance.sample(places, len(ways)), ways, strict=True):
            damage.MANIFESTS[way](manifest.parent, chance)
        verdict.tries += 1
        present, fault = intact_results(cache), f"{number}: {', '.join(ways)}"
        if len(present) != len(manifests(arena.undisturbed)) - len(ways):
            verdict.add(WRONG, f"{fault}: {len(present)} results are called whole")
        judge_mended(verdict, arena, cache, fault, victims.run(arena.study, cache).code, present)
    return verdict


def _says_full(outcome: victims.Outcome) -> bool:
    names_remedy = any(words in outcome.said for words in ("is full", "free some space", "No space left on device"))
    return outcome.code == 2 and names_remedy and "Traceback" not in outcome.said


@contextlib.contextmanager
def _disk(folder: Path, size: int) -> Iterator[Path | None]:
    """A file system of its own of so many bytes; None where this process may not have one."""
    folder.mkdir(parents=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "gprune", str(folder)], capture_output=True)
    try:
        yield folder if mounted.returncode == 0 else None
    finally:
        if mounted.returncode == 0:
            subprocess.run(["umount", "-l", str(folder)], check=True)
