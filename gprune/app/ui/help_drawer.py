"""The help: a drawer that opens beside any page, from the side bar and from the words of every card.

What is open stands in the address under `help`; it is drawn by a fragment, so that a search in it does not
draw the page anew.
"""

from collections.abc import Callable

import streamlit as st

from gprune.app.ui import assets, buttons, url_state
from gprune.app.ui.glossary import TERMS, aliases
from gprune.app.ui.page_names import HELP, HELP_PARTS

SEARCH = "help_search"
"""key of what is searched for"""
LONGEST = 200
"""characters of it"""
_MOST = 8
"""words that a card's button asks for"""


def shown() -> bool:
    """Return True if the help is open."""
    return bool(url_state.choice(HELP, ["", *HELP_PARTS], ""))


def button() -> None:
    """The button of the side bar."""
    buttons.act(
        "Help", "frame_help_open", "help", _turn, type="tertiary",
        help="How to read this page, what the words mean, and every key. Alt+H opens and closes it.",
        shortcut="Alt+H",
    )  # fmt: skip


def open_words(label: str, key: str, words: str = "") -> None:
    """A button that opens the glossary at some words; at all where none are given."""
    clicked = buttons.act(label, key, "menu_book", url_state.put_all, {HELP: "words", SEARCH: words}, type="tertiary")
    if clicked and url_state.in_fragment():
        # the drawer stands outside of it
        st.rerun()


def words_of(*texts: str) -> str:
    """The words of the glossary that some texts use, as a search for them; those that come first first."""
    text = " ".join(texts)
    places = dict[str, int]()
    for term in TERMS:
        found = [place for one in aliases(term) if (place := _found(one, text)) >= 0]
        if found:
            places[aliases(term)[0]] = min(found)
    return ", ".join(sorted(places, key=lambda term: places[term])[:_MOST])


def show(draw: Callable[[], None]) -> None:
    """Draws the help where it is open; `draw` draws what it says."""
    if not shown():
        return
    assets.look("help_drawer")
    with st.container(key="frame_help", gap="small"):
        st.fragment(_drawer)(draw)


def _drawer(draw: Callable[[], None]) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown("#### Help", width="stretch")
        # a card that fills the window goes first
        escape = None if url_state.text("card") else "Escape"
        closed = buttons.act(
            "Close", "frame_help_close", "close", url_state.put, HELP, "", type="tertiary", shortcut=escape
        )
    if closed and url_state.in_fragment():
        st.rerun()
    draw()


def _turn() -> None:
    url_state.put(HELP, "" if url_state.given(HELP) else "read")


def _found(word: str, text: str) -> int:
    """Where a word of the glossary stands in a text, in one or many; -1 where it does not.

    At the beginning of a sentence as well; abbreviations only as they are written: MSL, not what merely has
    the letters.
    """
    if not word.isupper():
        word, text = word.lower(), text.lower()
    place = text.find(word)
    while place >= 0:
        rest = text[place + len(word) : place + len(word) + 3].removeprefix("es").removeprefix("s")
        if not text[place - 1 : place].isalnum() and not rest[:1].isalnum():
            return place
        place = text.find(word, place + 1)
    return -1
