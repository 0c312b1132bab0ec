"""The controls of what is kept under names: what cannot be read, deleting one, and files to take along."""

from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st

from gprune.app.ui import buttons, faults
from gprune.app.ui.text import said
from gprune.store.named import LONGEST_NAME, Collection
from gprune.system.errors import GpruneError


def warn(what: str, faults: Sequence[str]) -> None:
    """Names the files that are passed over, and why."""
    for fault in faults:
        st.warning(f"{what} cannot be read: {said(fault)}.", icon=":material/warning:")


def complain(key: str) -> None:
    """Shows what a button could not do when it was pressed last; see `attempt`."""
    if problem := st.session_state.pop(f"{key}_error", ""):
        st.error(said(problem), icon=":material/error:")


def attempt(key: str, do: Callable[..., object], *given: object) -> bool:
    """Does what a button is for, and says whether it could; why not is kept for `complain`."""
    try:
        do(*given)
    except GpruneError as error:
        st.session_state[f"{key}_error"] = str(error)
        return False
    return True


def saving(key: str, label: str, proposal: str, save: Callable[[str], object], field: str, button: str) -> None:
    """A field for a name, and the button that saves under it, or under what is proposed.

    `field` and `button` are the keys of the two; why it could not be saved is kept for `complain`.
    """

    def press() -> None:
        if attempt(key, save, str(st.session_state.get(field) or "") or proposal):
            st.session_state[field] = ""

    left, right = st.columns([4, 1], vertical_alignment="bottom")
    with left:
        st.text_input(label, key=field, placeholder=proposal, max_chars=LONGEST_NAME)
    with right:
        buttons.act("Save", button, "bookmark_add", press, width="stretch")


def delete_button(key: str, kept: Collection[Any], root: str, chosen: object) -> None:
    """The button that forgets one."""
    buttons.act("Delete", f"{key}_delete", "delete", attempt, key, kept.delete, root, chosen, type="tertiary")


def take_along(key: str, kept: Collection[Any], root: str, there: Sequence[Any], megabytes: int) -> None:
    """Takes all that a cache keeps along as a file, and reads them back, of at most some megabytes.

    `key` is what the keys of the controls begin with.
    """

    def keep(raw: bytes) -> str:
        found = kept.read(raw)
        for one in found:
            kept.save(root, one)
        return f"{len(found)} {kept.what if len(found) > 1 else kept.what.removesuffix('s')} kept"

    with st.popover("As a file", icon=":material/swap_horiz:", type="tertiary"):
        st.download_button(
            f"Export all {kept.entries}",
            data=lambda: kept.export(there),
            file_name=f"{kept.form}.json",
            mime="application/json",
            key=f"{key}_export",
            disabled=not there,
            on_click="ignore",
        )
        read_back(key, "Read a file", f"Keep its {kept.entries}", megabytes, keep)


def read_back(key: str, label: str, button: str, megabytes: int, keep: Callable[[bytes], str]) -> None:
    """A file that is handed in, of at most some megabytes, and the button that keeps what it holds.

    `key` is what the keys of the controls begin with; `keep` says what the bytes were, or raises GpruneError.
    """
    given = st.file_uploader(label, type=["json"], key=f"{key}_file", max_upload_size=megabytes)
    if given is None or not buttons.pressed(button, key=f"{key}_read"):
        return
    with faults.shown():
        st.toast(keep(given.getvalue()))
        st.rerun()
