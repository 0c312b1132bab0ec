"""Speed: how much faster the pruned model is and how wide its layers are; export: how it leaves the app."""

import io
import shlex
from functools import partial
from pathlib import Path

import pandas as pd
import streamlit as st

from gprune.analysis import speed as analysis
from gprune.app.pages.speed_export import accuracy_card, export_card, models_card, panels, widths_card
from gprune.app.ui import frame, job_runs, rest_of_page, tables, url_state, work
from gprune.app.ui.card import Card, card, card_of, published_badge
from gprune.app.ui.chart_style import label
from gprune.app.ui.commands import command
from gprune.app.ui.text import plain
from gprune.app.ui.titles import SPEEDS
from gprune.pipeline import stages
from gprune.pipeline.packs import DISCLOSED, SUFFIX, pack_contents, write_archive
from gprune.pipeline.runs.opened import Run
from gprune.records import Throughput
from gprune.store import Store
from gprune.system.units import amount

SMALL = 100_000_000
"""parameters below which fixed costs of every step hide what pruning saves"""
_PADDING, _LETTER = 20, 7
"""pixels of a cell beside its text, and of a letter"""
MOST_DOWNLOADED = 64 * 2**20
"""bytes of results: what is larger would be held in the app's memory, and is left to the command"""


@frame.page("Speed", "How much faster is the pruned model, and what can it still answer?")
def show(run: Run) -> None:
    """Draws the page."""
    with card_of(panels.speed, run) as drawn:
        _speed(drawn, run)
    if rest_of_page.waits():
        return
    with card("sx_models_card", "Speed of any models side by side", run):
        models_card.draw(run)
    with card_of(panels.widths, run) as drawn:
        widths_card.draw(drawn, run)
    with card("sx_accuracy", "Zero-shot accuracy", run) as drawn:
        accuracy_card.draw(drawn, run)


@frame.page("Export", "How does the pruned model load elsewhere, and how is a run taken along?")
def show_export(run: Run) -> None:
    """Draws what takes models and results along."""
    with card("sx_export", "The pruned model outside of this app", run) as drawn:
        export_card.draw(drawn, run)
    with card("sx_methods", "The model of every method as a folder", run) as drawn:
        export_card.draw_methods(drawn, run)
    with card("sx_pack", "This run as one file, to open elsewhere", run):
        _pack(run)


def measured(run: Run) -> Throughput | None:
    """A run's speed measurement; None where there is none."""
    timed = run.measured.speed != "none" and run.has(stages.speed)
    return run.load(stages.speed) if timed else None


def _speed(drawn: Card, run: Run) -> None:
    found = measured(run)
    if found is None:
        left, right = st.columns([3, 2])
        with left:
            _not_measured(run)
        with right:
            _published()
        return
    phase = url_state.selectbox("What is timed", analysis.PHASES, "sx_phase", next(iter(analysis.PHASES)), width=420)
    table = analysis.speed_table(list(found.rows), phase)
    left, right = st.columns([3, 2])
    with left:
        drawn.show(panels.speed(run, phase=phase))
    with right:
        _published()
    pixels = int(_PADDING + _LETTER * table["model"].map(label).str.len().max())
    tables.show(
        _shown(table),
        column_config={"model": st.column_config.Column(width=pixels)},
        alt="tokens a second, ratio and memory of every model",
    )
    memory = plain(", ".join(dict.fromkeys(table["memory"])))
    st.caption(f"{plain(found.setting)}. {plain(found.machine)}. Memory: {memory}.")
    if max(table["parameters"]) < SMALL:
        st.caption(
            "This model is small: the fixed cost of every step weighs more than its weights do, so that "
            "the ratio of a large model can be quite another."
        )


def _shown(table: pd.DataFrame) -> pd.DataFrame:
    # one mode for all needs no column
    several = table["mode"].nunique() > 1
    return pd.DataFrame(
        {
            "model": [label(model) for model in table["model"]],
            **({"mode": table["mode"]} if several else {}),
            "parameters": [f"{count:,}" for count in table["parameters"]],
            "tokens/s": [f"{value:,.4g}" if value < 1e4 else f"{value:,.0f}" for value in table["tokens/s"]],
            "ratio (IQR)": list(map(analysis.ratio_words, table["ratio"], table["ratio spread"])),
            "memory": [amount(value * 2**20) for value in table["MiB"]],
        }
    )


def _published() -> None:
    """What the paper reports, apart from the measured numbers."""
    with st.container(horizontal=True, gap="xsmall"):
        published_badge()
        st.badge("LLaMA2-7B, 50 %", color="grey")
    table = analysis.published_speed()
    shown = table.assign(
        **{
            "params": table["params"].map("{:.2f} B".format),
            "tokens/s": table["tokens/s"].map("{:.2f}".format),
            "ratio": table["ratio"].map("{:.2f}".format),
        }
    )
    sizes = {"method": 128, "params": 64, "tokens/s": 68, "ratio": 52}
    narrow = {name: st.column_config.Column(width=width) for name, width in sizes.items()}
    tables.show(shown, column_config=narrow, alt="published throughput of the paper")
    st.caption("Another model on other hardware: read it beside the measured ratios, not among them.")
    with st.popover("How to read", type="tertiary", icon=":material/help:", key="sx_published_how"):
        st.markdown(
            "Appendix, practical inference speedup: FP16, greedy decoding with a key/value cache, batch 8, "
            "prompt 2048, 512 new tokens, 10 repetitions after one warm-up, on a device that the paper does "
            "not name there. The ratios follow from the published tokens a second."
        )


def _not_measured(run: Run) -> None:
    if not run.complete and job_runs.is_live(run):
        st.info("This run is at work: its speed stands here at its end, if asked for.", icon=":material/info:")
        return
    st.info("The speed of this run has not been measured.", icon=":material/speed:")
    presets = {name: words for name, words in SPEEDS.items() if name != "none"}
    preset = url_state.selectbox("Setting", presets, "sx_preset", "cpu", width=480)
    study = run.study.with_settings({"evaluation.speed": preset})
    st.caption(
        "It stands here once it is measured: the masks stay, and finished stages are taken from the cache. "
        "The dense model and one other are in memory meanwhile; close what else is at work."
    )
    st.code(command(study), language="bash", wrap_lines=True)
    work.start_button(f"Measure speed ({preset} preset)", "sx_measure", run.root, study)


def _pack(run: Run) -> None:
    """Draws the card; GpruneError where the run's record cannot be used."""
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
    name = f"{run.name}{SUFFIX}"
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
            f"calibration sets; `--with-contexts` includes those. It discloses: {plain(DISCLOSED)}."
        )


@st.cache_data(max_entries=64, ttl=300, show_spinner=False)
def _extent(root: str, name: str, updated: str) -> tuple[int, int, str]:
    """Results and bytes of a pack, and a result that is lost; kept for a while, unless the run changes."""
    contents = pack_contents(Store(Path(root)), name)
    return len(contents.results), contents.size, next(iter(contents.missing), "")


def _offer(run: Run, size: int, name: str) -> None:
    """The download, or the command where the run is too large for it."""
    if size <= MOST_DOWNLOADED:
        words, icon = f"Pack this run (at most {amount(size)})", ":material/inventory_2:"
        made = partial(archive, run.root, run.name)
        tables.download(words, made, name, "application/zip", "sx_pack_run", icon=icon)
        st.caption("The same as a command")
    else:
        st.caption("Too large to be downloaded from here: this command writes it.")
    st.code(f"python -m gprune pack {shlex.quote(run.name)}", language="bash", wrap_lines=True)


def archive(root: str, name: str) -> bytes:
    """The archive."""
    file, store = io.BytesIO(), Store(Path(root))
    write_archive(store, pack_contents(store, name), file)
    return file.getvalue()
