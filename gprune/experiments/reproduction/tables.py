"""The tables of the paper: their rows, and the study of each row.

These are the perplexity and accuracy tables of section 4 and the appendix; figures and speed tables are in `figures`.
Labels and order of the rows are those of the paper; `extra` rows are additional controls.

The tables `study` and `repair` are not in the paper; they compare methods under equal conditions. `study` has every
variant of every baseline, controls that show where a gain comes from, and GPrune under both profiles. It also has the
cost of equal widths and the recommended recipe. `repair` has baselines as published, and combinations of masks and
repairs fitted to the same texts. It also has other texts and targets of least squares, and the choice of `repair.kind
auto` for every method. `experts`, for mixtures of experts, has every criterion on every choice of calibration texts.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from gprune.analysis.claims import BASELINES, equal_width_id, repaired_id
from gprune.analysis.claims import RECOMMENDED as RECOMMENDED_PROFILE
from gprune.data.published import TABLES as PUBLISHED
from gprune.experiments.reproduction import figures
from gprune.experiments.reproduction.grid import Row, Series, label, order_methods
from gprune.experiments.reproduction.scale import LARGE, PAPER_EPOCHS, paper_model
from gprune.pipeline.stages.results import repair_label
from gprune.records import REPAIRS
from gprune.records.repairs import COMPENSATION
from gprune.study import profiles, short
from gprune.study.methods import BUILT_IN, EXPERT_METHODS, METHODS, RECOMMENDED
from gprune.study.settings import require_choice

ALL = "all"
QUANTILES = (0.80, 0.85, 0.90)
_SAMPLES = ((16, 4), (8, 7), (4, 7), (2, 8))
"""divisors of the paper's 2048 samples, and its number of epochs for each of these sizes"""
_BASES = {"wanda_sp": "wanda_sp", "flap": "flap", "fang": "twflap"}
_SCORINGS = {"score_average": "score avg.", "rank_average": "rank avg.", "pooled": "pool"}
_EQUAL_SIZE_MODULES, _WITHOUT_RASA = METHODS["msl_random"].changes, METHODS["gprune_no_rasa"].changes
_MAIN_CONTROLS = ("flap_uniform", "wanda_sp_uniform", "msl_layers", "msl_random")
"""controls at every retention; only on FLAP, because each control with learning costs as much as GPrune"""
_ABLATION_CONTROLS = ("flap_uniform", "msl_layers", "msl_shuffled")
"""controls that are not among the rows of the paper's ablation"""


@dataclass(frozen=True, slots=True)
class PaperTable:
    """One table or figure of the paper."""

    name: str
    """name of the table on the command line"""
    title: str
    rows: Callable[[Series], list[Row]]
    note: str = ""
    is_derived: bool = False
    """True if the table is computed from the rows of the main table"""
    scale: str = ""
    """scale of a table that is not in the paper and not part of `all`; empty for tables of the paper"""


def main(series: Series) -> list[Row]:
    """Return the paper's rows and the controls of each retention, or the rows of the methods that the scale names."""
    if series.scale.methods:
        return _selected_methods(series)
    dense, *paper_rows = compared_methods(series)
    rows = [dense]
    for retention in series.scale.retentions:
        rows += [row for row in paper_rows if row.study.retention == retention]
        rows += _control_rows(series, _MAIN_CONTROLS, first={"retention": retention}, retention=retention)
    return rows


def _selected_methods(series: Series) -> list[Row]:
    """Return the rows of the scale's methods at every retention; GPrune uses the metric of each method that has one."""
    names = [name for name in series.scale.methods if name != "dense"]
    bases = [metric for name in names if (metric := _BASES.get(name) or METHODS[name].plugin_metric)]
    rows = compared_methods(series)[:1]
    for retention in series.scale.retentions:
        for name in names:
            for metric in bases if bases and name == "gprune" else ["flap"]:
                labels, control = {"retention": retention}, METHODS[name].control
                rows.append(series.row(name, first=labels, extra=control, metric=metric, retention=retention))
    return rows


def _control_rows(series: Series, names: Iterable[str], **settings: Any) -> list[Row]:
    """Return rows of controls, which isolate parts of GPrune or of baselines; empty if the scale has no controls."""
    rows = [series.row(name, extra=True, **settings) for name in names] if series.scale.controls else []
    return [replace(row, labels=row.labels | {"method": f"control: {row.labels['method']}"}) for row in rows]


def compared_methods(series: Series) -> list[Row]:
    """Return the rows of the dense model and of all methods at every retention.

    For LLaMA2-13B, LLM-Pruner is left out as in the paper, because it needs too much memory.
    """
    scale, rows = series.scale, list[Row]()
    dense = series.study(methods=("dense",), retention=scale.retention)
    pairs = [] if paper_model(series.model) == LARGE else [("llm_pruner", "flap")]
    for base, metric in _BASES.items():
        pairs += [(base, "flap"), ("gprune", metric)]
    for retention in scale.retentions:
        labels = {"retention": retention}
        rows += [series.row(name, first=labels, metric=metric, retention=retention) for name, metric in pairs]
    return [Row({"retention": 1.0, "method": "dense"}, dense, "dense"), *rows]


def ablation(series: Series) -> list[Row]:
    """Return the rows of the ablation on FLAP; without BCM, MSL works on modules of equal size."""
    rows = [series.row("flap", {"BCM": "", "RASA": "", "MSL": ""})]
    for bcm, rasa, changes in (("", "", _EQUAL_SIZE_MODULES), ("yes", "", _WITHOUT_RASA), ("yes", "yes", {})):
        rows.append(series.row(labels={"BCM": bcm, "RASA": rasa, "MSL": "yes"}, changes=changes))
    for row in _control_rows(series, _ABLATION_CONTROLS, labels={"BCM": "", "RASA": ""}):
        is_learned = METHODS[row.method].decision == "learned"
        rows.append(replace(row, labels=row.labels | {"MSL": "yes" if is_learned else ""}))
    return rows


def calibration_pair(series: Series) -> list[Row]:
    """Return the rows that compare FLAP on one text with GPrune on pairs; the third text is only an auxiliary text."""
    scale, rows = series.scale, list[Row]()
    for first, second in ((scale.primary, scale.auxiliary), (scale.auxiliary, scale.primary)):
        rows.append(series.row("flap", {"calibration": short(first)}, pair=(first, second)))
        for other in (second, scale.substitute):
            rows.append(series.row(labels={"calibration": f"{short(first)}+{short(other)}"}, pair=(first, other)))
    return rows


def multi_dataset(series: Series) -> list[Row]:
    """Return the rows that compare GPrune with three ways to use both texts in a baseline, for every base metric."""
    primary, rows = short(series.scale.primary), list[Row]()
    for base, metric in _BASES.items():
        single = series.row(base, {"scoring": primary})
        variants = [(f"{base}_{scoring}", scoring_label, False) for scoring, scoring_label in _SCORINGS.items()]
        if base == "wanda_sp":
            variants.append(("wanda_sp_dense", f"{primary}, dense statistics", True))
        rows.append(single)
        for method, scoring_label, extra in variants:
            row = series.row(method, extra=extra)
            rows.append(replace(row, labels=single.labels | {"scoring": scoring_label}))
        rows.append(series.row(labels={"scoring": f"{primary}+{short(series.scale.auxiliary)}"}, metric=metric))
    return rows


_DESIGN_CHOICES: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("BCM", "modularization", "random", {"modularization.kind": "random"}),
    ("BCM", "modularization", "initialization", {"modularization.kind": "initialization"}),
    ("BCM", "modularization", "initialization + refinement", {}),
    ("RASA", "module selection", "none", _WITHOUT_RASA),
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
    """Return rows that each change one design choice and keep the paper's value for all others."""
    names = ("component", "design dimension", "variant")
    return [
        Row(dict(zip(names, labels, strict=True)), series.study(changes=changes))
        for *labels, changes in _DESIGN_CHOICES
    ]


def calibration_samples(series: Series) -> list[Row]:
    """Return the rows with fewer samples and more epochs, in the paper's ratios, with at least one sample per shard."""
    scale, sizes = series.scale, []
    for divisor, epochs in _SAMPLES:
        samples = max(series.base.calibration.shards, scale.samples // divisor)
        sizes.append((min(samples, scale.samples), max(1, round(epochs * scale.epochs / PAPER_EPOCHS))))
    return [
        Row(
            {"retention": scale.retention, "samples": samples, "epochs": epochs},
            series.study(changes={"calibration.samples": samples, "sparsity.epochs": epochs}),
        )
        for samples, epochs in (*sizes, (scale.samples, scale.epochs))
    ]


def seeds(series: Series) -> list[Row]:
    """Return the rows of FANG and of GPrune on FANG's metric for every seed."""
    rows = []
    for method in ("fang", "gprune"):
        for seed in series.scale.seeds:
            # FANG of each seed is part of a study that runs anyway: that of the main table, or GPrune's for the seed
            metric = "flap" if method == "fang" and seed == series.scale.seed else "twflap"
            rows.append(series.row(method, {"seed": seed}, metric=metric, seed=seed))
    return rows


def quantile_sweep(series: Series) -> list[Row]:
    """Return the rows with both RASA quantiles from 0.80 to 0.90; MSL runs for every pair of quantiles."""
    names = ("reliability.drift_quantile", "reliability.score_quantile")
    return [
        Row({"drift quantile": a, "score quantile": b}, series.study(changes=dict(zip(names, (a, b), strict=True))))
        for a in QUANTILES
        for b in QUANTILES
    ]


FAIR = "study"
"""name of the table with a fair comparison of all methods"""
_AT_EQUAL_WIDTHS = ("gprune", "flap")


def fair_rows(series: Series) -> list[Row]:
    """Return one row per retention, seed and method, and one row for the dense model."""
    return _repeat_rows(series, _fair_rows)


def _repeat_rows(series: Series, rows_of: Callable[..., list[Row]], **labels: str) -> list[Row]:
    """Return a row of the dense model with `labels`, and the rows from `rows_of` for every retention and seed."""
    scale = series.scale
    points = [{"retention": retention, "seed": seed} for retention in scale.retentions for seed in scale.seeds]
    rows = [row for point in points for row in rows_of(series, **point)]
    dense = replace(rows[0].study, methods=("dense",))
    return [Row({"retention": 1.0, "seed": scale.seed, "method": "dense"} | labels, dense, "dense"), *rows]


def _fair_rows(series: Series, **where: Any) -> list[Row]:
    """Return the rows of the table FAIR for one retention and seed, which are given by `where`."""
    # a method with the same results as another one has no row, and the recommended recipe has one further below
    excluded = {METHODS[name].same_as for name in BUILT_IN} | {"dense", RECOMMENDED}
    methods = order_methods(name for name in BUILT_IN if name not in excluded)
    study = series.study(methods=methods, **where)
    rows = [Row({}, replace(study, methods=(name,)), name, extra=METHODS[name].control, item=name) for name in methods]
    for identifier, method, variant, changes in _list_variants():
        changed = series.study(methods=(method,), changes=changes, **where)
        rows.append(Row({"variant": variant}, changed.renamed(f"{study.name} {variant}"), method, item=identifier))
    return [
        replace(row, labels=where | {"method": ", ".join(filter(None, (label(row), row.labels.get("variant"))))})
        for row in rows
    ]


def _list_variants() -> list[tuple[str, str, str, dict[str, Any]]]:
    """Return identifier, method, label and changed settings of the additional rows of the table FAIR.

    The recommended profile has a row only if it changes a setting.
    """
    compensation = REPAIRS[COMPENSATION]
    recommended = dict(profiles.profile("recommended").settings)
    return [
        (repaired_id(compensation), "gprune", compensation.label, {f"sparsity.{COMPENSATION}": True}),
        *([(RECOMMENDED_PROFILE, "gprune", "recommended profile", recommended)] if recommended else []),
        *((equal_width_id(name), name, "equal widths", {"sparsity.widths": "equal"}) for name in _AT_EQUAL_WIDTHS),
        (RECOMMENDED, RECOMMENDED, "", {}),
    ]


REPAIR = "repair"
"""name of the table that combines masks with repairs"""
MASKS = ("flap", "wanda_sp_uniform", "gprune", "msl_layers", "msl_random", "gates", "osscar")
"""masks that every repair is fitted to, including the candidates of the recommended recipe"""
_LEAST_SQUARES, _SCALED = ("least_squares", "least_squares_bias"), "least_squares+scales"
KINDS = ("none", "bias", "affine", *_LEAST_SQUARES, _SCALED)
"""kinds of repair that are fitted to all MASKS"""
TEXTS, TARGET = "both", "residual_stream"
"""texts and target of every repair. The texts did best on the development model for all masks (docs/method.md), and the
target is the default; the masks of _VARIED_MASKS also have other texts and targets. Scales use the settings fixed on
the development models (docs/repair.md)
"""
_VARIED_MASKS = ("gprune", "gates")
_OTHER_TEXTS = ("primary", "auxiliary", "both_and_sampled", "sampled")
_TARGETS = {
    "dense_inputs": "what the projection gives in the dense model",
    "own_inputs": "what the dense projection gives for the same inputs",
}
CHOSEN = (RECOMMENDED, "gprune", "gates", "flap", "fang", "wanda_sp", "llm_pruner", "osscar", "slimllm")
"""methods that are combined with `repair.kind auto`"""


@dataclass(frozen=True, slots=True)
class Treatment:
    """A repair of the kept weights of a method: its kind, texts and target."""

    kind: str
    """one of `repair.kind`"""
    texts: str = TEXTS
    target: str = TARGET

    @property
    def settings(self) -> dict[str, Any]:
        """Return the settings of a study; fields without effect on the kind of repair keep their defaults."""
        settings = {"repair.kind": self.kind}
        if self.kind not in ("own", "none", "auto"):
            settings["repair.texts"] = self.texts
        if self.kind not in ("own", "none", "auto", "bias"):
            settings["repair.target"] = self.target
        return settings

    def of(self, method: str) -> str:
        """Return a unique identifier of a method with this treatment."""
        return " ".join((method, *self.settings.values()))


OWN, UNREPAIRED, AUTO = Treatment("own"), Treatment("none"), Treatment("auto")


def list_treatments() -> list[tuple[str, Treatment]]:
    """Return every method with its treatment, in the order of the table."""
    texts = {_SCALED: "both_and_sampled"}
    crossed = [(method, Treatment(kind, texts.get(kind, TEXTS))) for kind in KINDS for method in MASKS]
    further = [Treatment(kind, other_texts) for kind in _LEAST_SQUARES for other_texts in _OTHER_TEXTS]
    further += [Treatment("least_squares_bias", target=target) for target in _TARGETS]
    return [
        *((method, OWN) for method in BASELINES),
        *crossed,
        *((method, treatment) for treatment in further for method in _VARIED_MASKS),
        *((method, AUTO) for method in CHOSEN),
    ]


def repair_rows(series: Series) -> list[Row]:
    """Return one row per retention, seed, method and treatment, and one row for the dense model."""
    return _repeat_rows(series, _repair_rows, repair="")


def _repair_rows(series: Series, **where: Any) -> list[Row]:
    """Return the rows of the table REPAIR for one retention and seed, which are given by `where`."""
    rows = []
    for method, treatment in list_treatments():
        row = series.row(method, first=where, extra=METHODS[method].control, changes=treatment.settings, **where)
        repair = "as published" if treatment == OWN else repair_label(row.study)
        if treatment.target != TARGET:
            repair += f", towards {_TARGETS[treatment.target]}"
        rows.append(replace(row, item=treatment.of(method), labels=row.labels | {"repair": repair}))
    return rows


EXPERTS = "experts"
"""name of the table of mixtures of experts"""
OWN_ANSWERS = " own answers"
"""suffix of the identifiers of methods for which text B is the dense model's answers to prompts of text A"""


def expert_rows(series: Series) -> list[Row]:
    """Return one row per retention, seed, method of experts and text B, and rows of the dense model."""
    # the rows of each retention and seed begin with the dense model
    return _repeat_rows(series, _expert_rows)[1:]


def _expert_rows(series: Series, **where: Any) -> list[Row]:
    """Return the rows of the table EXPERTS for one retention and seed; scores on A alone are there once."""
    first, rows = series.base.primary, []
    answers = f"self:{first}{'&' if '#' in first else '#'}prompt=16"
    on_b = [name for name, method in EXPERT_METHODS.items() if method.scoring != "single"]
    variants = (series.base.auxiliary, "", ("dense", *EXPERT_METHODS)), (answers, OWN_ANSWERS, on_b)
    for second, suffix, names in variants:
        study = series.study(methods=tuple(names), pair=(first, second), **where)
        for name in names:
            method, text = EXPERT_METHODS.get(name, METHODS["dense"]), suffix.strip() or short(second)
            labels = where | {"method": method.label, "text B": text if name in on_b else ""}
            # the study of the dense model has a method of experts, because the model is a mixture
            row_study = replace(study, methods=(name, "experts_reap") if name == "dense" else (name,))
            rows.append(Row(labels, row_study, name, extra=method.control, item=f"{name}{suffix}"))
    return rows


_SEEDS_NOTE = "the standard deviation is that of the population (ddof 0), as in the paper's table"
_DERIVED = "computed from the rows of the main table; rows without a result are not used"
_GAP = "distance of base metrics, before and after GPrune (section 4)"
_GAIN = "what GPrune changes at every retention (section 4)"
_FAIR = "every method and its controls, over seeds (not in the paper)"
_EXPERTS = "criteria for the experts of a mixture, by calibration text (not in the paper)"
_REPAIR = "masks combined with repairs, and the choice among them (not in the paper)"


def _published_table(name: str, rows: Callable[[Series], list[Row]], note: str = "") -> PaperTable:
    return PaperTable(name, PUBLISHED[name], rows, note)


TABLES: dict[str, PaperTable] = {
    table.name: table
    for table in (
        PaperTable("main", f"{PUBLISHED['main']}, under both accuracy rules", main),
        _published_table("ablation", ablation),
        _published_table("calibration-pair", calibration_pair),
        _published_table("multi-dataset", multi_dataset),
        _published_table("fine-grained", fine_grained),
        _published_table("module-overlap", figures.module_overlap, figures.OVERLAP_NOTE),
        _published_table("calibration-samples", calibration_samples),
        _published_table("seeds", seeds, _SEEDS_NOTE),
        PaperTable("quantile-sweep", "sweep of RASA's quantiles (appendix, detailed settings)", quantile_sweep),
        _published_table("figure-1a", figures.figure_1a),
        _published_table("figure-1b", figures.figure_1b, figures.SWAP_NOTE),
        _published_table("figure-3a", figures.figure_3, figures.RETAINED_NOTE),
        _published_table("figure-3b", figures.figure_3, figures.JACCARD_NOTE),
        _published_table("speed", figures.speed_rows, figures.SPEED_NOTE),
        PaperTable("metric-gap", _GAP, compared_methods, _DERIVED, is_derived=True),
        PaperTable("gain-by-retention", _GAIN, compared_methods, _DERIVED, is_derived=True),
        PaperTable(FAIR, _FAIR, fair_rows, scale="study"),
        PaperTable(REPAIR, _REPAIR, repair_rows, scale="study"),
        PaperTable(EXPERTS, _EXPERTS, expert_rows, scale="experts"),
    )
}
"""every table by its command name, in the order of `all`, which excludes tables with a scale"""


def choose_tables(names: Iterable[str]) -> list[PaperTable]:
    """Return the requested tables without duplicates, in the order of TABLES.

    `all` stands for every table of the paper.

    Raises SettingsError if a name is unknown.
    """
    selected = list(names)
    for name in selected:
        require_choice("table", name, (*TABLES, ALL))
    return [table for name, table in TABLES.items() if name in selected or (ALL in selected and not table.scale)]
