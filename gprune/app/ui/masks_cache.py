"""Masks that no run has decided: under other thresholds, at another retention, from another text's scores.

Each is composed once for its keys, for every page that asks for it; gprune.analysis.whatif decides.
"""

from typing import Any

from gprune.analysis import whatif
from gprune.app.ui import derived_cache
from gprune.app.ui.memo import memoized
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run
from gprune.records import PruningMasks


def masks(run: Run, choice: whatif.LabChoice) -> PruningMasks:
    """The masks of a choice; nothing is learned anew.

    Raises MissingResultError where the run lacks what GPrune's masks follow from, MethodError where the
    method cannot be decided here (see `whatif.obstacle`), SettingsError where the retention is below what the
    floors of the layers cost.
    """
    if choice.method != "gprune":
        # what the decisions of a run's baselines follow from
        return _of_baseline(run, f"{run.root} {run.study.to_json()} {run.graph.inputs!r}", choice)
    keys = [run.key(stages.scores, text) for text in stages.PAIR]
    keys += [run.key(stages.partition), run.key(stages.modules), run.key(stages.learning)]
    return _of_gprune(run, run.root, tuple(keys), run.study.sparsity.alignment, run.study.seed, choice)


def of_text(run: Run, method: str, text: str) -> PruningMasks:
    """The masks of a method at the run's retention, were PRIMARY or AUXILIARY of whatif alone to decide.

    Errors as `masks`.
    """
    return masks(run, whatif.LabChoice(method, run.study.retention, text, run.study.reliability))


@memoized(64)
def _of_gprune(
    _run: Run, root: str, keys: tuple[str, ...], alignment: int, seed: int, choice: whatif.LabChoice
) -> PruningMasks:
    base = _prepared(_run, root, keys, alignment)
    if choice.scoring == whatif.ADAPTED:
        source = derived_cache.preview(_run, choice.settings)[1].source
    else:
        source = whatif.whole(base, choice.scoring)
    return whatif.relocated(base, source, choice.retention)


@memoized(4)
def _prepared(_run: Run, root: str, keys: tuple[str, ...], alignment: int) -> whatif.Prepared:
    return whatif.prepared(_run)


@memoized(64)
def _of_baseline(_run: Run, identity: str, choice: whatif.LabChoice) -> PruningMasks:
    adapted: Any = None
    if choice.scoring == whatif.ADAPTED:
        adapted = derived_cache.preview(_run, choice.settings)[1].scores
    return whatif.decide(_run.results, choice.method, choice.retention, choice.scoring, adapted)
