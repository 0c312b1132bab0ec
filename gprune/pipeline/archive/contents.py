"""What goes into a pack, and what does not: the results of a run that are there, without model and texts."""

from dataclasses import dataclass
from typing import Any

from gprune.pipeline import runs, stages
from gprune.pipeline.runs.form import check
from gprune.pipeline.stages import KINDS, Graph, Results, Stage
from gprune.pipeline.stages.inputs import from_plain, lacking, roles
from gprune.store import Store
from gprune.study import Study, from_dict, methods
from gprune.system.errors import SettingsError, UnreadableError
from gprune.system.safe_parsing import quoted, sentence

FIELDS = (
    *("run", "study", "state", "until", "error", "started", "updated", "seconds", "expected", "stages"),
    *("unavailable", "missing_tasks", "texts", "provenance", "result"),
)
"""what a pack takes along of a run's record; not who made it, nor what a person notes on it"""


def checked(values: dict[str, Any], what: str) -> dict[str, Any]:
    """The fields of a run's record that a pack takes along, each of the form that the program relies on.

    Raises UnreadableError where a field is missing or of another form.
    """
    try:
        found = check(values)
    except UnreadableError as error:
        raise UnreadableError(sentence(f"{what} {error}")) from error
    return {name: found[name] for name in FIELDS if name in found}


def graph_of(values: dict[str, Any], what: str) -> Graph:
    """The stages of a run under the digests of what it has read, without model or texts.

    `values` are those of run.json. Raises UnreadableError where they do not say what the run has read, or
    hold no study of today.
    """
    try:
        methods.register_recorded(values)
        study = from_dict(values["study"])
    except SettingsError as error:
        raise UnreadableError(sentence(f"{what} holds a study of another version: {error}")) from error
    inputs = from_plain((values.get("provenance") or {}).get("inputs"))
    if inputs is None or lacking(study, inputs):
        raise UnreadableError(
            f"{what} does not say what the run has read: run the study again, finished stages are kept"
        )
    return Graph(study, inputs)


REASONS = TEXTS, MODEL, STEP = "texts", "model", "step"
"""why a result is left out: a text can be had back from it, it is a model, or no page reads it"""


@dataclass(frozen=True, slots=True, eq=False)
class Contents:
    """What a pack of a run holds."""

    run: str
    """name of the run"""
    study: Study
    """the study behind it"""
    record: dict[str, Any]
    """what its run.json holds"""
    results: tuple[Stage[Any], ...]
    """stages whose results go in, in the order of their places"""
    left_out: dict[str, str]
    """TEXTS, MODEL or STEP by the name of a stage whose result is there and stays"""
    texts: tuple[str, ...]
    """the texts that can be had back from the pack, as the study names them"""
    size: int
    """bytes of the results before they are compressed"""
    lost: tuple[str, ...]
    """what the run has made and the cache has not, in words"""


def contents(store: Store, run: str, *, with_texts: bool = False, with_steps: bool = False) -> Contents:
    """Chooses what goes into a pack; reads no array.

    If `with_texts`, results go in from which texts can be had back, if `with_steps`, those that no page
    reads. Raises StoreError where there is no such run, or its record cannot be used.
    """
    record = runs.required(store, run)
    graph = graph_of(record, f"the record of the run {quoted(run)}")
    results = Results(store, graph)
    chosen: dict[tuple[str, str], Stage[Any]] = {}
    left_out, lost, before = dict[str, str](), list[str](), _left_out_before(record)
    for name, stage in stages.named(graph).items():
        if not results.holds(stage):
            if name in before:
                left_out[name] = before[name]
            elif not _reason(stage, with_texts, with_steps) and _was_made(record, stage):
                lost.append(stage.title)
            continue
        reason = _reason(stage, with_texts, with_steps)
        if reason:
            left_out[name] = reason
        else:
            chosen[stage.kind, stage.key] = stage
    size = sum(_size(store, stage) for stage in chosen.values())
    texts = _texts(graph.study, [stage for stage in chosen.values() if KINDS[stage.kind].holds_text])
    ordered = tuple(chosen[place] for place in sorted(chosen))
    return Contents(run, graph.study, record, ordered, left_out, texts, size, tuple(lost))


def _was_made(record: dict[str, Any], stage: Stage[Any]) -> bool:
    """Whether the run says that it has made a result."""
    return record["stages"].get(stage.name, {}).get("key") == stage.key


def _left_out_before(record: dict[str, Any]) -> dict[str, str]:
    """What the pack did not bring that the run itself was read from."""
    left_out = (record.get("packed") or {}).get("left_out") or {}
    return {name: reason for name, reason in left_out.items() if reason in REASONS}


def _reason(stage: Stage[Any], with_texts: bool, with_steps: bool) -> str:
    """Why a result is left out; empty where it goes in."""
    kind = KINDS[stage.kind]
    if kind.record is None:
        return MODEL
    if kind.holds_text and not with_texts:
        return TEXTS
    return STEP if not kind.on_pages and not with_steps else ""


def _texts(study: Study, holding: list[Stage[Any]]) -> tuple[str, ...]:
    """Names of the texts that some results hold."""
    known = roles(study)
    used = dict.fromkeys(known.get(role, role) for stage in holding for role in stage.id.texts)
    return tuple(used)


def _size(store: Store, stage: Stage[Any]) -> int:
    folder = store.folder(stage.kind, stage.key)
    return sum(path.stat().st_size for path in folder.glob("*.npy"))
