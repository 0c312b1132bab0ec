"""The paper's own numbers, for reading beside a run; never to be compared with a run of another setting.

Every value names the model, texts and metric it belongs to.
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from gprune.study import Study


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


DRIFT = Published(
    "median rank correlation 0.62 when the text changes, 0.98 when it is re-sampled (Fig. 1a)",
    "LLaMA2-7B, WikiText2 against PTB, 2048 samples of 128 tokens a text",
    "llama-2-7b",
    "flap",
)
SWAP = Published(
    "mean ARI 0.51 for GPrune and 0.12 for FANG when the two texts are swapped (Fig. 1b)",
    "LLaMA2-7B, WikiText2 against PTB, token-weighted FLAP",
    "llama-2-7b",
    "twflap",
)
RETENTION = Published(
    "retention of the most unstable bin falls from 0.437 to 0.349, the other four gain 0.023 to 0.074 (Fig. "
    "3a)",
    "LLaMA2-7B, FLAP, 50 % retention",
    "llama-2-7b",
    "flap",
)
JACCARD = Published(
    "Jaccard with FLAP 0.710 in the most stable bin and 0.312 in the most unstable one (Fig. 3b)",
    "LLaMA2-7B, FLAP, 50 % retention; the chance level of the last bin is then 0.241",
    "llama-2-7b",
    "flap",
)


def substitution() -> pd.DataFrame:
    """Module agreement under substitution of a text (appendix): mean and deviation over 32 layers."""
    rows = [
        ("WT2–PTB against WT2–C4", 0.575, 0.121, 0.707, 0.122),
        ("WT2–PTB against PTB–C4", 0.582, 0.122, 0.706, 0.124),
        ("WT2–C4 against PTB–C4", 0.583, 0.124, 0.714, 0.123),
    ]
    columns = ["comparison", "mean ARI", "s.d. of ARI", "mean overlap", "s.d. of overlap"]
    return pd.DataFrame(rows, columns=columns)


def perplexities() -> pd.DataFrame:
    """Perplexity of LLaMA2-7B, windows of 128 tokens (Table of the main comparison)."""
    rows = [
        (1.0, "dense", 12.19, 48.35),
        (0.8, "LLM-Pruner", 19.23, 72.62),
        (0.8, "Wanda-sp", 17.50, 67.01),
        (0.8, "GPrune (Wanda-sp)", 15.44, 56.95),
        (0.8, "FLAP", 16.41, 61.61),
        (0.8, "GPrune (FLAP)", 15.55, 59.56),
        (0.8, "FANG", 15.43, 61.55),
        (0.8, "GPrune (twFLAP)", 15.33, 58.19),
        (0.7, "LLM-Pruner", 29.40, 111.56),
        (0.7, "Wanda-sp", 22.94, 79.79),
        (0.7, "GPrune (Wanda-sp)", 21.04, 75.56),
        (0.7, "FLAP", 20.25, 76.02),
        (0.7, "GPrune (FLAP)", 18.97, 69.94),
        (0.7, "FANG", 18.86, 78.23),
        (0.7, "GPrune (twFLAP)", 18.76, 66.84),
        (0.5, "LLM-Pruner", 227.85, 459.50),
        (0.5, "Wanda-sp", 262.32, 505.51),
        (0.5, "GPrune (Wanda-sp)", 60.80, 191.99),
        (0.5, "FLAP", 42.81, 152.49),
        (0.5, "GPrune (FLAP)", 37.02, 125.41),
        (0.5, "FANG", 36.31, 154.23),
        (0.5, "GPrune (twFLAP)", 36.83, 129.77),
    ]
    return pd.DataFrame(rows, columns=["retained", "method", "WikiText2", "PTB"])


def same_setting(claim: Published, study: Study) -> bool:
    """Whether a run has the model, texts and metric that a published number belongs to."""
    words = study.model.lower().replace("llama2", "llama-2").replace("_", "-")
    texts = {study.primary.lower().split(":")[0], study.auxiliary.lower().split(":")[0]}
    return claim.model in words and texts == {"wikitext2", "ptb"} and study.metric == claim.metric
