"""Writes docs/repair.md: whether repairs hold on unseen text, for whose masks, and what a choice gives.

Each model has a chapter of its own, since hours of work stand behind it: one more model, measured later or
elsewhere, joins the others. Everything is read from the results of the table `repair`; nothing is run.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gprune.analysis.claims import BASELINES, HOME, UNSEEN, Case, Claim
from gprune.analysis.paired_test import Difference
from gprune.analysis.table import Table
from gprune.experiments.reproduction.blocks import (
    Block,
    blocks,
    called,
    measured,
    over,
    perplexity,
    told,
    verdicts,
)
from gprune.experiments.reproduction.grid import Series
from gprune.experiments.reproduction.repair_rows import (
    AUTO,
    CHOSEN,
    MASKS,
    OWN,
    UNREPAIRED,
    Treatment,
    repair_rows,
)
from gprune.pipeline import opened, stages
from gprune.records import Choice
from gprune.store import Store
from gprune.study import short
from gprune.study.methods import METHODS, RECOMMENDED, of_masks
from gprune.study.profiles import development_models

_REPAIRED = Treatment("least_squares_bias")
_WRITTEN = Treatment("least_squares_bias", "both_and_sampled")
_RECIPE = AUTO.of(RECOMMENDED)
_BASELINES = tuple(map(OWN.of, BASELINES))
_ALIKE = tuple(AUTO.of(name) for name in CHOSEN if METHODS[name].baseline)
"""baselines with the same choice of a repair"""
_OWN_MASKS = "own masks unrepaired"
_HEAD = (
    "# Repairs, and a recipe that chooses one",
    "What becomes of the masks of each method when the weights that they keep are repaired, every method "
    "with the same texts, and whether it holds on text of other corpora. All numbers were measured here. "
    "No weight was trained: repairs are in closed form.",
    "*At home* is the mean over texts of the corpora of A and B, *unseen* over the others; both are the "
    "change of perplexity to the same masks without any repair. `self` is text that the dense model wrote.",
)
_TRIED = ("model", "masks", "repair", "held-out A", "held-out B", "divergence", "chosen by", "unseen")
_CHAPTER = "\n## "
"""what a model's chapter begins with, before its name"""
_DEVELOPMENT = (
    "A development model: the weights by which repairs and recipes are chosen were fixed on it, so that what "
    "the choice brings here is no test of it."
)
_LEAST = (0.85, 0.95)
"""what was asked of the recommended recipe before it was measured: at most this share of the perplexity of
the best baseline without repair, and of its own masks without repair"""


def _pair(words: str, first: str, second: str, where: str) -> Claim:
    return Claim(words, "", first, (second,), HOME if where == HOME else UNSEEN)


_ALONE, _WITH = _REPAIRED.of("gprune"), _WRITTEN.of("gprune")
CLAIMS = (
    _pair("a repair on A and B makes GPrune better on their corpora", _ALONE, UNREPAIRED.of("gprune"), HOME),
    _pair("and on unseen text", _ALONE, UNREPAIRED.of("gprune"), UNSEEN),
    _pair("text that the model writes, beside A and B, makes it better on unseen text", _WITH, _ALONE, UNSEEN),
    _pair("and costs nothing on their corpora", _WITH, _ALONE, HOME),
    _pair("GPrune's masks are better than FLAP's, repaired alike", _ALONE, _REPAIRED.of("flap"), UNSEEN),
    _pair("and than one learned threshold a layer", _ALONE, _REPAIRED.of("msl_layers"), UNSEEN),
    _pair("and than random modules", _ALONE, _REPAIRED.of("msl_random"), UNSEEN),
    _pair("and than OSSCAR's", _ALONE, _REPAIRED.of("osscar"), UNSEEN),
    _pair(
        "gates are better than modules, nothing repaired",
        UNREPAIRED.of("gates"),
        UNREPAIRED.of("gprune"),
        UNSEEN,
    ),
    _pair("and repaired alike", _REPAIRED.of("gates"), _ALONE, UNSEEN),
    Claim(
        "the recommended recipe is better than the best baseline as published",
        "",
        _RECIPE,
        _BASELINES,
        UNSEEN,
    ),
    Claim("and than the best baseline with the same choice of a repair", "", _RECIPE, _ALIKE, UNSEEN),
    _pair("and than GPrune with this choice", _RECIPE, AUTO.of("gprune"), UNSEEN),
)


def markdown(store: Store, every: Sequence[Series], command: str, earlier: str = "") -> str:
    """The report of some series, one a model, with the command line that makes it.

    `earlier` is the document as it was: chapters of other models stay as they are.
    """
    made = {short(series.model): _chapter(store, series, command) for series in every}
    return "\n\n".join([*_HEAD, *(chapters(earlier) | made).values()]) + "\n"


def chapters(document: str) -> dict[str, str]:
    """The chapters of a document that this module wrote, by model."""
    title, *parts = f"\n{document}".split(_CHAPTER)
    if title.strip().partition("\n")[0] != _HEAD[0]:
        return {}
    return {part.partition("\n")[0]: f"{_CHAPTER}{part}".strip() for part in parts}


def _chapter(store: Store, series: Series, command: str) -> str:
    found = blocks(store, [series], repair_rows, UNREPAIRED.of("gprune"))
    cases = [case for block in found for case in block.cases]
    name = short(series.model)
    parts = [f"{_CHAPTER.strip()} {name}", *([_DEVELOPMENT] if name in development_models() else [])]
    parts += [*measured([series], found, command), *verdicts(CLAIMS, cases, level=3), *_recipe(found)]
    return "\n\n".join([*parts, *(paragraph for block in found for paragraph in _table(block))])


def _recipe(found: Sequence[Block]) -> list[str]:
    heads = ("model", "against the best baseline as published", "against its own masks unrepaired")
    asked = " and ".join(f"{share}" for share in _LEAST)
    chosen = ("model", "method", "chosen, by seed", "best on unseen text in hindsight", "ratio to that")
    return [
        "### The recommended recipe on unseen text",
        "Ratios of perplexity, geometric means over the unseen texts, below 1 where the recipe is better; "
        f"at most {asked} were asked of the first two before anything was measured. Which baseline is the "
        "best is decided in hindsight, on the same texts.",
        Table.of((*heads, "against the best baseline with the same choice"), map(_recipe_row, found)).markdown(),
        "### What was chosen, and what would have been best",
        "Chosen on held-out text, which is of the corpora of A and B and of the model itself: no unseen text "
        "takes part, so that the choice can miss what is best there. The last column says by how much, "
        "beside the best of the treatments of the same masks in this document.",
        Table.of(chosen, [row for block in found for row in _chosen_rows(block)]).markdown(),
        "What the recipe was chosen from, means over seeds. Each figure is a ratio to the candidate that has "
        "1: perplexity on held-out sequences of A and of B, divergence from the dense model on text of its "
        "own, and their weighted geometric mean, whose lowest is chosen. The last column took part in "
        "nothing: where its order differs, what is best at home is not what is best abroad.",
        Table.of(_TRIED, [row for block in found for row in _tried(block)]).markdown(),
    ]


def _recipe_row(block: Block) -> list[str]:
    cases = _unseen(block)
    return [
        block.name,
        _against_best(cases, _BASELINES, block),
        _ratio(_against_own_masks(block)),
        _against_best(cases, _ALIKE, block),
    ]


def _against_own_masks(block: Block) -> Difference | None:
    """The recipe beside the masks that it chose under each seed, not repaired."""
    own = {seed: UNREPAIRED.of(of_masks(made.masks[made.chosen]).name) for seed, made in _made(block, RECOMMENDED)}
    cases = []
    for case in _unseen(block):
        plain = {seed: case.losses[name][seed] for seed, name in own.items() if seed in case.losses.get(name, {})}
        cases.append(replace(case, losses={**case.losses, _OWN_MASKS: plain}))
    return over(cases, _RECIPE, _OWN_MASKS)


def _made(block: Block, method: str) -> list[tuple[int, Choice]]:
    """What was chosen for a method, by seed."""
    found = []
    for answer in block.methods.get(AUTO.of(method), []):
        made = stages.made(opened(answer.row.study, block.results.store), method)
        if made is not None:
            found.append((answer.row.study.seed, made))
    return found


def _chosen_rows(block: Block) -> list[list[str]]:
    rows = []
    for method in CHOSEN:
        made = _made(block, method)
        masks = block.series.base.choice.masks if method == RECOMMENDED else (method,)
        words = _by_seed([(seed, _called(one, method, block)) for seed, one in made])
        best, ratio = _hindsight(block, method, masks)
        rows.append([block.name, METHODS[method].label, words or "not measured", best, ratio])
    return rows


def _by_seed(made: Sequence[tuple[int, str]]) -> str:
    """What was chosen under each seed, once where it is the same."""
    once = {words for _, words in made}
    if len(once) == 1 and made[1:]:
        return f"{once.pop()} (all {len(made)} seeds)"
    return "; ".join(f"{seed}: {words}" for seed, words in made)


def _tried(block: Block) -> list[list[str]]:
    """What the recipe was chosen from, the best first, at home and on unseen text."""
    made = [one for _, one in _made(block, RECOMMENDED)]
    if not made:
        return []
    first, cases = made[0], _unseen(block)
    # a repair is told as its kind, with its texts where it is fitted
    treatments = [Treatment(*word.split(":")) for word in first.repairs]
    names = [one.of(masks) for masks, one in zip(first.masks, treatments, strict=True)]
    shares = np.exp(np.mean([np.log(one.figures / one.figures[one.reference]) for one in made], axis=0))
    numbers = np.mean([one.numbers for one in made], axis=0)
    rows = []
    for place in np.argsort(numbers, kind="stable"):
        words = stages.described(block.results.graph, first.repairs[place])
        always = all(one.chosen == place for one in made)
        rows.append(
            [
                *(block.name, of_masks(first.masks[place]).label, words),
                *(f"{value:.2f}" for value in (*shares[place], numbers[place])),
                _ratio(over(cases, _RECIPE if always else names[place], names[first.reference])),
            ]
        )
    return rows


def _called(made: Choice, method: str, block: Block) -> str:
    repair = stages.described(block.results.graph, made.repair)
    masks = of_masks(made.masks[made.chosen]).label
    return f"{masks}, {repair}" if method == RECOMMENDED else repair


def _hindsight(block: Block, method: str, masks: Sequence[str]) -> tuple[str, str]:
    """The treatment of some masks that is best on unseen text, and the chosen one beside it."""
    cases, chosen = _unseen(block), AUTO.of(method)
    known = [name for name, answers in block.methods.items() if answers[0].row.method in masks]
    losses = {name: sum(case.loss(name) for case in cases) for name in dict.fromkeys((*known, chosen))}
    measured = {name: loss for name, loss in losses.items() if math.isfinite(loss)}
    if chosen not in measured or any(case.missing & losses.keys() for case in cases):
        return "not measured", ""
    # of equals the one that has a name of its own: what was chosen is in the column before
    best = min(measured, key=lambda name: (measured[name], name == chosen))
    if best == chosen:
        return "the chosen one", _ratio(over(cases, chosen, best))
    labels = block.methods[best][0].row.labels
    return f"{labels['method']}, {labels['repair']}", _ratio(over(cases, chosen, best))


def _against_best(cases: Sequence[Case], methods: Sequence[str], block: Block) -> str:
    known = {name: one for name in methods if (one := over(cases, _RECIPE, name)) is not None}
    if not known or any(case.missing.intersection(methods) for case in cases):
        return "not measured"
    # the larger the recipe's loss beside it, the better the baseline
    best = max(known, key=lambda name: known[name].nats)
    return f"{_ratio(known[best])} ({block.methods[best][0].row.labels['method']})"


def _ratio(difference: Difference | None) -> str:
    if difference is None:
        return "not measured"
    return f"{math.exp(difference.nats):.2f} ± {difference.error:.2f}"


def _table(block: Block) -> list[str]:
    names = [called(case.text, block) for case in block.cases]
    home = [case for case in block.cases if not case.unseen]
    lines = []
    for name, answers in block.methods.items():
        row = answers[0].row
        plain = UNREPAIRED.of(row.method)
        changes = ["", ""]
        if row.method in MASKS and name not in (plain, OWN.of(row.method)):
            changes = [told(over(cases, name, plain)) for cases in (home, _unseen(block))]
        words = [str(row.labels[column]) for column in ("method", "repair")]
        lines.append([*words, *(perplexity(case, name) for case in block.cases), *changes])
        reasons = sorted({one.reason for one in answers if one.reason})
        lines += [["", reason, *[""] * (len(names) + 2)] for reason in reasons]
    heads = ("method", "repair", *names, "at home", "unseen")
    return [f"### {block.name}", Table.of(heads, lines).markdown()]


def _unseen(block: Block) -> list[Case]:
    return [case for case in block.cases if case.unseen]
