"""Faults of a learning: killed between its steps, inside them and while its state is written, and gone on."""

import random
from pathlib import Path

from faults import victims
from faults.arena import Arena
from faults.verdict import LOST, UNTRUE, Verdict, judge_broken, judge_mended

from gprune.pipeline import opened
from gprune.pipeline.stages import learning
from gprune.store import Store
from gprune.store.states import State, StateFile
from gprune.study import from_file
from gprune.system.errors import DamagedError

PLACES = ("inside", "between", "saving")
# operations on files while a state is written, and how often one learning does each at the very least
OPERATIONS = {"open": 8, "os.rename": 8, victims.FSYNC: 16, "os.chmod": 1}


def kills_in_learning(arena: Arena, tries: int, seed: int) -> Verdict:
    """A learning is killed once or several times, each time a little further on, and then left alone."""
    verdict, chance = Verdict("killed while it learns"), random.Random(seed)
    for number in range(tries):
        cache, done, kills = arena.unlearned("learning"), 0, []
        for _ in range(chance.randint(1, 4)):
            kills.append(_killed(arena, cache, chance))
            state = _state(verdict, arena, cache)
            if state is not None and state.step < done:
                verdict.add(
                    LOST, f"{number}: {kills[-1]}: the state went back from step {done} to {state.step}"
                )
            done = state.step if state is not None else 0
        verdict.tries += 1
        what = f"{number}: {', '.join(kills)}"
        there = judge_broken(verdict, arena, cache, what)
        outcome = victims.run(arena.study, cache)
        judge_mended(verdict, arena, cache, what, outcome.code, there)
        if done and f"goes on at step {done + 1} of" not in outcome.said:
            verdict.add(LOST, f"{what}: it did not go on after step {done}")
    return verdict


def _killed(arena: Arena, cache: Path, chance: random.Random) -> str:
    """Kills a run once more, and says where."""
    place = chance.choice((*PLACES, *OPERATIONS))
    if place in PLACES:
        count = chance.randint(1, 5)
        victims.run(arena.study, cache, victims.killed_in_learning(place, count))
    else:
        count = chance.randint(1, OPERATIONS[place])
        victims.run(arena.study, cache, victims.killed_at(place, count, cache / "learning"))
    return f"{place} number {count}"


def _state(verdict: Verdict, arena: Arena, cache: Path) -> State | None:
    """What a killed learning has left; whole or absent."""
    store = Store(cache)
    key = learning(opened(from_file(arena.study), store).graph).key
    try:
        return StateFile(store, "learning", key).read()
    except DamagedError as error:
        verdict.add(UNTRUE, f"a state is damaged: {error}")
        return None
