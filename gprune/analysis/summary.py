"""Answers: what does a run say in half a minute, and can it be trusted?

The overview's checks read the run's record (`run.json`), its masks and what the parts of GPrune do in it;
each is a finding with a verdict.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gprune.analysis.ablation_effect import LEAST, AblationEffect
from gprune.analysis.claims import CLAIMS, HOLDS
from gprune.analysis.decisions import BUDGET_TOLERANCE
from gprune.analysis.formatting import percent
from gprune.analysis.verdict import budget_gap
from gprune.data.texts.corpus_relation import SAME
from gprune.evaluation.holdout import HoldoutStatus
from gprune.records import PruningMasks
from gprune.study import Study

PAPER_SAMPLES = 2048
"""sequences of each calibration text in section 4"""


_CLAIMS = tuple(claim.words for claim in CLAIMS if claim.source in ("main table", "ablation") and not claim.where)
"""what else would make a finding trusted: that it was found on other models, and by these parts of GPrune"""


@dataclass(frozen=True, slots=True)
class Check:
    """One trust check."""

    verdict: Literal["pass", "warn", "unknown"]
    sentence: str


def checks(
    record: dict[str, Any],
    study: Study,
    masks: dict[str, PruningMasks],
    standings: Mapping[str, HoldoutStatus],
    acting: AblationEffect | None = None,
    *,
    recorded: Mapping[str, str] = {},
    seeds: Sequence[int] = (),
) -> list[Check]:
    """Every trust check of a run.

    `masks` are by display name, `standings` of its evaluation texts; `acting` is what the parts of GPrune do
    in it, None where it has not come that far. `recorded` are claims that were judged on other models, with
    their outcome; `seeds` are those over which methods are compared.
    """
    return [
        _budgets(study.retention, masks),
        *([] if acting is None else [_adaptation(acting), _modules(acting)]),
        *_recorded(recorded),
        _texts(standings),
        _seeds(study, seeds),
        _windows(study),
        _samples(study),
        _code(record.get("provenance") or {}),
    ]


def _budgets(target: float, masks: dict[str, PruningMasks]) -> Check:
    if not masks:
        return Check("unknown", "Budgets: no masks yet")
    worst = max(masks, key=lambda name: abs(masks[name].retention - target))
    kept, told = masks[worst].retention, percent(target, 1)
    if budget_gap([target, *(mask.retention for mask in masks.values())]):
        return Check("warn", f"Budgets differ: {worst} keeps {percent(kept, 2)} where {told} was asked for")
    within = percent(BUDGET_TOLERANCE, 1)
    return Check("pass", f"Budgets match: every method keeps {told} of the decoder's weights to within {within}")


def _adaptation(acting: AblationEffect) -> Check:
    share = acting.decisions_changed["RASA"]
    sentence = f"RASA changes {percent(share, 1)} of the decisions on neurons"
    if share < LEAST:
        return Check("warn", f"{sentence}: no gain should be credited to it")
    return Check("pass", sentence)


def _modules(acting: AblationEffect) -> Check:
    own = acting.drift_explained
    sentence = (
        f"The modules explain {percent(own.modules)} of the rank drift’s variance, random ones of the same "
        f"sizes {percent(own.random)}"
    )
    if not own.modules > own.random:
        return Check("warn", f"{sentence}: they gather no neurons that drift alike")
    return Check("pass", f"{sentence}; whether they prune better than random ones only the controls say")


def _recorded(claims: Mapping[str, str]) -> list[Check]:
    """What was found of GPrune, its modules and RASA on other models, of the claims that are there."""
    known = [f"{claim}: {claims[claim]}" for claim in _CLAIMS if claim in claims]
    # the first word of an outcome says whether the claim holds
    held = all(claims[claim].startswith(f"{HOLDS}:") for claim in _CLAIMS if claim in claims)
    told = f"On other models (recorded, not of this run) {'; '.join(known)}"
    return [Check("pass" if held else "warn", told)] if known else []


def _texts(standings: Mapping[str, HoldoutStatus]) -> Check:
    if not standings:
        return Check("unknown", "Texts: nothing is evaluated in this run")
    same = sorted(text for text, known in standings.items() if SAME in known.related)
    if same:
        return Check(
            "warn",
            f"Calibration and evaluation use the very same text: {', '.join(same)}; its figure flatters",
        )
    groups: dict[str, list[str]] = {}
    for text, known in standings.items():
        groups.setdefault(known.brief, []).append(text)
    told = "; ".join(f"{brief}: {', '.join(texts)}" for brief, texts in groups.items())
    if not any(known.unseen for known in standings.values()):
        return Check("warn", f"No evaluation text is unseen ({told})")
    copied = any(known.copied for known in standings.values())
    return Check("warn" if copied else "pass", f"What the evaluation texts are to A and B: {told}")


def _seeds(study: Study, seeds: Sequence[int]) -> Check:
    if len(seeds) < 2:
        return Check("warn", f"One seed ({study.seed}): differences between methods carry no spread over seeds")
    named = ", ".join(map(str, seeds))
    return Check("pass", f"{len(seeds)} seeds ({named}) are in this cache: differences are over windows and seeds")


def _windows(study: Study) -> Check:
    if study.evaluation.windows is None:
        return Check("pass", "Perplexity is measured on every window of the evaluation texts")
    return Check(
        "warn",
        f"Perplexity is measured on at most {study.evaluation.windows} windows a text: compare it only with "
        "figures of the same limit",
    )


def _samples(study: Study) -> Check:
    samples = study.calibration.samples
    if samples >= PAPER_SAMPLES:
        return Check("pass", f"{samples} calibration sequences a text, as many as in the paper or more")
    return Check("warn", f"{samples} calibration sequences a text; the paper uses {PAPER_SAMPLES}")


def _code(provenance: dict[str, Any]) -> Check:
    if package := provenance.get("package"):
        return Check("pass", f"Made by the installed package {provenance.get('gprune')} (contents {package})")
    if not provenance.get("commit"):
        return Check("unknown", "The commit of the program is not recorded")
    if provenance.get("uncommitted_changes"):
        return Check("warn", f"Made by commit {provenance['commit']} with changes that were not committed")
    return Check("pass", f"Made by commit {provenance['commit']} without further changes")
