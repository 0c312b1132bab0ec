"""Writes docs/study.md: every method beside its controls, and which claims of the paper hold here.

Everything is read from the results of the table `study`; nothing is run.
"""

from collections.abc import Sequence

from gprune.analysis import ablation_effect
from gprune.analysis.ablation_effect import AblationEffect
from gprune.analysis.claims import CLAIMS, Case, growing
from gprune.analysis.paired_test import in_percent
from gprune.analysis.table import Table
from gprune.experiments.reproduction.blocks import (
    Block,
    blocks,
    called,
    given,
    measured,
    perplexity,
    told,
    verdicts,
)
from gprune.experiments.reproduction.control_rows import fair_rows
from gprune.experiments.reproduction.grid import Series
from gprune.store import Store
from gprune.study import short
from gprune.system.errors import StoreError

GPRUNE = "gprune"


def markdown(store: Store, every: Sequence[Series], command: str) -> str:
    """The report of some series, one a model, with the command line that makes it."""
    found = blocks(store, every, fair_rows, GPRUNE)
    cases = [case for block in found for case in block.cases]
    tables = [paragraph for block in found for paragraph in _table(block)]
    parts = [*_head(every, found, command), *_claims(cases), *tables, *_why(found)]
    return "\n\n".join(parts) + "\n"


def _head(every: Sequence[Series], found: Sequence[Block], command: str) -> list[str]:
    return [
        "# A fair comparison",
        "What each method reaches beside what people would otherwise use, and beside controls that say where "
        "a gain comes from: the same learning on one module a layer, on random modules, on shuffled ones, "
        "without RASA, and the base metrics at one ratio with nothing learned. All numbers were measured "
        "here; none is published by anyone else.",
        *measured(every, found, command),
        "*Given* are the texts of a method, whether anything was learned, and its forward and backward "
        "passes of the dense model over as many tokens as a calibration set has.",
    ]


def _claims(cases: Sequence[Case]) -> list[str]:
    lines = verdicts(CLAIMS, cases)
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


def _table(block: Block) -> list[str]:
    names = [called(case.text, block) for case in block.cases]
    lines = []
    for method, rows in block.methods.items():
        label = str(rows[0].row.labels["method"]) + (" (control)" if rows[0].row.extra else "")
        values = [perplexity(case, method) for case in block.cases]
        rival = method not in (GPRUNE, "dense")
        against = [told(case.difference(method, GPRUNE)) if rival else "" for case in block.cases]
        reasons = {one.reason for one in rows if one.reason}
        lines.append([label, given(rows[0], block), *values, *against])
        lines += [["", reason, *[""] * (2 * len(names))] for reason in sorted(reasons)]
    heads = ("method", "given", *names, *(f"against GPrune, {name}" for name in names))
    return [f"## {block.name}", Table.of(heads, lines).markdown()]


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
