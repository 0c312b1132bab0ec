"""Every word that the pages use: glossary.md has them in one or two plain sentences, and this finds them."""

from pathlib import Path

from gprune.app.ui.recorded import parts_of
from gprune.records.repairs import AUTO, REPAIRS


def _terms() -> dict[str, str]:
    """The words of glossary.md with their meanings, the repairs in their place."""
    found = dict[str, str]()
    repairs = {one.label.capitalize(): one.about for one in (*REPAIRS.values(), AUTO)}
    for word, meaning in parts_of(Path(__file__).with_name("glossary.md").read_text("utf-8")).parts:
        found |= repairs if word == "Repairs" else {word: " ".join(meaning.split())}
    return found


TERMS = _terms()
_ALIASES = {
    "A, B, C": ("calibration text",),
    "Drift d": ("drift",),
    "Nats/token": ("nats/token", "nats"),
    "Repeatability u": ("repeatability",),
    "AUC": ("AUC", "ROC"),
}


def aliases(term: str) -> tuple[str, ...]:
    """What a word of the glossary is called in a sentence, the shortest way to find it first."""
    return _ALIASES.get(term) or tuple(term.split(", "))


def search(wanted: str) -> list[str]:
    """The words of the glossary that a search finds.

    One word, or a part of it, finds what it stands in, what is called by it first; several, with commas
    between them, find what is called so, in their order.
    """
    asked = [one.strip().lower() for one in wanted.split(",") if one.strip()]
    if len(asked) > 1:
        named = {alias.lower(): term for term in TERMS for alias in (term, *aliases(term))}
        return list(dict.fromkeys(named[one] for one in asked if one in named))
    part = asked[0] if asked else ""
    hits = [term for term, meaning in TERMS.items() if part in f"{term} {meaning}".lower()]
    return sorted(hits, key=lambda term: part not in term.lower())
