"""Tab *Speed* of Compare: measured tokens per second of every method, next to published results."""

import pandas as pd
import streamlit as st

from gprune.analysis import speed as analysis
from gprune.app.figures import speed_export as figures
from gprune.app.ui import address, frame, run_status, tables, work
from gprune.app.ui.card import card_of, published_badge
from gprune.app.ui.chart_style import label
from gprune.app.ui.commands import command
from gprune.app.ui.run_status import SPEEDS
from gprune.app.ui.text import escape
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run
from gprune.records import Throughput
from gprune.system.units import amount

SMALL = 100_000_000
"""number of parameters below which the fixed cost of each step hides what pruning saves"""
_PADDING_PIXELS, _CHARACTER_PIXELS = 20, 7
"""padding of a cell, and width of a character"""


@frame.declare_page("Speed", "How much faster is the pruned model?")
def show(run: Run) -> None:
    """Draw the page."""
    with card_of(figures.speed, run) as content:
        timed = run.study.evaluation.speed != "none" and run.has(stages.speed)
        measured = run.load(stages.speed) if timed else None
        phase = next(iter(analysis.PHASES))
        if measured is not None:
            phase = address.selectbox("Timed phase", analysis.PHASES, "sx_phase", phase, width=420)
        left, right = st.columns([3, 2])
        with left:
            if measured is None:
                _offer_measurement(run)
            else:
                content.show(figures.speed(run, phase=phase))
        with right:
            _show_published()
        if measured is not None:
            _show_measured(measured, phase)
        st.caption("`python -m gprune speed DENSE PRUNED …` measures any other models side by side.")


def _show_measured(measured: Throughput, phase: str) -> None:
    table = analysis.speed_table(list(measured.rows), phase)
    several_modes = table["mode"].nunique() > 1
    names = [label(model) for model in table["model"]]
    columns = {
        "model": names,
        **({"mode": table["mode"]} if several_modes else {}),
        "parameters": [f"{count:,}" for count in table["parameters"]],
        "tokens/s": [f"{value:,.1f}" if value < 1e4 else f"{value:,.0f}" for value in table["tokens/s"]],
        "× dense (IQR)": list(map(analysis.format_ratio, table["ratio"], table["ratio spread"])),
        "memory": [amount(value * 2**20) for value in table["MiB"]],
    }
    width = _PADDING_PIXELS + _CHARACTER_PIXELS * max(map(len, names))
    numbers = dict.fromkeys(columns.keys() - {"mode"}, st.column_config.TextColumn(alignment="right"))
    tables.show(
        pd.DataFrame(columns),
        column_config=numbers | {"model": st.column_config.Column(width=width)},
        alt="tokens per second, ratio and memory of every model",
    )
    memory = escape(", ".join(dict.fromkeys(table["memory"])))
    setting = measured.setting.replace(" on cpu,", " on the CPU,")
    st.caption(f"{escape(setting)}. {escape(measured.machine)}. Memory: {memory}.")
    if max(table["parameters"]) < SMALL:
        st.caption(
            "This model is small, so the fixed cost of each step dominates. A large model can have another ratio."
        )


def _show_published() -> None:
    with st.container(horizontal=True, gap="xsmall"):
        published_badge()
        st.badge("LLaMA2-7B, 50%", color="grey")
    table = analysis.published_speed()
    for column, form in {"params": "{:.2f} B", "tokens/s": "{:.2f}", "ratio": "{:.2f}"}.items():
        table[column] = table[column].map(form.format)
    sizes = {"method": 128, "params": 64, "tokens/s": 68, "ratio": 52}
    narrow = {name: st.column_config.Column(width=width) for name, width in sizes.items()}
    tables.show(table, column_config=narrow, alt="published throughput of the paper")
    st.caption("Published for another model on other hardware. Do not rank it among the measured ratios.")
    with st.popover("How to read", type="tertiary", icon=":material/help:", key="sx_published_how"):
        st.markdown(
            "Appendix, practical inference speedup: FP16, greedy decoding with a key/value cache, batch 8, prompt "
            "2048, 512 new tokens, 10 repetitions after one warm-up. The paper does not name the device. The "
            "ratios follow from the published tokens per second."
        )


def _offer_measurement(run: Run) -> None:
    if not run.complete and run_status.is_live(run):
        st.info("This run is not finished. Its speed appears here if the study measures it.", icon=":material/info:")
        return
    st.info("The speed of this run has not been measured.", icon=":material/speed:")
    presets = {name: words for name, words in SPEEDS.items() if name != "none"}
    preset = address.selectbox("Setting", presets, "sx_preset", "cpu", width=480)
    study = run.study.with_settings({"evaluation.speed": preset})
    st.caption(
        "Finished stages are reused. At most the dense model and one pruned model are in memory. Stop other work "
        "on this machine during the measurement."
    )
    st.code(command(study), language="bash", wrap_lines=True)
    name = preset if preset == "auto" else preset.upper()
    work.start_button(f"Measure speed ({name} preset)", "sx_measure", run.root, study)
