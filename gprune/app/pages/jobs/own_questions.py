"""Own questions dropped into a form: checked row by row at once, and kept in the cache to be measured on."""

import hashlib
import tempfile
from pathlib import Path

import streamlit as st

from gprune.app.ui import user_files
from gprune.app.ui.text import plain, said
from gprune.evaluation.tasks import TaskSource, documents
from gprune.system.errors import CorpusError, GpruneError

MOST_MEGABYTES = 5
SUFFIX = ".jsonl"
EXAMPLE = '{"question": "2 + 2 is", "choices": ["four", "five"], "answer": 0}'


def uploader(root: str, key: str) -> str:
    """Draws the field and says what is wrong with a file, or how many questions it holds.

    Gives the path of the file in the cache; empty where there is none or it cannot be used.
    """
    uploaded = st.file_uploader(
        f"Own questions ({SUFFIX}, UTF-8)",
        type=[SUFFIX.removeprefix(".")],
        key=f"{key}_questions",
        max_upload_size=MOST_MEGABYTES,
    )
    st.caption(
        "One question a line; the answer is the index of the right choice from 0, or the choice itself:"
    )
    st.code(EXAMPLE, language="json", wrap_lines=True)
    if uploaded is None:
        return ""
    raw = uploaded.getvalue()
    try:
        count = _counted(hashlib.sha256(raw).hexdigest(), Path(uploaded.name).name, raw)
        path = user_files.place(root, "tasks", uploaded.name, SUFFIX, raw)
        user_files.save(path, raw)
    except GpruneError as error:
        st.error(said(error), icon=":material/error:")
        return ""
    st.caption(
        f"{count:,} question{'s' if count > 1 else ''}, kept as {plain(path.relative_to(root))} in the cache."
    )
    return str(path)


@st.cache_data(max_entries=16, show_spinner="Checking questions …")
def _counted(digest: str, name: str, _raw: bytes) -> int:
    """Questions of a file, by the hash of its bytes."""
    return check(name, _raw)


def check(name: str, raw: bytes) -> int:
    """Checks every row as the measurement will.

    Gives the number of questions, at least 1.

    Raises:
        CorpusError: the file is too large or not UTF-8, or a row is not a question; names line and column.
    """
    if len(raw) > MOST_MEGABYTES * 2**20:
        raise CorpusError(
            f"{name!r} has {len(raw) / 2**20:.1f} MB: at most {MOST_MEGABYTES} MB are taken, cut it"
        )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"questions{SUFFIX}"
        file.write_bytes(raw)
        try:
            return len(documents(TaskSource(name, "own", file)))
        except CorpusError as error:
            # the person knows no such file
            raise CorpusError(str(error).replace(str(file), name)) from error
