"""The launch form: a study from widgets, its exact command, and the two ways to start it."""

from typing import Any

import streamlit as st

from gprune.app.pages.jobs import comparison_form, complaints, filled, settings_form, starting, task_form
from gprune.app.pages.jobs.comparison_form import ask
from gprune.app.server.server_options import COMMAND, TRUST_OPTION, trusts_code
from gprune.app.ui import buttons, frame, text_picker, url_state, work
from gprune.app.ui.card import card
from gprune.app.ui.chart_style import label
from gprune.app.ui.commands import command
from gprune.app.ui.run_choice import labels
from gprune.app.ui.text import plain, said
from gprune.evaluation.tasks import look_up
from gprune.models import families, identity
from gprune.pipeline.stages.inputs import require_usable
from gprune.records import budget
from gprune.study import Study, from_dict, profiles
from gprune.study.demo import demo_study
from gprune.study.methods import metric_choices
from gprune.study.settings import PRESET_LENGTHS
from gprune.system.errors import GpruneError

_ASKED_ABOVE = {
    "calibration": ("samples",),
    "sparsity": ("epochs",),
    "repair": ("kind", "texts"),
    "evaluation": ("texts", "preset", "windows", "tasks", "few_shot", "limit", "task_folder", "speed"),
}
_ANY = Study("model", "A", "B")
"""stands for a study of which nothing is chosen yet"""


def new_study(root: str) -> None:
    """Draw the form for a new run."""
    with card("launch_form", "Start a run"):
        # at the top, where it is seen whichever field it is about
        complaint = st.container()
        filled.bundled()
        values, repair = _basics(root)
        # the demo's own sizes where the demo is chosen, so that the form and `run demo` do the same
        plain_start, key = (demo_study(), "launch_demo") if values["model"] == "demo" else (_ANY, "launch")
        start, key = _profile(plain_start, key)
        with repair:
            changes = comparison_form.repair_field(start, key)
        more = st.expander("More settings", icon=":material/tune:", key="launch_more", on_change="rerun")
        if more.open or st.session_state.get(filled.MORE):
            # what was set there stays when they are closed again
            st.session_state[filled.MORE] = True
            with more:
                changes |= _more(values, start, key)
                values |= _machine()
        else:
            changes |= settings_form.begins(start, _ASKED_ABOVE)
        studies = _checked(values, changes, complaint, key)
        if not studies:
            return
        records = [run.record for run in frame.situation().runs]
        arguments = starting.show_estimate(studies, records, "launch")
        starting.show_command(studies, arguments or ())
        refused = _refused(studies[0], complaint)
        if buttons.pressed(
            "Start the run",
            key="launch_start",
            type="primary",
            icon=":material/play_arrow:",
            disabled=refused or arguments is None,
        ):
            _start(root, studies, arguments or ())


def _more(values: dict[str, Any], start: Study, key: str) -> dict[str, Any]:
    """Every setting that is not asked for above; those that differ from the ones to begin with, by name."""
    changes: dict[str, Any] = {}
    for section, title in settings_form.SECTIONS.items():
        asked = _ASKED_ABOVE.get(section, ())
        if set(settings_form.fields(section)) - set(asked):
            st.markdown(f"**{title}**")
            changes |= settings_form.section(section, asked, key, start)
        if section == "sparsity":
            _propose_alignment(values, changes)
    return changes


def _propose_alignment(values: dict[str, Any], changes: dict[str, Any]) -> None:
    """Says which block suits equal widths of the chosen model, where another was not chosen."""
    if changes.get("sparsity.widths") != "equal" or "sparsity.alignment" in changes:
        return
    try:
        shape = families.shape_of(identity.configuration(identity.locate(str(values["model"]))))
        block = budget.proposed_alignment(shape, float(values["retention"]))
    except (GpruneError, KeyError, TypeError, ValueError):
        return
    if block > 1:
        neurons, groups = budget.equal_counts(shape, float(values["retention"]), block)
        st.caption(
            f"Proposed: alignment {block}, by which every layer keeps {neurons:,} of {shape.neurons:,} "
            f"neurons and {groups} of {shape.kv_heads} key/value groups: widths that fast kernels take whole."
        )


def _profile(start: Study, key: str) -> tuple[Study, str]:
    """Asks for the profile; the study that the settings begin with, and the prefix of their widgets' keys."""
    name = st.radio(
        "Settings that the paper leaves open",
        profiles.NAMES,
        profiles.NAMES.index(profiles.PROPOSED),
        format_func={"paper": "as in the paper", "recommended": "recommended"}.__getitem__,
        key="launch_profile",
        horizontal=True,
        on_change=_take_epochs,
    )
    st.caption(f"{profiles.profile(name).why} {profiles.PROPOSAL}")
    # other widgets for each profile, so that each begins with its own values
    return profiles.applied(start, name), key if name == profiles.PROPOSED else f"{key}_{name}"


def _take_epochs() -> None:
    """The one setting of a profile that is asked for above its place."""
    if url_state.sent_along():
        return
    chosen = profiles.applied(demo_study(), st.session_state["launch_profile"])
    st.session_state["launch_epochs"] = chosen.sparsity.epochs


def _basics(root: str) -> tuple[dict[str, Any], Any]:
    """The fields everyone sets, and the place for the repair, which follows from the profile below.

    They have the demo's values to begin with, so that the first click works.
    """
    demo = demo_study()
    with st.grid(3, min_column_width=240):
        values = _inputs(demo) | _sizes(demo)
    methods = comparison_form.methods_field(demo)
    st.caption(f":material/recommend: {plain(profiles.recipe())}")
    repair = st.container()
    values |= {"methods": methods, "evaluation": _evaluation(root, demo, "launch")}
    return values | {"name": ask(st.text_input, "name").strip()}, repair


def _inputs(demo: Study) -> dict[str, Any]:
    """Model and texts."""
    words = "demo, a folder or a hub name"
    model = ask(st.selectbox, "model", _models(), accept_new_options=True, placeholder=words)
    return {
        "model": (model or "").strip(),
        "primary": text_picker.pick("Primary text A", "launch_primary", demo.primary, optional=False),
        "auxiliary": text_picker.pick("Auxiliary text B", "launch_auxiliary", demo.auxiliary, optional=False),
        "substitute": text_picker.pick("Third text C, for the agreement", "launch_substitute", demo.substitute),
    }


def _sizes(demo: Study) -> dict[str, Any]:
    """Metric, retention and the sizes of the run."""
    metric = ask(st.selectbox, "metric", list(metric_choices()), format_func=label)
    retention = ask(st.number_input, "retention", value=demo.retention, step=0.05, format="%.2f")
    samples = ask(st.number_input, "calibration.samples", value=demo.calibration.samples, step=64)
    # a profile may set it: see _take_epochs
    st.session_state.setdefault("launch_epochs", demo.sparsity.epochs)
    epochs = ask(st.number_input, "sparsity.epochs", value=None, step=1)
    seed = ask(st.number_input, "seed", value=0, step=1)
    sizes = {"calibration": {"samples": samples}, "sparsity": {"epochs": epochs}}
    values = {"metric": metric, "retention": retention, "seed": seed, **sizes}
    return values | {comparison_form.FURTHER: comparison_form.further_seeds()}


def _evaluation(root: str, study: Study, key: str, owner: str = "") -> dict[str, Any]:
    """What is measured: texts and their windows, tasks and speed."""
    state = st.session_state
    task_form.begin(study.evaluation, key, owner)
    left, middle, right = st.columns([3, 1, 1])
    with left:
        texts = list(dict.fromkeys([*text_picker.known(), *state[f"{key}_evaluate"]]))
        look: dict[str, Any] = {"help": None, "placeholder": "choose, or type a path"}
        chosen = ask(st.multiselect, "evaluation.texts", texts, form=key, accept_new_options=True, **look)
    with middle:
        presets = dict.fromkeys([*PRESET_LENGTHS, state[f"{key}_preset"] or study.evaluation.preset])
        preset = ask(st.selectbox, "evaluation.preset", list(presets), form=key, accept_new_options=True)
    with right:
        size: dict[str, Any] = {"value": None, "step": 16, "placeholder": "all"}
        windows = ask(st.number_input, "evaluation.windows", form=key, **size)
    named = tuple(text.strip() for text in chosen if text.strip())
    perplexity = {"texts": named, "preset": str(preset or "").strip(), "windows": windows}
    return perplexity | task_form.ask(root, key)


def _models() -> list[str]:
    earlier = [run.study.model for run in frame.situation().runs]
    return list(dict.fromkeys(["demo", *earlier]))


def _machine() -> dict[str, Any]:
    """Where and how precisely to compute."""
    help_ = settings_form.documentation()
    st.markdown("**Machine**")
    with st.grid(3, min_column_width=220):
        device = st.selectbox(
            "Device",
            ["auto", "cpu", "cuda"],
            key="launch_device",
            accept_new_options=True,
            help=help_["device"],
        )
        dtype = st.selectbox(
            "Number type", ["auto", "float32", "bfloat16", "float16"], key="launch_dtype", help=help_["dtype"]
        )
        asked = st.toggle(
            "Trust the model's code",
            key="launch_trust",
            disabled=not trusts_code(),
            help=help_["trust_remote_code"],
        )
    if not trusts_code():
        st.caption(f"This server runs no code that comes with a model; `{COMMAND} {TRUST_OPTION}` would.")
    trust = asked and trusts_code()
    return {"device": device or "auto", "dtype": dtype, "trust_remote_code": trust}


def _checked(values: dict[str, Any], changes: dict[str, Any], complaint: Any, key: str) -> list[Study]:
    """The form's study for each of its seeds; none after everything wrong with it was shown and marked."""
    found = complaints.every(values, changes, _studies, demo_study())
    if not found:
        return _studies(values, changes)
    _complain(complaint, found, key)
    wrong = [comparison_form.called(field) for field in found if field != complaints.OTHER]
    words = f": {plain(', '.join(wrong))}. Each says why where it stands" if wrong else ""
    st.caption(f":red[:material/error: **Not ready to start**]{words}.")
    return []


def _studies(values: dict[str, Any], changes: dict[str, Any]) -> list[Study]:
    further = values.get(comparison_form.FURTHER, "")
    own = {name: value for name, value in values.items() if name != comparison_form.FURTHER}
    return comparison_form.of_seeds(from_dict(own).with_settings(changes), further)


def _complain(place: Any, found: dict[str, str], key: str) -> None:
    """Says everything that is wrong in one place, and each thing at its field, in the words of the form."""
    found = {field: comparison_form.in_words(field, one) for field, one in found.items()}
    words = [said(one) for one in found.values()]
    place.error(words[0] if len(words) == 1 else "\n".join(f"- {one}" for one in words), icon=":material/error:")
    for field, one in found.items():
        if field != complaints.OTHER:
            complaints.mark(place, comparison_form.KEYS.get(field, f"{key}_{field}"), one)


def input_problem(study: Study) -> str:
    """Why the model or a text cannot be used, as far as can be told at once; empty if nothing is wrong.

    Nothing is downloaded: a name of the hub is only checked for its form.
    """
    try:
        require_usable(study)
        study.recovery.require_installed()
        return task_form.problem(study.evaluation)
    except GpruneError as error:
        return str(error)


def _refused(study: Study, complaint: Any = None) -> bool:
    """Whether a study cannot be started; says why, here and in `complaint`, and marks the field."""
    problem = input_problem(study)
    if not problem:
        return False
    wrong = complaints.field(problem)
    words = said(comparison_form.in_words(wrong, problem) if wrong in comparison_form.KEYS else problem)
    if complaint is not None:
        complaint.error(words, icon=":material/error:")
        inputs = ("model", "primary", "auxiliary", "substitute")
        named = {name: str(getattr(study, name)) for name in inputs}
        fields = [field for field, value in named.items() if value and repr(value) in problem]
        for field in fields or {wrong} & set(comparison_form.KEYS):
            complaints.mark(complaint, comparison_form.KEYS[field], problem)
    st.caption(f":red[:material/error: **Cannot be started**]: {words}.")
    return True


def _start(root: str, studies: list[Study], arguments: tuple[str, ...] = ()) -> None:
    """Submits a study of each seed."""
    with st.spinner("Looking up the tasks …"):
        problem = look_up(studies[0].evaluation)
    if problem:
        st.error(said(problem), icon=":material/error:")
        return
    started = [job for job in (work.start(root, study, arguments) for study in studies) if job is not None]
    if started:
        st.session_state["jobs_wanted"] = started[0].id
        st.rerun()


def evaluate_run(root: str) -> None:
    """The form that measures the chosen run on other texts, on tasks and in speed; its masks are reused."""
    run = frame.current_run()
    if run is None:
        return
    with card("launch_measure", "Measure an existing run: other texts, tasks, speed", run):
        called = labels(frame.situation().runs)[run.name]
        st.caption(
            f"Uses the masks of {plain(called)}: nothing is calibrated or learned again, and tasks and speed "
            "stand on the pages of that run."
        )
        measured = run.graph.study
        wanted = _evaluation(root, measured, "measure", run.name)
        try:
            study = run.study.with_settings({f"evaluation.{name}": value for name, value in wanted.items()})
        except GpruneError as error:
            for words in error.faults or (str(error),):
                told = comparison_form.in_words(complaints.field(words), words)
                st.error(said(told), icon=":material/error:")
            return
        if study == measured:
            st.caption("The run is measured on just this already.")
            return
        st.code(command(study), language="bash", wrap_lines=True)
        refused = _refused(study)
        if buttons.pressed("Start the evaluation", key="measure_start", icon=":material/play_arrow:", disabled=refused):
            _start(root, [study])
