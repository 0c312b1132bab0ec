"""The card of packs: the run as one file, and how another machine reads it."""

import io
import shlex
from pathlib import Path

import streamlit as st

from gprune.app.ui.text import plain
from gprune.pipeline import archive as packs
from gprune.pipeline.archive.contents_form import ENDING
from gprune.pipeline.archive.privacy import STAYS
from gprune.pipeline.archive.writing import fill
from gprune.pipeline.runs.opened import Run
from gprune.store import Store
from gprune.system.units import amount

MOST_DOWNLOADED = 64 * 2**20
"""bytes of results: what is larger would be held in the app's memory, and is left to the command"""


def draw(run: Run) -> None:
    """Draws the card.

    Raises:
        GpruneError: the run's record cannot be used.
    """
    count, size, lost = _extent(run.root, run.name, str(run.record.get("updated")))
    st.caption(
        f"{count} results, {amount(size)} before they are compressed. Every page draws "
        "from them on a machine that has neither the model nor the texts."
    )
    if lost:
        st.info(
            f"“{plain(lost)}” is missing or damaged: run the study again before packing it.",
            icon=":material/hourglass_empty:",
        )
        return
    name = f"{run.name}{ENDING}"
    left, right = st.columns(2)
    with left, st.container(border=True, height="stretch"):
        st.markdown("**Here**")
        _offer(run, size, name)
    with right, st.container(border=True, height="stretch"):
        st.markdown("**On the other machine**")
        st.caption("In a checkout of this project, where `make app` has worked once:")
        unpacked = f"python -m gprune unpack {shlex.quote(name)}\npython -m gprune app"
        st.code(unpacked, language="bash", wrap_lines=True)
        st.caption("The run is then in the list of runs of its app; what is there already stays.")
    with st.popover("What is in it, and what is not", icon=":material/help:", type="tertiary"):
        st.markdown(
            "No model, no text, and no results from which a text can be had back, as the token ids of the "
            f"calibration sets; `--with-contexts` takes those along. It tells: {plain(STAYS)}."
        )


@st.cache_data(max_entries=64, ttl=300, show_spinner=False)
def _extent(root: str, name: str, updated: str) -> tuple[int, int, str]:
    """Results and bytes of a pack, and a result that is lost; kept for a while, unless the run changes."""
    chosen = packs.contents(Store(Path(root)), name)
    return len(chosen.results), chosen.size, next(iter(chosen.lost), "")


def _offer(run: Run, size: int, name: str) -> None:
    """The download, or the command where the run is too large for it."""
    if size <= MOST_DOWNLOADED:
        st.download_button(
            f"Pack this run (at most {amount(size)})",
            data=lambda: archive(run.root, run.name),
            file_name=name,
            mime="application/zip",
            key="sx_pack_run",
            icon=":material/inventory_2:",
            on_click="ignore",
        )
        st.caption("The same as a command")
    else:
        st.caption("Too large to be downloaded from here: this command writes it.")
    st.code(f"python -m gprune pack {shlex.quote(run.name)}", language="bash", wrap_lines=True)


def archive(root: str, name: str) -> bytes:
    """The archive."""
    file, store = io.BytesIO(), Store(Path(root))
    fill(store, packs.contents(store, name), file)
    return file.getvalue()
