"""Answers: which weights choose repairs and recipes that are good on unseen text, on development models?

A case is a pair of a study's evaluation texts to calibrate on, with the others unseen, and a retention.
There every candidate is measured on the unseen texts, beside what each of a few weights would have chosen
without them. Regret is what the choice loses to the best candidate there, in nats per token.

<folder>/search_choice.md     every case, candidate and weight
         recipe.json          the weights that won and what they brought, as the launch form tells it
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from gprune import pipeline
from gprune.analysis.table import Table
from gprune.experiments.search.plan import placed
from gprune.experiments.search.report import Made
from gprune.pipeline import stages
from gprune.records import Array, Choice
from gprune.store import Store
from gprune.study import Study, short
from gprune.study.choice import OWN, UNREPAIRED, with_word
from gprune.study.methods import METHODS, RECOMMENDED
from gprune.study.settings import Words, read, require
from gprune.system.errors import StoreError
from gprune.system.files import make_folder, write_json, write_text
from gprune.system.forms import Form, Listed

FILES = ("search_choice.md", "recipe.json")
TOLERANCE = 0.01
"""nats per token, 1 % of a perplexity: less tells no weights from others"""
_ROLES = ("A", "B", "divergence")


@dataclass(frozen=True, slots=True)
class Plan(Form):
    """What is measured."""

    WHAT: ClassVar = "a search of weights"
    title: Words
    """what it is called"""
    studies: Listed[Study]
    """what the cases of each development model differ from; evaluation texts are calibrated on by pairs"""
    retentions: Listed[float]
    """retentions of the cases"""
    weights: Listed[Listed[float]]
    """of each choice the weights of perplexity on held-out A and B and of divergence; scaled to a sum of 1"""

    def __post_init__(self) -> None:
        """Raises SettingsError where there are too few texts, or weights are none."""
        require(bool(self.studies), "studies", self.studies, "a list with one or more")
        for one in self.studies:
            texts = one.evaluation.texts
            require(len(texts) > 2, "studies.evaluation.texts", texts, "three texts or more")
            tried = one.choice.masks
            require("gprune" in tried, "studies.choice.masks", tried, "gprune among them, to compare with")
        require(bool(self.retentions), "retentions", self.retentions, "a list with one or more")
        sound = all(len(one) == len(_ROLES) and min(one) >= 0 and sum(one) > 0 for one in self.weights)
        require(bool(self.weights) and sound, "weights", self.weights, "lists of three numbers of at least 0")


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """What was measured of one model and pair of texts at one retention."""

    model: str
    texts: tuple[str, ...]
    """A, B and the unseen ones"""
    retention: float
    choices: dict[str, Choice]
    """of the recommended recipe, and of the repair of every mask method"""
    unseen: dict[tuple[str, str], float]
    """of masks and repair the perplexity on the unseen texts, their geometric mean"""

    def candidates(self, name: str) -> list[tuple[str, str]]:
        """Masks and repairs of a choice; a method's own repair aside, which only some have."""
        one = self.choices[name]
        return [pair for pair in zip(one.masks, one.repairs, strict=True) if pair[1] != OWN]

    def chosen(self, name: str, weights: Sequence[float]) -> tuple[str, str]:
        """What some weights choose."""
        one = self.choices[name]
        numbers = np.log(one.figures) @ (np.array(weights) / sum(weights))
        ranked = sorted(zip(numbers, zip(one.masks, one.repairs, strict=True), strict=True), key=lambda x: x[0])
        return next(pair for _, pair in ranked if pair[1] != OWN)

    def regret(self, name: str, weights: Sequence[float]) -> float:
        """Nats per token that they lose to the best candidate on the unseen texts."""
        best = min(self.unseen[pair] for pair in self.candidates(name))
        return float(np.log(self.unseen[self.chosen(name, weights)] / best))


def from_file(path: Path, within: Path | None = None) -> Plan:
    """Reads a plan; `within` holds the model and the texts that it names. SettingsError where it is none."""
    return read(path, "search file", lambda values: Plan.parse(placed(values, within)))


def measured(plan: Plan, store: Store, told: Callable[[str], None]) -> list[Case]:
    """Runs every case through the store; what is there already is not run again."""
    cases = []
    for study, retention in product(plan.studies, plan.retentions):
        for pair in combinations(study.evaluation.texts, 2):
            unseen = (text for text in study.evaluation.texts if text not in pair)
            cases.append(_case(study, (*pair, *unseen), retention, store))
            told(f"{_named(cases[-1])}: {len(cases[-1].unseen)} candidates")
    return cases


def _case(base: Study, texts: tuple[str, ...], retention: float, store: Store) -> Case:
    settings = replace(base.evaluation, texts=texts[2:])
    study = replace(base, primary=texts[0], auxiliary=texts[1], retention=retention, evaluation=settings)
    masks = tuple(METHODS[name].masks for name in study.choice.masks)
    unseen = {}
    for word in (UNREPAIRED, *study.choice.repairs):
        fitted = replace(study.repair, kind="none") if word == UNREPAIRED else with_word(study.repair, word)
        result = _run(replace(study, repair=fitted, methods=study.choice.masks), store)
        for name, kept in zip(study.choice.masks, masks, strict=True):
            nats = [np.log(result["perplexity"][name][text]) for text in texts[2:]]
            unseen[kept, word] = float(np.exp(np.mean(nats)))
    chosen = replace(study, repair=replace(study.repair, kind="auto"), methods=(*study.choice.masks, RECOMMENDED))
    results = pipeline.opened(chosen, store)
    _run(chosen, store)
    choices = {name: results.get(stages.choice, name) for name in (RECOMMENDED, *masks)}
    return Case(short(base.model), texts, retention, choices, unseen)


def _run(study: Study, store: Store) -> dict[str, Any]:
    return pipeline.run(study, store, lambda *_: None, until="perplexity")


def regrets(plan: Plan, cases: Sequence[Case]) -> Array:
    """(weights, 2) mean regret over cases: of the recipe, and of the repair of every mask method."""
    rows = []
    for weights in plan.weights:
        recipe = [case.regret(RECOMMENDED, weights) for case in cases]
        repair = [case.regret(name, weights) for case in cases for name in case.choices if name != RECOMMENDED]
        rows.append((np.mean(recipe), np.mean(repair)))
    return np.array(rows)


def winner(plan: Plan, cases: Sequence[Case]) -> tuple[float, ...]:
    """The weights that give divergence most, of those whose mean regret is within TOLERANCE of the lowest.

    A few small models cannot tell that the text of every model says nothing.
    """
    found = regrets(plan, cases).mean(axis=1)
    near = [one for one, regret in zip(plan.weights, found, strict=True) if regret <= found.min() + TOLERANCE]
    return max(near, key=lambda one: one[2] / sum(one))


def evidence(plan: Plan, cases: Sequence[Case]) -> dict[str, Any]:
    """The weights that won, and what the recipe that they choose brought on unseen text."""
    weights = winner(plan, cases)
    plain, least = _brought(cases, weights)
    return {
        "title": plan.title,
        "models": [short(study.model) for study in plan.studies],
        "texts": [[short(text) for text in study.evaluation.texts] for study in plan.studies],
        "cases": len(cases),
        "weights": dict(zip(_ROLES, (one / sum(weights) for one in weights), strict=True)),
        "regret": float(np.mean([case.regret(RECOMMENDED, weights) for case in cases])),
        "to GPrune": plain,
        "to the best unrepaired": least,
    }


def _brought(cases: Sequence[Case], weights: Sequence[float]) -> tuple[float, float]:
    """The recipe's perplexity on unseen text to that of GPrune and of the best masks without repair."""
    ours = np.array([case.unseen[case.chosen(RECOMMENDED, weights)] for case in cases])
    plain = np.array([case.unseen["gprune", UNREPAIRED] for case in cases])
    least = np.array([min(v for (_, word), v in case.unseen.items() if word == UNREPAIRED) for case in cases])
    return float(np.exp(np.log(ours / plain).mean())), float(np.exp(np.log(ours / least).mean()))


def _each(plan: Plan, cases: Sequence[Case]) -> str:
    """What the recipe brought on each model, where there are several."""
    weights, models = winner(plan, cases), dict.fromkeys(case.model for case in cases)
    if len(models) < 2:
        return ""
    told = []
    for model in models:
        plain, least = _brought([case for case in cases if case.model == model], weights)
        told.append(f"{model} {plain:.2f} and {least:.2f}")
    return f" ({'; '.join(told)})"


def write(folder: Path, plan: Plan, cases: Sequence[Case], made: Made) -> None:
    """Writes both files; StoreError where it cannot."""
    try:
        make_folder(folder)
        write_text(folder / FILES[0], markdown(plan, cases, made))
        write_json(folder / FILES[1], evidence(plan, cases) | {"made with": made.versions})
    except OSError as error:
        raise StoreError(f"the folder {folder} cannot be written ({error}): choose another with --out") from error


def markdown(plan: Plan, cases: Sequence[Case], made: Made) -> str:
    """The report."""
    known, found = evidence(plan, cases), regrets(plan, cases)
    versions = ", ".join(f"{name} {version}" for name, version in made.versions.items())
    lines = [
        f"# {plan.title}",
        *(
            f"Model {short(one.model)}, {one.calibration.samples} sequences of {one.calibration.length} "
            f"tokens of each text, {one.choice.sequences} held-out ones, {one.evaluation.windows} windows of "
            f"each unseen one, seed {one.seed}."
            for one in plan.studies
        ),
        "What is found is frozen: no result on another model enters it.",
        f"Command: `{made.command}`",
        f"Versions: {versions}",
        "## Weights",
        "Regret: nats/token on unseen text that a choice loses to the best of its candidates there, mean "
        f"over the {len(cases)} cases; of the recommended recipe, and of the repair of each mask method. Of "
        f"the weights within {TOLERANCE:g} of the lowest mean of both, those are taken that give divergence "
        "most: a few small models cannot tell that the text of every model says nothing.",
        Table.of(
            ("A, B, divergence", "regret, recipe", "regret, repair"),
            [
                [", ".join(f"{one:g}" for one in weights), *(f"{one:.4f}" for one in row)]
                for weights, row in zip(plan.weights, found, strict=True)
            ],
        ).markdown(),
        "## Cases",
        _cases(plan, cases),
        "## What follows",
        f"The weights {', '.join(f'{name} {one:.2f}' for name, one in known['weights'].items())}. The recipe "
        f"that they choose has {known['to GPrune']:.2f} of GPrune's perplexity on unseen text and "
        f"{known['to the best unrepaired']:.2f} of the best masks' without repair, geometric means over the "
        f"cases{_each(plan, cases)}. Few small models, and cases that share texts: enough to fix a rule, not "
        "to praise it.",
    ]
    return "\n\n".join(lines) + "\n"


def _cases(plan: Plan, cases: Sequence[Case]) -> str:
    """Perplexities of every candidate on the unseen texts, the chosen one marked."""
    weights, every = winner(plan, cases), (word for case in cases for _, word in case.unseen)
    words = list(dict.fromkeys(every))
    rows = []
    for case in cases:
        chosen = case.chosen(RECOMMENDED, weights)
        for name in dict.fromkeys(masks for masks, _ in case.unseen):
            own = case.chosen(name, weights)
            marks = {own: " *", chosen: " **"}
            told = {pair: f"{value:.1f}{marks.get(pair, '')}" for pair, value in case.unseen.items()}
            cells = [told.get((name, word), "") for word in words]
            rows.append([_named(case), name, *cells])
    title = (
        "Perplexity on the unseen texts, their geometric mean; * was chosen for these masks, ** is the "
        "recommended recipe."
    )
    return f"{title}\n\n{Table.of(('case', 'masks', *words), rows).markdown()}"


def _named(case: Case) -> str:
    first, second, *unseen = map(short, case.texts)
    retention = f"{case.retention:.0%}".replace("%", " %")
    return f"{case.model}, {retention} on {first} and {second}, unseen {', '.join(unseen)}"
