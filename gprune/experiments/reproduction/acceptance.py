"""Answers: do we get what others have published for a model, each figure within 3 % or outside it?

For whoever has the real models: the studies of a list of published figures, run through the same jobs and
looked up by the same keys as every table of the paper, and one table of ours beside theirs.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gprune.analysis.paired_test import INTERVAL, half_interval
from gprune.analysis.studies import NOT_RUN
from gprune.analysis.table import Table
from gprune.data import published
from gprune.data.published.claims import ACCURACY, Claim
from gprune.experiments.reproduction.assembly import Assembled, wide
from gprune.experiments.reproduction.cells import number
from gprune.experiments.reproduction.grid import Row, Series, label
from gprune.experiments.reproduction.presets import PRESETS
from gprune.experiments.reproduction.scale import Scale
from gprune.experiments.reproduction.tables import PaperTable
from gprune.models import identity
from gprune.pipeline.estimate.dimensions import of_model
from gprune.pipeline.estimate.operations import RATES, TEXT_TOKENS
from gprune.study import short
from gprune.study.fields import assignment
from gprune.study.methods import METHODS
from gprune.system import machine
from gprune.system.errors import ModelError
from gprune.system.units import duration

TOLERANCE = 0.03
"""the largest share by which ours may differ from a published figure to agree with it"""
_STEP = 6
"""what a token of MSL costs in forward passes: student, teacher, and two backward ones of twice the price"""
_SAMPLES = "calibration.samples"


@dataclass(frozen=True, slots=True)
class Compared:
    """A published figure and ours."""

    claim: Claim
    row: Row
    ours: float
    """NaN where it was not measured"""
    half: float
    """half the 95 % interval over windows; NaN where there is none"""
    reason: str = ""
    """why it was not measured"""

    @property
    def difference(self) -> float:
        """Ours over theirs, less 1; NaN where ours is missing."""
        return self.ours / self.claim.value - 1

    @property
    def verdict(self) -> str:
        """In words."""
        if math.isnan(self.ours):
            return "not measured"
        # the line itself is within, whatever the last digit of a double says
        within = abs(self.difference) <= TOLERANCE + 1e-9
        return f"{'within' if within else 'outside'} {TOLERANCE:.0%}"


class Acceptance:
    """The published figures of one model, and the studies that measure the same here."""

    def __init__(self, name: str, series: Series, claims: Sequence[Claim]) -> None:
        """Makes one row of every method, retention and setting that figures are published for.

        `name` is the model's in papers, `series` the studies that every row's differs from, `claims` the
        published figures of the model; accuracies need tasks in the series.
        """
        self.name, self.series = name, series
        self._rows: list[Row] = []
        self.asked: list[tuple[Claim, Row]] = []
        """every published figure, with the row that has ours"""
        for claim in claims:
            row = _row(series, claim)
            known = next((other for other in self._rows if _same(other, row)), None)
            if known is None:
                self._rows.append(row)
            self.asked.append((claim, known or row))

    @property
    def table(self) -> PaperTable:
        """The rows as every other table has them."""
        title = f"published figures of {self.name}, and ours beside them"
        return PaperTable("acceptance", title, lambda _: list(self._rows))

    def compare(self, made: Assembled) -> list[Compared]:
        """Every published figure beside ours, in the order of the list."""
        names = published.TASKS if self.series.scale.tasks else ()
        values = wide(made.answers, "max", names).to_dict("records")
        answers = {id(answer.row): (answer, line) for answer, line in zip(made.answers, values, strict=True)}
        found = []
        for claim, row in self.asked:
            answer, line = next(pair for pair in answers.values() if _same(pair[0].row, row))
            halves = {one.subject: half_interval(one.error, one.windows - 1) for one in answer.values}
            whole = {task.task for task in answer.accuracies} >= set(published.TASKS)
            accurate = claim.figure == ACCURACY
            ours = float(line.get(ACCURACY if accurate else f"ppl:{claim.figure}", math.nan))
            ours = math.nan if accurate and not whole else ours
            reason = _reason(answer.reason, answer.missing_tasks, accurate) if math.isnan(ours) else ""
            found.append(Compared(claim, row, ours, halves.get(claim.figure, math.nan), reason))
        return found


def scale_for(claims: Iterable[Claim], scale: Scale) -> dict[str, object]:
    """What the scale of an acceptance takes from its list: the texts that are measured, their order kept."""
    texts = dict.fromkeys(claim.figure for claim in claims if claim.figure != ACCURACY)
    return {"texts": tuple(texts) or scale.texts, "seeds": scale.seeds[:1], "controls": False}


def _row(series: Series, claim: Claim) -> Row:
    base, _, metric = claim.method.partition(":")
    words = [word for word in claim.settings.split(";") if word.strip()]
    changes = {_SAMPLES: claim.samples} | dict(assignment(word.strip()) for word in words)
    own = series.base
    pair = (changes.pop("primary", own.primary), changes.pop("auxiliary", own.auxiliary))
    kept = series.scale.retention if claim.retention == 1 else claim.retention
    chosen: dict[str, Any] = {"metric": metric or own.metric, "pair": pair, "retention": kept}
    study = series.study(methods=(base,), changes=changes, **chosen)
    row = Row({"retention": claim.retention}, study, base)
    return Row({"retention": claim.retention, "method": label(row)}, study, base)


def _same(first: Row, second: Row) -> bool:
    return (first.study, first.method) == (second.study, second.method)


def _reason(reason: str, missing: tuple[tuple[str, str], ...], accurate: bool) -> str:
    if reason or not (accurate and missing):
        return reason or NOT_RUN
    return f"{missing[0][0]}: {missing[0][1]}"


def operations(rows: Iterable[Row], weights: int) -> float:
    """Floating-point operations of some rows, roughly: passes through the decoder, two a weight and token."""
    texts: dict[tuple[str, int, int], None] = {}
    passes = 0.0
    for row in rows:
        study, decision = row.study, METHODS[row.method].decision
        one = study.calibration.samples * study.calibration.length
        texts[study.primary, study.calibration.samples, study.calibration.length] = None
        learns = METHODS[row.method].learns
        learning = 2.0 * _STEP * study.sparsity.epochs * METHODS[row.method].epochs if learns else 0.0
        own = {"sequential": 1.0, "fang": 8.0, "osscar": 6.0, "slimllm": 7.0}
        contexts = 8.0 if study.metric == "twflap" and learns else 0.0
        measured = study.evaluation.tokens or TEXT_TOKENS
        passes += one * (own.get(decision, learning) + contexts) + len(study.evaluation.texts) * measured
    passes += sum(2 * samples * length for _, samples, length in texts)
    return 2.0 * weights * passes


def weights_of(found: Acceptance) -> int:
    """Linear weights of the decoder layers: of the model where it is here, else of the published one."""
    name = found.name if found.name in PRESETS else ""
    try:
        return of_model(found.series.model).shape.decoder_weights
    except ModelError:
        return PRESETS[name].weights if name else 0


def estimate(rows: Sequence[Row], weights: int) -> str:
    """What some rows cost, in words that say what was reckoned with."""
    kind = "gpu" if machine.has_gpu() else "cpu"
    work = operations(rows, weights)
    return (
        f"estimate: {work / 1e15:.3g} PFLOP through the model, about {duration(work / RATES[kind], 1)} at "
        f"{RATES[kind] / 1e12:g} TFLOP/s; clustering and zero-shot tasks come on top"
    )


def markdown(found: Sequence[Compared], name: str, made: Assembled, series: Series, command: str) -> str:
    """The comparison as one piece of Markdown to paste into an issue."""
    parts = [f"### {name}: published figures and ours", _count(found)]
    columns = ["method", "kept", "figure", "published", "by", "here", "difference", ""]
    parts.append(Table.of(columns, map(_line, found)).markdown())
    reasons = dict.fromkeys(f"{one.row.labels['method']}: {one.reason}" for one in found if one.reason)
    origin = _origin(found, made, series, command)
    notes = (*reasons, f"± is half the {INTERVAL} over windows.", *origin)
    parts.append("\n".join(f"- {line}" for line in notes))
    return "\n\n".join(parts) + "\n"


def _count(found: Sequence[Compared]) -> str:
    verdicts = [one.verdict for one in found]
    within, outside = (sum(v.startswith(word) for v in verdicts) for word in ("within", "outside"))
    left = len(found) - within - outside
    missing = f", {left} not measured" if left else ""
    return f"{within} of {len(found)} figures within {TOLERANCE:.0%}, {outside} outside{missing}."


def _line(one: Compared) -> list[str]:
    column = ACCURACY if one.claim.figure == ACCURACY else f"ppl:{one.claim.figure}"
    here = "" if math.isnan(one.ours) else number(one.ours, column)
    spread = "" if math.isnan(one.half) or not here else f" ± {number(one.half, column)}"
    kind = "accuracy, 7 tasks" if one.claim.figure == ACCURACY else f"perplexity, {short(one.claim.figure)}"
    theirs = number(one.claim.value, column)
    difference = "" if math.isnan(one.difference) else f"{one.difference:+.1%}"
    method, kept = str(one.row.labels["method"]), f"{one.claim.retention:.0%}"
    return [method, kept, kind, theirs, one.claim.source, f"{here}{spread}", difference, one.verdict]


def _origin(found: Sequence[Compared], made: Assembled, series: Series, command: str) -> list[str]:
    """Where our figures come from: model, settings, versions, machine and command."""
    scale, every = series.scale, [value for answer in made.answers for value in answer.values]
    windows = sorted({f"{value.windows:,} windows of {value.length} tokens" for value in every if value.windows})
    more = [f"{field}={value}" for field, value in scale.settings]
    kinds = dict.fromkeys(answer.precision for answer in made.answers if answer.precision)
    return [
        f"model: `{series.model}`, SHA-256 {identity.fingerprint(series.model)[:16]}",
        f"texts: A {short(scale.primary)}, B {short(scale.auxiliary)}; seed {scale.seed}; "
        f"perplexity over {', '.join(windows) or 'no windows'}",
        *dict.fromkeys(map(_settings, found)),
        *([f"settings of every figure: {', '.join(more)}"] if more else []),
        f"versions: {_versions(made)}",
        f"device: {machine.describe(series.base.device)}; number type {' and '.join(kinds) or 'not known'}",
        f"command: `{command}`",
    ]


def _versions(made: Assembled) -> str:
    """The versions behind our figures; several of one thing where runs differ."""
    versions: dict[str, dict[str, None]] = {}
    for answer in made.answers:
        for name in ("gprune", "commit", "package", "torch", "transformers", "python"):
            if value := str(answer.versions.get(name, "")):
                versions.setdefault(name, {})[value] = None
    changed = any(answer.versions.get("uncommitted_changes") for answer in made.answers)
    words = [f"{name} {' and '.join(values)}" for name, values in versions.items()]
    return ", ".join(words) + (", with uncommitted changes" if changed else "")


def _settings(one: Compared) -> str:
    samples = one.row.study.calibration.samples
    more = f", {one.claim.settings}" if one.claim.settings else ""
    return f"settings beside the figures by {one.claim.source}: {samples} sequences a text{more}"
