"""The paper's own numbers, for reading beside a run; never to be compared with a run of another setting.

Every claim names the model, texts and metric it belongs to; its numbers come from `gprune.data.published`.
"""

from dataclasses import dataclass

import pandas as pd

from gprune.analysis import tables
from gprune.data import published
from gprune.data.published import Figure
from gprune.models.shapes import is_random
from gprune.study import Study

MODEL = "LLaMA2-7B"
SWAPPED = "WikiText2 <-> PTB"
RESAMPLED = "resample of the same distribution"
STABLE, UNSTABLE, FIRST_FOUR = "0-20%", "80-100%", "0-80%"


@dataclass(frozen=True, slots=True)
class Published:
    """One published number or pair."""

    claim: str
    """what was found, with its numbers"""
    setting: str
    """model, texts, metric and retention behind it"""
    model: str
    """model name as it appears in folders and hub names, lower case"""
    metric: str
    """base metric"""


def _figure(table: str, variant: str, method: str | None = None) -> Figure:
    rows = published.table(table, MODEL)
    return next(row for row in rows if row.variant == variant and method in (None, row.method))


def _drift() -> Published:
    swapped = _figure("figure-1a", SWAPPED).values["rank_correlation"]
    resampled = _figure("figure-1a", RESAMPLED).values["rank_correlation"]
    claim = (
        f"median rank correlation {swapped:.2f} when the text changes, {resampled:.2f} when it is re-sampled (Fig. 1a)"
    )
    setting = f"{MODEL}, WikiText2 against PTB, 2048 samples of 128 tokens a text"
    return Published(claim, setting, "llama-2-7b", "flap")


def _swap() -> Published:
    own = _figure("figure-1b", SWAPPED, "gprune:twflap").values["ari"]
    other = _figure("figure-1b", SWAPPED, "fang").values["ari"]
    claim = f"mean ARI {own:.2f} for GPrune and {other:.2f} for FANG when the two texts are swapped (Fig. 1b)"
    return Published(claim, f"{MODEL}, WikiText2 against PTB, token-weighted FLAP", "llama-2-7b", "twflap")


def _retention() -> Published:
    base = _figure("figure-3a", UNSTABLE, "flap").values["kept"]
    own = _figure("figure-3a", UNSTABLE, "gprune:flap").values["kept"]
    others = _figure("figure-3a", FIRST_FOUR, "gprune:flap").values
    claim = (
        f"retention of the most unstable bin falls from {base:.3f} to {own:.3f}, the other four gain "
        f"{others['gain_lowest']:.3f} to {others['gain_highest']:.3f} (Fig. 3a)"
    )
    return Published(claim, f"{MODEL}, FLAP, 50 % retention", "llama-2-7b", "flap")


def _jaccard() -> Published:
    stable = _figure("figure-3b", STABLE).values["jaccard"]
    unstable = _figure("figure-3b", UNSTABLE).values["jaccard"]
    kept = [_figure("figure-3a", UNSTABLE, method).values["kept"] for method in ("flap", "gprune:flap")]
    both = kept[0] * kept[1]
    chance = both / (sum(kept) - both)
    claim = (
        f"Jaccard with FLAP {stable:.3f} in the most stable bin and {unstable:.3f} in the most unstable one (Fig. 3b)"
    )
    setting = f"{MODEL}, FLAP, 50 % retention; the chance level of the last bin is then {chance:.3f}"
    return Published(claim, setting, "llama-2-7b", "flap")


DRIFT = _drift()
SWAP = _swap()
RETENTION = _retention()
JACCARD = _jaccard()


def substitution() -> pd.DataFrame:
    """Module agreement under substitution of a text (appendix): mean and deviation over 32 layers."""
    rows = [
        {
            "comparison": row.variant.replace("-", "–").replace(" vs ", " against "),
            "mean ARI": row.values["ari"],
            "s.d. of ARI": row.values["ari_std"],
            "mean overlap": row.values["overlap"],
            "s.d. of overlap": row.values["overlap_std"],
        }
        for row in published.table("module-overlap", MODEL)
    ]
    return pd.DataFrame(rows)


def metric_gap(model: str = MODEL, rule: str = "max") -> pd.DataFrame:
    """Published accuracy gap of Wanda-sp and FLAP before and after GPrune; see `tables.metric_gap`.

    `model` is one of `gprune.data.published.MODELS`, `rule` the accuracy that counts, max or fixed.
    """
    return tables.metric_gap(published.frame(published.table("main", model, rule)))


def gain_by_retention(model: str = MODEL, rule: str = "max") -> pd.DataFrame:
    """Published change of every metric from base to GPrune; see `tables.gain_by_retention`.

    `model` is one of `gprune.data.published.MODELS`, `rule` the accuracy that counts, max or fixed.
    """
    return tables.gain_by_retention(published.frame(published.table("main", model, rule)))


def same_setting(claim: Published, study: Study) -> bool:
    """Whether a run has the model, texts and metric that a published number belongs to."""
    words = study.model.lower().replace("llama2", "llama-2").replace("_", "-")
    texts = {study.primary.lower().split(":")[0], study.auxiliary.lower().split(":")[0]}
    named = claim.model in words and not is_random(study.model)
    return named and texts == {"wikitext2", "ptb"} and study.metric == claim.metric
