"""What was chosen by measurement, as results say it, and whether texts are long enough to choose by."""

from collections.abc import Iterable
from typing import Any

from gprune.data import texts as corpora
from gprune.pipeline.stages.choosing import choice
from gprune.pipeline.stages.graph import Stage
from gprune.pipeline.stages.inputs import ROLES, roles
from gprune.pipeline.stages.pruning import meant, repairs
from gprune.pipeline.stages.results import Results
from gprune.pipeline.stages.run_context import RunContext
from gprune.records import Choice, Repair
from gprune.records.repairs import AUTO
from gprune.study.methods import METHODS
from gprune.system.errors import SettingsError


def require_texts(results: Results, wanted: Iterable[Stage[Any]]) -> None:
    """Checks that texts are long enough for the held-out sequences of a run, before it begins.

    Nothing is read of those that are drawn already. Raises SettingsError with the number that is missing.
    """
    graph = results.graph
    study, work = graph.study, RunContext(graph.study, graph.inputs, results.store.texts)
    drawn = [stage for stage in wanted if stage.kind == "tokens" and "held_out" in stage.id.variant]
    for stage in drawn:
        role = stage.id.texts[0]
        text, length = roles(study)[role], study.calibration.length
        if corpora.is_sampled(text) or results.holds(stage):
            continue
        used, held = study.calibration.samples if role in ROLES else 0, study.choice.sequences
        short = corpora.missing(text, work.tokenizer, used, held, length, work.text_cache)
        if short:
            raise SettingsError(
                f"choice.sequences ({held:,}) are held out of {text!r} beside the {used:,} that calibrate, "
                f"and {short:,} sequences of {length} tokens are missing: give a longer text, or lower "
                "choice.sequences or calibration.samples"
            )


def made(results: Results, method: str) -> Choice | None:
    """What was chosen for a method; None where nothing is chosen, or not yet.

    Raises StoreError where the record is damaged.
    """
    if AUTO not in repairs(results.graph, method):
        return None
    stage = choice(results.graph, METHODS[method].masks)
    return results.record(stage) if results.there(stage) else None


def carried_out(results: Results, method: str) -> tuple[Repair, ...]:
    """What is done to the weights that a method keeps; AUTO where that is to be chosen yet."""
    found = made(results, method)
    if found is None:
        return repairs(results.graph, method)
    return meant(results.graph, method, found.repair.partition(":")[0])
