"""Threshold sets side by side: what each would adapt, and which neurons it would decide otherwise."""

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from gprune.analysis import mask_diff, thresholds
from gprune.app.pages.rasa import lab
from gprune.app.pages.rasa.sets import ThresholdSet
from gprune.app.ui import derived_cache
from gprune.pipeline.runs.opened import Run
from gprune.study import ReliabilitySettings

OWN, PRESENT = "this run", "present lines"


def table(run: Run, settings: ReliabilitySettings, kept: Sequence[ThresholdSet]) -> pd.DataFrame:
    """Every named set beside the present lines and the run's own, one a row."""
    rows = [ThresholdSet(OWN, run.study.reliability), ThresholdSet(PRESENT, settings), *kept]
    return pd.DataFrame([_row(run, one) for one in rows])


def _row(run: Run, one: ThresholdSet) -> dict[str, object]:
    rule = _complete(run, one)
    counts = derived_cache.preview(run, rule).counts
    masks = lab.lab_masks(run, lab.choice(run, rule))
    changed = mask_diff.compare(lab.own_masks(run), masks)
    return {
        "set": one.name,
        "rule": thresholds.described(rule),
        "adapted": counts.adapted,
        "from B": counts.from_auxiliary,
        "neurons in them": counts.neurons,
        "flips": changed.total,
        "neurons kept": masks.ffn.mean(),
        "key/value groups kept": masks.heads.mean(),
    }


def _complete(run: Run, one: ThresholdSet) -> ReliabilitySettings:
    """A set's rule, with what a set does not say as the run has it."""
    return replace(one.settings, source=run.study.reliability.source)
