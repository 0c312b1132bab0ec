"""Faults of one process: killed at any file operation, or out of disk."""

import random
import signal
from collections.abc import Callable
from pathlib import Path

from faults import victims
from faults.arena import Arena, contents, different
from faults.verdict import UNTRUE, Verdict, judge_broken, judge_mended, shown_state


def kills_at_operations(arena: Arena, tries: int, seed: int) -> Verdict:
    """A run is killed right before an operation on files, of each kind in turn, and run again."""
    verdict, chance = Verdict("killed at file operations"), random.Random(seed)
    kinds = sorted(arena.operations)
    for number in range(tries):
        kind = kinds[number % len(kinds)]
        location, cache = chance.randint(1, arena.operations[kind]), arena.cache("killed")
        victims.run(arena.study, cache, victims.killed_at(kind, location, cache))
        verdict.tries += 1
        fault = f"{kind} number {location}"
        present = {} if _is_finished(arena, cache) else judge_broken(verdict, arena, cache, fault, {})
        judge_mended(verdict, arena, cache, fault, victims.run(arena.study, cache).code, present)
    return verdict


def kills_at_events(arena: Arena) -> Verdict:
    """A run is killed right before the first result or file of each kind appears, and run again each time."""
    verdict = Verdict("killed before each kind of file")
    events = [(event,) for event in arena.events]
    return _at_events(verdict, arena, events, victims.kill_itself, lambda _, end: end.code == -signal.SIGKILL)


def full_at_events(arena: Arena) -> Verdict:
    """The disk is full when a result or file of each kind is written; then there is room, and it runs again."""
    # states of a learning that cannot be written cost no result, so that one run meets all of them
    states = tuple(event for event in arena.events if event.endswith(".state"))
    events = [states, *((event,) for event in arena.events if event not in states)]

    def is_right(events: tuple[str, ...], ended: victims.Outcome) -> bool:
        return ended.code == 0 if events == states else _says_full(ended)

    return _at_events(Verdict("disk full at each kind of file"), arena, events, victims.fill_disk, is_right)


def _at_events(
    verdict: Verdict,
    arena: Arena,
    faults: list[tuple[str, ...]],
    disturb: Callable[[], None],
    is_right: Callable[[tuple[str, ...], victims.Outcome], bool],
) -> Verdict:
    """Disturb runs before events in turn; each run continues what the disturbed run before it has left."""
    cache, before = arena.cache("disturbed"), {}
    for events in faults:
        ended = victims.run(arena.study, cache, victims.disturbed_at(events, cache, disturb))
        if not is_right(events, ended):
            verdict.add(UNTRUE, f"{events}: exit {ended.code}, saying {ended.said[-300:]!r}")
        verdict.tries += 1
        if not _is_finished(arena, cache):
            before = judge_broken(verdict, arena, cache, str(events), before)
            continue
        judge_mended(verdict, arena, cache, str(events), victims.run(arena.study, cache).code, before)
        cache, before = arena.cache("disturbed"), {}
    judge_mended(verdict, arena, cache, "after the last", victims.run(arena.study, cache).code, before)
    return verdict


def _is_finished(arena: Arena, cache: Path) -> bool:
    return shown_state(cache, arena.name) == "done" and not different(contents(cache), contents(arena.undisturbed))


def _says_full(outcome: victims.Outcome) -> bool:
    names_remedy = any(words in outcome.said for words in ("is full", "free some space", "No space left on device"))
    return outcome.code == 2 and names_remedy and "Traceback" not in outcome.said
