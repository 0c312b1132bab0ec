"""Compute the cards of a run's calibration texts from stored statistics, without running the model.

Masks use the scores of one text and one ratio in every layer, so that only the text makes them differ. If the metric of
the study cannot score subsets of a text, FLAP is used instead.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gprune.analysis import calibration, decisions, resampling
from gprune.analysis.calibration_report.card import Origin, Size, TextCard, TextComparison
from gprune.analysis.resampling import Law, Resampled
from gprune.data.texts import corpus_relation, is_sampled
from gprune.models import vocabulary
from gprune.pipeline import stages
from gprune.pipeline.stages import Results
from gprune.pipeline.stages.inputs import roles
from gprune.pruning import scoring
from gprune.pruning.allocation import uniform
from gprune.pruning.ranking import ranks
from gprune.pruning.scoring import neuron_scorer
from gprune.records import Array, PruningMasks, Tokens, UnitScores
from gprune.study import Study
from gprune.system.errors import SettingsError, StoreError
from gprune.system.safe_parsing import quote

_VOCABULARY = 32_000
"""assumed vocabulary size if the model's folder cannot be read"""


@dataclass(frozen=True, slots=True, eq=False)
class _MeasuredText:
    """Ranks and masks of one text, and the effect of sampling on them."""

    role: str
    sequences: int
    tokens: Tokens | None
    ranked: Array
    """(layers, neurons) ranks on the whole text"""
    masks: PruningMasks
    halves: tuple[PruningMasks, PruningMasks]
    resampled: Resampled
    drift: Law
    changed: Law

    @property
    def letter(self) -> str:
        return calibration.ROLES[self.role]


def texts_of(study: Study) -> dict[str, str]:
    """Return the calibration texts A, B and C of a study by role."""
    return {role: text for role, text in roles(study).items() if role in calibration.ROLES}


def measurable(results: Results) -> list[str]:
    """Return the roles of the texts whose stored results are sufficient for a card."""
    if not (results.has(stages.norms) and results.has(stages.shape)):
        return []
    return [role for role in texts_of(results.graph.study) if results.has(stages.statistics, role)]


def measure(results: Results, run: str = "", described: dict[str, str] | None = None) -> dict[str, TextCard]:
    """Return the cards of all measured texts of a run by letter.

    `run` is the name of the run. `described` has the descriptions of texts that the run recorded, by role. Raises
    StoreError if no text is measured yet or a result is damaged.
    """
    texts = [_measure_text(results, role) for role in measurable(results)]
    if not texts:
        raise StoreError(
            f"the run {run!r} has measured none of its texts yet: run the study first, at least until drift"
        )
    study = results.graph.study
    entries = vocabulary.vocabulary_size(study.model)
    origin = Origin(run, study.model, subset_metric(study), study.retention)
    return {text.letter: _build_card(study, origin, text, texts, entries, described or {}) for text in texts}


def subset_metric(study: Study) -> str:
    """Return the metric that scores subsets of a text: the study's metric, or FLAP if that cannot score subsets."""
    return study.metric if study.metric in scoring.METRICS else "flap"


def _measure_text(results: Results, role: str) -> _MeasuredText:
    """Compute ranks, masks and the effect of sampling of one text from its stored statistics."""
    study, shape, norms = results.graph.study, results.get(stages.shape), results.get(stages.norms)
    statistics, metric = results.get(stages.statistics, role), subset_metric(study)
    # FLAP's released recursion is not defined on a subset of a text, so the plain variance is used
    plain = replace(study.calibration, flap_variant="paper")

    def score_shards(shards: range | None = None) -> UnitScores:
        shard_list = None if shards is None else list(shards)
        return scoring.score(metric, statistics, norms, shape, plain, shard_list)

    # the whole text, and its even and odd shards
    all_scores = score_shards()
    masks, even_masks, odd_masks = (
        uniform.allocate(scores, shape, study.retention)
        for scores in (all_scores, *(score_shards(range(start, statistics.shards, 2)) for start in (0, 1)))
    )
    scorer = neuron_scorer(metric, statistics, norms)
    samples = resampling.resampling_drift(scorer, statistics.shard_samples, masks.ffn.sum(axis=1))
    return _MeasuredText(
        role=role,
        sequences=int(statistics.shard_samples.sum()),
        tokens=results.get(stages.tokens, role) if results.has(stages.tokens, role) else None,
        ranked=ranks(all_scores.ffn),
        masks=masks,
        halves=(even_masks, odd_masks),
        resampled=samples,
        drift=resampling.fit_drift_law(samples.sequences, samples.drift),
        changed=resampling.fit_drift_law(samples.sequences, samples.changed),
    )


def _build_card(
    study: Study,
    origin: Origin,
    card_text: _MeasuredText,
    texts: list[_MeasuredText],
    entries: int | None,
    described: dict[str, str],
) -> TextCard:
    """Build the card of `card_text`; `texts` are all measured texts of the run, including this one."""
    other_texts = [other_text for other_text in texts if other_text is not card_text]
    masks = np.stack([text.masks.ffn for text in texts])
    return TextCard(
        letter=card_text.letter,
        name=getattr(study, card_text.role),
        label=_label_text(study, card_text),
        described=described.get(card_text.role, ""),
        origin=origin,
        size=_measure_size(study, card_text, entries),
        resampled=card_text.resampled,
        drift=card_text.drift,
        changed=card_text.changed,
        others=tuple(_compare_texts(study, card_text, other_text, entries) for other_text in other_texts),
        undecided=float(np.mean(masks.any(axis=0) != masks.all(axis=0))) if other_texts else float("nan"),
    )


def _label_text(study: Study, text: _MeasuredText) -> str:
    # without the options of a text that the model writes (`self:#seed=1`)
    return study.text_name(getattr(study, text.role)).partition("#")[0] or text.letter


def _measure_size(study: Study, text: _MeasuredText, entries: int | None) -> Size:
    if text.tokens is None:
        return Size(text.sequences, study.calibration.length, None, None, None, entries, frequent=np.nan, halves=np.nan)
    ids, content = text.tokens.unpadded_ids, text.tokens.content
    # one more than the largest token id
    size = 1 + int(ids.max())
    token_counts = calibration.token_counts(ids, size)
    frequent = np.sort(token_counts)[-calibration.MOST_FREQUENT :].sum() / token_counts.sum()
    return Size(
        sequences=text.sequences,
        length=ids.shape[1],
        # the model can write any number of sequences
        available=None if is_sampled(getattr(study, text.role)) else text.tokens.available,
        characters=vocabulary.count_characters(study.model, text.tokens.ids),
        distinct=int((token_counts > 0).sum()),
        entries=entries,
        frequent=float(frequent),
        halves=calibration.half_distance(ids, ids, size),
        template=np.nan if content is None else float(1 - content[ids >= 0].mean()),
        rendered="" if content is None else vocabulary.decode(study.model, ids[0][ids[0] >= 0]),
    )


def _compare_texts(study: Study, text: _MeasuredText, other_text: _MeasuredText, entries: int | None) -> TextComparison:
    """Compare a text with another text of the run; `entries` is the size of the vocabulary, if known."""
    noises = [side.drift.at(side.sequences) for side in (text, other_text)]
    drift = resampling.rank_drift(text.ranked, other_text.ranked)
    changed_sampling = float(np.mean([side.changed.at(side.sequences) for side in (text, other_text)]))
    overlap = decisions.count_shared(text.masks, other_text.masks, decisions.NEURONS)
    share = float(text.masks.ffn.mean())
    return TextComparison(
        letter=other_text.letter,
        name=getattr(study, other_text.role),
        label=_label_text(study, other_text),
        drift=drift,
        drift_sampling=float(np.sqrt(np.mean(np.square(noises)))),
        drift_beyond=resampling.drift_beyond_sampling(drift, *noises),
        changed=decisions.share_changed(text.masks.ffn, other_text.masks.ffn),
        changed_sampling=changed_sampling,
        groups_changed=decisions.share_changed(text.masks.heads, other_text.masks.heads),
        jaccard=overlap.jaccard,
        jaccard_chance=overlap.chance,
        jaccard_sampling=resampling.jaccard(share, changed_sampling),
        jaccard_halves=decisions.count_shared(*text.halves, decisions.NEURONS).jaccard,
        jaccard_across=decisions.count_shared(text.halves[0], other_text.halves[0], decisions.NEURONS).jaccard,
        **_compare_tokens(text.tokens, other_text.tokens, entries),
    )


def _compare_tokens(first: Tokens | None, second: Tokens | None, entries: int | None) -> dict[str, Any]:
    """Return the fields of `TextComparison` that compare tokens; NaN if tokens are not available."""
    run = corpus_relation.run_length(entries or _VOCABULARY)
    if first is None or second is None:
        unknown = dict.fromkeys(("token_distance", "half_distance", "distinct_shared", "runs_shared"), float("nan"))
        return {**unknown, "run": run}
    size = 1 + max(int(first.ids.max()), int(second.ids.max()))
    first_counts, second_counts = (calibration.token_counts(tokens.unpadded_ids, size) for tokens in (first, second))
    run = min(run, first.ids.shape[1], second.ids.shape[1])
    return {
        "token_distance": calibration.token_distance(first_counts, second_counts),
        "half_distance": calibration.half_distance(first.unpadded_ids, second.unpadded_ids, size),
        "distinct_shared": float(((first_counts > 0) & (second_counts > 0)).sum() / (first_counts > 0).sum()),
        "runs_shared": corpus_relation.shared_share(first.unpadded_ids, second.unpadded_ids, run),
        "run": run,
    }


def letter_of(study: Study, text: str) -> str:
    """Return the letter of a text from its letter, role or name. Raises SettingsError if there is no such text."""
    texts = texts_of(study)
    for role, name in texts.items():
        if text in (calibration.ROLES[role], calibration.ROLES[role].lower(), role, name):
            return calibration.ROLES[role]
    choices = ", ".join(f"{calibration.ROLES[role]} ({name})" for role, name in texts.items())
    raise SettingsError(f"the run has no calibration text {quote(text)}: choose one of {choices}")
