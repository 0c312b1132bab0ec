"""Where a run of the launch form runs, what it takes, and what starts the same elsewhere."""

from typing import Any

import pandas as pd
import streamlit as st

from gprune.app.ui import tables
from gprune.app.ui.commands import command, python_of
from gprune.app.ui.text import said
from gprune.pipeline.estimate import ANYWAY, Forecast, judge
from gprune.pipeline.preflight import estimate_study, further_seconds
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
    """Show memory and time of whole runs of a study and its further seeds, as if they had no results.

    Return the arguments of the job beside the study; None if it cannot fit and is not wanted nevertheless.
    `records` of the cache's runs, the latest first, have the time.
    """
    forecast = estimate_study(studies[0], records)
    if forecast is None:
        st.caption("Memory and time are not known before the model is on this machine.")
        return ()
    verdict = judge(forecast)
    st.caption(f"Estimate, if nothing of it is there yet: {said(verdict.summary)}.")
    further = further_seconds(studies, records)
    if len(studies) > 1 and forecast.seconds is not None and further is not None:
        st.caption(_describe_seeds(forecast.seconds, len(studies), further))
    for words in verdict.warnings:
        st.warning(said(words), icon=":material/warning:")
    with st.expander("Memory and time of each stage", icon=":material/memory:"):
        tables.show(_table(forecast), alt="memory and time of each stage")
        st.caption(
            "Memory by formula, within a factor of 1.3; time as in earlier runs of the model. Where memory runs "
            "out, fewer sequences go through the model at a time, which changes no result."
        )
    if not verdict.refusal:
        return ()
    st.error(said(verdict.refusal), icon=":material/error:")
    nevertheless = st.checkbox("Start it nevertheless", key=f"{key}_anyway")
    return (ANYWAY,) if nevertheless else None


def _describe_seeds(seconds: float, seeds: int, further: float) -> str:
    return (
        f"That is one seed. All {seeds} together: about {duration(seconds + further, 1)}, each further "
        f"one {duration(further / (seeds - 1), 1)}; what no seed changes is made once."
    )


def _table(forecast: Forecast) -> pd.DataFrame:
    device = "GPU GiB" if forecast.capacity.gpu else "memory GiB"
    rows = []
    for stage in forecast.stages:
        need = stage.need
        row = {"stage": stage.title, device: round(forecast.on_device(need, need.batch) / _GIB, 1)}
        if forecast.capacity.gpu:
            row["memory GiB"] = round(forecast.on_host(need, need.batch) / _GIB, 1)
        row["at a time"] = str(need.batch) if need.setting else ""
        rows.append(row | {"time": "" if stage.seconds is None else duration(stage.seconds, 1)})
    return pd.DataFrame(rows)
