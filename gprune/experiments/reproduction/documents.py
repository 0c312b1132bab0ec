"""Reports of the tables `study`, `repair` and `experts`: every method by model, retention and text, and claims.

A block is one model at one retention, with the losses of every method by text and seed. Everything is read from the
results of these tables; nothing is run.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gprune.analysis import ablation_effect
from gprune.analysis.claims import BASELINES, CLAIMS, IN_DOMAIN, UNSEEN, VERDICTS, Case, Claim, judge_claim
from gprune.analysis.formatting import format_signed
from gprune.analysis.paired_test import Difference, in_percent, over_texts
from gprune.analysis.studies import NOT_RUN
from gprune.analysis.table import Table
from gprune.data.texts.holdout import HoldoutStatus
from gprune.experiments.reproduction import tables
from gprune.experiments.reproduction.grid import Row, Series
from gprune.experiments.reproduction.lookup import Answer, ResultLookup
from gprune.experiments.reproduction.tables import AUTO, OWN, UNREPAIRED, Treatment, fair_rows, repair_rows
from gprune.pipeline import opened, stages
from gprune.store import Store
from gprune.store.provenance import code
from gprune.study import short
from gprune.study.methods import EXPERT_CRITERIA, EXPERT_METHODS, METHODS, RECOMMENDED, of_masks
from gprune.study.profiles import development_models
from gprune.system.errors import StoreError

MEASURED = "Models: "
"""beginning of the paragraph that describes the measurement"""
GPRUNE = "gprune"
NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """One model at one retention."""

    series: Series
    retention: float
    answers: tuple[Answer, ...]
    """one answer per method and seed; the dense model comes first"""
    cases: tuple[Case, ...]
    """one case per text"""
    results: stages.Results
    """results of the first seed's study"""
    texts: Mapping[str, HoldoutStatus]
    """relation of every evaluation text to the sequences of A and B that the first seed draws"""

    @property
    def name(self) -> str:
        """Return the name in the form `demo at 50%`."""
        return f"{short(self.series.model)} at {100 * self.retention:.0f}%"

    @property
    def methods(self) -> dict[str, list[Answer]]:
        """Return the answers of every method, one per seed, by method identifier."""
        methods: dict[str, list[Answer]] = {}
        for answer in self.answers:
            methods.setdefault(answer.row.identifier, []).append(answer)
        return methods

    @property
    def unseen(self) -> list[Case]:
        """Return the cases on texts from other corpora than A and B."""
        return [case for case in self.cases if case.unseen]

    @property
    def text_names(self) -> list[str]:
        """Return the names of the texts; their options are included only if names would otherwise be equal."""
        stems = [short(case.text).partition("#")[0] for case in self.cases]
        return [
            short(case.text) if stems.count(stem) > 1 else stem for case, stem in zip(self.cases, stems, strict=True)
        ]


Cells = Callable[[Block, str, Answer], tuple[str, str, list[str]]]
"""function that returns the label of a method, its cell in the second column, and the cells of the last columns

The cells of the last columns are changes; the list is empty if the method has no reference.
"""


def build_blocks(
    store: Store, all_series: Sequence[Series], rows_of: Callable[[Series], list[Row]], reference_method: str
) -> list[Block]:
    """Return the blocks of a table over some series, one per model and retention.

    `rows_of` returns the rows of a series, the dense model first. `reference_method` is the method from whose study the
    evaluation texts of a block are read.
    """
    finished, series_blocks = ResultLookup(store), list[Block]()
    for series in all_series:
        dense, *answers = [finished.answer(row) or Answer(row, reason=NOT_RUN) for row in rows_of(series)]
        for retention in series.scale.retentions:
            block_answers = (dense, *(answer for answer in answers if answer.row.study.retention == retention))
            study = next(answer.row.study for answer in block_answers if answer.row.identifier == reference_method)
            results = opened(study, store)
            texts = stages.holdout_statuses(results.graph, results.get)
            cases = tuple(_build_case(series, retention, text, block_answers) for text in texts.values())
            series_blocks.append(Block(series, retention, block_answers, cases, results, texts))
    return series_blocks


def _build_case(series: Series, retention: float, status: HoldoutStatus, answers: Sequence[Answer]) -> Case:
    """Collect the losses of all methods on one text, and the methods that still have to run."""
    losses: dict[str, dict[int, np.ndarray]] = {}
    for answer in answers:
        for value in answer.values:
            if value.subject == status.text and len(value.losses):
                losses.setdefault(answer.row.identifier, {})[answer.row.study.seed] = value.losses
    pending = frozenset(answer.row.identifier for answer in answers if answer.reason == NOT_RUN)
    return Case(short(series.model), retention, status.text, status.unseen, losses, pending)


def _describe_measurement(all_series: Sequence[Series], series_blocks: Sequence[Block], command: str) -> list[str]:
    """Return lines with the command, models, texts, sizes and seeds, and the test of differences."""
    scale, versions = all_series[0].scale, code()
    learning = f"{scale.epochs} epochs in steps of {scale.batch} sequences, "
    if all_series[0].base.prunes_experts:
        learning = ""
    lengths = sorted({value.length for block in series_blocks for answer in block.answers for value in answer.values})
    texts = {text: status for block in reversed(series_blocks) for text, status in block.texts.items()}.values()
    return [
        f"Command: `{command}`{''.join(f', {n} {versions[n]}' for n in ('commit', 'package') if n in versions)}.",
        f"{MEASURED}{', '.join(short(series.model) for series in all_series)}. Calibration uses {scale.samples} "
        f"sequences of A ({short(scale.primary)}) and of B ({short(scale.auxiliary)}), "
        f"{learning}and seeds {', '.join(map(str, scale.seeds))}; "
        f"each seed draws its own sequences. Perplexity is measured on {scale.windows or 'all'} windows of "
        f"{', '.join(map(str, lengths)) or '128'} tokens of each text:",
        "\n".join(f"- {short(text.text)}{text.sentence.removeprefix(text.text)}." for text in texts),
        "Perplexities are means over seeds ± standard deviation. Differences are paired by window; ± is their 95% "
        "interval over windows and seeds. Better and worse mean that the interval of the losses does not contain 0.",
    ]


def _format_claims(claims: Sequence[Claim], cases: Sequence[Case], level: int, *, by_seed: bool = False) -> list[str]:
    """Return a heading, a note, and the table of claims with their outcomes over the cases.

    `by_seed` adds the number of seeds that are in favor.
    """
    heads = ["cases", *(["seeds in favor"] if by_seed else []), "mean change of perplexity"]
    rows = []
    for claim in claims:
        verdict, numbers = judge_claim(claim, cases), [""] * len(heads)
        if verdict.cases:
            change = f"{format_signed(100 * verdict.change, '.1f')}%"
            numbers = [verdict.counts, *([verdict.seeds] if by_seed else []), change]
        rows.append([claim.sentence, claim.source or "additional check", verdict.outcome, *numbers])
    return [
        f"{'#' * level} {VERDICTS}",
        "A case is a model, a retention and a text. Lower perplexity is better.",
        Table.of(("claim", "from", "outcome", *heads), rows).markdown(),
    ]


def _format_perplexity(case: Case, method: str) -> str:
    """Return mean and standard deviation over seeds as a cell."""
    losses = case.losses.get(method)
    if not losses:
        return "none"
    with np.errstate(over="ignore"):
        values = np.exp([run.mean() for run in losses.values()])
    spread = f" ± {_format_decimal(values.std(ddof=1))}" if len(values) > 1 else ""
    return f"{_format_decimal(values.mean())}{spread}"


def _format_decimal(value: float) -> str:
    return f"{value:.2f}" if value < 100 else f"{value:,.0f}"


def _change(difference: Difference | None) -> str:
    return "" if difference is None else f"{in_percent(difference)}, {difference.verdict}"


def _compare(cases: Sequence[Case], method: str, other_method: str) -> Difference | None:
    """Return the loss of one method minus that of another, averaged over cases with equal weight.

    Returns None if the difference is missing in a case.
    """
    differences = [case.difference(method, other_method) for case in cases]
    finite = [item for item in differences if item is not None and np.isfinite(item.nats)]
    return over_texts(finite) if finite and len(finite) == len(cases) else None


def _block_table(block: Block, second_column: str, heads: Sequence[str], cells: Cells, level: int) -> list[str]:
    """Return the heading and the table of a block: one line per method, with its perplexities and further columns.

    `cells` returns the cells of the column `second_column` and of the last columns `heads`. `level` is the level of the
    heading.
    """
    columns = ("method", second_column, *block.text_names, *heads)
    lines = []
    for name, answers in block.methods.items():
        label, details, changes = cells(block, name, answers[0])
        values = (_format_perplexity(case, name) for case in block.cases)
        lines.append([label, details, *values, *(changes or [""] * len(heads))])
        reasons = sorted({answer.reason for answer in answers} - {""})
        lines += [["", reason, *[""] * (len(columns) - 2)] for reason in reasons]
    return [f"{'#' * level} {block.name}", Table.of(columns, lines).markdown()]


# the report of `study`


def study_document(store: Store, all_series: Sequence[Series], command: str) -> str:
    """Return the report of all methods and controls over some series, with the claims of the paper that hold."""
    series_blocks = build_blocks(store, all_series, fair_rows, GPRUNE)
    cases = [case for block in series_blocks for case in block.cases]
    paragraphs = [
        "# A fair comparison",
        "Each method is compared with common alternatives and with controls: the same learning on one module per "
        "layer, on random modules, on shuffled modules, or without RASA, and the base metrics at one ratio with "
        "nothing learned. All numbers were measured here.",
        *_describe_measurement(all_series, series_blocks, command),
        "*Given* lists the texts of a method, its learning steps, and its forward and backward passes of the "
        "dense model. One pass reads as many tokens as a calibration set has.",
        *_format_claims(CLAIMS, cases, 2),
        *(line for block in series_blocks for line in _write_study_block(block)),
        "## What the parts change",
        "Shares are from the first seed: the share of the rank drift's variance that lies between modules, and the "
        "share of decisions that change without each part. Initial and random modules are given for comparison.",
        Table.of(_EFFECT_HEADS, [row for block in series_blocks for row in _list_effects(block)]).markdown(),
    ]
    return "\n\n".join(paragraphs) + "\n"


def _write_study_block(block: Block) -> list[str]:
    heads = [f"against GPrune, {name}" for name in block.text_names]
    return _block_table(block, "given", heads, _build_study_cells, 2)


def _build_study_cells(block: Block, name: str, answer: Answer) -> tuple[str, str, list[str]]:
    label = str(answer.row.labels["method"]) + (" (control)" if answer.row.extra else "")
    is_compared = name not in (GPRUNE, "dense")
    changes = [_change(case.difference(name, GPRUNE)) for case in block.cases] if is_compared else []
    return label, _format_inputs(answer, block), changes


def _format_inputs(answer: Answer, block: Block) -> str:
    """Return the texts, the learning, and the forward and backward passes of a method, for the first seed."""
    try:
        inputs = stages.method_inputs(opened(answer.row.study, block.results.store), answer.row.method)
    except StoreError:
        return "not recorded"
    if inputs is None:
        return ""
    passes = ["not recorded" if np.isnan(count) else f"{count:.3g}" for count in (inputs.forward, inputs.backward)]
    return f"{inputs.means}; passes {', '.join(passes)}"


_EFFECT_HEADS = (
    *("model", "retention", "drift explained: modules, initialization, random"),
    *("changed without BCM", "without RASA", "without MSL"),
)


def _list_effects(block: Block) -> list[list[str]]:
    """Return the row of a block in the table of parts; none if their effect is not stored."""
    try:
        effect = ablation_effect.diagnose(block.results) if ablation_effect.has_results(block.results) else None
    except StoreError:
        effect = None
    if effect is None:
        return []
    drift = effect.drift_explained
    start = "not kept" if drift.initialization is None else f"{100 * drift.initialization:.0f}%"
    explained = f"{100 * drift.modules:.0f}%, {start}, {100 * drift.random:.0f}%"
    changed = [f"{100 * effect.decisions_changed[part]:.1f}%" for part in ("BCM", "RASA", "MSL")]
    return [[short(block.series.model), f"{100 * block.retention:.0f}%", explained, *changed]]


# the report of `repair`

_BOTH, _SAMPLED = Treatment("least_squares_bias"), Treatment("least_squares_bias", "both_and_sampled")
_REPAIRED, _UNREPAIRED, _RECIPE = _BOTH.of(GPRUNE), UNREPAIRED.of(GPRUNE), AUTO.of(RECOMMENDED)
_BASELINES = tuple(map(OWN.of, BASELINES))
_CHOOSING_BASELINES = tuple(AUTO.of(name) for name in tables.CHOSEN if METHODS[name].baseline)
_OWN_MASKS, _ADDED = "own masks unrepaired", "text that the model writes"
_MAX_RATIOS = (0.85, 0.95)
"""largest allowed ratio of the recipe's perplexity to that of the best baseline as published, and to that of the
recipe's own masks without repair; both were set before the measurement
"""
REPAIR_CLAIMS = tuple(
    Claim(sentence, "", method, references if isinstance(references, tuple) else (references,), where)
    for sentence, method, references, where in (
        ("a repair on A and B makes GPrune better on their corpora", _REPAIRED, _UNREPAIRED, IN_DOMAIN),
        ("a repair on A and B makes GPrune better on unseen text", _REPAIRED, _UNREPAIRED, UNSEEN),
        (f"{_ADDED}, added to A and B, makes GPrune better on unseen text", _SAMPLED.of(GPRUNE), _REPAIRED, UNSEEN),
        ("this added text makes GPrune better on the corpora of A and B", _SAMPLED.of(GPRUNE), _REPAIRED, IN_DOMAIN),
        ("with this repair, GPrune is better than FLAP", _REPAIRED, _BOTH.of("flap"), UNSEEN),
        ("with this repair, GPrune beats one threshold per layer", _REPAIRED, _BOTH.of("msl_layers"), UNSEEN),
        ("with this repair, GPrune is better than random modules", _REPAIRED, _BOTH.of("msl_random"), UNSEEN),
        ("with this repair, GPrune is better than OSSCAR", _REPAIRED, _BOTH.of("osscar"), UNSEEN),
        ("gates are better than modules, without repair", UNREPAIRED.of("gates"), _UNREPAIRED, UNSEEN),
        ("gates are better than modules, with this repair", _BOTH.of("gates"), _REPAIRED, UNSEEN),
        ("the recommended recipe is better than the best baseline as published", _RECIPE, _BASELINES, UNSEEN),
        ("the recipe is better than the best baseline with a chosen repair", _RECIPE, _CHOOSING_BASELINES, UNSEEN),
        ("the recipe is better than GPrune with a chosen repair", _RECIPE, AUTO.of(GPRUNE), UNSEEN),
    )
)
_INTRODUCTION = (
    "# Repairs, and a recipe that chooses one",
    "The kept weights of each method's masks are repaired on the same texts for every method. All numbers were "
    "measured here. Repairs are in closed form. Some are followed by learned scales: *numbers learned* counts their "
    "trained factors and biases. No other weight was trained.",
    "*In-domain* is the mean over texts of the corpora of A and B, *unseen* the mean over the others. Both are the "
    "change of perplexity relative to the same masks without repair. `self` is text that the dense model wrote.",
)
_DEVELOPMENT = (
    "A development model: the weights of the criterion that chooses repairs and recipes were set on it, so its "
    "results do not test the choice."
)


def repair_document(store: Store, all_series: Sequence[Series], command: str) -> str:
    """Return the report of masks and repairs over some series, a chapter per series, with claims on unseen text."""
    return "\n\n".join([*_INTRODUCTION, *(_chapter(store, series, command) for series in all_series)]) + "\n"


def _chapter(store: Store, series: Series, command: str) -> str:
    """Return the chapter of one series: measurement, claims, recipe, and a table per block."""
    series_blocks = build_blocks(store, [series], repair_rows, UNREPAIRED.of(GPRUNE))
    cases = [case for block in series_blocks for case in block.cases]
    name = short(series.model)
    return "\n\n".join(
        [
            f"## {name}",
            *([_DEVELOPMENT] if name in development_models() else []),
            *_describe_measurement([series], series_blocks, command),
            *_format_claims(REPAIR_CLAIMS, cases, 3),
            *_write_recipe(series_blocks),
            *(line for block in series_blocks for line in _block_table(block, "repair", _HEADS, _repair_cells, 3)),
        ]
    )


def _write_recipe(series_blocks: Sequence[Block]) -> list[str]:
    ratios = ("against the best baseline as published", "against its own masks unrepaired")
    return [
        "### The recommended recipe on unseen text",
        "Ratios of perplexity, geometric means over the unseen texts; below 1 the recipe is better. The targets of "
        f"the first two are at most {' and '.join(map(str, _MAX_RATIOS))}. The best baseline is chosen in hindsight.",
        Table.of(
            ("model", *ratios, "against the best baseline with the same choice"),
            (
                [block.name, _best(block, _BASELINES), _ratio(_own_masks(block)), _best(block, _CHOOSING_BASELINES)]
                for block in series_blocks
            ),
        ).markdown(),
    ]


def _own_masks(block: Block) -> Difference | None:
    """Return the recipe's loss minus that of its masks without repair, on unseen text; None if one is missing.

    Each seed can choose other masks. Their unrepaired losses are therefore collected as one method, `_OWN_MASKS`.
    """
    names = {}
    for answer in block.methods.get(_RECIPE, []):
        choice = stages.find_choice(opened(answer.row.study, block.results.store), RECOMMENDED)
        if choice is not None:
            names[answer.row.study.seed] = UNREPAIRED.of(of_masks(choice.masks[choice.chosen]).name)
    cases = []
    for case in block.unseen:
        losses = {seed: case.losses[name][seed] for seed, name in names.items() if seed in case.losses.get(name, {})}
        cases.append(replace(case, losses={**case.losses, _OWN_MASKS: losses}))
    return _compare(cases, _RECIPE, _OWN_MASKS)


def _best(block: Block, methods: Sequence[str]) -> str:
    """Return the ratio of the recipe's perplexity to that of the best of some methods on unseen text, with its name."""
    differences = {name: item for name in methods if (item := _compare(block.unseen, _RECIPE, name)) is not None}
    if not differences or any(case.missing.intersection(methods) for case in block.unseen):
        return NOT_MEASURED
    # the difference is largest for the method with the lowest loss
    best = max(differences, key=lambda name: differences[name].nats)
    return f"{_ratio(differences[best])} ({block.methods[best][0].row.labels['method']})"


def _ratio(difference: Difference | None) -> str:
    return NOT_MEASURED if difference is None else f"{math.exp(difference.nats):.2f} ± {difference.error:.2f}"


_HEADS = ("in-domain", "unseen", "numbers learned")


def _repair_cells(block: Block, name: str, answer: Answer) -> tuple[str, str, list[str]]:
    """Return label, repair, and changes of a method relative to the same masks without repair."""
    row, unrepaired = answer.row, UNREPAIRED.of(answer.row.method)
    changes = []
    if row.method in tables.MASKS and name not in (unrepaired, OWN.of(row.method)):
        in_domain = [case for case in block.cases if not case.unseen]
        changes = [_change(_compare(cases, name, unrepaired)) for cases in (in_domain, block.unseen)]
        changes.append(_count_learned(block, answer))
    return str(row.labels["method"]), str(row.labels["repair"]), changes


def _count_learned(block: Block, answer: Answer) -> str:
    """Return the number of scale factors and biases learned for a method with the first seed; empty if none are."""
    study = answer.row.study
    if not study.repair.scaled:
        return ""
    try:
        results = opened(study, block.results.store)
        return f"{results.get(stages.scales, answer.row.method).size:,}"
    except StoreError:
        return "not recorded"


# the report of `experts`

_REAP, _REAP_PAPER, _MEAN = "experts_reap", "REAP, ICLR 2026", "score_average"
EXPERT_CLAIMS = (
    Claim("scores on the evaluated text are better than on the other text", "", "matched", ("other",), IN_DOMAIN),
    Claim("the mean of both scores is better than scores on the other text", "", _MEAN, ("other",), IN_DOMAIN),
    Claim("scores on the evaluated text are better than the mean", "", "matched", (_MEAN,), IN_DOMAIN),
    Claim("the mean of both scores is better than scores on A on unseen text", "", _MEAN, ("single",), UNSEEN),
    Claim("RASA is better than scores on A", "", "adapted", ("single",)),
    Claim("RASA is better than the mean of both scores", "", "adapted", (_MEAN,)),
    Claim("scores on own answers are better than scores on B", "", f"auxiliary{tables.OWN_ANSWERS}", ("auxiliary",)),
    Claim("the mean with own answers is better than scores on A", "", f"{_MEAN}{tables.OWN_ANSWERS}", ("single",)),
    Claim("REAP on A is better than frequency", _REAP_PAPER, _REAP, ("experts_frequency",)),
    Claim("REAP on A is better than the routed norm", "", _REAP, ("experts_routed_norm",)),
    Claim("REAP on A is better than MAN", "", _REAP, ("experts_man",)),
    Claim("REAP on A is better than random experts", _REAP_PAPER, _REAP, ("experts_random",)),
)
_DRIFT_HEADS = ("model", "criterion", "text B", "drift", "half", "control in A", "control in B", "without a rank")


def experts_document(store: Store, all_series: Sequence[Series], command: str) -> str:
    """Return the report of all criteria and calibration texts for experts over some series, with claims."""
    series_blocks = build_blocks(store, all_series, tables.expert_rows, _REAP)
    paragraphs = [
        "# Criteria for the experts of a mixture",
        "Every criterion scores the experts on A, on B, by the mean of both, and adapted by RASA. Text B is another "
        "corpus, or the dense model's own answers to prompts of A. All numbers were measured here.",
        *_describe_measurement(all_series, series_blocks, command),
        *(line for block in series_blocks for line in _write_expert_block(block)),
        "## Rank drift of experts",
        "Means over ranked experts and seeds. *Half* compares a half of A with a half of B, as large as the halves of "
        "one text in the controls. Experts with few tokens have no rank; their number is the last column.",
        Table.of(_DRIFT_HEADS, [row for block in series_blocks for row in _list_drifts(block)]).markdown(),
        *_format_claims(
            EXPERT_CLAIMS, [case for block in series_blocks for case in _expert_cases(block)], 2, by_seed=True
        ),
        "A claim about texts has a case for each criterion.",
    ]
    return "\n\n".join(paragraphs) + "\n"


def _write_expert_block(block: Block) -> list[str]:
    def cells(block: Block, name: str, answer: Answer) -> tuple[str, str, list[str]]:
        changes = [] if name == "dense" else [_change(case.difference(name, "dense")) for case in block.cases]
        return str(answer.row.labels["method"]), str(answer.row.labels["text B"]), changes

    return _block_table(block, "text B", [f"against dense, {name}" for name in block.text_names], cells, 2)


def _list_drifts(block: Block) -> list[list[str]]:
    """Return the mean drift over seeds for every criterion and text B; empty except at the first retention."""
    if block.retention != block.series.scale.retentions[0]:
        return []
    rows = []
    for answers in block.methods.values():
        method = EXPERT_METHODS.get(answers[0].row.method)
        if method is not None and method.scoring == "auxiliary":
            runs = [opened(answer.row.study, block.results.store) for answer in answers]
            pairs = [(run, stages.expert_rank_drift(run.graph, method.metric)) for run in runs]
            drifts = [run.record(stage).summary for run, stage in pairs if run.holds(stage)]
            means = [f"{np.mean([drift[key] for drift in drifts]):.3g}" for key in (drifts[0] if drifts else ())]
            model = short(block.series.model)
            rows.append([model, EXPERT_CRITERIA[method.metric], str(answers[0].row.labels["text B"]), *means])
    return rows


def _expert_cases(block: Block) -> list[Case]:
    """Return the cases of a block, and a case per criterion, whose methods are named after their calibration texts.

    `matched` and `other` are the scores on the evaluated text, if it belongs to A or B, and on the other of both.
    """
    cases = list(block.cases)
    for case, criterion in itertools.product(block.cases, EXPERT_CRITERIA):
        names = {name.removeprefix(f"experts_{criterion}_"): name for name in block.methods if criterion in name}
        names["single"] = f"experts_{criterion}"
        related = "".join(block.texts[case.text].related.values())
        if related in ("A", "B"):
            on_primary, on_auxiliary = names["single"], names.get("auxiliary", "")
            is_primary = related == "A"
            names["matched"] = on_primary if is_primary else on_auxiliary
            names["other"] = on_auxiliary if is_primary else on_primary
        losses = {key: case.losses[name] for key, name in names.items() if name in case.losses}
        missing = frozenset(key for key, name in names.items() if name in case.missing)
        cases.append(replace(case, losses=losses, missing=missing))
    return cases
