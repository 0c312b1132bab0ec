"""Answers: which rows has each table and figure of the paper, and which study gives each row?

Perplexity and accuracy tables of section 4 and of the appendix; figures and the tables of speed have modules
of their own. Labels and order are the paper's; `extra` rows are controls of ours that stand beside them.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from gprune.data.published import TABLES as PUBLISHED
from gprune.experiments.reproduction import figures, throughput
from gprune.experiments.reproduction.control_rows import FAIR, fair_rows
from gprune.experiments.reproduction.grid import Row, Series, label
from gprune.experiments.reproduction.repair_rows import REPAIR, repair_rows
from gprune.experiments.reproduction.scale import LARGE, PAPER_EPOCHS, paper_model
from gprune.study import short
from gprune.study.methods import METHODS
from gprune.system.errors import SettingsError
from gprune.system.nearest import closest

ALL = "all"
QUANTILES = (0.80, 0.85, 0.90)
# the paper's divisors of its 2048 samples, and the epochs after which it finds each size converged
_SAMPLES = ((16, 4), (8, 7), (4, 7), (2, 8))
_BASES = {"wanda_sp": "wanda_sp", "flap": "flap", "fang": "twflap"}
_SCORINGS = {"score_average": "score avg.", "rank_average": "rank avg.", "pooled": "pool"}
_EQUAL_SIZE, _UNADAPTED = METHODS["msl_random"].changes, METHODS["gprune_no_rasa"].changes
_MAIN_CONTROLS = ("flap_uniform", "wanda_sp_uniform", "msl_layers", "msl_random")
"""controls at every retention: on FLAP, since each that learns costs as much as GPrune"""
_ABLATION_CONTROLS = ("flap_uniform", "msl_layers", "msl_shuffled")
"""controls that are no row of the paper's ablation themselves"""


@dataclass(frozen=True, slots=True)
class PaperTable:
    """One table or figure of the paper."""

    name: str
    """as the command takes it"""
    title: str
    """what it shows, and where the paper shows it"""
    rows: Callable[[Series], list[Row]]
    """its rows in a series"""
    note: str = ""
    """what a reader must know"""
    derived: bool = False
    """whether it is computed from the rows of the main table"""
    scale: str = ""
    """the scale of a table that stands apart: `all` leaves it out; empty for the paper's own"""
    left_out: Callable[[Series], str] = lambda _: ""
    """which rows a model cannot have, and why; empty where it can have all"""


def main(series: Series) -> list[Row]:
    """The paper's rows, and behind those of each retention the controls; or the methods that are named."""
    if series.scale.methods:
        return _named(series)
    rows: list[Row] = []
    for retention, own in groupby(compared(series), lambda row: row.labels["retention"]):
        rows += own
        if retention < 1:
            rows += _controls(series, _MAIN_CONTROLS, retention=retention)
    return rows


def _named(series: Series) -> list[Row]:
    """The methods that are asked for at every retention, GPrune on the metric of each that has one."""
    scale = series.scale
    rows = compared(series)[:1]
    wanted = [name for name in scale.methods if name != "dense"]
    bases = [metric for name in wanted if (metric := _BASES.get(name) or METHODS[name].brings)]
    for retention in scale.retentions:
        for name in wanted:
            metrics = bases or ["flap"] if name == "gprune" else ["flap"]
            for metric in metrics:
                row = _row(series, name, metric=metric, retention=retention)
                labels = row.labels | {"method": label(row)}
                rows.append(replace(row, labels=labels, extra=METHODS[name].control))
    return rows


def _controls(series: Series, names: Iterable[str], **chosen: Any) -> list[Row]:
    """Rows of ours that say what a part of GPrune or of a baseline brings; none where they are left out."""
    found = [_row(series, name, **chosen) for name in names] if series.scale.controls else []
    return [replace(row, labels=row.labels | {"method": _called(row)}, extra=True) for row in found]


def _called(row: Row) -> str:
    """A control's name, which says that it is one."""
    return f"control: {label(row)}"


def compared(series: Series) -> list[Row]:
    """All methods at every retention; the paper leaves LLM-Pruner out at 13B, for its memory."""
    scale = series.scale
    dense = series.study(methods=("dense",), retention=scale.retention)
    rows = [Row({"retention": 1.0, "method": "dense"}, dense, "dense")]
    first = () if paper_model(series.model) == LARGE else ("llm_pruner",)
    for retention in scale.retentions:
        for name in first:
            rows.append(_row(series, name, retention=retention))
        for base, metric in _BASES.items():
            rows.append(_row(series, base, retention=retention))
            rows.append(_row(series, "gprune", metric=metric, retention=retention))
    return [Row({"retention": r.labels["retention"], "method": label(r)}, r.study, r.method) for r in rows]


def _row(series: Series, method: str, **chosen: Any) -> Row:
    study = series.study(methods=(method,), **chosen)
    return Row({"retention": study.retention}, study, method)


def _labelled(row: Row, **labels: Any) -> Row:
    return Row({"method": label(row), **labels}, row.study, row.method)


def ablation(series: Series) -> list[Row]:
    """The components one after the other, on FLAP; without BCM, MSL works on equal-size modules."""
    rows = [_labelled(_row(series, "flap"), BCM="", RASA="", MSL="")]
    for bcm, rasa, changes in (("", "", _EQUAL_SIZE), ("yes", "", _UNADAPTED), ("yes", "yes", {})):
        rows.append(_labelled(_row(series, "gprune", changes=changes), BCM=bcm, RASA=rasa, MSL="yes"))
    marks = {"BCM": "", "RASA": ""}
    for row in _controls(series, _ABLATION_CONTROLS):
        learned = METHODS[row.method].decision == "learned"
        labels = {"method": _called(row), **marks, "MSL": "yes" if learned else ""}
        rows.append(replace(row, labels=labels))
    return rows


def calibration_pair(series: Series) -> list[Row]:
    """FLAP on one text against GPrune on pairs; the third text is an auxiliary one only."""
    scale = series.scale
    a, b, c = scale.primary, scale.auxiliary, scale.substitute
    rows = []
    for first, second in ((a, b), (b, a)):
        alone = _row(series, "flap", pair=(first, second))
        rows.append(_labelled(alone, calibration=short(first)))
        for other in (second, c):
            row = _row(series, "gprune", pair=(first, other))
            rows.append(_labelled(row, calibration=f"{short(first)}+{short(other)}"))
    return rows


def multi_dataset(series: Series) -> list[Row]:
    """Three ways to give a baseline both texts, against GPrune, for every base metric."""
    a, both = short(series.scale.primary), f"{short(series.scale.primary)}+{short(series.scale.auxiliary)}"
    rows = []
    for base, metric in _BASES.items():
        single = _row(series, base)
        rows.append(_labelled(single, scoring=a))
        for scoring, words in _SCORINGS.items():
            row = _row(series, f"{base}_{scoring}")
            rows.append(Row({"method": label(single), "scoring": words}, row.study, row.method))
        if base == "wanda_sp":
            dense = _row(series, "wanda_sp_dense")
            labels = {"method": label(single), "scoring": f"{a}, dense statistics"}
            rows.append(Row(labels, dense.study, dense.method, extra=True))
        rows.append(_labelled(_row(series, "gprune", metric=metric), scoring=both))
    return rows


_FINE: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("BCM", "modularization", "random", {"modularization.kind": "random"}),
    ("BCM", "modularization", "initialization", {"modularization.kind": "initialization"}),
    ("BCM", "modularization", "initialization + refinement", {}),
    ("RASA", "module selection", "none", _UNADAPTED),
    ("RASA", "module selection", "random", {"reliability.selection": "random"}),
    ("RASA", "module selection", "rank drift", {"reliability.selection": "drift"}),
    ("RASA", "module selection", "rank drift + score", {}),
    ("RASA", "scoring source", "random", {"reliability.source": "random"}),
    ("RASA", "scoring source", "repeatability", {}),
    ("MSL", "supervision", "primary only", {"sparsity.supervision": "primary"}),
    ("MSL", "supervision", "dual", {"sparsity.supervision": "dual"}),
    ("MSL", "supervision", "adaptive", {}),
)


def fine_grained(series: Series) -> list[Row]:
    """One design choice at a time, the others as the paper has them."""
    return [
        Row(
            {"component": component, "design dimension": dimension, "variant": variant},
            series.study(changes=changes),
        )
        for component, dimension, variant, changes in _FINE
    ]


def calibration_samples(series: Series) -> list[Row]:
    """Fewer samples for more epochs, in the paper's fractions; never fewer samples than shards."""
    scale, sizes = series.scale, []
    for divisor, epochs in _SAMPLES:
        samples = max(series.base.calibration.shards, scale.samples // divisor)
        sizes.append((min(samples, scale.samples), max(1, round(epochs * scale.epochs / PAPER_EPOCHS))))
    sizes.append((scale.samples, scale.epochs))
    return [
        Row(
            {"retention": scale.retention, "samples": samples, "epochs": epochs},
            series.study(changes={"calibration.samples": samples, "sparsity.epochs": epochs}),
        )
        for samples, epochs in sizes
    ]


def seeds(series: Series) -> list[Row]:
    """The whole pipeline of FANG and of GPrune on its metric, seed by seed."""
    rows = []
    for method in ("fang", "gprune"):
        for seed in series.scale.seeds:
            # each seed's FANG in a study that is run anyway: that of the main table, or GPrune's of the seed
            metric = "flap" if method == "fang" and seed == series.scale.seed else "twflap"
            rows.append(_labelled(_row(series, method, metric=metric, seed=seed), seed=seed))
    return rows


def quantile_sweep(series: Series) -> list[Row]:
    """RASA's two quantiles, each from 0.80 to 0.90, with MSL run for every pair."""
    names = ("reliability.drift_quantile", "reliability.score_quantile")
    return [
        Row(
            {"drift quantile": drift, "score quantile": score},
            series.study(changes=dict(zip(names, (drift, score), strict=True))),
        )
        for drift in QUANTILES
        for score in QUANTILES
    ]


_DERIVED = "computed from the rows of the main table; only results that are there enter it"
TABLES: dict[str, PaperTable] = {
    table.name: table
    for table in (
        PaperTable("main", f"{PUBLISHED['main']}, under both accuracy rules", main),
        PaperTable("ablation", PUBLISHED["ablation"], ablation),
        PaperTable("calibration-pair", PUBLISHED["calibration-pair"], calibration_pair),
        PaperTable("multi-dataset", PUBLISHED["multi-dataset"], multi_dataset),
        PaperTable("fine-grained", PUBLISHED["fine-grained"], fine_grained),
        PaperTable("module-overlap", PUBLISHED["module-overlap"], figures.module_overlap, figures.OVERLAP_NOTE),
        PaperTable("calibration-samples", PUBLISHED["calibration-samples"], calibration_samples),
        PaperTable(
            "seeds",
            PUBLISHED["seeds"],
            seeds,
            "the spread is divided by the number of seeds (population), as in the paper's table",
        ),
        PaperTable("quantile-sweep", "sweep of RASA's quantiles (appendix, detailed settings)", quantile_sweep),
        PaperTable("figure-1a", PUBLISHED["figure-1a"], figures.figure_1a),
        PaperTable("figure-1b", PUBLISHED["figure-1b"], figures.figure_1b, figures.SWAP_NOTE),
        PaperTable("figure-3a", PUBLISHED["figure-3a"], figures.figure_3, figures.RETAINED_NOTE),
        PaperTable("figure-3b", PUBLISHED["figure-3b"], figures.figure_3, figures.JACCARD_NOTE),
        PaperTable("speed", PUBLISHED["speed"], throughput.speed, throughput.SPEED_NOTE),
        PaperTable(
            "alignment",
            "perplexity and speed of widths in multiples of 8 to 64 (not in the paper)",
            throughput.alignment,
            throughput.ALIGNMENT_NOTE,
            left_out=throughput.left_out,
        ),
        PaperTable(
            "metric-gap",
            "distance of base metrics, before and after GPrune (section 4)",
            compared,
            _DERIVED,
            True,
        ),
        PaperTable(
            "gain-by-retention",
            "what GPrune changes at every retention (section 4)",
            compared,
            _DERIVED,
            True,
        ),
        PaperTable(FAIR, "every method beside its controls, over seeds (not in the paper)", fair_rows, scale="study"),
        PaperTable(
            REPAIR,
            "masks times repairs, and what a choice among them gives (not in the paper)",
            repair_rows,
            scale="study",
        ),
    )
}
"""every table by the name the command takes, in the order of `all`, which leaves out what stands apart"""


def choose(names: Iterable[str]) -> list[PaperTable]:
    """The tables that are asked for, each once, in the order of TABLES; `all` means every one.

    Raises SettingsError where a name is not known.
    """
    wanted = list(names)
    for name in wanted:
        if name != ALL and name not in TABLES:
            near = closest(name, TABLES)
            remedy = f"did you mean {near!r}?" if near else f"known: {', '.join(TABLES)}, {ALL}"
            raise SettingsError(f"there is no table {name!r}; {remedy}")
    return [table for name, table in TABLES.items() if name in wanted or (ALL in wanted and not table.scale)]
