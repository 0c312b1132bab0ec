"""The table of the runs: which of them are listed, and what each column says."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pandas as pd
import streamlit as st

from gprune.analysis import run_settings
from gprune.app.pages.jobs.comparison_form import called
from gprune.app.ui import url_state
from gprune.app.ui.chart_style import label
from gprune.app.ui.memo import memoized
from gprune.app.ui.text import short
from gprune.app.ui.work import Situation
from gprune.pipeline import stages
from gprune.pipeline.cache import RunUsage
from gprune.pipeline.runs.opened import Run, Unreadable, record
from gprune.records import Perplexity
from gprune.study.methods import METHODS
from gprune.system.errors import StoreError
from gprune.system.units import amount, seconds_since_1970

FILTER, TAGS, STATE, COLUMNS = "runs_filter", "runs_tags", "runs_state", "runs_columns"
_ANY = "any"
_FEW = 3
"""settings that are columns to begin with"""
_WIDTHS = {"run": 270, "tags": 110, "state": 90, "started": 130, "takes": 76, "its own": 76, "note": 180}


@dataclass(frozen=True, slots=True)
class Column:
    """A column that a reader may choose."""

    words: str
    """its head"""
    setting: str = ""
    """dotted name of the setting that it shows; empty where it is a result"""
    method: str = ""
    """whose perplexity it shows; empty for the best of all pruned models"""
    text: str = ""
    """on which text"""


def tags(runs: Iterable[Run]) -> list[str]:
    """Every tag of some runs, in the order of the alphabet."""
    return sorted({tag for run in runs for tag in run.about.tags}, key=str.casefold)


def asked(situation: Situation, known: Mapping[str, str]) -> tuple[list[Run], list[Unreadable]]:
    """Asks which runs are listed; gives those."""
    every = tags(situation.runs)
    states = list(dict.fromkeys(run.state or "unknown" for run in situation.runs))
    with st.container(horizontal=True, vertical_alignment="bottom"):
        typed = url_state.text_field(
            "Filter", FILTER, 80, placeholder="words of name, note, tag, model or text", width=300
        )
        chosen = url_state.multiselect("Tags", every, TAGS, (), placeholder="any", width=220) if every else []
        states_ = {_ANY: "any", **{one: one for one in states}}
        state = url_state.selectbox("State", states_, STATE, _ANY, width=140)
    runs = [run for run in situation.runs if state in (_ANY, run.state or "unknown")]
    runs = [run for run in runs if set(chosen) <= set(run.about.tags) and matches(run, known[run.name], typed)]
    # of what cannot be read only its name is known
    broken = [] if chosen or state != _ANY else situation.unreadable
    return runs, [one for one in broken if typed.casefold().strip() in one.name.casefold()]


def matches(run: Run, name: str, typed: str) -> bool:
    """Whether every word that was typed stands in what is known of a run, whichever letters are capitals."""
    study = run.study
    said = (name, run.name, run.about.note, *run.about.tags, study.model, study.primary, study.auxiliary)
    told = " ".join((*said, study.metric, study.group, *study.methods)).casefold()
    return all(word in told for word in typed.casefold().split())


def columns(runs: list[Run]) -> list[Column]:
    """Asks for the columns; settings in which runs differ, and perplexities that are measured."""
    found = choices(runs)
    settings = run_settings.differing({run.name: run.study for run in runs if not run.shown_by})
    best = [name for name, column in found.items() if not column.setting and not column.method]
    ours = [name for name, column in found.items() if column.method == "gprune"]
    words = {name: column.words for name, column in found.items()}
    first = [*settings[:_FEW], *ours[:1], *best[:1]]
    names = url_state.multiselect("Columns", words, COLUMNS, first, placeholder="none")
    return [found[name] for name in names]


def choices(runs: list[Run]) -> dict[str, Column]:
    """The columns that there can be, by the name that an address has for them."""
    apart = run_settings.differing({run.name: run.study for run in runs})
    # in the form's words, without where a setting stands there
    found = {field: Column(called(field).partition(" (")[0], setting=field) for field in apart}
    calibrated = {text for run in runs for text in (run.study.primary, run.study.auxiliary)}
    texts = list(dict.fromkeys(text for run in runs for text in run.study.evaluation.texts))
    # what no run was calibrated on says most
    texts.sort(key=lambda text: text in calibrated)
    methods = dict.fromkeys(method for run in runs for method in run.study.methods)
    for text in texts:
        found[f"best:{text}"] = Column(f"best PPL, {short(text)}", text=text)
        for method in sorted(methods, key=lambda name: name != "gprune"):
            words = f"{label(method)} PPL, {short(text)}"
            found[f"{method}:{text}"] = Column(words, method=method, text=text)
    return found


def table(
    runs: list[Run], broken: list[Unreadable], known: Mapping[str, str], room: Mapping[str, RunUsage],
    chosen: list[Column],
) -> pd.DataFrame:  # fmt: skip
    """A row a run, those that cannot be read last."""
    rows = [_row(run, known, room.get(run.name), chosen) for run in runs]
    rows += [
        {"run": one.name, "state": "cannot be read", "started": "–"} | _sizes(room.get(one.name)) for one in broken
    ]
    chosen_heads = dict.fromkeys(one.words for one in chosen)
    heads = ["run", "tags", "state", "started", *chosen_heads, "takes", "its own", "list", "note"]
    found = pd.DataFrame(rows, columns=heads).fillna("")
    # what nobody has said of any run takes no room
    return found.drop(columns=[name for name in ("tags", "list", "note") if not found[name].any()])


def _row(run: Run, known: Mapping[str, str], usage: RunUsage | None, chosen: list[Column]) -> dict[str, str]:
    began = seconds_since_1970(run.record.get("started"))
    settings = run_settings.flattened(run.study)
    shown = {
        one.words: settings.get(one.setting, "") if one.setting else _result(run, one.method, one.text)
        for one in chosen
    }
    listed = "hidden" if run.about.hidden else "with its run" if run.shown_by else ""
    return {
        "run": known[run.name],
        "tags": ", ".join(run.about.tags),
        "state": run.state or "unknown",
        "started": _moment(began),
        **shown,
        **_sizes(usage),
        "list": listed,
        "note": " ".join(run.about.note.split()),
    }


def _result(run: Run, method: str, text: str) -> str:
    """A perplexity as a cell shows it; of the best pruned model with whose it is."""
    pruned = [name for name in run.study.methods if METHODS[name].decision != "none"]
    found = {name: value for name in [method] * bool(method) or pruned if (value := _value(run, name, text))}
    if not found:
        return ""
    name = min(found, key=lambda one: found[one])
    return f"{found[name]:.4g}" + ("" if method else f" {label(name)}")


def _value(run: Run, method: str, text: str) -> float | None:
    there = method in run.study.methods and text in run.study.evaluation.texts
    if not there or not run.has(stages.perplexity, method, text):
        return None
    try:
        return _perplexity(run.root, run.key(stages.perplexity, method, text))
    except StoreError:
        # the pages of the run say what is wrong with it
        return None


@memoized(4096)
def _perplexity(root: str, key: str) -> float:
    return float(record(root, "perplexity", key, Perplexity.__name__).perplexity)


def config() -> dict[str, Any]:
    """How wide the columns are that are always there."""
    return {name: st.column_config.Column(width=width) for name, width in _WIDTHS.items()}


def _sizes(usage: RunUsage | None) -> dict[str, str]:
    return {
        "takes": amount(usage.total) if usage else "–",
        "its own": amount(usage.own) if usage else "–",
    }


def _moment(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):
        return "–"
