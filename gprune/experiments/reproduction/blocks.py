"""Answers: what was measured of some series, and how do their documents say it?

A block is one model at one retention, with every method's losses by text and seed: what `docs/study.md` and
`docs/repair.md` are made of. Everything is read from the results of a table; nothing is run.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gprune.analysis.claims import Case, Claim, Verdict, judged
from gprune.analysis.formatting import signed
from gprune.analysis.paired_test import Difference, in_percent, over_texts
from gprune.analysis.studies import NOT_RUN
from gprune.analysis.table import Table
from gprune.evaluation.holdout import HoldoutStatus
from gprune.experiments.reproduction.control_rows import identifier
from gprune.experiments.reproduction.grid import Row, Series
from gprune.experiments.reproduction.lookup import Answer, Finished
from gprune.pipeline import opened, stages
from gprune.pipeline.provenance import code
from gprune.pipeline.stages import Results
from gprune.store import Store
from gprune.study import short
from gprune.system.errors import StoreError

VERDICTS, MEASURED = "Which claims hold here", "Models: "
"""heading of the claims, and how the paragraph begins that says what was measured"""


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
    standings: Mapping[str, HoldoutStatus]
    """what every text is to A and B, in the draws of the first seed"""

    @property
    def name(self) -> str:
        """As in `demo at 50 %`."""
        return f"{short(self.series.model)} at {100 * self.retention:.0f} %"

    @property
    def methods(self) -> dict[str, list[Answer]]:
        """The answers of every method, one a seed, by what tells it from the others."""
        found: dict[str, list[Answer]] = {}
        for answer in self.answers:
            found.setdefault(identifier(answer.row), []).append(answer)
        return found


def blocks(store: Store, every: Sequence[Series], rows_of: Callable[[Series], list[Row]], first: str) -> list[Block]:
    """The blocks of a table over some series, one a model.

    `rows_of` gives the rows of a series, the dense model's first; `first` is the method whose study says what
    the texts are.
    """
    finished = Finished(store)
    return [block for series in every for block in _blocks(finished, series, rows_of(series), first)]


def _blocks(finished: Finished, series: Series, rows: list[Row], first: str) -> list[Block]:
    answers = [finished.answer(row) or Answer(row, reason=NOT_RUN) for row in rows]
    dense, others = answers[0], answers[1:]
    found = []
    for retention in series.scale.retentions:
        own = (dense, *(one for one in others if one.row.study.retention == retention))
        results = opened(next(one.row.study for one in own if identifier(one.row) == first), finished.store)
        standings = stages.standings(results.graph, results.get)
        cases = tuple(_case(series, retention, known, own) for known in standings.values())
        found.append(Block(series, retention, own, cases, results, standings))
    return found


def _case(series: Series, retention: float, known: HoldoutStatus, answers: Sequence[Answer]) -> Case:
    losses: dict[str, dict[int, np.ndarray]] = {}
    for answer in answers:
        for value in answer.values:
            if value.subject == known.text and len(value.losses):
                losses.setdefault(identifier(answer.row), {})[answer.row.study.seed] = value.losses
    missing = frozenset(identifier(answer.row) for answer in answers if answer.reason == NOT_RUN)
    return Case(short(series.model), retention, known.text, known.unseen, losses, missing)


def measured(every: Sequence[Series], blocks: Sequence[Block], command: str) -> list[str]:
    """Paragraphs that say by what command, on what and under which seeds, and how differences are judged."""
    scale = every[0].scale
    lengths = sorted({value.length for block in blocks for one in block.answers for value in one.values})
    made = code()
    state = "".join(f", {name} {made[name]}" for name in ("commit", "package") if name in made)
    lengths_read = ", ".join(map(str, lengths)) or "128"
    seeds = ", ".join(map(str, scale.seeds))
    # where models read the same texts, in the tokens of the first
    read = {text: known for block in reversed(blocks) for text, known in block.standings.items()}.values()
    texts = [f"- {short(known.text)}{known.sentence.removeprefix(known.text)}." for known in read]
    return [
        f"Command: `{command}`{state}.",
        f"{MEASURED}{', '.join(short(series.model) for series in every)}. Calibration: {scale.samples} "
        f"sequences of A ({short(scale.primary)}) and of B ({short(scale.auxiliary)}), "
        f"{scale.epochs} epochs in steps of {scale.batch} sequences, seeds {seeds}; each seed draws its own "
        f"sequences. Perplexity over {scale.windows or 'all'} windows of {lengths_read} tokens of each text:",
        "\n".join(texts),
        "Perplexities are means over seeds, ± their standard deviation. Differences are paired by window, ± "
        "their 95 % interval over windows and seeds; better and worse mean that the interval of the losses "
        "does not hold 0, which ± cannot show of a large change.",
    ]


def verdicts(claims: Sequence[Claim], cases: Sequence[Case], level: int = 2) -> list[str]:
    """Paragraphs that judge claims by cases, under a heading of a level."""
    found = [judged(claim, cases) for claim in claims]
    return [
        f"{'#' * level} {VERDICTS}",
        "A case is a model, a retention and a text. Lower perplexity is better.",
        Table.of(("claim", "from", "outcome", "cases", "mean change of perplexity"), map(_claim, found)).markdown(),
    ]


def _claim(verdict: Verdict) -> list[str]:
    claim = verdict.claim
    numbers = [verdict.counts, f"{signed(100 * verdict.change, '.1f')} %"] if verdict.cases else ["", ""]
    return [claim.words, claim.source or "a check of ours", verdict.outcome, *numbers]


def called(text: str, block: Block) -> str:
    """A text without its options, where these do not tell it from another."""
    name = short(text).partition("#")[0]
    others = [short(case.text).partition("#")[0] for case in block.cases if case.text != text]
    return short(text) if name in others else name


def given(answer: Answer, block: Block) -> str:
    """The texts, passes and learning of a method, of the first seed."""
    try:
        found = stages.given(opened(answer.row.study, block.results.store), answer.row.method)
    except StoreError:
        return "not recorded"
    if found is None:
        return ""
    return f"{found.means}; passes {_passes(found.forward)}, {_passes(found.backward)}"


def _passes(count: float) -> str:
    """Passes of the dense model, in calibration sets."""
    return "not recorded" if np.isnan(count) else f"{count:.3g}"


def perplexity(case: Case, method: str) -> str:
    """Mean and deviation over seeds, as a cell."""
    found = case.losses.get(method)
    if not found:
        return "none"
    with np.errstate(over="ignore"):
        values = np.exp([run.mean() for run in found.values()])
    spread = f" ± {number(values.std(ddof=1))}" if len(values) > 1 else ""
    return f"{number(values.mean())}{spread}"


def number(value: float) -> str:
    """Three figures where there are decimals, whole numbers above."""
    return f"{value:.2f}" if value < 100 else f"{value:,.0f}"


def told(difference: Difference | None) -> str:
    """A difference and its verdict, as a cell; empty where there is none."""
    return "" if difference is None else f"{in_percent(difference)}, {difference.verdict}"


def over(cases: Sequence[Case], first: str, second: str) -> Difference | None:
    """How much worse one method is than another over texts that weigh the same; None where one lacks."""
    found = [case.difference(first, second) for case in cases]
    known = [one for one in found if one is not None and np.isfinite(one.nats)]
    return over_texts(known) if known and len(known) == len(cases) else None
