"""Rows of tables, the study of each row, and the minimal set of studies for given rows.

Rows of different tables with the same setting have equal studies, which run once. For example, the full GPrune on FLAP
at 50% retention is in seven of the paper's tables.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from gprune.experiments.reproduction.scale import Scale
from gprune.experiments.scheduler import ScheduledStudy
from gprune.pipeline.stages import UNTIL
from gprune.study import Study, short
from gprune.study.methods import ALL_METHODS, EXPERT_METHODS, METHODS, METRICS
from gprune.system import forms, safe_parsing

GROUP = "reproduce"
Reads = Literal["perplexity", "drift", "agreement", "bins", "speed"]
FIGURES: tuple[Reads, ...] = ("drift", "agreement", "bins")
"""sources of a row's numbers: records of calibration and pruning, without a measurement of a model"""
_UNTIL = {"drift": "drift", "agreement": "agreement", "bins": "masks"}
TASKS = ("tasks", "limit", "task_folder")
"""fields that set the zero-shot tasks of a study and their sizes"""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table, with the study that computes its numbers."""

    labels: dict[str, Any]
    """labels of the row by column, as in the paper"""
    study: Study
    """study to run, with the methods that this row reads"""
    method: str = "gprune"
    """method of the study whose numbers the row shows"""
    reads: Reads = "perplexity"
    """source of the row's numbers"""
    item: str | int = ""
    """part of this source: the name of a comparison or curve, or the number of a bin

    In the tables `study` and `repair`, it is the identifier of the method with its repair.
    """
    extra: bool = False
    """True for a control that is not in the paper's table"""

    @property
    def method_id(self) -> str:
        """Return the method with its base metric, as in gprune.data.published: `gprune:flap`, `fang`."""
        return f"gprune:{self.study.metric}" if self.method == "gprune" else self.method

    @property
    def identifier(self) -> str:
        """Return the method with its repair in the tables `study` and `repair`, unique for a retention and seed."""
        return str(self.item) or self.method

    @property
    def target(self) -> float:
        """Return the target retention, 1 for the dense model."""
        return 1.0 if self.method == "dense" else self.study.retention

    @property
    def until(self) -> str:
        """Return the last stage that the study must run, one of gprune.pipeline.stages.UNTIL."""
        return _UNTIL.get(self.reads, "perplexity")


@dataclass(frozen=True, slots=True)
class TableStudy(ScheduledStudy):
    """A study to run, with the methods of all rows that need it."""

    rows: tuple[Row, ...]
    """the rows whose numbers it computes"""

    @property
    def shared(self) -> Study:
        """Return the study of its rows without methods, name and device."""
        return shared_study(self.study)


def label(row: Row) -> str:
    """Return the label of a row's method in tables: `GPrune (FLAP)`, `Wanda-sp`."""
    method = ALL_METHODS[row.method]
    return f"{method.label} ({metric_label(row.study.metric)})" if method.learns else method.label


def metric_label(metric: str) -> str:
    """Return the label of a metric in tables."""
    return "twFLAP" if metric == "twflap" else METRICS[metric]


class Series:
    """Builds the studies and rows of one reproduction, which share a model and a scale."""

    def __init__(self, model: str, scale: Scale, method: str = "gprune") -> None:
        """Build the base study of a folder, a hub name, or `demo`, from which all other studies differ.

        `method` decides whether the studies prune neurons or experts. Raises SettingsError if a setting of the scale is
        not valid.
        """
        self.model, self.scale = model, scale
        study = Study(model, scale.primary, scale.auxiliary, methods=(method,), group=GROUP)
        sizes: dict[str, Any] = {
            "retention": scale.retention,
            "seed": scale.seed,
            "calibration.samples": scale.samples,
            "sparsity.epochs": scale.epochs,
            "sparsity.batch": scale.batch,
            "evaluation.texts": scale.texts,
            "evaluation.windows": scale.windows,
        }
        self.base = study.with_settings(sizes | dict(scale.settings))
        self._tasks = {f"evaluation.{name}": getattr(scale, name) for name in TASKS} if scale.tasks else {}
        self.tasks = self.base.with_settings(self._tasks).evaluation
        """settings of zero-shot tasks, for the studies that measure them"""

    def study(
        self,
        *,
        metric: str = "flap",
        methods: tuple[str, ...] = ("gprune",),
        pair: tuple[str, str] | None = None,
        changes: dict[str, Any] | None = None,
        **fields: Any,
    ) -> Study:
        """Return a study of the series, named after the settings in which it differs from the base study.

        `pair` has the primary and auxiliary text if they differ from those of the series. `changes` are dotted
        settings, and `fields` are retention, seed or substitute. Only the settings determine whether the study measures
        zero-shot tasks, so that equal studies of several tables are one study.
        """
        first, second = pair or (self.base.primary, self.base.auxiliary)
        study = replace(self.base, metric=metric, methods=methods, primary=first, auxiliary=second, **fields)
        study = study.with_settings(changes) if changes else study
        if self._tasks and self._measures_tasks(study):
            study = study.with_settings(self._tasks)
        return study.renamed(self._describe_study(study))

    def row(
        self,
        method: str = "gprune",
        labels: dict[str, Any] | None = None,
        *,
        first: dict[str, Any] | None = None,
        extra: bool = False,
        **settings: Any,
    ) -> Row:
        """Return the row of one method in a study with `settings` (see `study`).

        Its labels are those of `first`, the label of its method, and those of `labels`, in this order.
        """
        row = Row({}, self.study(methods=(method,), **settings), method, extra=extra)
        return replace(row, labels={**(first or {}), "method": label(row), **(labels or {})})

    def _measures_tasks(self, study: Study) -> bool:
        """Return True if the scale measures tasks in this study: in all studies, or in those of the main table."""
        if study.evaluation.speed != "none":
            return False
        base = self.base
        common = replace(study, metric=base.metric, retention=base.retention, methods=base.methods)
        in_main = common == base and study.retention in self.scale.retentions
        return self.scale.tasks_in == "all" or in_main

    def _describe_study(self, study: Study) -> str:
        """Return a name for display: model, metric, retention, and settings other than those of the base study."""
        scores = "experts" if study.prunes_experts else metric_label(study.metric)
        parts = [short(study.model), scores, f"{study.retention:.0%}"]
        if (study.primary, study.auxiliary) != (self.base.primary, self.base.auxiliary):
            parts.append(f"{short(study.primary)}+{short(study.auxiliary)}")
        if study.substitute:
            parts.append("agreement")
        parts += [f"seed {study.seed}"] * (study.seed != self.base.seed)
        base = self.base.to_dict()
        for section, values in study.to_dict().items():
            if isinstance(values, dict):
                changed = (name for name in values if name not in TASKS and values[name] != base[section][name])
                parts += [f"{name.replace('_', ' ')} {values[name]}" for name in changed]
        # the name is for display, so it may be truncated
        return safe_parsing.sentence(" ".join(parts), forms.LONGEST_NAME)


def shared_study(study: Study) -> Study:
    """Return a study without its methods, name and device, equal for all rows that one run serves."""
    return replace(study, methods=("dense",), name="", group="", device="auto")


def order_methods(methods: Iterable[str]) -> tuple[str, ...]:
    """Return methods in the order in which a study runs them."""
    selected = set(methods)
    return tuple(name for name in (*METHODS, *EXPERT_METHODS) if name in selected)


def entries(rows: Iterable[Row]) -> list[TableStudy]:
    """Group rows into as few studies as possible, in the order of the rows; studies that measure speed come last."""
    groups: dict[Study, list[Row]] = {}
    for row in rows:
        groups.setdefault(shared_study(row.study), []).append(row)
    return sorted((_merge_rows(group) for group in groups.values()), key=lambda entry: entry.timed)


def _merge_rows(rows: list[Row]) -> TableStudy:
    methods = order_methods(name for row in rows for name in row.study.methods)
    until = max((row.until for row in rows), key=UNTIL.index)
    return TableStudy(replace(rows[0].study, methods=methods), until, tuple(rows))
