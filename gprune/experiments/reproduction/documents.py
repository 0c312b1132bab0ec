"""Builds the reports of the tables `study` and `repair`: every method by model, retention and text, and claims.

A block is one model at one retention, with every method's losses by text and seed. Everything is read from the
results of the tables `study` and `repair`; nothing is run.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gprune.analysis import ablation_effect
from gprune.analysis.claims import BASELINES, CLAIMS, HOME, UNSEEN, Case, Claim, growing, judge_claim
from gprune.analysis.formatting import signed
from gprune.analysis.paired_test import Difference, in_percent, over_texts
from gprune.analysis.studies import NOT_RUN
from gprune.analysis.table import Table
from gprune.evaluation.holdout import HoldoutStatus
from gprune.experiments.reproduction.control_rows import fair_rows, identifier
from gprune.experiments.reproduction.grid import Row, Series
from gprune.experiments.reproduction.lookup import Answer, Finished
from gprune.experiments.reproduction.repair_rows import AUTO, CHOSEN, MASKS, OWN, UNREPAIRED, Treatment, repair_rows
from gprune.pipeline import opened, stages
from gprune.pipeline.provenance import code
from gprune.pipeline.stages import Results
from gprune.records import Choice
from gprune.store import Store
from gprune.study import short
from gprune.study.methods import METHODS, RECOMMENDED, of_masks
from gprune.study.profiles import development_models
from gprune.system.errors import StoreError

VERDICTS, MEASURED = "Which claims hold here", "Models: "
"""heading of the claims, and how the paragraph begins that says what was measured"""
GPRUNE = "gprune"
NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """One model at one retention."""

    series: Series
    retention: float
    answers: tuple[Answer, ...]
    """one a method and seed; the dense model's first"""
    cases: tuple[Case, ...]
    """one a text"""
    results: Results
    """of the first seed"""
    texts: Mapping[str, HoldoutStatus]
    """the relation of every text to A and B, in the draws of the first seed"""

    @property
    def name(self) -> str:
        """As in `demo at 50 %`."""
        return f"{short(self.series.model)} at {100 * self.retention:.0f} %"

    @property
    def methods(self) -> dict[str, list[Answer]]:
        """The answers of every method, one a seed, by what tells it from the others."""
        methods: dict[str, list[Answer]] = {}
        for answer in self.answers:
            methods.setdefault(identifier(answer.row), []).append(answer)
        return methods

    @property
    def unseen(self) -> list[Case]:
        """The cases on text of other corpora."""
        return [case for case in self.cases if case.unseen]

    @property
    def text_names(self) -> list[str]:
        """The texts without their options, where these do not tell one from another."""
        stems = [short(case.text).partition("#")[0] for case in self.cases]
        return [
            short(case.text) if stems.count(stem) > 1 else stem for case, stem in zip(self.cases, stems, strict=True)
        ]


Cells = Callable[[Block, str, Answer], tuple[str, str, list[str]]]
"""returns name, second column and changes of a method; no changes where it is compared with nothing"""


def blocks(store: Store, every: Sequence[Series], rows_of: Callable[[Series], list[Row]], first: str) -> list[Block]:
    """Return the blocks of a table over some series, one a model.

    `rows_of` gives the rows of a series, the dense model's first; `first` is the method whose study says what
    the texts are.
    """
    finished = Finished(store)
    return [block for series in every for block in _blocks(finished, series, rows_of(series), first)]


def _blocks(finished: Finished, series: Series, rows: list[Row], first: str) -> list[Block]:
    dense, *answers = [finished.answer(row) or Answer(row, reason=NOT_RUN) for row in rows]
    model_blocks = []
    for retention in series.scale.retentions:
        own = (dense, *(answer for answer in answers if answer.row.study.retention == retention))
        study = next(answer.row.study for answer in own if identifier(answer.row) == first)
        results = opened(study, finished.store)
        texts = stages.standings(results.graph, results.get)
        cases = tuple(_case(series, retention, text, own) for text in texts.values())
        model_blocks.append(Block(series, retention, own, cases, results, texts))
    return model_blocks


def _case(series: Series, retention: float, status: HoldoutStatus, answers: Sequence[Answer]) -> Case:
    losses: dict[str, dict[int, np.ndarray]] = {}
    for answer in answers:
        for value in answer.values:
            if value.subject == status.text and len(value.losses):
                losses.setdefault(identifier(answer.row), {})[answer.row.study.seed] = value.losses
    missing = frozenset(identifier(answer.row) for answer in answers if answer.reason == NOT_RUN)
    return Case(short(series.model), retention, status.text, status.unseen, losses, missing)


# both documents


def _measured(every: Sequence[Series], parts: Sequence[Block], command: str) -> list[str]:
    """Return command, models, texts, sizes and seeds, and how differences are judged."""
    scale, versions = every[0].scale, code()
    lengths = sorted({value.length for block in parts for answer in block.answers for value in answer.values})
    texts = {text: status for block in reversed(parts) for text, status in block.texts.items()}.values()
    return [
        f"Command: `{command}`{''.join(f', {n} {versions[n]}' for n in ('commit', 'package') if n in versions)}.",
        f"{MEASURED}{', '.join(short(series.model) for series in every)}. Calibration: {scale.samples} "
        f"sequences of A ({short(scale.primary)}) and of B ({short(scale.auxiliary)}), "
        f"{scale.epochs} epochs in steps of {scale.batch} sequences, seeds {', '.join(map(str, scale.seeds))}; "
        f"each seed draws its own sequences. Perplexity over {scale.windows or 'all'} windows of "
        f"{', '.join(map(str, lengths)) or '128'} tokens of each text:",
        "\n".join(f"- {short(text.text)}{text.sentence.removeprefix(text.text)}." for text in texts),
        "Perplexities are means over seeds, ± their standard deviation. Differences are paired by window, ± "
        "their 95 % interval over windows and seeds; better and worse mean that the interval of the losses "
        "does not hold 0.",
    ]


def _claims(claims: Sequence[Claim], cases: Sequence[Case], level: int) -> list[str]:
    rows = []
    for claim in claims:
        verdict = judge_claim(claim, cases)
        numbers = [verdict.counts, f"{signed(100 * verdict.change, '.1f')} %"] if verdict.cases else ["", ""]
        rows.append([claim.words, claim.source or "a check of ours", verdict.outcome, *numbers])
    return [
        f"{'#' * level} {VERDICTS}",
        "A case is a model, a retention and a text. Lower perplexity is better.",
        Table.of(("claim", "from", "outcome", "cases", "mean change of perplexity"), rows).markdown(),
    ]


def _perplexity(case: Case, method: str) -> str:
    """Return mean and deviation over seeds, as a cell."""
    losses = case.losses.get(method)
    if not losses:
        return "none"
    with np.errstate(over="ignore"):
        values = np.exp([run.mean() for run in losses.values()])
    spread = f" ± {_number(values.std(ddof=1))}" if len(values) > 1 else ""
    return f"{_number(values.mean())}{spread}"


def _number(value: float) -> str:
    return f"{value:.2f}" if value < 100 else f"{value:,.0f}"


def _change(difference: Difference | None) -> str:
    return "" if difference is None else f"{in_percent(difference)}, {difference.verdict}"


def _over(cases: Sequence[Case], first: str, second: str) -> Difference | None:
    """Return how much worse one method is than another over texts of equal weight; None where one is missing."""
    differences = [case.difference(first, second) for case in cases]
    finite = [item for item in differences if item is not None and np.isfinite(item.nats)]
    return over_texts(finite) if finite and len(finite) == len(cases) else None


def _block_table(block: Block, second: str, heads: Sequence[str], cells: Cells, level: int) -> list[str]:
    """Return the perplexities of a block, a method a line, between the other columns of `cells`."""
    columns = ("method", second, *block.text_names, *heads)
    lines = []
    for name, answers in block.methods.items():
        label, about, changes = cells(block, name, answers[0])
        values = (_perplexity(case, name) for case in block.cases)
        lines.append([label, about, *values, *(changes or [""] * len(heads))])
        reasons = sorted({answer.reason for answer in answers} - {""})
        lines += [["", reason, *[""] * (len(columns) - 2)] for reason in reasons]
    return [f"{'#' * level} {block.name}", Table.of(columns, lines).markdown()]


# the report of `study`


def study_document(store: Store, every: Sequence[Series], command: str, _earlier: str = "") -> str:
    """Return every method beside its controls for some series, one a model, and which claims of the paper hold."""
    parts = blocks(store, every, fair_rows, GPRUNE)
    cases = [case for block in parts for case in block.cases]
    paragraphs = [
        "# A fair comparison",
        "Each method beside what people would otherwise use, and beside controls: the same learning on one "
        "module a layer, on random modules, on shuffled ones, without RASA, and the base metrics at one ratio "
        "with nothing learned. All numbers were measured here.",
        *_measured(every, parts, command),
        "*Given* are the texts of a method, whether anything was learned, and its forward and backward "
        "passes of the dense model over as many tokens as a calibration set has.",
        *_claims(CLAIMS, cases, 2),
        *_growing(cases),
        *(paragraph for block in parts for paragraph in _study_table(block)),
        "## What the parts change",
        "Of the first seed: the share of the rank drift's variance that lies between the modules, their "
        "initialization and random modules; and the share of the decisions that would change without each part.",
        Table.of(_EFFECT_HEADS, [row for block in parts for row in _effects(block)]).markdown(),
    ]
    return "\n\n".join(paragraphs) + "\n"


def _growing(cases: Sequence[Case]) -> list[str]:
    gains = [
        f"{case.model} on {short(case.text).partition('#')[0]} {in_percent(gain)}" for case, gain in growing(cases)
    ]
    words = "The gain over FLAP at the lowest retention less that at the highest (the paper: negative)"
    return [f"{words}: {', '.join(gains)}."] if gains else []


def _study_table(block: Block) -> list[str]:
    heads = [f"against GPrune, {name}" for name in block.text_names]
    return _block_table(block, "given", heads, _study_cells, 2)


def _study_cells(block: Block, name: str, answer: Answer) -> tuple[str, str, list[str]]:
    label = str(answer.row.labels["method"]) + (" (control)" if answer.row.extra else "")
    compared = name not in (GPRUNE, "dense")
    changes = [_change(case.difference(name, GPRUNE)) for case in block.cases] if compared else []
    return label, _given(answer, block), changes


def _given(answer: Answer, block: Block) -> str:
    """Return the texts, passes and learning of a method, of the first seed."""
    try:
        given = stages.given(opened(answer.row.study, block.results.store), answer.row.method)
    except StoreError:
        return "not recorded"
    if given is None:
        return ""
    passes = ["not recorded" if np.isnan(count) else f"{count:.3g}" for count in (given.forward, given.backward)]
    return f"{given.means}; passes {', '.join(passes)}"


_EFFECT_HEADS = (
    *("model", "retention", "drift explained: modules, initialization, random"),
    *("changed without BCM", "without RASA", "without MSL"),
)


def _effects(block: Block) -> list[list[str]]:
    try:
        effect = ablation_effect.diagnose(block.results) if ablation_effect.ready(block.results) else None
    except StoreError:
        effect = None
    if effect is None:
        return []
    drift = effect.drift_explained
    start = "not kept" if drift.initialization is None else f"{100 * drift.initialization:.0f} %"
    explained = f"{100 * drift.modules:.0f} %, {start}, {100 * drift.random:.0f} %"
    changed = [f"{100 * effect.decisions_changed[part]:.1f} %" for part in ("BCM", "RASA", "MSL")]
    return [[short(block.series.model), f"{100 * block.retention:.0f} %", explained, *changed]]


# the report of `repair`

_BOTH, _SAMPLED = Treatment("least_squares_bias"), Treatment("least_squares_bias", "both_and_sampled")
_RECIPE = AUTO.of(RECOMMENDED)
_BASELINES = tuple(map(OWN.of, BASELINES))
_CHOOSING_BASELINES = tuple(AUTO.of(name) for name in CHOSEN if METHODS[name].baseline)
_OWN_MASKS = "own masks unrepaired"
_LEAST = (0.85, 0.95)
"""largest share of the perplexity of the best baseline without repair, and of its own masks without repair, that was
asked of the recommended recipe before it was measured"""
REPAIR_CLAIMS = tuple(
    Claim(words, "", first, others if isinstance(others, tuple) else (others,), where)
    for words, first, others, where in (
        ("a repair on A and B makes GPrune better on their corpora", _BOTH.of(GPRUNE), UNREPAIRED.of(GPRUNE), HOME),
        ("and on unseen text", _BOTH.of(GPRUNE), UNREPAIRED.of(GPRUNE), UNSEEN),
        (
            "text that the model writes, beside A and B, makes it better on unseen text",
            *(_SAMPLED.of(GPRUNE), _BOTH.of(GPRUNE), UNSEEN),
        ),
        ("and costs nothing on their corpora", _SAMPLED.of(GPRUNE), _BOTH.of(GPRUNE), HOME),
        ("GPrune's masks are better than FLAP's, repaired alike", _BOTH.of(GPRUNE), _BOTH.of("flap"), UNSEEN),
        ("and than one learned threshold a layer", _BOTH.of(GPRUNE), _BOTH.of("msl_layers"), UNSEEN),
        ("and than random modules", _BOTH.of(GPRUNE), _BOTH.of("msl_random"), UNSEEN),
        ("and than OSSCAR's", _BOTH.of(GPRUNE), _BOTH.of("osscar"), UNSEEN),
        ("gates are better than modules, nothing repaired", UNREPAIRED.of("gates"), UNREPAIRED.of(GPRUNE), UNSEEN),
        ("and repaired alike", _BOTH.of("gates"), _BOTH.of(GPRUNE), UNSEEN),
        ("the recommended recipe is better than the best baseline as published", _RECIPE, _BASELINES, UNSEEN),
        ("and than the best baseline with the same choice of a repair", _RECIPE, _CHOOSING_BASELINES, UNSEEN),
        ("and than GPrune with this choice", _RECIPE, AUTO.of(GPRUNE), UNSEEN),
    )
)
_HEAD = (
    "# Repairs, and a recipe that chooses one",
    "The masks of each method when the weights that they keep are repaired, every method with the same texts. All "
    "numbers were measured here. Repairs are in closed form. Learned scales follow some of them: *numbers learned* "
    "counts the factors and biases that were trained for it. No other weight was trained.",
    "*In-domain* is the mean over texts of the corpora of A and B, *unseen* over the others; both are the "
    "change of perplexity to the same masks without any repair. `self` is text that the dense model wrote.",
)
_CHAPTER = "\n## "
"""beginning of a model's chapter, before its name"""
_DEVELOPMENT = (
    "A development model: the weights by which repairs and recipes are chosen were fixed on it, so that what "
    "the choice brings here is no test of it."
)


def repair_document(store: Store, every: Sequence[Series], command: str, earlier: str = "") -> str:
    """Return masks times repairs for some series, a chapter each, and whether repairs hold on unseen text.

    `earlier` is the document as it was: chapters of other models stay as they are, since hours of work are
    behind each.
    """
    own = {short(series.model): _chapter(store, series, command) for series in every}
    return "\n\n".join([*_HEAD, *(chapters(earlier) | own).values()]) + "\n"


def chapters(document: str) -> dict[str, str]:
    """Return the chapters of a document that `repair_document` wrote, by model."""
    title, *parts = f"\n{document}".split(_CHAPTER)
    if title.strip().partition("\n")[0] != _HEAD[0]:
        return {}
    return {part.partition("\n")[0]: f"{_CHAPTER}{part}".strip() for part in parts}


def _chapter(store: Store, series: Series, command: str) -> str:
    parts = blocks(store, [series], repair_rows, UNREPAIRED.of(GPRUNE))
    cases = [case for block in parts for case in block.cases]
    name = short(series.model)
    return "\n\n".join(
        [
            f"{_CHAPTER.strip()} {name}",
            *([_DEVELOPMENT] if name in development_models() else []),
            *_measured([series], parts, command),
            *_claims(REPAIR_CLAIMS, cases, 3),
            *_recipe(parts),
            *(line for block in parts for line in _block_table(block, "repair", _SEEN, _repair_cells, 3)),
        ]
    )


def _recipe(parts: Sequence[Block]) -> list[str]:
    ratios = ("against the best baseline as published", "against its own masks unrepaired")
    chosen = ("model", "method", "chosen, by seed", "best on unseen text in hindsight", "ratio to that")
    tried = ("model", "masks", "repair", "held-out A", "held-out B", "divergence", "chosen by", "unseen")
    return [
        "### The recommended recipe on unseen text",
        "Ratios of perplexity, geometric means over the unseen texts; below 1 the recipe is better. At most "
        f"{' and '.join(map(str, _LEAST))} were asked of the first two. The best baseline is chosen in hindsight.",
        Table.of(
            ("model", *ratios, "against the best baseline with the same choice"),
            (
                [block.name, _best(block, _BASELINES), _ratio(_own_masks(block)), _best(block, _CHOOSING_BASELINES)]
                for block in parts
            ),
        ).markdown(),
        "### What was chosen, and what would have been best",
        "Chosen on held-out text of A, of B and of the model itself; no unseen text takes part. The last column "
        "is the ratio to the best treatment of the same masks in this document.",
        Table.of(chosen, [row for block in parts for row in _chosen_rows(block)]).markdown(),
        "Candidates of the recipe, means over seeds, as ratios to the candidate that has 1. The lowest weighted "
        "geometric mean (*chosen by*) is chosen; the last column took no part.",
        Table.of(tried, [row for block in parts for row in _tried(block)]).markdown(),
    ]


def _choices(block: Block, method: str) -> dict[int, Choice]:
    """Return what was chosen for a method, by seed."""
    choices = {}
    for answer in block.methods.get(AUTO.of(method), []):
        choice = stages.made(opened(answer.row.study, block.results.store), method)
        if choice is not None:
            choices[answer.row.study.seed] = choice
    return choices


def _own_masks(block: Block) -> Difference | None:
    """Return how much worse the recipe is than the masks that it chose under each seed, not repaired."""
    choices = _choices(block, RECOMMENDED).items()
    names = {seed: UNREPAIRED.of(of_masks(choice.masks[choice.chosen]).name) for seed, choice in choices}
    cases = []
    for case in block.unseen:
        plain = {seed: case.losses[name][seed] for seed, name in names.items() if seed in case.losses.get(name, {})}
        cases.append(replace(case, losses={**case.losses, _OWN_MASKS: plain}))
    return _over(cases, _RECIPE, _OWN_MASKS)


def _best(block: Block, methods: Sequence[str]) -> str:
    """Return the recipe's ratio to the best of some methods on unseen text, with its name."""
    differences = {name: item for name in methods if (item := _over(block.unseen, _RECIPE, name)) is not None}
    if not differences or any(case.missing.intersection(methods) for case in block.unseen):
        return NOT_MEASURED
    best = max(differences, key=lambda name: differences[name].nats)
    return f"{_ratio(differences[best])} ({block.methods[best][0].row.labels['method']})"


def _chosen_rows(block: Block) -> list[list[str]]:
    rows = []
    for method in CHOSEN:
        words = {}
        for seed, choice in _choices(block, method).items():
            repair = stages.described(block.results.graph, choice.repair)
            masks = of_masks(choice.masks[choice.chosen]).label
            words[seed] = f"{masks}, {repair}" if method == RECOMMENDED else repair
        seeds = "; ".join(f"{seed}: {repair}" for seed, repair in words.items())
        if len(words) > 1 and len(set(words.values())) == 1:
            seeds = f"{next(iter(words.values()))} (all {len(words)} seeds)"
        rows.append([block.name, METHODS[method].label, seeds or NOT_MEASURED, *_hindsight(block, method)])
    return rows


def _hindsight(block: Block, method: str) -> tuple[str, str]:
    """Return the treatment of a method's masks that is best on unseen text, and the ratio of the chosen one to it."""
    cases, chosen = block.unseen, AUTO.of(method)
    masks = block.series.base.choice.masks if method == RECOMMENDED else (method,)
    names = [name for name, answers in block.methods.items() if answers[0].row.method in masks]
    losses = {name: sum(case.loss(name) for case in cases) for name in dict.fromkeys((*names, chosen))}
    finite = {name: loss for name, loss in losses.items() if math.isfinite(loss)}
    if chosen not in finite or any(case.missing & losses.keys() for case in cases):
        return NOT_MEASURED, ""
    # of equals the one that has a name of its own: the chosen one is in the column before
    best = min(finite, key=lambda name: (finite[name], name == chosen))
    labels = block.methods[best][0].row.labels
    words = "the chosen one" if best == chosen else f"{labels['method']}, {labels['repair']}"
    return words, _ratio(_over(cases, chosen, best))


def _tried(block: Block) -> list[list[str]]:
    """Return the candidates of the recipe, the best first, with their figures and their ratio on unseen text."""
    choices = list(_choices(block, RECOMMENDED).values())
    if not choices:
        return []
    first = choices[0]
    # a repair is written as its kind, with its texts where it is fitted
    names = [Treatment(*word.split(":")).of(masks) for masks, word in zip(first.masks, first.repairs, strict=True)]
    shares = np.exp(np.mean([np.log(choice.figures / choice.figures[choice.reference]) for choice in choices], axis=0))
    numbers = np.mean([choice.numbers for choice in choices], axis=0)
    rows = []
    for place in np.argsort(numbers, kind="stable"):
        name = _RECIPE if all(choice.chosen == place for choice in choices) else names[place]
        rows.append(
            [
                *(block.name, of_masks(first.masks[place]).label),
                stages.described(block.results.graph, first.repairs[place]),
                *(f"{value:.2f}" for value in (*shares[place], numbers[place])),
                _ratio(_over(block.unseen, name, names[first.reference])),
            ]
        )
    return rows


def _ratio(difference: Difference | None) -> str:
    return NOT_MEASURED if difference is None else f"{math.exp(difference.nats):.2f} ± {difference.error:.2f}"


_SEEN = ("in-domain", "unseen", "numbers learned")


def _repair_cells(block: Block, name: str, answer: Answer) -> tuple[str, str, list[str]]:
    row, plain = answer.row, UNREPAIRED.of(answer.row.method)
    changes = []
    if row.method in MASKS and name not in (plain, OWN.of(row.method)):
        in_domain = [case for case in block.cases if not case.unseen]
        changes = [_change(_over(cases, name, plain)) for cases in (in_domain, block.unseen)]
        changes.append(_learned_numbers(block, answer))
    return str(row.labels["method"]), str(row.labels["repair"]), changes


def _learned_numbers(block: Block, answer: Answer) -> str:
    """Return how many factors and biases were learned for a method, of the first seed; nothing where it has none."""
    study = answer.row.study
    if not study.repair.scaled:
        return ""
    try:
        results = opened(study, block.results.store)
        return f"{results.get(stages.scales, answer.row.method).size:,}"
    except StoreError:
        return "not recorded"
