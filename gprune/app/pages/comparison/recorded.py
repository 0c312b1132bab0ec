"""The fair comparison that comes with the project, on other models, as its command wrote it."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import streamlit as st

from gprune.app.ui.card import card
from gprune.experiments.reproduction.control_report import MEASURED, VERDICTS
from gprune.system import installation

DOCUMENT = installation.APP_FOLDER / "docs" / "study.md"
_HEAD, _PART = "# ", "## "


@dataclass(frozen=True, slots=True)
class Document:
    """A document in parts, each a heading and its text."""

    title: str
    opening: str
    """what was measured, on what, by which command"""
    parts: tuple[tuple[str, str], ...]
    text: str
    """all of it, as it was written"""


def show() -> None:
    """Draws the document: which claims hold, and behind them every table."""
    found = _document(DOCUMENT, DOCUMENT.stat().st_mtime_ns) if DOCUMENT.is_file() else None
    with card("cp_recorded", "A fair comparison on other models") as drawn:
        if found is None:
            st.info(
                "The document is not among the files of this installation. `python -m gprune reproduce study "
                "--report study.md` measures the bundled model and writes one.",
                icon=":material/menu_book:",
            )
            return
        drawn.title(found.title)
        st.badge(
            "recorded, not of this run",
            icon=":material/history_edu:",
            color="grey",
            help="Measured once by the command that it names; it can be repeated, and names models, texts, "
            "seeds and windows.",
        )
        parts = dict(found.parts)
        measured = [line for line in found.opening.splitlines() if line.startswith(MEASURED)]
        st.caption(" ".join(measured).removesuffix(":"))
        if verdicts := parts.pop(VERDICTS, ""):
            st.subheader(VERDICTS)
            st.markdown(verdicts)
        with st.expander("What was measured, and by which command"):
            st.markdown(found.opening)
        for heading, text in parts.items():
            with st.expander(heading):
                st.markdown(text)
        st.download_button("Markdown", found.text, "study.md", "text/markdown", icon=":material/download:")


@lru_cache(maxsize=2)
def _document(path: Path, _changed: int) -> Document:
    return parts_of(path.read_text("utf-8"))


def parts_of(text: str) -> Document:
    """A Markdown document by its headings of the second level."""
    opening, *parts = f"\n{text}".split(f"\n{_PART}")
    title, _, rest = opening.strip().partition("\n")
    named = [part.partition("\n") for part in parts]
    return Document(
        title.removeprefix(_HEAD), rest.strip(), tuple((name, body.strip()) for name, _, body in named), text
    )
