"""Preview of RASA under other thresholds, and of the masks that follow; nothing is learned and no model is run."""

from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from gprune.analysis import thresholds, whatif
from gprune.api import frames
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run as Loaded
from gprune.study.settings import ReliabilitySettings


@dataclass(frozen=True, slots=True, eq=False)
class Preview:
    """RASA under other thresholds, returned by `Run.adapt`.

    Example:
        >>> import gprune
        >>> run = gprune.run("demo", until="masks", progress=False)
        >>> preview = run.adapt(drift_quantile=0.5, score_quantile=0.5)
        >>> int(preview.modules["adapted"].sum()) == preview.adapted
        True
    """

    settings: ReliabilitySettings
    """settings of RASA"""
    modules: pd.DataFrame = field(repr=False)
    """`Run.modules` under these settings"""
    masks: pd.DataFrame = field(repr=False)
    """masks of GPrune under these settings; the learned thresholds are shifted, not learned again"""
    drift_threshold: float
    """drift from which a module counts as sensitive to the text"""
    score_threshold: float
    """score up to which a module counts as weakly supported by text A"""
    retention: float
    """fraction of the decoder's linear weights that the masks keep"""

    @property
    def adapted(self) -> int:
        """Number of adapted modules."""
        return int(self.modules["adapted"].sum())


def preview(run: Loaded, changes: dict[str, Any]) -> Preview:
    """Return the decisions of RASA and the masks of GPrune under changed settings.

    Args:
        run: run whose results are used.
        changes: settings of RASA that differ from the run's, and `retention`.

    Raises:
        SettingsError: a value is not valid, or the retention cannot be reached.
        StoreError: a result is missing or damaged.
    """
    retention = changes.pop("retention", run.study.retention)
    settings = {f"reliability.{name}": value for name, value in changes.items()}
    study = run.study.with_settings({"retention": retention} | settings)
    statistics, adapted = thresholds.reliability_decision(run, study.reliability)
    masks = whatif.shifted_masks(whatif.prepare_run(run), adapted.source, study.retention)
    return Preview(
        study.reliability,
        frames.modules(run.load(stages.partition), statistics, adapted),
        frames.masks(masks),
        adapted.drift_threshold,
        adapted.score_threshold,
        float(masks.retention),
    )
