"""The cards of exports: the pruned model's folder and other forms of it, and the model of every method."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import streamlit as st

from gprune.app.ui import job_runs, offered_job, packed, tables, url_state, work
from gprune.app.ui.card import Card
from gprune.app.ui.chart_style import label
from gprune.app.ui.text import plain
from gprune.models import identity
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run
from gprune.store import Store, manifests
from gprune.system.errors import DamagedError, ModelError
from gprune.system.units import amount

PLAN = "pruning.json"
_ITS_CODE = "The folder holds the few lines of code that it needs; read them before you trust them."
_NO_CODE = "Every layer has the same width: an ordinary model, which any tool loads that knows its family."
_WAYS = {"transformers": "transformers", "gprune": "with this project", "lm-eval": "lm-eval"}

_ROW = (3, 7, 2)
"""widths of a row's columns"""


@dataclass(frozen=True, slots=True)
class Form:
    """A form that a pruned model can be exported to."""

    name: str
    """name of the button"""
    title: str
    what: str
    """one sentence on what it is"""
    file: Callable[[str], str]
    """name of what is written, from the start of the checkpoint's key"""


PADDED = Form(
    "padded",
    "Ordinary folder, padded",
    "Every layer is padded with zeros to the widest: any tool loads it, and it needs no code of this "
    "project. The outputs are the same; part of what pruning saved is given back.",
    lambda digits: f"padded-{digits}",
)
GGUF = Form(
    "gguf",
    "GGUF file for llama.cpp",
    "One file in float32 with every layer as narrow as it is, for llama.cpp and what is built on it.",
    lambda digits: f"model-{digits}.gguf",
)


def draw(drawn: Card, run: Run) -> None:
    """Draws the card; StoreError where the record names no plain key, or the model is damaged."""
    if "gprune" not in run.study.methods:
        st.info(
            "A run writes GPrune's model by itself, and this one does without GPrune.",
            icon=":material/info:",
        )
        return
    folder = checkpoint(run)
    if folder is None or not (folder / PLAN).is_file():
        _unfinished(run, folder)
        return
    fault = manifests.spoilt(folder / PLAN)
    if fault:
        raise DamagedError("checkpoint", run.key(stages.checkpoint), fault)
    drawn.title("The pruned model is a folder that loads anywhere")
    st.code(str(folder), language=None, wrap_lines=True)
    own = has_code(folder)
    code = "its code" if own else "no code of its own (every layer has the same width)"
    st.caption(f"{_size(folder)} on disk, with its tokenizer, {code} and its list of kept units.")
    _snippets(folder, own)
    words = "The kept units of every layer, the dense model and how it was pruned."
    plan = (folder / PLAN).read_bytes
    tables.download(f"Download {PLAN}", plan, f"{run.name}-{PLAN}", "application/json", "sx_plan", help=words)
    if stages.recovers(run.study) and run.has(stages.checkpoint, recovery=True):
        st.caption("The same model after its recovery, a folder like this one:")
        st.code(str(_folder(run, run.key(stages.checkpoint, recovery=True))), language=None, wrap_lines=True)
    left, right = st.columns(2)
    # nothing would be added to a model whose layers all have the same width
    for column, form in ((left, PADDED), (right, GGUF)) if own else ((left, GGUF),):
        out = destination(run, form)
        places = str(folder), str(out)
        with column:
            _form(run, form, out, ("gguf", *places) if form is GGUF else ("export", *places, "--padded"))


def checkpoint(run: Run) -> Path | None:
    """Folder of the pruned model in the cache, by the key of its stage; None where it was not written."""
    if not run.has(stages.checkpoint):
        return None
    return _folder(run, run.key(stages.checkpoint))


def _folder(run: Run, key: str) -> Path:
    """Where a model is that a run has written."""
    return Store(Path(run.root)).folder("checkpoint", key) / "model"


def destination(run: Run, form: Form) -> Path:
    """Where an export goes: below the cache, by run and content of the checkpoint."""
    name = form.file(run.key(stages.checkpoint)[:8])
    return Store(Path(run.root)).folder("exports", run.name) / name


def _unfinished(run: Run, folder: Path | None) -> None:
    if not run.complete and job_runs.is_live(run):
        st.info("The pruned model is written at the end of the run.", icon=":material/hourglass_top:")
        return
    if run.packed:
        st.info(packed.no_model(run), icon=":material/inventory_2:")
        return
    reason = "has not written its model" if folder is None else "has lost the folder of its model"
    st.info(
        f"This run {reason}. Finishing it takes every finished stage from the cache.",
        icon=":material/hourglass_empty:",
    )
    work.start_button("Finish this run", "sx_finish", run.root, run.study)


def _snippets(folder: Path, own: bool) -> None:
    """How to load the folder, which may have code of its own."""
    tabs = url_state.tabs(_WAYS, "sx_way", "transformers")
    with tabs["transformers"]:
        st.code(load_anywhere(folder, own), language="python", wrap_lines=True)
        st.caption(_ITS_CODE if own else _NO_CODE)
    with tabs["gprune"]:
        st.code(load_here(folder), language="python", wrap_lines=True)
        st.caption("Where this project is installed, no code of the folder is run.")
    with tabs["lm-eval"]:
        st.code(measure_with_lm_eval(folder, own), language="bash", wrap_lines=True)


def has_code(folder: Path) -> bool:
    """Whether a model's folder needs code of its own; yes where its configuration does not say."""
    try:
        return "auto_map" in identity.configuration(folder)
    except ModelError:
        return True


def load_anywhere(folder: Path, own: bool = True) -> str:
    """Python that loads the folder where this project is not installed; `own`: it has code of its own."""
    trusting = ", trust_remote_code=True" if own else ""
    return (
        "from transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
        f"folder = {str(folder)!r}\n"
        f"model = AutoModelForCausalLM.from_pretrained(folder{trusting})\n"
        f"tokenizer = AutoTokenizer.from_pretrained(folder{trusting})"
    )


def load_here(folder: Path) -> str:
    """Python that loads the folder where this project is installed."""
    return (
        "import gprune\n"
        "from transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
        f"folder = {str(folder)!r}\n"
        "model = AutoModelForCausalLM.from_pretrained(folder)\n"
        "tokenizer = AutoTokenizer.from_pretrained(folder)"
    )


def measure_with_lm_eval(folder: Path, own: bool = True) -> str:
    """A command that measures the folder with the evaluation harness; `own` as of `load_anywhere`."""
    model = shlex.quote(f"pretrained={folder}" + (",trust_remote_code=True" if own else ""))
    return f"lm_eval --model hf --model_args {model} --tasks piqa,arc_easy --batch_size 8"


def _form(run: Run, form: Form, out: Path, arguments: tuple[str, ...]) -> None:
    """One further form: where it is, what makes it, or why it cannot be made."""
    with st.container(border=True, height="stretch"):
        st.markdown(f"**{form.title}**")
        st.caption(form.what)
        if out.exists():
            st.code(str(out), language=None, wrap_lines=True)
            st.caption(f"Made: {_size(out)} on disk. Delete it to make it again.")
            return
        if form is GGUF and find_spec("gguf") is None:
            st.info(
                "The package `gguf` is not installed. `make gguf` installs it, or `pip install gguf` where "
                "there is no Makefile; then start the app again.",
                icon=":material/info:",
            )
            return
        offered_job.draw(run, arguments, form.title, words=f"Make it ({form.name})", key=f"sx_{form.name}")


def _size(place: Path) -> str:
    """Size of a file, or of all files of a folder, in words."""
    files = [place] if place.is_file() else [path for path in place.rglob("*") if path.is_file()]
    return amount(sum(path.stat().st_size for path in files))


def draw_methods(drawn: Card, run: Run) -> None:
    """Draws the card: a row a method whose masks are there."""
    if run.packed:
        st.info(packed.no_model(run), icon=":material/inventory_2:")
        return
    if not run.cut:
        st.info("No method of this run has its masks yet.", icon=":material/hourglass_empty:")
        return
    drawn.title("Every method leaves a model that loads anywhere")
    st.caption(
        "Folders with the repair of the run, plan, model card and tokenizer, made on the CPU from the dense "
        "model and the masks, read back and compared."
    )
    for method in run.cut:
        _method(run, method)
    words = shlex.join(["python", "-m", "gprune", "export", run.name, "METHOD", "OUT"])
    st.code(words, language="bash", wrap_lines=True)


def _method(run: Run, method: str) -> None:
    name, state, action = st.columns(_ROW, vertical_alignment="center")
    name.markdown(plain(label(method)))
    place = folder_of(run, method)
    with state:
        if place is not None:
            st.code(str(place), language=None, wrap_lines=True)
            return
        active = offered_job.standing(run, method_arguments(run, method))
    if not active:
        with action:
            title = f"The model of {label(method)}"
            offered_job.start(run, method_arguments(run, method), title, words="Write it", key=f"sx_write_{method}")


def folder_of(run: Run, method: str) -> Path | None:
    """Where a method's model lies: what the run has written, or what was exported; None where neither is."""
    own, places = stages.checkpoint(run.graph, method), [method_destination(run, method)]
    if run.there(own):
        places.insert(0, run.results.model_folder(own))
    return next((place for place in places if (place / PLAN).is_file()), None)


def method_destination(run: Run, method: str) -> Path:
    """Where an export goes: below the cache, by run, method and content of its model."""
    key = stages.checkpoint(run.graph, method).key
    return Store(Path(run.root)).folder("exports", run.name) / f"{method}-{key[:8]}"


def method_arguments(run: Run, method: str) -> tuple[str, ...]:
    """The command that writes a method's model."""
    return ("export", run.name, method, str(method_destination(run, method)), "--cache", run.root)
