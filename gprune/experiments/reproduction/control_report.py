"""Writes docs/study.md: every method beside its controls, and which claims of the paper hold here.

Everything is read from the results of the table `study`; nothing is run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gprune.analysis import ablation_effect
from gprune.analysis.ablation_effect import AblationEffect
from gprune.analysis.claims import CLAIMS, Case, Verdict, growing, judged
from gprune.analysis.formatting import signed
from gprune.analysis.paired_test import in_percent
from gprune.analysis.table import Table
from gprune.evaluation.holdout import HoldoutStatus
from gprune.experiments.reproduction.control_rows import fair_rows, identifier
from gprune.experiments.reproduction.grid import Series
from gprune.experiments.reproduction.lookup import Answer, Finished
from gprune.pipeline import opened, stages
from gprune.pipeline.provenance import code
from gprune.pipeline.stages import Results
from gprune.store import Store
from gprune.study import short
from gprune.system.errors import StoreError

GPRUNE = "gprune"
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


def markdown(store: Store, every: Sequence[Series], command: str) -> str:
    """The report of some series, one a model, with the command line that makes it."""
    finished = Finished(store)
    blocks = [block for series in every for block in _blocks(finished, series)]
    cases = [case for block in blocks for case in block.cases]
    tables = [paragraph for block in blocks for paragraph in _table(block)]
    parts = [*_head(every, blocks, command), *_claims(cases), *tables, *_why(blocks)]
    return "\n\n".join(parts) + "\n"


def _blocks(finished: Finished, series: Series) -> list[Block]:
    rows = fair_rows(series)
    answers = [finished.answer(row) or Answer(row, reason="not run yet") for row in rows]
    dense, others = answers[0], answers[1:]
    found = []
    for retention in series.scale.retentions:
        own = (dense, *(one for one in others if one.row.study.retention == retention))
        results = opened(next(one.row.study for one in own if identifier(one.row) == GPRUNE), finished.store)
        standings = _standings(results)
        cases = tuple(_case(series, retention, known, own) for known in standings.values())
        found.append(Block(series, retention, own, cases, results, standings))
    return found


def _standings(results: Results) -> dict[str, HoldoutStatus]:
    return stages.standings(results.graph, lambda text: results.get(stages.overlap, text))


def _case(series: Series, retention: float, known: HoldoutStatus, answers: Sequence[Answer]) -> Case:
    losses: dict[str, dict[int, np.ndarray]] = {}
    for answer in answers:
        for value in answer.values:
            if value.subject == known.text and len(value.losses):
                losses.setdefault(identifier(answer.row), {})[answer.row.study.seed] = value.losses
    return Case(short(series.model), retention, known.text, known.unseen, losses)


def _head(every: Sequence[Series], blocks: Sequence[Block], command: str) -> list[str]:
    scale = every[0].scale
    lengths = sorted({value.length for block in blocks for one in block.answers for value in one.values})
    made = code()
    state = "".join(f", {name} {made[name]}" for name in ("commit", "package") if name in made)
    lengths_read = ", ".join(map(str, lengths)) or "128"
    seeds = ", ".join(map(str, scale.seeds))
    texts = [f"- {short(known.text)}{known.sentence.removeprefix(known.text)}." for known in _texts(blocks)]
    return [
        "# A fair comparison",
        "What each method reaches beside what people would otherwise use, and beside controls that say where "
        "a gain comes from: the same learning on one module a layer, on random modules, on shuffled ones, "
        "without RASA, and the base metrics at one ratio with nothing learned. All numbers were measured "
        "here; none is published by anyone else.",
        f"Command: `{command}`{state}.",
        f"{MEASURED}{', '.join(short(series.model) for series in every)}. Calibration: {scale.samples} "
        f"sequences of A ({short(scale.primary)}) and of B ({short(scale.auxiliary)}), "
        f"{scale.epochs} epochs, seeds {seeds}; each seed draws its own sequences. Perplexity over "
        f"{scale.windows or 'all'} windows of {lengths_read} tokens of each text:",
        "\n".join(texts),
        "Perplexities are means over seeds, ± their standard deviation. Differences are paired by window, ± "
        "their standard error over windows and seeds; better and worse mean beyond two of these. *Given* are "
        "the texts of a method, whether anything was learned, and its forward and backward passes of the "
        "dense model over as many tokens as a calibration set has.",
    ]


def _texts(blocks: Sequence[Block]) -> list[HoldoutStatus]:
    """What every text is; where models read the same texts, in the tokens of the first."""
    return list(
        {text: known for block in reversed(blocks) for text, known in block.standings.items()}.values()
    )


# ---- claims ------------------------------------------------------------------------------------------------


def _claims(cases: Sequence[Case]) -> list[str]:
    verdicts = [judged(claim, cases) for claim in CLAIMS]
    lines = [
        f"## {VERDICTS}",
        "A case is a model, a retention and a text. Lower perplexity is better.",
        Table.of(
            ("claim", "from", "outcome", "cases", "mean change of perplexity"), map(_claim, verdicts)
        ).markdown(),
    ]
    grown = growing(cases)
    if grown:
        words = ", ".join(
            f"{case.model} on {short(case.text).partition('#')[0]} {in_percent(one)}" for case, one in grown
        )
        lines.append(
            "The gain over FLAP at the lowest retention less that at the highest (the paper: it grows as "
            f"less is kept; negative says so): {words}."
        )
    return lines


def _claim(verdict: Verdict) -> list[str]:
    claim = verdict.claim
    change = f"{signed(100 * verdict.change, '.1f')} %" if verdict.cases else ""
    counts = verdict.counts if verdict.cases else ""
    return [claim.words, claim.source or "a check of ours", verdict.outcome, counts, change]


# ---- tables ------------------------------------------------------------------------------------------------


def _table(block: Block) -> list[str]:
    names = [_called(case.text, block) for case in block.cases]
    lines = []
    for method, rows in _grouped(block).items():
        label = str(rows[0].row.labels["method"]) + (" (control)" if rows[0].row.extra else "")
        values = [_perplexity(case, method) for case in block.cases]
        against = [_against(case, method) for case in block.cases]
        reasons = {one.reason for one in rows if one.reason}
        given = _given(opened(rows[0].row.study, block.results.store), rows[0].row.method)
        lines.append([label, given, *values, *against])
        lines += [["", reason, *[""] * (2 * len(names))] for reason in sorted(reasons)]
    heads = ("method", "given", *names, *(f"against GPrune, {name}" for name in names))
    return [f"## {block.name}", Table.of(heads, lines).markdown()]


def _called(text: str, block: Block) -> str:
    """A text without its options, where these do not tell it from another."""
    name = short(text).partition("#")[0]
    others = [short(case.text).partition("#")[0] for case in block.cases if case.text != text]
    return short(text) if name in others else name


def _given(results: Results, method: str) -> str:
    """The texts, passes and learning of a method, of the first seed."""
    try:
        found = stages.given(results, method)
    except StoreError:
        return "not recorded"
    if found is None:
        return ""
    return f"{found.means}; passes {_passes(found.forward)}, {_passes(found.backward)}"


def _passes(count: float) -> str:
    """Passes of the dense model, in calibration sets."""
    return "not recorded" if np.isnan(count) else f"{count:.3g}"


def _grouped(block: Block) -> dict[str, list[Answer]]:
    found: dict[str, list[Answer]] = {}
    for answer in block.answers:
        found.setdefault(identifier(answer.row), []).append(answer)
    return found


def _perplexity(case: Case, method: str) -> str:
    found = case.losses.get(method)
    if not found:
        return "none"
    with np.errstate(over="ignore"):
        values = np.exp([run.mean() for run in found.values()])
    spread = f" ± {_number(values.std(ddof=1))}" if len(values) > 1 else ""
    return f"{_number(values.mean())}{spread}"


def _number(value: float) -> str:
    """Three figures where there are decimals, whole numbers above."""
    return f"{value:.2f}" if value < 100 else f"{value:,.0f}"


def _against(case: Case, method: str) -> str:
    if method in (GPRUNE, "dense"):
        return ""
    difference = case.difference(method, GPRUNE)
    return "" if difference is None else f"{in_percent(difference)}, {difference.verdict}"


# ---- why ---------------------------------------------------------------------------------------------------


_DIAGNOSED = (
    *("model", "retention", "drift explained: modules, initialization, random"),
    *("changed without BCM", "without RASA", "without MSL"),
)


def _why(blocks: Sequence[Block]) -> list[str]:
    lines = [
        "## Why, as far as the data say",
        "Of the first seed: the share of the rank drift's variance that lies between the modules, beside "
        "that of their initialization and of random modules; and the share of the decisions on neurons that "
        "would change without each part, all else as learned.",
    ]
    diagnoses = list[list[str]]()
    warnings: dict[str, list[str]] = {}
    for block in blocks:
        acting = _acting(block)
        if acting is None:
            continue
        for warning in acting.warnings:
            warnings.setdefault(warning, []).append(block.name)
        diagnoses.append(_diagnosis(block, acting))
    told = [f"- {', '.join(where)}: {warning}." for warning, where in warnings.items()]
    return [*lines, "\n".join([Table.of(_DIAGNOSED, diagnoses).markdown(), "", *told])]


def _acting(block: Block) -> AblationEffect | None:
    try:
        return ablation_effect.diagnose(block.results) if ablation_effect.ready(block.results) else None
    except StoreError:
        return None


def _diagnosis(block: Block, acting: AblationEffect) -> list[str]:
    own = acting.drift_explained
    start = "" if own.initialization is None else f"{100 * own.initialization:.0f} %"
    explained = f"{100 * own.modules:.0f} %, {start or 'not kept'}, {100 * own.random:.0f} %"
    shares = [f"{100 * acting.decisions_changed[part]:.1f} %" for part in ("BCM", "RASA", "MSL")]
    return [short(block.series.model), f"{100 * block.retention:.0f} %", explained, *shares]
