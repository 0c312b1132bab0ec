"""The Export tab: the pruned model as a folder, a download or a GGUF file, and the run as one file."""

import io
import shlex
import socket
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import streamlit as st

from gprune.analysis import speed as analysis
from gprune.analysis.formatting import percent
from gprune.app.ui import address, frame, run_status, tables, work
from gprune.app.ui.card import Card, card
from gprune.app.ui.chart_style import label
from gprune.app.ui.text import escape
from gprune.models import identity
from gprune.models.export.model_card import EXPERTS_FILE, PRUNING_FILE
from gprune.pipeline import stages
from gprune.pipeline.packs import DISCLOSED, SUFFIX, pack_contents, write_archive
from gprune.pipeline.runs.opened import Run
from gprune.records import PrunedModel
from gprune.store import Store, checksums
from gprune.system.errors import DamagedError, GpruneError, ModelError
from gprune.system.units import amount

RECORDS = {"neuron": PRUNING_FILE, "expert": EXPERTS_FILE}
"""file in the folder of a pruned model that lists its kept units, by unit"""
_STOCK_FORMS = {
    "neuron": "every layer has the same width",
    "expert": "every mixture has the same number of experts",
}
"""why a stock model needs no code of its own, by unit"""
MOST_PACKED = 64 * 2**20
"""maximum size in bytes of the results that the app packs for a download"""
MOST_DOWNLOADED = 2**30
"""maximum size in bytes of a model that the app zips for a download"""
_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
"""bytes per parameter"""
_TOOLS = {"transformers": "transformers", "gprune": "with this project", "lm-eval": "lm-eval"}
"""tabs of the code that loads the model"""
_ROW_WIDTHS = (3, 7, 2)
"""relative widths of the columns of a row"""


@dataclass(frozen=True, slots=True)
class ExportFormat:
    """A format that a pruned model can be exported to."""

    name: str
    """name in keys of widgets"""
    title: str
    about: str
    """what the format is for"""
    file_name: Callable[[str], str]
    """returns the name of the file or folder, from the first digits of the checkpoint's key"""


PADDED = ExportFormat(
    "padded",
    "Ordinary folder, padded",
    "Every layer is zero-padded to the widest one, so any tool can load the folder without this project’s code. The "
    "outputs do not change.",
    lambda digits: f"padded-{digits}",
)
GGUF = ExportFormat(
    "gguf",
    "GGUF file for llama.cpp",
    "One float32 file in which every layer keeps its own width, for llama.cpp and tools built on it.",
    lambda digits: f"model-{digits}.gguf",
)


@frame.declare_page("Export", "How does the pruned model load elsewhere, and how does a run move to another machine?")
def show(run: Run) -> None:
    """Draw the page."""
    with card("sx_export", "The pruned model outside this app", run) as content:
        _show_model(content, run)
    with card("sx_methods", "The model of every method as a folder", run) as content:
        _show_methods(content, run)
    with card("sx_pack", "This run as one file, to open elsewhere", run):
        _show_pack(run)


def _show_model(content: Card, run: Run) -> None:
    if run.study.unit == "neuron" and "gprune" not in run.study.methods:
        st.info("Only GPrune's model is saved, and this run does not include GPrune.", icon=":material/info:")
        return
    method, record = stages.exported_methods(run.study)[0], RECORDS[run.study.unit]
    has_model = run.has(stages.checkpoint, method)
    folder = _model_folder(run, run.key(stages.checkpoint, method)) if has_model else None
    if folder is None or not (folder / record).is_file():
        _explain_missing(run, folder)
        return
    damage = checksums.find_damage(folder / record)
    if damage:
        raise DamagedError("checkpoint", run.key(stages.checkpoint, method), damage)
    of_method = f" of {escape(label(method))}" if run.study.prunes_experts else ""
    content.set_title(f"The pruned model{of_method} is a transformers folder")
    st.code(str(folder), language=None, wrap_lines=True)
    own_code = has_code(folder)
    code = "its code" if own_code else f"no code of its own ({_STOCK_FORMS[run.study.unit]})"
    st.caption(f"{amount(_count_bytes(folder))} on disk, with its tokenizer, {code} and its list of kept units.")
    _show_snippets(folder, own_code, _STOCK_FORMS[run.study.unit])
    _offer_download(run, folder)
    if run.study.prunes_experts:
        return
    if stages.recovers(run.study) and run.has(stages.checkpoint, recovery=True):
        st.caption("The same model after recovery:")
        st.code(str(_model_folder(run, run.key(stages.checkpoint, recovery=True))), language=None, wrap_lines=True)
    left, right = st.columns(2)
    # padding adds nothing to a model whose layers all have the same width
    for column, target in ((left, PADDED), (right, GGUF)) if own_code else ((left, GGUF),):
        out = destination(run, target)
        paths = str(folder), str(out)
        with column:
            _show_format(run, target, out, ("gguf", *paths) if target is GGUF else ("export", *paths, "--padded"))


def _model_folder(run: Run, key: str) -> Path:
    """Return the folder of the model in a checkpoint of the cache."""
    return Store(Path(run.root)).folder("checkpoint", key) / "model"


def destination(run: Run, target: ExportFormat) -> Path:
    """Return the path of an export in the cache, named after the run and the content of the checkpoint."""
    name = target.file_name(run.key(stages.checkpoint)[:8])
    return Store(Path(run.root)).folder("exports", run.name) / name


def _explain_missing(run: Run, folder: Path | None) -> None:
    if not run.complete and run_status.is_live(run):
        st.info("The pruned model is written at the end of the run.", icon=":material/hourglass_top:")
        return
    if run.packed:
        st.info(run_status.missing_model_sentence(run), icon=":material/inventory_2:")
        return
    reason = "has not written its model" if folder is None else "has lost its model folder"
    message = f"This run {reason}. Finishing it reuses every finished stage."
    st.info(message, icon=":material/hourglass_empty:")
    work.start_button("Finish this run", "sx_finish", run.root, run.study)


def _offer_download(run: Run, folder: Path) -> None:
    """Offer the folder as a zip or, if it is larger than MOST_DOWNLOADED, the commands that copy it."""
    size = _count_bytes(folder)
    if size <= MOST_DOWNLOADED:
        words, file = f"Download the model ({amount(size)})", f"{run.name}-model.zip"
        tables.download_button(words, partial(zip_folder, folder), file, "application/zip", "sx_zip")
        return
    st.caption("Too large to download here. These commands copy it to another machine or to the hub:")
    path = shlex.quote(str(folder))
    commands = f"scp -r {shlex.quote(socket.gethostname())}:{path} .\nhf upload USER/NAME {path}"
    st.code(commands, language="bash", wrap_lines=True)


def zip_folder(folder: Path) -> bytes:
    """Return a folder as an uncompressed zip."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as writer:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            writer.write(path, path.relative_to(folder))
    return archive.getvalue()


def _show_snippets(folder: Path, own_code: bool, form: str) -> None:
    tabs = address.tabs(_TOOLS, "sx_way", "transformers")
    with tabs["transformers"]:
        st.code(transformers_code(folder, own_code), language="python", wrap_lines=True)
        st.caption(
            "The folder contains the code that it needs. Read the code before you trust it."
            if own_code
            else f"{form.capitalize()}, so any tool that supports the model family can load it."
        )
    with tabs["gprune"]:
        st.code(gprune_code(folder), language="python", wrap_lines=True)
        st.caption("If this project is installed, the folder's code does not run.")
    with tabs["lm-eval"]:
        st.code(lm_eval_command(folder, own_code), language="bash", wrap_lines=True)


def has_code(folder: Path) -> bool:
    """Return True if a model's folder needs its own code, or if its configuration cannot be read."""
    try:
        return "auto_map" in identity.configuration(folder)
    except ModelError:
        return True


def transformers_code(folder: Path, own_code: bool = True) -> str:
    """Return Python code that loads a folder without this project; `own_code`: the folder needs its own code."""
    option = ", trust_remote_code=True" if own_code else ""
    return (
        "from transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
        f"folder = {str(folder)!r}\n"
        f"model = AutoModelForCausalLM.from_pretrained(folder{option})\n"
        f"tokenizer = AutoTokenizer.from_pretrained(folder{option})"
    )


def gprune_code(folder: Path) -> str:
    """Return Python code that loads a folder if this project is installed."""
    return f"import gprune\n{transformers_code(folder, own_code=False)}"


def lm_eval_command(folder: Path, own_code: bool = True) -> str:
    """Return a command that measures a folder with lm-eval."""
    model = shlex.quote(f"pretrained={folder}" + (",trust_remote_code=True" if own_code else ""))
    return f"lm_eval --model hf --model_args {model} --tasks piqa,arc_easy --batch_size 8"


def _show_format(run: Run, target: ExportFormat, out: Path, arguments: tuple[str, ...]) -> None:
    with st.container(border=True, height="stretch"):
        st.markdown(f"**{target.title}**")
        st.caption(f"{target.about} {_padding_cost(run) if target is PADDED else ''}")
        if out.exists():
            st.code(str(out), language=None, wrap_lines=True)
            st.caption(f"Exported: {amount(_count_bytes(out))} on disk. Delete it to export it again.")
            return
        if target is GGUF and find_spec("gguf") is None:
            st.info(
                "The package `gguf` is not installed. Run `make gguf`, or `pip install gguf` if there is no "
                "Makefile, and restart the app.",
                icon=":material/info:",
            )
            return
        work.draw_job_form(run, arguments, target.title, words="Export", key=f"sx_{target.name}")


def _padding_cost(run: Run) -> str:
    """Return a sentence on the share of the saving that is left after padding; empty if the dense model is missing."""
    try:
        shape, size = run.shape, run.size
        family = str(identity.configuration(identity.locate(run.study.model)).get("model_type", ""))
        pruned = PrunedModel(run.load(stages.masks), stages.applied_repairs(run.results, "gprune"))
    except GpruneError:
        return ""
    if shape is None or size is None:
        return ""
    padding = analysis.padding(shape, size, pruned, family)
    if isinstance(padding, str):
        return f"An ordinary {escape(family)} model {padding}."
    width = _BYTES.get(run.graph.inputs.precision, 4)
    counts = {"dense": padding.dense, "pruned": padding.pruned, "padded": padding.padded}
    sizes = [f"{name} {count:,} parameters ({amount(count * width)})" for name, count in counts.items()]
    return f"Padding leaves {percent(padding.kept_saving)} of the saving: {', '.join(sizes)}."


def _count_bytes(path: Path) -> int:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files)


def _show_methods(content: Card, run: Run) -> None:
    if run.packed:
        st.info(run_status.missing_model_sentence(run), icon=":material/inventory_2:")
        return
    if not run.methods_with_masks:
        st.info("No method of this run has masks yet.", icon=":material/hourglass_empty:")
        return
    content.set_title("Export the model of any method")
    st.caption(
        "Each folder has the repair of the run, if any, the list of kept units, a model card and the tokenizer. It is "
        "built on the CPU from the dense model and the masks, then read back and compared."
    )
    for method in run.methods_with_masks:
        _show_method(run, method)
    command = shlex.join(["python", "-m", "gprune", "export", run.name, "METHOD", "OUT"])
    st.code(command, language="bash", wrap_lines=True)


def _show_method(run: Run, method: str) -> None:
    name, state, action = st.columns(_ROW_WIDTHS, vertical_alignment="center")
    name.markdown(escape(label(method)))
    folder = method_folder(run, method)
    arguments = ("export", run.name, method, str(method_destination(run, method)), "--cache", run.root)
    with state:
        if folder is not None:
            st.code(str(folder), language=None, wrap_lines=True)
            return
        active = work.draw_job_state(run, arguments)
    if not active:
        with action:
            title = f"The model of {label(method)}"
            work.draw_job_start(run, arguments, title, words="Export", key=f"sx_write_{method}")


def method_folder(run: Run, method: str) -> Path | None:
    """Return the folder of a method's model, written by the run or exported, or None if there is neither."""
    checkpoint, folders = stages.checkpoint(run.graph, method), [method_destination(run, method)]
    if run.has_result(checkpoint):
        folders.insert(0, run.results.model_folder(checkpoint))
    return next((folder for folder in folders if (folder / RECORDS[run.study.unit]).is_file()), None)


def method_destination(run: Run, method: str) -> Path:
    """Return the path of a method's export in the cache, named after the run and the content of its model."""
    key = stages.checkpoint(run.graph, method).key
    return Store(Path(run.root)).folder("exports", run.name) / f"{method}-{key[:8]}"


def _show_pack(run: Run) -> None:
    count, size, missing = _pack_extent(run.root, run.name, str(run.record.get("updated")))
    st.caption(
        f"{count} results, {amount(size)} before compression. Every page can show them on a machine without the model "
        "and the texts."
    )
    if missing:
        words = f"“{escape(missing)}” is missing or damaged: run the study again before packing it."
        st.info(words, icon=":material/hourglass_empty:")
        return
    name = f"{run.name}{SUFFIX}"
    left, right = st.columns(2)
    with left, st.container(border=True, height="stretch"):
        st.markdown("**This machine**")
        if size <= MOST_PACKED:
            words = f"Pack this run (at most {amount(size)})"
            content = partial(pack_bytes, run.root, run.name)
            tables.download_button(
                words, content, name, "application/zip", "sx_pack_run", icon=":material/inventory_2:"
            )
            st.caption("The same as a command")
        else:
            st.caption("Too large to download here. This command writes it.")
        st.code(f"python -m gprune pack {shlex.quote(run.name)}", language="bash", wrap_lines=True)
    with right, st.container(border=True, height="stretch"):
        st.markdown("**Other machine**")
        st.caption("In a checkout of this project where `make app` has run once:")
        commands = f"python -m gprune unpack {shlex.quote(name)}\npython -m gprune app"
        st.code(commands, language="bash", wrap_lines=True)
        st.caption("The app then lists the run next to its other runs.")
    with st.popover("Contents of the pack", icon=":material/help:", type="tertiary"):
        st.markdown(
            "The pack contains no model, no text and no result from which a text can be recovered, such as token "
            f"ids; `--with-contexts` adds such results. The pack discloses: {escape(DISCLOSED)}."
        )


@st.cache_data(max_entries=64, ttl=300, show_spinner=False)
def _pack_extent(root: str, name: str, updated: str) -> tuple[int, int, str]:
    """Return the number of results of a pack, their bytes, and the title of a missing result, empty if none is missing.

    `updated` is the time of the last change of the run: it is only part of the cache key.
    """
    contents = pack_contents(Store(Path(root)), name)
    return len(contents.results), contents.size, next(iter(contents.missing), "")


def pack_bytes(root: str, name: str) -> bytes:
    """Return the content of a run's pack, a zip archive."""
    file, store = io.BytesIO(), Store(Path(root))
    write_archive(store, pack_contents(store, name), file)
    return file.getvalue()
