"""Texts that are chosen by a name.

WikiText-2, PTB and C4 are the paper's calibration and evaluation texts (section 4), and BookCorpus is what
LLM-Pruner's released code reads; they come from the hub. The embedded texts come with the package.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from gprune.data.demo import texts
from gprune.data.texts import sampled
from gprune.data.texts.hub_rows import CONVERTED


@dataclass(frozen=True, slots=True)
class TextEntry:
    """A text that is chosen by its name alone."""

    name: str
    """what to type"""
    description: str
    """for people"""


@dataclass(frozen=True, slots=True)
class HubText:
    """A text of the hub with a name, and how it is read."""

    name: str
    """what to type"""
    description: str
    """for people"""
    repository: str
    """owner/name on the hub"""
    files: Mapping[str, str]
    """the file of each split; of a text in several files the first"""
    evaluation: str
    """the split that perplexity is measured on"""
    joined: bool
    """True if all rows, with a blank line between them, are one string, as the literature reads them"""
    revision: str = "main"
    """branch of the repository"""
    complete: bool = True
    """True if the whole file is read, else only as much of its beginning as a study takes"""


_WIKITEXT = "wikitext-2-raw-v1/{}-00000-of-00001.parquet"
_PTB = "penn_treebank/{}/0000.parquet"
_SPLITS = ("train", "validation", "test")

HUB_TEXTS: Mapping[str, HubText] = {
    entry.name: entry
    for entry in (
        HubText(
            name="wikitext2",
            description="WikiText-2 (raw): Wikipedia articles; the paper's primary text",
            repository="Salesforce/wikitext",
            files={split: _WIKITEXT.format(split) for split in _SPLITS},
            evaluation="test",
            joined=True,
        ),
        HubText(
            name="ptb",
            description="Penn Treebank: sentences of the Wall Street Journal; the paper's auxiliary text",
            repository="ptb-text-only/ptb_text_only",
            files={split: _PTB.format(split) for split in _SPLITS},
            evaluation="validation",
            joined=True,
            # the main branch holds only a loading script
            revision=CONVERTED,
        ),
        HubText(
            name="c4",
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
        HubText(
            name="bookcorpus",
            description="BookCorpus: sentences of novels, one a row; the first of its ten files",
            repository="bookcorpus/bookcorpus",
            files={"train": "plain_text/train/0000.parquet"},
            # it has no other
            evaluation="train",
            joined=False,
            # the main branch holds only a loading script
            revision=CONVERTED,
        ),
    )
}


def known() -> tuple[TextEntry, ...]:
    """Return every text that has a name, those that need no network first."""
    embedded = tuple(TextEntry(name, texts.DESCRIPTIONS[name]) for name in texts.NAMES)
    from_hub = tuple(TextEntry(entry.name, entry.description) for entry in HUB_TEXTS.values())
    return (*embedded, TextEntry(sampled.PREFIX, sampled.DESCRIPTION), *from_hub)


def names() -> tuple[str, ...]:
    """Return the names alone."""
    return tuple(entry.name for entry in known())
