"""The stages behind some results: in which order they are made, and the records that each is given.

Whether a result is there is asked of whoever knows the store, so that nothing is read here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from gprune.pipeline.stages.graph import FieldSubset, Stage, needed

R = TypeVar("R")
Has = Callable[[Stage[Any]], bool]
"""Whether the store has a whole result of a stage."""


def resolve(needs: Any, load: Callable[[Stage[Any]], Any]) -> Any:
    """The records of some needs, handles or lists and mappings of them, in the form of the needs.

    A record that `load` gives as None is left out of lists and mappings.
    """
    if isinstance(needs, Stage | FieldSubset):
        return load(needs.stage)
    if isinstance(needs, Mapping):
        found = {name: resolve(need, load) for name, need in needs.items()}
        return {name: value for name, value in found.items() if value is not None}
    return [value for value in (resolve(need, load) for need in needs) if value is not None]


def served(stage: Stage[R], has: Has, among: Iterable[Stage[Any]] = ()) -> Stage[R]:
    """The stage itself, or the one that serves for it where that is there or will be made anyway."""
    richer = stage.served_by
    if richer is None or has(stage):
        return stage
    return richer if richer in among or has(richer) else stage


def order(wanted: Iterable[Stage[Any]], has: Has, damaged: Has = lambda _: False) -> tuple[Stage[Any], ...]:
    """Every stage that some stages need, themselves included, each after all that it is made from.

    What one of them makes on the way follows it where it is there, or damaged, or where the work is still to
    be done: a run whose work was done without it is whole as it is. `wanted` stands in the order in which
    people want to see it; `has` says whether a result is there, `damaged` whether it was and is spoilt.
    """
    wanted = tuple(wanted)
    everything = _walked(wanted, lambda one: one, {})
    found = _walked(wanted, lambda one: served(one, has, everything), {})
    complete: dict[Stage[Any], None] = {}
    for stage in found:
        complete[stage] = None
        extra = (one for one in stage.beside if one not in found)
        complete |= dict.fromkeys(one for one in extra if has(one) or not has(stage) or damaged(one))
    return tuple(complete)


def on_the_way(missing: Iterable[Stage[Any]]) -> frozenset[Stage[Any]]:
    """The stages that others of them make on the way, and which take no work of their own."""
    missing = frozenset(missing)
    return frozenset(one for stage in missing for one in (*stage.beside, *stage.joined)) & missing


def _walked(
    stages: Iterable[Stage[Any]], instead: Callable[[Stage[Any]], Stage[Any]], found: dict[Stage[Any], None]
) -> dict[Stage[Any], None]:
    """The stages found so far, and then some others after all that they need; of some another is made."""
    for stage in map(instead, stages):
        if stage not in found:
            _walked(needed(stage), instead, found)[stage] = None
    return found
