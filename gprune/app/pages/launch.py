"""The launch form: a study in three steps, what a run of it takes, and the button that starts it."""

import contextlib
import dataclasses
import hashlib
import re
import tempfile
import typing
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import streamlit as st

from gprune.app.server import COMMAND, TRUST_OPTION, trusts_code
from gprune.app.ui import address, components, frame, tables, work
from gprune.app.ui.card import card
from gprune.app.ui.chart_style import label
from gprune.app.ui.commands import command, python_of
from gprune.app.ui.run_choice import labels
from gprune.app.ui.run_status import SPEEDS
from gprune.app.ui.text import escape, escape_error, short
from gprune.data.demo import texts as embedded
from gprune.data.texts import catalogue, corpus_relation
from gprune.evaluation.tasks import STANDARD_TASKS, TaskSource, listed_tasks, needs_index, read_documents, resolve
from gprune.models import families, identity
from gprune.models.expert_families import EXPERT_FAMILIES
from gprune.pipeline.estimate import ANYWAY, Forecast, estimate_study
from gprune.pipeline.stages.inputs import require_usable
from gprune.records import ModelShape, budget
from gprune.records.repairs import AUTO, REPAIR_BY_WORD, ROUTER
from gprune.store import explain_errors
from gprune.study import EvaluationSettings, Study, from_dict, methods, profiles, run_name
from gprune.study.demo import DEMOS, demo_study, experts_demo
from gprune.study.fields import documentation
from gprune.study.methods import CONTROLS, EXPERT_METHODS, METHODS, choices, metric_choices, with_controls
from gprune.study.settings import EXPERT_REPAIRS, PRESET_LENGTHS
from gprune.study.study import split_text_name
from gprune.system.errors import CorpusError, GpruneError, SettingsError
from gprune.system.files import make_folder, write_bytes
from gprune.system.safe_parsing import sentence
from gprune.system.units import amount, duration

SECTIONS = {
    "calibration": "Calibration",
    "contexts": "Contexts (token-weighted FLAP, FANG)",
    "baselines": "Baselines",
    "modularization": "Modules (BCM)",
    "reliability": "Score adaptation (RASA)",
    "sparsity": "Sparsity learning (MSL)",
    "gates": "Gates of single units",
    "repair": "Repair of the kept weights",
    "scales": "Learned scales",
    "choice": "Choice by measurement (repair auto, recommended recipe)",
    "recovery": "Recovery: training after the repair (LoRA)",
    "evaluation": "Evaluation",
}
_IN_STEPS = {"calibration": ("samples",), "evaluation": ("texts", "tasks")}
"""fields of the sections that are in the three steps instead of the advanced settings"""
LABELS = {
    "model": "Model",
    "name": "Name (optional)",
    "primary": "Text A (primary)",
    "auxiliary": "Text B (auxiliary)",
    "substitute": "Third text (agreement)",
    "calibration.samples": "Sequences per text",
    "retention": "Retention",
    "methods": "Methods",
    "evaluation.texts": "Evaluation texts",
    "evaluation.tasks": "Tasks",
    "metric": "Metric",
    "seed": "Seed",
    "additional": "Additional seeds (optional)",
    "device": "Device",
    "dtype": "Number type",
    "trust_remote_code": "Trust the model's code",
}
"""labels of the fields in the three steps and of the first advanced settings"""
KEYS = {name: f"launch_{name.rpartition('.')[2]}" for name in LABELS} | {
    "evaluation.texts": "launch_evaluate",
    "additional": "launch_seeds",
    "trust_remote_code": "launch_trust",
}
"""keys of the widgets of the fields in LABELS"""
MORE = "launch_more_drawn"
"""session key: True if the advanced settings are drawn because they were opened or filled in"""
_PROPOSED, _ORIGIN = "launch_proposed", "launch_origin"
"""session keys: the latest proposed texts, and the name of the run whose settings fill the form"""
_REPAIRS = {"own": "own repair of each method", "none": "none"}
_REPAIRS |= {word: repair.label for word, repair in REPAIR_BY_WORD.items()}
_OPTION_LABELS: dict[str, dict[str, str]] = {
    "evaluation.speed": SPEEDS,
    "repair.kind": _REPAIRS,
    "repair.texts": {
        "primary": "A",
        "auxiliary": "B",
        "both": "A and B",
        "both_and_sampled": "A, B and text of the dense model",
        "sampled": "text of the dense model",
    },
}
_REPAIR_CAPTIONS = {
    "own": "FLAP moves the mean output of removed neurons into a bias; the other methods do not change kept weights. "
    "Any other repair applies to every method.",
    "none": "No method changes its kept weights; FLAP also loses its bias.",
    AUTO.word: f"{AUTO.about} Each text needs additional held-out sequences.",
}
_MOST_SEEDS = 20
_LONGEST_COMPLAINT = 160
MOST_MEGABYTES = 5
"""maximum size of an uploaded file of questions"""
SUFFIX = ".jsonl"
"""suffix of a file of questions"""
EXAMPLE = '{"question": "2 + 2 is", "choices": ["four", "five"], "answer": 0}'
PROMPT_EXAMPLE = '{"prompt": "Question: 2 + 2\\nAnswer:", "answer": 4, "check": "number"}'
_GIB = 2**30


def draw_form(root: str, is_open: bool) -> None:
    """Draw the form and, if its tab `is_open`, the bottom bar with memory, time and the start button."""
    with card("launch_form", "Start a run"):
        # errors of all fields are shown at the top, where they are visible
        complaint = st.container()
        values = _ask_model() | _ask_calibration()
        values |= _ask_measurements(root, values["model"])
        advanced = st.expander("Advanced", icon=":material/tune:", key="launch_more", on_change="rerun")
        is_expanded = bool(advanced.open or st.session_state.get(MORE))
        # the settings stay when the expander is closed again
        st.session_state[MORE] = is_expanded
        with advanced:
            settings, additional, key = _ask_advanced(values, is_expanded)
        _describe_tasks(settings["evaluation"]["tasks"], settings["evaluation"]["task_folder"])
        studies = _build_studies(settings, additional, complaint, key)
        refused = not studies or _show_problem(studies[0], complaint)
    if is_open:
        with st.bottom:
            _draw_bar(root, studies, refused)


def take_study() -> bool:
    """Fill the form with a study sent from another page; return True if there was one. Call before drawing it."""
    sent = address.sent_to_launch()
    if sent is None:
        return False
    study, source = sent
    fill(study)
    st.session_state[_ORIGIN] = run_name(study)
    st.success(escape(f"{source} in the form below. Edit them, then start the run."), icon=":material/check_circle:")
    return True


def fill(study: Study) -> None:
    """Set every widget of the form to the value of a study. Call in callbacks, or before the widgets are drawn."""
    values, form = study.to_dict(), "launch_demo" if study.model == "demo" else "launch"
    flat = {f"{section}.{field}": value for section in SECTIONS for field, value in values[section].items()}
    widgets = {f"{form}_{field}": _widget_value(field, value) for field, value in flat.items()}
    widgets |= {key: (values | flat).get(field) for field, key in KEYS.items()}
    named = {text: f"{name}={text}" for text, name in study.names_of_texts.items()}
    widgets |= {KEYS[field]: named.get(values[field], values[field]) for field in ("primary", "auxiliary")}
    widgets[KEYS["evaluation.texts"]] = [named.get(text, text) for text in study.evaluation.texts]
    widgets |= {
        MORE: True,
        _PROPOSED: propose_texts(study.primary, study.auxiliary),
        "launch_profile": profiles.PROPOSED,
        "launch_controls": False,
        "launch_seeds": "",
        "launch_substitute": named.get(study.substitute, study.substitute) or None,
        "launch_metric": study.metric if study.metric in metric_choices() else "flap",
        "launch_methods": [name for name in study.methods if name in (*choices(), *EXPERT_METHODS)],
        "launch_trust": study.trust_remote_code and trusts_code(),
    }
    st.session_state.update({key: list(value) if isinstance(value, tuple) else value for key, value in widgets.items()})


def _ask(widget: Callable[..., Any], field: str, *arguments: Any, **options: Any) -> Any:
    """Draw the widget of a field under its label, with the field's documentation as its help."""
    shared = {"key": KEYS[field], "help": documentation().get(field)}
    return widget(LABELS[field], *arguments, **(shared | options))


def _ask_model() -> dict[str, Any]:
    st.markdown("**1 Model**")
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption("Fill in:", width="content")
        for key, build in DEMOS.items():
            study = build()
            about = f"A: {study.primary}; B: {study.auxiliary}. As a command: run {key}"
            # short names fit into one row on a phone
            name = study.name.removeprefix("Bundled demo, ").capitalize()
            components.action_button(name, f"launch_fill_{key}", "", fill, study, type="tertiary", help=about)
    left, right = st.columns([2, 1])
    with left:
        hint = "demo, a folder or a hub name"
        model = (_ask(st.selectbox, "model", _list_models(), accept_new_options=True, placeholder=hint) or "").strip()
    with right:
        name = _ask(st.text_input, "name").strip()
    shape = _shape_of(model)
    if shape is not None:
        st.caption(
            f"Pruned: neurons and key/value groups in {shape.layers} layers, each with {shape.neurons:,} neurons and "
            f"{shape.kv_heads} groups. Embeddings and the output layer are not pruned."
        )
    elif _is_mixture(model):
        st.caption("Pruned: experts. Attention, shared experts and dense layers are not pruned.")
    return {"model": model, "name": name}


def _list_models() -> list[str]:
    return list(dict.fromkeys(["demo", "demo-experts", *(run.study.model for run in frame.situation().runs)]))


def _is_mixture(model: str) -> bool:
    """Return True if a model on this machine is a mixture of experts."""
    with contextlib.suppress(GpruneError, KeyError, TypeError, ValueError):
        return identity.configuration(identity.locate(model)).get("model_type") in EXPERT_FAMILIES
    return False


def _shape_of(model: str) -> ModelShape | None:
    """Return the shape of a model, or None if its configuration is not on this machine or not supported."""
    try:
        return None if _is_mixture(model) else families.shape_of(identity.configuration(identity.locate(model)))
    except (GpruneError, KeyError, TypeError, ValueError):
        return None


def _ask_calibration() -> dict[str, Any]:
    st.markdown("**2 Calibration**")
    demo = demo_study()
    with st.grid(4, min_column_width=200):
        primary = components.pick_text(LABELS["primary"], KEYS["primary"], demo.primary, optional=False)
        auxiliary = components.pick_text(LABELS["auxiliary"], KEYS["auxiliary"], demo.auxiliary, optional=False)
        _follow_texts(split_text_name(primary)[1], split_text_name(auxiliary)[1])
        third = components.pick_text(LABELS["substitute"], KEYS["substitute"], "")
        samples = _ask(st.number_input, "calibration.samples", value=demo.calibration.samples, step=64)
    return {"primary": primary, "auxiliary": auxiliary, "substitute": third, "samples": samples}


def propose_texts(primary: str, auxiliary: str) -> tuple[str, str, str]:
    """Return the held-out parts of A and B, and a text of another corpus; an empty string if there is none.

    A text with splits is evaluated on another split than it is calibrated on. A file has no other part.
    """
    calibrated = [corpus_relation.corpus(text, "calibration") for text in (primary, auxiliary)]
    parts = [text.partition("#split=")[0] for text in (primary, auxiliary)]
    held_out = [
        text
        if text and corpus_relation.kinship(corpus_relation.corpus(text, "evaluation"), corpus) != corpus_relation.SAME
        else ""
        for text, corpus in zip(parts, calibrated, strict=True)
    ]
    # local texts are evaluated on a bundled text, because the machine may have no network
    from_hub = any(part in catalogue.HUB_TEXTS or part.startswith("hub:") for part in parts)
    pool = tuple(catalogue.HUB_TEXTS) if from_hub else embedded.TRAINED
    corpora = {corpus.name for corpus in calibrated}
    unseen = next((text for text in pool if corpus_relation.corpus(text, "evaluation").name not in corpora), "")
    return held_out[0], held_out[1], unseen


def _follow_texts(primary: str, auxiliary: str) -> None:
    """Update the proposed third and evaluation texts when A or B changes; texts chosen by hand stay."""
    state, new = st.session_state, propose_texts(primary, auxiliary)
    old = state.get(_PROPOSED, ("", "", ""))
    state[_PROPOSED] = new
    if KEYS["evaluation.texts"] not in state:
        state[KEYS["evaluation.texts"]], state[KEYS["substitute"]] = [*filter(None, new)], new[-1] or None
    elif old != new:
        renamed = dict(zip_longest(old, new))
        texts = [renamed.get(text, text) for text in state[KEYS["evaluation.texts"]]]
        texts += [text for before, text in zip(old, new, strict=True) if text and not before]
        state[KEYS["evaluation.texts"]] = [*filter(None, dict.fromkeys(texts))]
        if (state.get(KEYS["substitute"]) or "") == old[-1]:
            state[KEYS["substitute"]] = new[-1] or None


def _ask_measurements(root: str, model: str) -> dict[str, Any]:
    st.markdown("**3 Methods and measurements**")
    demo, is_mixture = demo_study(), _is_mixture(model)
    left, right = st.columns([1, 3])
    with left:
        retention = _ask(st.number_input, "retention", value=demo.retention, step=0.05, format="%.2f")
        with_ablations = st.toggle(
            "Add controls",
            key="launch_controls",
            # the controls prune neurons
            disabled=is_mixture,
            help="Adds the ablations that show where a gain comes from: "
            + ", ".join(METHODS[name].label for name in CONTROLS)
            + ". Each one that learns costs as much as GPrune.",
        )
    with right:
        options = {"format_func": label, "select_all": False}
        offered = ("dense", *EXPERT_METHODS) if is_mixture else choices()
        default = [name for name in dict.fromkeys((*demo.methods, *experts_demo().methods)) if name in offered]
        if not set(st.session_state.get(KEYS["methods"]) or ()) <= set(offered):
            # the model is of another kind than before
            st.session_state[KEYS["methods"]] = default
        chosen = _ask(st.multiselect, "methods", list(offered), default, **options)
    faults = methods.installed_plugins().faults
    for fault in faults:
        st.caption(f":material/extension_off: {escape(fault.message)}")
    if not all(fault.name for fault in faults):
        # all plug-ins are left out: look for them again on the next visit
        methods.installed_plugins.cache_clear()
    measured = _ask_evaluation(root, "launch", KEYS["evaluation.texts"], None)
    pruned = with_controls(chosen) if with_ablations and not is_mixture else tuple(chosen)
    return {"retention": retention, "methods": pruned, **measured}


def _ask_evaluation(root: str, key: str, texts_key: str, settings: EvaluationSettings | None) -> dict[str, Any]:
    """Draw the fields for evaluation texts and tasks; `settings` has their initial values, if any."""
    state = st.session_state
    if settings is not None:
        state.setdefault(texts_key, list(settings.texts))
        state.setdefault(f"{key}_tasks", list(settings.tasks))
    left, right = st.columns(2)
    with left:
        texts = st.multiselect(
            LABELS["evaluation.texts"],
            list(dict.fromkeys([*components.known_texts(), *state.get(texts_key, ())])),
            key=texts_key,
            accept_new_options=True,
            placeholder="choose, or type a path",
            select_all=False,
            help="Proposed: held-out parts of A and B, and a text of another corpus. They change with A and B.",
        )
    with right:
        slot = st.container()
        with st.popover("Custom questions", icon=":material/quiz:", type="tertiary", key=f"{key}_own"):
            _select_once(key, draw_uploader(root, key))
        with slot:
            tasks = _ask_tasks(key)
    return {"texts": _strip_names(texts), "tasks": tasks}


def _strip_names(names: list[str]) -> tuple[str, ...]:
    return tuple(name.strip() for name in names if name.strip())


def _ask_tasks(key: str) -> tuple[str, ...]:
    chosen = st.session_state.get(f"{key}_tasks", [])
    tasks = st.multiselect(
        LABELS["evaluation.tasks"],
        list(dict.fromkeys([*listed_tasks(), *chosen])),
        key=f"{key}_tasks",
        format_func=describe_task,
        accept_new_options=True,
        placeholder="choose, or type the path of a .jsonl file",
        select_all=False,
        help=documentation()["evaluation.tasks"],
    )
    return _strip_names(tasks)


def describe_task(task: str) -> str:
    """Return the label of a task, which says if its data is built in; a file is labelled by its path."""
    if "/" in task or task.endswith(SUFFIX):
        return short(task, 32)
    return f"{task} (built in)" if task in listed_tasks() and task not in STANDARD_TASKS else f"{task} (needs data)"


def _select_once(key: str, path: str) -> None:
    """Add the path of an uploaded file to the chosen tasks; it stays removed if the user removes it."""
    state, tasks = st.session_state, st.session_state.get(f"{key}_tasks", [])
    if path and state.get(f"{key}_dropped") != path and path not in tasks:
        state[f"{key}_tasks"] = [*tasks, path]
    state[f"{key}_dropped"] = path


def draw_uploader(root: str, key: str) -> str:
    """Draw the field for a file of questions; return the path of its copy in the cache, empty without a valid file."""
    uploaded = st.file_uploader(
        f"Custom questions ({SUFFIX}, UTF-8)", [SUFFIX[1:]], key=f"{key}_questions", max_upload_size=MOST_MEGABYTES
    )
    st.caption(
        "One question per line. The answer is the index of the right choice, counted from 0, or the choice itself:"
    )
    st.code(EXAMPLE, language="json", wrap_lines=True)
    st.caption("Or one prompt per line, whose generated answer is checked (exact, contains, number or regex):")
    st.code(PROMPT_EXAMPLE, language="json", wrap_lines=True)
    if uploaded is None:
        return ""
    raw = uploaded.getvalue()
    path = uploaded_path(root, "tasks", uploaded.name, SUFFIX, raw)
    with components.show_errors():
        count = _count_questions(hashlib.sha256(raw).hexdigest(), Path(uploaded.name).name, raw)
        save_upload(path, raw)
        questions = f"{count:,} question{'s' if count > 1 else ''}"
        st.caption(f"{questions}, saved as {escape(path.relative_to(root))} in the cache.")
        return str(path)
    return ""


def uploaded_path(root: str, folder: str, name: str, suffix: str, raw: bytes) -> Path:
    """Return the path in the cache for an uploaded file.

    The file name has the letters and digits of `name`, a hash of `raw`, and `suffix`, which includes its dot.
    """
    stem = name.lower().removesuffix(suffix)
    safe = re.sub(r"[^a-z0-9]+", "-", stem).strip("-")[:40].strip("-") or folder
    return Path(root) / folder / "user" / f"{safe}-{hashlib.sha256(raw).hexdigest()[:12]}{suffix}"


@contextlib.contextmanager
def upload_as_file(raw: bytes, suffix: str, name: str) -> Iterator[Path]:
    """Provide uploaded bytes as a temporary file; a CorpusError raised inside shows `name`, not the temporary path."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"text{suffix}"
        file.write_bytes(raw)
        try:
            yield file
        except CorpusError as error:
            # the user does not know the temporary file
            raise CorpusError(str(error).replace(str(file), name)) from error


def save_upload(path: Path, raw: bytes) -> None:
    """Write a file in one step, unless it already has this content. Raises StoreError if it cannot be written."""
    with explain_errors(path.parent):
        make_folder(path.parent)
        if path.is_file() and path.read_bytes() == raw:
            return
        write_bytes(path, raw)


@st.cache_data(max_entries=16, show_spinner="Checking questions …")
def _count_questions(digest: str, name: str, _raw: bytes) -> int:
    return check_questions(name, _raw)


def check_questions(name: str, raw: bytes) -> int:
    """Check every row of a file of questions by the rules of the evaluation; return their number, at least 1.

    Raises:
        CorpusError: the file is too large or not UTF-8, or a row is not a question; it names line and column.
    """
    if len(raw) > MOST_MEGABYTES * 2**20:
        raise CorpusError(f"{name!r} has {len(raw) / 2**20:.1f} MB, more than {MOST_MEGABYTES} MB: shorten it")
    with upload_as_file(raw, SUFFIX, name) as file:
        return len(read_documents(TaskSource(name, "own", file)))


def _ask_advanced(values: dict[str, Any], is_expanded: bool) -> tuple[dict[str, Any], str, str]:
    """Draw the advanced settings if `is_expanded`; otherwise only return their defaults.

    `values` are the answers of the form's steps. Returns the study's fields as plain values, the additional seeds as
    typed, and the prefix of the sections' keys.
    """
    start, key = (demo_study(), "launch_demo") if values["model"] == "demo" else (Study("model", "A", "B"), "launch")
    top: dict[str, Any] = {"metric": start.metric, "seed": start.seed}
    additional, sections = "", {}
    if is_expanded:
        with st.grid(4, min_column_width=180):
            top = {
                "metric": _ask(st.selectbox, "metric", list(metric_choices()), format_func=label),
                "seed": _ask(st.number_input, "seed", value=0, step=1),
            }
            seeds_help = (
                "Whole numbers, for example 1 2. Each seed is a separate job that reuses seed-independent results. "
                "Compare shows them as one row with their spread."
            )
            additional = _ask(st.text_input, "additional", placeholder="1 2", help=seeds_help, max_chars=200).strip()
            top |= _ask_machine()
        if not trusts_code():
            st.caption(
                f"This server does not run code that comes with a model. Start it with `{COMMAND} {TRUST_OPTION}` to "
                "allow it."
            )
        start, key = _ask_profile(start, key)
        for section, title in SECTIONS.items():
            st.markdown(f"**{title}**")
            sections[section] = ask_section(section, key, start)
            _explain_section(section, sections[section], values)
    settings = {name: value for name, value in values.items() if name not in ("samples", "texts", "tasks")} | top
    for section, fields in start.to_dict().items():
        if section in SECTIONS:
            settings[section] = fields | sections.get(section, {})
    settings["calibration"] |= {"samples": values["samples"]}
    settings["evaluation"] |= {"texts": values["texts"], "tasks": values["tasks"]}
    return settings, additional, key


def _ask_machine() -> dict[str, Any]:
    device = _ask(st.selectbox, "device", ["auto", "cpu", "cuda"], accept_new_options=True)
    dtype = _ask(st.selectbox, "dtype", ["auto", "float32", "bfloat16", "float16"])
    trust = _ask(st.toggle, "trust_remote_code", disabled=not trusts_code())
    return {"device": device or "auto", "dtype": dtype, "trust_remote_code": trust and trusts_code()}


def _ask_profile(start: Study, key: str) -> tuple[Study, str]:
    """Draw the choice of a profile; return a study with its settings, and the prefix of the keys of the widgets."""
    name = st.radio(
        "Settings that the paper leaves open",
        profiles.NAMES,
        profiles.NAMES.index(profiles.PROPOSED),
        format_func={"paper": "as in the paper", "recommended": "recommended"}.__getitem__,
        key="launch_profile",
        horizontal=True,
    )
    st.caption(f"{profiles.profile(name).why} {profiles.PROPOSAL}")
    st.caption(f":material/recommend: {escape(profiles.recipe())}")
    # each profile has widgets of its own, which begin with its values
    chosen = start.with_settings(dict(profiles.profile(name).settings))
    return chosen, key if name == profiles.PROPOSED else f"{key}_{name}"


def section_fields(section: str) -> dict[str, tuple[Any, Any]]:
    """Return type and default of every field of a section, by name."""
    kind = typing.get_type_hints(Study)[section]
    hints, defaults = typing.get_type_hints(kind), kind()
    return {field.name: (hints[field.name], getattr(defaults, field.name)) for field in dataclasses.fields(kind)}


def ask_section(section: str, key: str, start: Study) -> dict[str, Any]:
    """Draw a widget for each field of a section that is not in a step of the form; return the values by field.

    `key` is the prefix of the keys of the widgets, `start` the study with their initial values.
    """
    values = {}
    with st.grid(4, min_column_width=180):
        for field, (hint, _) in section_fields(section).items():
            if field not in _IN_STEPS.get(section, ()):
                values[field] = _ask_field(f"{section}.{field}", hint, getattr(getattr(start, section), field), key)
    return values


def _ask_field(dotted: str, hint: Any, value: Any, key: str) -> Any:
    """Draw the widget that fits the type `hint` of a field, such as `evaluation.limit`; return its value."""
    title = dotted.rpartition(".")[2].replace("_", " ").capitalize()
    shared: dict[str, Any] = {"help": documentation().get(dotted), "key": f"{key}_{dotted}"}
    if typing.get_origin(hint) is Literal:
        options = list(typing.get_args(hint))
        if dotted == "repair.kind":
            is_mixture = _is_mixture(st.session_state.get(KEYS["model"]) or "")
            options = [kind for kind in options if (kind in EXPERT_REPAIRS if is_mixture else kind != ROUTER)]
            if st.session_state.get(shared["key"]) not in options:
                # the model is of another kind than before
                st.session_state.pop(shared["key"], None)
        names = {option: str(option).replace("_", " ") for option in options} | _OPTION_LABELS.get(dotted, {})
        return st.selectbox(title, options, options.index(value), format_func=names.__getitem__, **shared)
    if dotted == "evaluation.preset":
        presets = list(dict.fromkeys([*PRESET_LENGTHS, value, st.session_state.get(shared["key"]) or value]))
        preset = st.selectbox(title, presets, presets.index(value), accept_new_options=True, **shared)
        return (preset or "").strip()
    if hint is bool:
        return st.toggle(title, value, **shared)
    if typing.get_origin(hint) is tuple:
        return _parse_numbers(st.text_input(title, ", ".join(map(str, value)), **shared))
    if hint is int or type(None) in typing.get_args(hint):
        empty = None if hint is int else "all"
        number = st.number_input(title, value=value, step=1, placeholder=empty, **shared)
        return None if number is None else int(number)
    if hint is float:
        return float(st.number_input(title, value=float(value), step=0.01, format="%.4g", **shared) or 0.0)
    return st.text_input(title, str(value), **shared).strip()


def _widget_value(dotted: str, value: Any) -> Any:
    """Return a field's value in the type of its widget: a tuple as text, a number of a float field as float."""
    section, _, name = dotted.partition(".")
    hint, _ = section_fields(section)[name]
    if typing.get_origin(hint) is tuple:
        return ", ".join(map(str, value))
    return float(value) if hint is float else value


def _parse_numbers(typed: str) -> list[Any] | tuple[int, ...]:
    """Parse comma-separated whole numbers; other input is returned as strings, which the study rejects."""
    parts = [part.strip() for part in typed.split(",") if part.strip()]
    return tuple(int(part) for part in parts) if all(part.isdecimal() for part in parts) else list(parts)


def _explain_section(section: str, fields: dict[str, Any], values: dict[str, Any]) -> None:
    if section == "repair":
        kind = fields["kind"]
        st.caption(_REPAIR_CAPTIONS.get(kind) or REPAIR_BY_WORD[kind].about)
    elif section == "sparsity" and fields["widths"] == "equal" and fields["alignment"] == 1:
        _propose_alignment(values)


def _propose_alignment(values: dict[str, Any]) -> None:
    """Propose the alignment for equal widths of the selected model."""
    shape, retention = _shape_of(values["model"]), float(values["retention"] or 0)
    if shape is None or not 0 < retention < 1:
        return
    block = budget.proposed_alignment(shape, retention)
    if block > 1:
        neurons, groups = budget.equal_counts(shape, retention, block)
        st.caption(
            f"Proposed: alignment {block}. Every layer then keeps {neurons:,} of {shape.neurons:,} neurons and "
            f"{groups} of {shape.kv_heads} key/value groups, widths that suit fast kernels."
        )


def _describe_tasks(tasks: tuple[str, ...], folder: str) -> None:
    """List the tasks whose data comes from the hub, and show the errors of the others; nothing is downloaded."""
    settings = EvaluationSettings(task_folder=folder)
    from_hub, unchecked = [], [task for task in tasks if needs_index(task)]
    for task in (task for task in tasks if task not in unchecked):
        try:
            source = resolve(task, settings)
            if source.on_hub:
                from_hub.append(task)
            elif source.kind == "registered" and source.file is not None:
                _count_rows(source, source.file.stat().st_mtime_ns)
        except (GpruneError, OSError, RuntimeError) as error:
            # OSError: a path that is too long; RuntimeError: the home folder of an unknown user
            st.warning(escape_error(error), icon=":material/warning:")
    if from_hub:
        st.caption(
            f"From the hub: {escape(', '.join(from_hub))}. If the data is not on this machine and cannot be "
            "downloaded, the run does not start."
        )
    if unchecked:
        st.caption(f"The run looks up these tasks in lm-eval: {escape(', '.join(unchecked))}.")


@st.cache_data(max_entries=64, show_spinner=False)
def _count_rows(source: TaskSource, modified: int) -> int:
    """Return the number of local rows of a task. Raises CorpusError if a row is not valid.

    `modified` is the time of the file's last change, so that a changed file is read again.
    """
    return len(read_documents(source))


def _build_studies(settings: dict[str, Any], additional: str, complaint: Any, key: str) -> list[Study]:
    """Return the form's study for each seed; if a field is invalid, mark all errors and return an empty list.

    `complaint` is the container that shows the errors, `key` the prefix of the keys of the advanced settings.
    """
    try:
        return list_seeds(from_dict(settings), additional)
    except GpruneError as error:
        complaints = {field_of(words): use_form_labels(words) for words in error.faults or (str(error),)}
    lines = [escape_error(words) for words in complaints.values()]
    complaint.error(lines[0] if len(lines) == 1 else "\n".join(f"- {line}" for line in lines), icon=":material/error:")
    for field, words in complaints.items():
        mark_field(complaint, KEYS.get(field, f"{key}_{field}"), words)
    return []


def list_seeds(study: Study, typed: str) -> list[Study]:
    """Return the study for its own and each additional seed. Raises SettingsError if `typed` is not a list of seeds."""
    parts = re.findall(r"[^\s,]+", typed)
    if not all(re.fullmatch(r"[0-9]{1,9}", part) for part in parts):
        raise SettingsError(f"additional seeds must be whole numbers of 0 or more (got {typed!r}), for example 1 2")
    seeds = dict.fromkeys((study.seed, *map(int, parts)))
    if len(seeds) > _MOST_SEEDS:
        raise SettingsError(f"additional seeds give {len(seeds)} seeds in total, more than {_MOST_SEEDS}: choose fewer")
    return [replace(study, seed=seed) for seed in seeds]


def field_of(complaint: str) -> str:
    """Return the field at the beginning of an error message: `methods` for “methods[2] must be …”."""
    return complaint.partition(" ")[0].partition("[")[0]


def field_label(field: str) -> str:
    """Return the label of a field in the form."""
    return LABELS.get(field) or f"{field.rpartition('.')[2].replace('_', ' ').capitalize()} (Advanced)"


def use_form_labels(complaint: str) -> str:
    """Replace the name of a field at the beginning of an error message by its label in the form."""
    field = field_of(complaint)
    if field == "additional" or field not in documentation():
        return complaint
    message = f"{field_label(field)}{complaint.removeprefix(field)}".replace("or null for all", "or empty for all")
    # an error about equal texts names two fields
    return message.replace("and auxiliary are", f"and {LABELS['auxiliary']} are")


def mark_field(slot: Any, key: str, words: str) -> None:
    """Outline the widget whose key is `key`, and show the error message `words` below it."""
    selector = ".st-key-" + re.sub(r"[^a-zA-Z0-9_-]", "-", key)
    slot.html(
        f"<style>{selector} {{outline: 2px solid #D03B3B; outline-offset: 4px;}}"
        f"{selector}::after {{content: {css_string(sentence(words, _LONGEST_COMPLAINT))}; display: block; "
        "color: light-dark(#A61E1E, #FF9A9A); font-size: 0.85rem; line-height: 1.35; overflow-wrap: anywhere;}"
        "</style>"
    )


def css_string(text: str) -> str:
    """Return a CSS string literal in which all characters except letters, digits and spaces are escaped."""
    # CSS consumes the space that ends a numeric escape
    return '"' + re.sub(r"[^a-zA-Z0-9 ]", lambda match: f"\\{ord(match[0]):06x} ", text) + '"'


def input_problem(study: Study) -> str:
    """Return the reason why the model, a text or a task cannot be used; empty if none is found.

    Nothing is downloaded. Only the syntax of a name on the hub is checked.
    """
    try:
        require_usable(study)
        study.recovery.require_installed()
        for task in study.evaluation.tasks:
            if not needs_index(task):
                resolve(task, study.evaluation)
    except (GpruneError, OSError, RuntimeError) as error:
        return str(error)
    return ""


def _show_problem(study: Study, complaint: Any = None) -> bool:
    """Return True if a study cannot be started, after showing the reason and marking the field that causes it."""
    problem = input_problem(study)
    if not problem:
        return False
    (complaint or st).error(escape_error(use_form_labels(problem)), icon=":material/error:")
    if complaint is not None:
        inputs = {name: str(getattr(study, name)) for name in ("model", "primary", "auxiliary", "substitute")}
        fields = [field for field, value in inputs.items() if value and repr(value) in problem]
        for field in fields or {field_of(problem)} & set(KEYS):
            mark_field(complaint, KEYS[field], problem)
    return True


def _draw_bar(root: str, studies: list[Study], has_problem: bool) -> None:
    """Draw memory and time of the run, its details and commands, and the button that starts it."""
    if not studies:
        st.caption(":red[:material/error: **Not ready to start.**] The form marks each field that needs a change.")
        return
    arguments: tuple[str, ...] | None = ()
    with st.container(horizontal=True, vertical_alignment="center"):
        records = [run.record for run in frame.situation().runs]
        arguments = _draw_estimate(studies, records)
        with st.popover("Commands", icon=":material/terminal:", type="tertiary", key="launch_commands"):
            st.caption("As a command")
            st.code(command(*studies, arguments=arguments or ()), language="bash", wrap_lines=True)
            st.caption("As Python")
            st.code(python_of(*studies, anyway=bool(arguments)), language="python", wrap_lines=True)
        if components.button(
            "Start the run",
            key="launch_start",
            type="primary",
            icon=":material/play_arrow:",
            disabled=has_problem or arguments is None,
        ):
            _submit(root, studies, arguments or ())


def _draw_estimate(studies: list[Study], records: list[dict[str, Any]]) -> tuple[str, ...] | None:
    """Draw the estimated memory and time of one run, if no result is cached.

    Returns the extra command-line arguments of the job, or None if it does not fit into memory and the user has not
    chosen to start it anyway. The time is estimated from `records`, those of earlier runs, newest first.
    """
    forecast = estimate_study(studies[0], records)
    if forecast is None:
        st.caption("Memory and time are unknown until the model is on this machine.", width="stretch")
        return ()
    refusal = forecast.refusal
    peak = max((forecast.on_device(stage.need, stage.need.batch) for stage in forecast.stages), default=0.0)
    memory = forecast.capacity.card if forecast.case.gpu else forecast.capacity.host
    lines = [f"Estimate: {amount(peak)} of {amount(memory)}"]
    if forecast.seconds is not None:
        lines[0] += f", about {duration(forecast.seconds, 1)}"
        lines[0] += " for one seed" if len(studies) > 1 else ""
    lines += [f":orange[:material/warning: {escape_error(warning)}]" for warning in forecast.warnings]
    if refusal:
        lines.append(f":red[:material/error: {escape_error(refusal)}]")
    st.caption("  \n".join(lines), width="stretch")
    with st.popover("Details", icon=":material/memory:", type="tertiary", key="launch_details"):
        tables.show(_tabulate_stages(forecast), alt="memory and time of each stage")
        st.caption(
            f"Without cached results: {escape_error(forecast.summary)}. Memory is right within a factor of 1.3; the "
            "time is that of earlier runs of the model. If memory runs out, batches are halved; results do not change."
        )
    if refusal:
        return (ANYWAY,) if st.checkbox("Start anyway", key="launch_anyway") else None
    return ()


def _tabulate_stages(forecast: Forecast) -> pd.DataFrame:
    device = "GPU GiB" if forecast.case.gpu else "memory GiB"
    rows = []
    for stage in forecast.stages:
        need = stage.need
        row = {"stage": stage.title, device: round(forecast.on_device(need, need.batch) / _GIB, 1)}
        if forecast.case.gpu:
            row["memory GiB"] = round(forecast.on_host(need, need.batch) / _GIB, 1)
        row["batch size"] = str(need.batch) if need.setting else ""
        rows.append(row | {"time": "" if stage.seconds is None else duration(stage.seconds, 1)})
    return pd.DataFrame(rows)


def _submit(root: str, studies: list[Study], arguments: tuple[str, ...] = ()) -> None:
    """Submit the study of each seed as a job."""
    origin = st.session_state.get(_ORIGIN, "")
    jobs = [job for job in (work.start(root, study, arguments, origin) for study in studies) if job is not None]
    if jobs:
        st.session_state["jobs_wanted"] = jobs[0].id
        st.rerun()


def draw_evaluation(root: str) -> None:
    """Draw the form that measures the current run again with its masks: on other texts, on tasks, or for speed."""
    run = frame.current_run()
    if run is None:
        return
    title = "Measure an existing run: other texts, tasks, speed"
    panel = st.expander(title, icon=":material/straighten:", key="launch_measure", on_change="rerun")
    if not (panel.open or st.session_state.get(MORE)):
        return
    with panel, components.show_errors():
        st.caption(
            f"Uses the masks of {escape(labels(frame.situation().runs)[run.name])} without calibrating or "
            "learning again. The measurements become a separate run."
        )
        key = f"measure_{run.name}"
        fields = _ask_evaluation(root, key, f"{key}_evaluate", run.study.evaluation)
        fields |= ask_section("evaluation", key, run.study)
        _describe_tasks(fields["tasks"], fields["task_folder"])
        study = run.study.with_settings({f"evaluation.{name}": value for name, value in fields.items()})
        if study == run.study:
            st.caption("This run is already measured with these settings.")
            return
        st.code(command(study), language="bash", wrap_lines=True)
        refused = _show_problem(study)
        if components.button(
            "Start the evaluation", key="measure_start", icon=":material/play_arrow:", disabled=refused
        ):
            _submit(root, [study])
