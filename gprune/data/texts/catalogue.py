"""Texts with a name.

WikiText-2, PTB and C4 are the paper's calibration and evaluation texts (section 4), and BookCorpus is the calibration
text of LLM-Pruner's released code; they are downloaded from the hub. The embedded texts are part of the package.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from gprune.data.demo import texts
from gprune.data.texts import sampled
from gprune.data.texts.hub_rows import CONVERTED


@dataclass(frozen=True, slots=True)
class HubText:
    """A named text on the hub."""

    description: str
    repository: str
    """owner/name on the hub"""
    files: Mapping[str, str]
    """the file of each split; the first one if there are several"""
    evaluation: str
    """the split that perplexity is measured on"""
    joined: bool
    """True if all rows are joined by blank lines into one string, as in the literature"""
    revision: str = "main"
    """branch of the repository"""
    complete: bool = True
    """True if the whole file is read; False if only as much from its beginning as a study needs"""


_SPLITS = ("train", "validation", "test")

HUB_TEXTS: Mapping[str, HubText] = {
    "wikitext2": HubText(
        description="WikiText-2 (raw): Wikipedia articles; the paper's primary text",
        repository="Salesforce/wikitext",
        files={split: f"wikitext-2-raw-v1/{split}-00000-of-00001.parquet" for split in _SPLITS},
        evaluation="test",
        joined=True,
    ),
    "ptb": HubText(
        description="Penn Treebank: sentences of the Wall Street Journal; the paper's auxiliary text",
        repository="ptb-text-only/ptb_text_only",
        files={split: f"penn_treebank/{split}/0000.parquet" for split in _SPLITS},
        evaluation="validation",
        joined=True,
        # the main branch holds only a loading script
        revision=CONVERTED,
    ),
    "c4": HubText(
        description="C4 (English): web pages; the first of its files",
        repository="allenai/c4",
        files={
            "train": "en/c4-train.00000-of-01024.json.gz",
            "validation": "en/c4-validation.00000-of-00008.json.gz",
        },
        evaluation="validation",
        joined=False,
        complete=False,
    ),
    "bookcorpus": HubText(
        description="BookCorpus: sentences of novels, one per row; the first of its ten files",
        repository="bookcorpus/bookcorpus",
        files={"train": "plain_text/train/0000.parquet"},
        # the only split
        evaluation="train",
        joined=False,
        # the main branch holds only a loading script
        revision=CONVERTED,
    ),
}


def named_texts() -> dict[str, str]:
    """Return the descriptions of all named texts by name; texts that need no network are first."""
    from_hub = {name: text.description for name, text in HUB_TEXTS.items()}
    return {**texts.DESCRIPTIONS, sampled.PREFIX: sampled.DESCRIPTION, **from_hub}
