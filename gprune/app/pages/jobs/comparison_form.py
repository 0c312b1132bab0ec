"""What a run compares, as the launch form asks it: methods, controls, their repair, and further seeds."""

import re
import typing
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import streamlit as st

from gprune.app.pages.jobs import settings_form
from gprune.app.ui.chart_style import label
from gprune.app.ui.text import plain
from gprune.records.repairs import AUTO, WORDS
from gprune.study import Study, methods
from gprune.study.methods import CONTROLS, METHODS, choices, with_controls
from gprune.system.errors import SettingsError

_MOST_SEEDS = 20
FURTHER = "further"
"""what complaints about further seeds begin with"""
_CONTROLS_HELP = (
    "Adds what says where a gain comes from: "
    + ", ".join(METHODS[name].label for name in CONTROLS)
    + ". Those that learn cost as much as GPrune each; all else stays as fast as it was."
)
_SEEDS_HELP = (
    "Whole numbers, as 1 2. Every seed is a job of its own and shares with the others what no seed changes; "
    "Compare shows them as one line with their spread."
)
LABELS = {
    "model": "Model",
    "primary": "Primary text A",
    "auxiliary": "Auxiliary text B",
    "substitute": "Third text C, for the agreement",
    "metric": "Metric",
    "retention": "Retention",
    "seed": "Seed",
    "methods": "Methods side by side",
    "name": "Name (optional)",
    "calibration.samples": "Sequences of each text",
    "sparsity.epochs": "Epochs",
    "evaluation.texts": "Evaluate on",
    "evaluation.preset": "Window tokens",
    "evaluation.windows": "Windows at most",
    "evaluation.tasks": "Tasks",
    "evaluation.few_shot": "Examples",
    "evaluation.limit": "Documents at most",
    "evaluation.task_folder": "Folder with local rows of tasks",
    FURTHER: "Further seeds (optional)",
}
"""what the fields are called that are asked for outside of “More settings”"""
KEYS = {
    **{name: f"launch_{name.rpartition('.')[2]}" for name in LABELS},
    "evaluation.texts": "launch_evaluate",
    FURTHER: "launch_seeds",
}
"""keys of their widgets"""
REPAIR = {"repair.kind": "Repair of the kept weights", "repair.texts": "Repaired on"}
"""what the fields of the repair are called that stand beside the methods; the others are settings"""
_KINDS = {"own": "as each method does by itself", "none": "none"} | {word: one.label for word, one in WORDS.items()}
_TEXTS = {
    "primary": "A",
    "auxiliary": "B",
    "both": "A and B",
    "both_and_sampled": "A, B and text of the dense model",
    "sampled": "text of the dense model",
}
_SCALES = WORDS["scales"]
# scales alone have texts of their own, scales.texts
_WITHOUT_TEXTS = ("own", "none", AUTO.word, _SCALES.word)
_EXPLAINED = {
    "own": "FLAP moves what removed neurons give on average into a bias; the others leave what they keep as "
    "it is. Another repair is given to every method alike.",
    AUTO.word: f"{AUTO.about} Which ones, and by which text, stands under More settings; every text is drawn "
    "longer by the held-out sequences.",
    _SCALES.word: f"{_SCALES.about} Their texts stand under More settings.",
    "none": "What is kept stays as it is, in every method: FLAP goes without its bias as well.",
}


def ask(widget: Callable[..., Any], field: str, *given: Any, form: str = "launch", **options: Any) -> Any:
    """Draws the widget of a field, under what the form calls it and with what is documented of it.

    `form` begins its key, `given` and `options` are those of the widget.
    """
    shared = {"key": KEYS[field].replace("launch", form, 1), "help": settings_form.documentation().get(field)}
    return widget(LABELS[field], *given, **(shared | options))


def methods_field(demo: Study) -> tuple[str, ...]:
    """The methods side by side, with the controls where the switch is on."""
    chosen = ask(st.multiselect, "methods", list(choices()), demo.methods, format_func=label)
    for fault in methods.installed().faults:
        st.caption(f":material/extension_off: {plain(fault.message)}")
    if not methods.installed().is_listed:
        # the next visit asks again
        methods.installed.cache_clear()
    switched = st.toggle("With controls", key="launch_controls", help=_CONTROLS_HELP)
    return with_controls(chosen) if switched else tuple(chosen)


def repair_field(start: Study, key: str) -> dict[str, Any]:
    """The repair that every method gets, and its texts, as `start` has them; what differs, by dotted name."""
    left, right = st.columns(2)
    with left:
        kind = _one_of("kind", start, key, _KINDS)
    # what a method does by itself has texts of its own
    if kind in _WITHOUT_TEXTS:
        st.caption(_EXPLAINED[kind])
        return {} if kind == "own" else {"repair.kind": kind}
    with right:
        texts = _one_of("texts", start, key, _TEXTS)
    if kind in WORDS:
        st.caption(WORDS[kind].about)
    return {"repair.kind": kind, "repair.texts": texts}


def _one_of(field: str, start: Study, key: str, words: dict[str, str]) -> str:
    hint, _ = settings_form.fields("repair")[field]
    options, dotted = list(typing.get_args(hint)), f"repair.{field}"
    return str(
        st.selectbox(
            REPAIR[dotted],
            options,
            options.index(getattr(start.repair, field)),
            format_func=lambda one: words.get(one, str(one).replace("_", " ")),
            key=f"{key}_{dotted}",
            help=settings_form.documentation().get(dotted),
        )
    )


def further_seeds() -> str:
    """Asks for seeds beside the form's own; as typed."""
    typed = ask(st.text_input, FURTHER, placeholder="1 2", help=_SEEDS_HELP, max_chars=200)
    return str(typed).strip()


def of_seeds(study: Study, typed: str) -> list[Study]:
    """The study, and once more for every further seed; SettingsError where no list of seeds was typed."""
    parts = re.findall(r"[^\s,]+", typed)
    if not all(re.fullmatch(r"[0-9]{1,9}", part) for part in parts):
        raise SettingsError(f"further seeds must be whole numbers of 0 or more (got {typed!r}), as 1 2")
    seeds = dict.fromkeys((study.seed, *map(int, parts)))
    if len(seeds) > _MOST_SEEDS:
        raise SettingsError(f"further seeds make {len(seeds)} in all, more than {_MOST_SEEDS}: choose fewer")
    return [replace(study, seed=seed) for seed in seeds]


def called(field: str) -> str:
    """What the form calls a field."""
    own = field.rpartition(".")[2].replace("_", " ").capitalize()
    return LABELS.get(field) or REPAIR.get(field) or f"{own} (More settings)"


def in_words(field: str, complaint: str) -> str:
    """A complaint that begins with the name of a field, as a study file has it, in the form's words."""
    # what is said of further seeds begins in words already
    if field == FURTHER or not complaint.startswith(field):
        return complaint
    said = f"{called(field)}{complaint.removeprefix(field)}".replace("or null for all", "or empty for all")
    return said.replace("and auxiliary are", f"and {LABELS['auxiliary']} are")
