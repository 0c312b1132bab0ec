"""Where a run of the launch form runs, what it takes, and what starts the same elsewhere."""

from typing import Any

import pandas as pd
import streamlit as st

from gprune.app.ui import tables
from gprune.app.ui.commands import command, python_of
from gprune.app.ui.text import said
from gprune.pipeline.estimate import ANYWAY, Forecast, judged
from gprune.pipeline.preflight import anew, further_seconds
from gprune.study import Study
from gprune.system.units import duration

_GIB = 2**30


def show_command(studies: list[Study], arguments: tuple[str, ...]) -> None:
    """Shows the exact command, and the same as Python."""
    st.caption("The exact command")
    st.code(command(*studies, told=arguments), language="bash", wrap_lines=True)
    with st.popover("As Python", icon=":material/content_copy:", type="tertiary", key="launch_python"):
        same = python_of(*studies, anyway="--anyway" in arguments)
        st.code(same, language="python", wrap_lines=True)


def show_estimate(
    studies: list[Study],
    records: list[dict[str, Any]],
    key: str,
) -> tuple[str, ...] | None:
    """Shows what whole runs of a study and its further seeds take, if nothing of it is there yet.

    Gives what the job is told beside the study; None where it cannot fit and nobody wants it nevertheless.
    The `records` of the cache, the latest first, tell how fast this machine is.
    """
    found = anew(studies[0], records)
    if found is None:
        st.caption("Memory and time are not known before the model is on this machine.")
        return ()
    verdict = judged(found)
    st.caption(f"Estimate, if nothing of it is there yet: {said(verdict.summary)}.")
    if len(studies) > 1:
        st.caption(_of_seeds(found, len(studies), further_seconds(studies, records)))
    for words in verdict.warnings:
        st.warning(said(words), icon=":material/warning:")
    with st.expander("Memory and time of each stage", icon=":material/memory:"):
        tables.show(_table(found), alt="memory and time of each stage")
        st.caption(
            "By arithmetic: memory within a factor of 1.3, time from operations over the rate above. Where "
            "memory runs out, fewer sequences go through the model at a time, which changes no result."
        )
    if not verdict.refusal:
        return ()
    st.error(said(verdict.refusal), icon=":material/error:")
    nevertheless = st.checkbox("Start it nevertheless", key=f"{key}_anyway")
    return (ANYWAY,) if nevertheless else None


def _of_seeds(found: Forecast, seeds: int, further: float) -> str:
    """How long several seeds take, which share what no seed changes."""
    return (
        f"That is one seed. All {seeds} together: about {duration(found.seconds + further, 1)}, each further "
        f"one {duration(further / (seeds - 1), 1)}; what no seed changes is made once."
    )


def _table(found: Forecast) -> pd.DataFrame:
    device = "GPU GiB" if found.capacity.gpu else "memory GiB"
    rows = []
    for one in found.stages:
        takes = one.need
        row = {"stage": one.title, device: round(found.on_device(takes, takes.asked) / _GIB, 1)}
        if found.capacity.gpu:
            row["memory GiB"] = round(found.on_host(takes, takes.asked) / _GIB, 1)
        row["at a time"] = str(takes.asked) if takes.setting else ""
        rows.append(row | {"time": "" if one.seconds is None else duration(one.seconds, 1)})
    return pd.DataFrame(rows)
