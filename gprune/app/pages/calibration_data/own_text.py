"""Bring your own text: its tokens and its distance to the other texts at once, and the jobs of its drift."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import streamlit as st
from tokenizers import Encoding, Tokenizer

from gprune import records
from gprune.analysis import calibration as analysis
from gprune.app.pages.calibration_data.own_drift import Brought
from gprune.app.ui import buttons, url_state, user_files, work
from gprune.app.ui.commands import command
from gprune.app.ui.text import plain
from gprune.data.texts import source
from gprune.models.vocabulary import tokenizer
from gprune.pipeline.runs.opened import Run
from gprune.pipeline.stages import PAIR
from gprune.records import Array
from gprune.study import Study
from gprune.system.errors import CorpusError
from gprune.system.safe_parsing import quoted

MOST_MEGABYTES = 5
FEWEST_SEQUENCES = 128
"""fewer give ranks that sampling alone moves a lot"""
SHOWN_TOKENS = 60
SUFFIXES = (".txt", ".jsonl")
UNTIL_DRIFT = ("--until", "drift")
_BUTTONS = ("Save it and measure the drift", "The same against B")


@dataclass(frozen=True, slots=True)
class Counted:
    """A text in tokens."""

    ids: Array
    """(tokens,) int32, all documents one after the other"""
    documents: int
    """documents that hold more than white space"""
    first: tuple[str, ...]
    """the first tokens, as they stand in the text"""


def draw(run: Run, texts: dict[str, records.Tokens]) -> Brought | None:
    """The form, what can be said of the text at once, and the buttons that start its jobs.

    Gives the text, where it has enough sequences for a drift. Raises CorpusError where the text is empty, too
    large or not UTF-8, or its records hold no text, ModelError where the model's tokenizer cannot be read.
    """
    raw, name = _asked()
    if not raw:
        st.caption(
            "Paste or upload a text to see its tokens and how far it is from the texts of this run, up to "
            f"{MOST_MEGABYTES} MB; an uploaded file goes before pasted text. It stays on this machine, and "
            "is kept only when you start its job."
        )
        return None
    if len(raw) > MOST_MEGABYTES * 2**20:
        size = len(raw) / 2**20
        raise CorpusError(f"the text has {size:.1f} MB: at most {MOST_MEGABYTES} MB are taken, cut it")
    counted = _counted(run.study.model, hashlib.sha256(raw).hexdigest(), _suffix(name), raw, name)
    usable = len(counted.ids) // run.study.calibration.length
    st.caption(f"{plain(name)}, {len(raw):,} bytes")
    _numbers(run, counted, usable, texts)
    st.caption(f"The first {len(counted.first)} tokens, a bar between them; ⏎ is the end of a line")
    st.code("│".join(counted.first).replace("\n", "⏎"), language=None, wrap_lines=True)
    fewest = max(2, run.study.calibration.shards)
    if usable < fewest:
        st.caption(f"Rank drift needs at least {fewest} sequences of {run.study.calibration.length} tokens.")
        return None
    _job(run, raw, name, usable)
    return Brought(raw, name, _suffix(name), usable)


def _asked() -> tuple[bytes, str]:
    """The bytes that were uploaded or pasted, and what to call them."""
    tabs = url_state.tabs({"paste": "Paste", "upload": "Upload"}, "cd_own", "paste")
    with tabs["paste"]:
        pasted = st.text_area("Text", key="cd_own_text", height=160, placeholder="any text, UTF-8")
        name = st.text_input("Name", "pasted text", key="cd_own_name", max_chars=60, width=320)
    with tabs["upload"]:
        uploaded = st.file_uploader(
            "A text file, or one JSON object a line",
            type=[suffix.removeprefix(".") for suffix in SUFFIXES],
            key="cd_own_file",
            max_upload_size=MOST_MEGABYTES,
        )
    if uploaded is not None:
        if not uploaded.getvalue():
            raise CorpusError(f"the file {quoted(uploaded.name)} is empty: choose one that holds text")
        return uploaded.getvalue(), uploaded.name
    return pasted.encode("utf-8", "replace") if pasted.strip() else b"", f"{name.strip() or 'pasted text'}.txt"


def _suffix(name: str) -> str:
    suffix = Path(name).suffix.lower()
    return suffix if suffix in SUFFIXES else ".txt"


@st.cache_data(max_entries=8, show_spinner="Counting tokens …")
def _counted(model: str, digest: str, suffix: str, _raw: bytes, _name: str) -> Counted:
    """Tokens of a text, by the hash of its bytes; its name serves complaints, which are not kept."""
    return count(_documents(_raw, suffix, _name), tokenizer(model))


def _documents(raw: bytes, suffix: str, name: str) -> list[str]:
    """The documents as a job would read them from a file of these bytes."""
    with user_files.as_file(raw, suffix, name) as file:
        found = source.documents(source.resolve(str(file), "calibration"))
        return [text for text in found if text.strip()]


def count(documents: Sequence[str], tokenizer: Tokenizer) -> Counted:
    """Tokenises documents one by one; CorpusError where there is no token in them."""
    # JSON may hold half a surrogate pair, which no tokenizer takes
    sound = [text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for text in documents]
    encoded = tokenizer.encode_batch(sound)
    ids = [np.asarray(item.ids, dtype=np.int32) for item in encoded]
    if not sum(map(len, ids)):
        raise CorpusError("the text is empty: give a text with words in it")
    first: list[str] = []
    for text, item in zip(sound, encoded, strict=True):
        first += _pieces(text, item, SHOWN_TOKENS - len(first))
        if len(first) >= SHOWN_TOKENS:
            break
    return Counted(np.concatenate(ids), len(sound), tuple(first))


def _pieces(text: str, encoded: Encoding, most: int) -> list[str]:
    """The first tokens as they stand in the text; those that the tokenizer adds by their own names."""
    pairs = zip(encoded.tokens[:most], encoded.offsets[:most], strict=True)
    return [text[start:end] if end > start else token for token, (start, end) in pairs]


def _numbers(run: Run, counted: Counted, usable: int, texts: dict[str, records.Tokens]) -> None:
    length = run.study.calibration.length
    distances = _distances(counted.ids, texts)
    with st.container(horizontal=True):
        st.metric("Tokens", f"{len(counted.ids):,}", border=True, width="content")
        st.metric(f"Sequences of {length}", f"{usable:,}", border=True, width="content")
        if counted.documents > 1:
            st.metric("Documents", f"{counted.documents:,}", border=True, width="content")
        for letter, distance in distances.items():
            st.metric(f"Token distance to {letter}", f"{distance:.2f}", border=True, width="content")
    if {"A", "B"} <= set(texts):
        apart = _distances(texts["A"].ids, {"B": texts["B"]})["B"]
        st.caption(
            "Token distance is 0 for the same token frequencies and 1 without a common token; A and B are "
            f"{apart:.2f} apart. A short text is far from any other by chance."
        )
    if usable < FEWEST_SEQUENCES:
        st.warning(
            f"{usable:,} usable sequences: below {FEWEST_SEQUENCES}, sampling alone moves ranks a lot.",
            icon=":material/warning:",
        )


def _distances(ids: Array, texts: dict[str, records.Tokens]) -> dict[str, float]:
    """Token distance of some tokens to each calibration text."""
    if not texts:
        return {}
    size = max(analysis.vocabulary(texts), 1 + int(ids.max()))
    own = analysis.token_counts(ids, size)
    return {
        letter: analysis.token_distance(own, analysis.token_counts(tokens.ids, size))
        for letter, tokens in texts.items()
    }


def _job(run: Run, raw: bytes, name: str, usable: int) -> None:
    """What a job would do, and a button for each of the run's texts to hold the text against."""
    path = user_files.place(run.root, "texts", name, _suffix(name), raw)
    studies = {role: drift_study(run.study, path, usable, role) for role in PAIR}
    samples = studies[PAIR[0]].calibration.samples
    fewer = " A is drawn anew with as few." if samples < run.study.calibration.samples else ""
    st.caption(
        f"The job saves the text as {plain(path.relative_to(run.root))} in the cache and measures the rank "
        f"drift between A ({plain(run.study.primary)}) and it, with {samples:,} sequences of each.{fewer} It "
        "prunes nothing; its run appears in the list of runs. The other one does the same for B."
    )
    # the same as a command, which stops at the drift too
    st.code(f"{command(studies[PAIR[0]])} {' '.join(UNTIL_DRIFT)}", language="bash", wrap_lines=True)
    with st.container(horizontal=True):
        for role, words, key in zip(PAIR, _BUTTONS, ("cd_own_start", "cd_own_start_b"), strict=True):
            if buttons.pressed(words, key=key, icon=":material/play_arrow:"):
                user_files.save(path, raw)
                called = work.job_label(studies[role])
                if work.begin(run.root, studies[role], called, UNTIL_DRIFT) is not None:
                    st.rerun()


def drift_study(study: Study, auxiliary: Path, usable: int, role: str = PAIR[0]) -> Study:
    """The study that sets a text of a study against another one, and asks for nothing else.

    `auxiliary` is that other file, with `usable` sequences; `role` is that of the study's text.
    """
    changes = {
        "primary": getattr(study, role),
        "auxiliary": str(auxiliary),
        "substitute": "",
        "methods": ["dense"],
        "evaluation.texts": [],
        "evaluation.tasks": [],
        "calibration.samples": min(study.calibration.samples, usable),
        "name": f"Drift {auxiliary.stem.rsplit('-', 1)[0]}{'' if role == PAIR[0] else ' from B'}",
    }
    return study.with_settings(changes)
