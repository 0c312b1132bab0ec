"""What RASA would decide under other thresholds, and what would then be kept; nothing is learned or run."""

from dataclasses import dataclass
from typing import Any

import pandas as pd

from gprune.analysis import thresholds, whatif
from gprune.api import frames
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run as Loaded
from gprune.study.settings import ReliabilitySettings
from gprune.system import html_tables


@dataclass(frozen=True, slots=True, eq=False)
class Preview:
    """RASA under other thresholds, as `Run.adapt` gives it.

    Example:
        >>> import gprune
        >>> run = gprune.run("demo", until="masks", progress=False)
        >>> shown = run.adapt(drift_quantile=0.5, score_quantile=0.5)
        >>> int(shown.modules["adapted"].sum()) == shown.adapted
        True
    """

    settings: ReliabilitySettings
    """the rule"""
    modules: pd.DataFrame
    """`Run.modules` as this rule decides it"""
    masks: pd.DataFrame
    """`Run.masks` of GPrune under this rule, its learned thresholds shifted and not learned anew"""
    drift_threshold: float
    """a module that drifts at least so much is sensitive to the text"""
    score_threshold: float
    """a module that scores at most so much is weakly supported by A"""
    retention: float
    """fraction of the decoder's linear weights that the masks keep"""

    @property
    def adapted(self) -> int:
        """How many modules are adapted."""
        return int(self.modules["adapted"].sum())

    def _repr_html_(self) -> str:
        rule, most = self.settings, len(self.modules)
        rows = {
            "Selection": f"{rule.selection}, {rule.score_scale} scores",
            "Quantile of drift": f"{rule.drift_quantile:g} (at least {self.drift_threshold:.4g})",
            "Quantile of score": f"{rule.score_quantile:g} (at most {self.score_threshold:.4g})",
            "Modules adapted": f"{self.adapted:,} of {most:,}",
            "Retention": f"{self.retention:.4f}",
        }
        return html_tables.table("RASA under other thresholds", rows)


def preview(run: Loaded, changes: dict[str, Any]) -> Preview:
    """What a rule decides: `changes` are fields of RASA's settings that are not the run's, and `retention`.

    Raises SettingsError where a value is not valid, or the retention cannot be reached, StoreError where the
    run has not come that far, or a result is damaged.
    """
    retention = changes.pop("retention", run.study.retention)
    dotted = {f"reliability.{name}": value for name, value in changes.items()}
    study = run.study.with_settings({"retention": retention} | dotted)
    statistics, adapted = thresholds.decided(run, study.reliability)
    masks = whatif.relocated(whatif.prepared(run), adapted.source, study.retention)
    return Preview(
        study.reliability,
        frames.modules(run.load(stages.partition), statistics, adapted),
        frames.masks(masks),
        adapted.drift_threshold,
        adapted.score_threshold,
        float(masks.retention),
    )
