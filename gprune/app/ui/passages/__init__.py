"""Top-activating examples: passages with the token marked by its strength, drawn as text by the browser.

What comes from a text goes to the browser as data and into the page as text content, never as mark-up.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import streamlit as st

_FOLDER = Path(__file__).parent
_COMPONENT = st.components.v2.component(
    "gprune_firing",
    html='<ol class="passages"></ol>\n',
    css=(_FOLDER / "passages.css").read_text(encoding="utf-8"),
    js=(_FOLDER / "passages.js").read_text(encoding="utf-8"),
)


@dataclass(frozen=True, slots=True)
class Token:
    """One token of a passage, or the several that one character takes."""

    text: str
    value: str
    """activation with its sign"""
    strength: float
    """size as a share of the strongest on any text, in [0, 1]"""
    negative: bool
    peak: bool
    """True for the strongest of its sequence"""


@dataclass(frozen=True, slots=True)
class Passage:
    """One strongest position with the text around it."""

    before: str
    token: str
    after: str
    value: str
    """activation with its sign"""
    strength: float
    """size as a share of the strongest on any text, in [0, 1]"""
    negative: bool
    where: str
    """sequence and position, in words"""
    tokens: tuple[Token, ...] = ()
    """all of them, where every one has its colour; in place of `before`, `token` and `after`"""


def draw_passages(passages: Sequence[Passage], color: str, alt: str, key: str) -> None:
    """Draw passages below each other, in the text's hue as #RRGGBB; `alt` describes them."""
    data = {"passages": [asdict(passage) for passage in passages], "color": color, "alt": alt}
    _COMPONENT(key=key, data=data, height="content")
