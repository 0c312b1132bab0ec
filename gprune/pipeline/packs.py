"""Export of a run to one file, which another machine can read without the run's model and texts.

    write_pack(store, pack_contents(store, "my-run-1a2b3c4d5e"), Path("my-run.gprune.zip"))
    unpack(Path("my-run.gprune.zip"), Store(cache))

A pack is a zip archive of `run.json` and `results/KIND/KEY/` with the files of each result as in the store;
`meta.json` has their SHA-256. It holds no model and no code. The same run gives the same bytes.
"""

import json
import re
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from gprune.pipeline import runs, stages
from gprune.pipeline.runs.opened import recorded_graph
from gprune.pipeline.stages import KINDS, Graph, Results, Stage
from gprune.pipeline.stages.inputs import roles
from gprune.records.base import axes_of
from gprune.store import Store, checksums, explain_errors
from gprune.store import archive as archives
from gprune.system.errors import DamagedError, SettingsError, StoreError, UnreadableError
from gprune.system.files import make_folder, replace_file, require_place, temporary_path
from gprune.system.progress import Progress, silent
from gprune.system.safe_parsing import quote, sentence

SUFFIX = ".gprune.zip"
TEXTS, MODEL, STEP = "texts", "model", "step"
"""reasons why a pack leaves a result out: texts can be reconstructed from it, it is a model, or no page reads it"""
DISCLOSED = (
    "the study with the names or paths of its model and texts; SHA-256 of model, tokenizer, texts and tasks; "
    "versions of the program, its libraries and plug-ins; operating system, number of cores, peak memory, "
    "processor or GPU; times; messages of the run, which may contain paths"
)
"""everything that a pack discloses besides the results, as a phrase for the user"""
_RECORD_FIELDS = (
    *("run", "study", "state", "until", "error", "started", "updated", "seconds", "expected", "stages"),
    *("unavailable", "missing_tasks", "texts", "provenance", "result"),
)
"""fields of a run's record that a pack contains; the owner and the user's notes are left out"""
_RUN_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,120}")
_RESULT_FILE = re.compile(r"results/([a-z_]+)/([0-9a-f]{32})/([a-z_]+\.(?:npy|json))")


@dataclass(frozen=True, slots=True, eq=False)
class PackContents:
    """The contents of a pack."""

    run: str
    record: dict[str, Any]
    """content of the pack's run.json"""
    results: tuple[Stage[Any], ...]
    """stages whose results are packed, sorted by kind and key"""
    left_out: dict[str, str]
    """TEXTS, MODEL or STEP by the name of each stage whose result is left out"""
    texts: tuple[str, ...]
    """texts that can be reconstructed from the pack, by their names in the study"""
    size: int
    """bytes of the arrays before compression"""
    missing: tuple[str, ...]
    """titles of results that the run computed but that the cache has lost"""


@dataclass(frozen=True, slots=True)
class Unpacked:
    """The outcome of `unpack`."""

    run: str
    """name of the run in the cache"""
    added: int
    """number of results that were not in the cache before"""
    present: int
    """number of results that the cache already had; these are not replaced"""


def pack_contents(store: Store, run: str, *, with_texts: bool = False, with_steps: bool = False) -> PackContents:
    """Return the contents of a run's pack; no array is read.

    Args:
        store: the cache.
        run: name of the run.
        with_texts: include results from which texts can be reconstructed.
        with_steps: include results that no page reads.

    Raises:
        StoreError: there is no such run, or its record cannot be read.
        UnreadableError: its record holds a study of another version.
    """
    record = runs.require_record(store, run)
    graph = recorded_graph(record, f"the record of the run {quote(run)}")
    # a run that was unpacked itself lacks the results that its pack left out
    results, earlier_left_out = Results(store, graph), (record.get("packed") or {}).get("left_out") or {}
    included, left_out, missing = dict[tuple[str, str], Stage[Any]](), dict[str, str](), list[str]()
    for name, stage in stages.stages_by_name(graph).items():
        reason = _reason_left_out(stage, with_texts, with_steps)
        if results.holds(stage):
            if reason:
                left_out[name] = reason
            else:
                included[stage.kind, stage.key] = stage
        elif name in earlier_left_out:
            left_out[name] = earlier_left_out[name]
        elif not reason and record["stages"].get(name, {}).get("key") == stage.key:
            missing.append(stage.title)
    packed = [stage for _, stage in sorted(included.items(), key=lambda item: item[0])]
    name_by_role = roles(graph.study)
    disclosing = [role for stage in included.values() if KINDS[stage.kind].holds_text for role in stage.id.texts]
    texts = tuple(dict.fromkeys(name_by_role.get(role, role) for role in disclosing))
    size = sum(path.stat().st_size for kind, key in included for path in store.folder(kind, key).glob("*.npy"))
    return PackContents(run, record, tuple(packed), left_out, texts, size, tuple(missing))


def _reason_left_out(stage: Stage[Any], with_texts: bool, with_steps: bool) -> str:
    """Return MODEL, TEXTS or STEP if a result is left out of a pack, else an empty string."""
    kind = KINDS[stage.kind]
    if kind.record is None:
        return MODEL
    if kind.holds_text and not with_texts:
        return TEXTS
    return "" if kind.on_pages or with_steps else STEP


def write_pack(store: Store, contents: PackContents, out: Path, progress: Progress = silent) -> None:
    """Write a pack to a new file, which appears only when it is complete.

    Raises:
        SettingsError: the file exists, or its folder does not.
        StoreError: a result is missing or damaged, or the disk is full.
    """
    require_place(out)
    if out.exists():
        raise SettingsError(f"{str(out)!r} exists already: give another name, or delete it")
    with explain_errors(out.resolve().parent), replace_file(out) as temporary, temporary.open("wb") as file:
        write_archive(store, contents, file, progress)


def write_archive(store: Store, contents: PackContents, file: IO[bytes], progress: Progress = silent) -> None:
    """Write a pack to an open file. Raises StoreError if a result is missing or damaged."""
    if contents.missing:
        raise StoreError(
            f"the result “{contents.missing[0]}” of the run is missing or damaged: run the study again, "
            "finished stages are kept"
        )
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for number, stage in enumerate(contents.results):
            progress(number, len(contents.results), stage.title)
            folder = store.check(stage.kind, stage.key, KINDS[stage.kind].record)
            for name in sorted(name for name in _file_names(stage.kind) if (folder / name).exists()):
                archives.add_file(archive, folder / name, f"results/{stage.kind}/{stage.key}/{name}")
        record = json.dumps(_build_record(contents), indent=1, ensure_ascii=False)
        archive.writestr(archives.new_member(runs.RECORD), record.encode())
    progress(len(contents.results), len(contents.results), "written")


def _build_record(contents: PackContents) -> dict[str, Any]:
    """Return the record of the run in the pack."""
    record = {name: contents.record[name] for name in _RECORD_FIELDS if name in contents.record}
    if record.get("state") in ("running", "interrupted"):
        # no process computes the unpacked run, so it counts as cancelled
        record |= {"state": "cancelled", "error": "the run was packed before it had finished"}
    return record | {"packed": {"left_out": dict(sorted(contents.left_out.items()))}}


def _file_names(kind: str, optional: bool = True) -> set[str]:
    """Return the names of the files of a stored result: `meta.json` and one .npy file per array.

    They are empty for a kind whose results are folders, such as models. With `optional`, they include arrays that a
    result may lack.
    """
    record_type = KINDS[kind].record
    declared = axes_of(record_type).items() if record_type else ()
    arrays = (f"{field}.npy" for field, axes in declared if optional or not axes.optional)
    return {checksums.MANIFEST, *arrays} if record_type else set()


def unpack(path: Path, store: Store, *, name: str = "", progress: Progress = silent) -> Unpacked:
    """Read a pack into a cache, after checking all of it in a temporary folder.

    Args:
        path: a file that `write_pack` wrote.
        store: the cache, created if it does not exist; its intact results are never replaced.
        name: name of the run in the cache; by default its name in the pack.
        progress: called for every result.

    Raises:
        SettingsError: there is no such file, or the name is not valid for a run.
        UnreadableError: the file is not a pack, is damaged, or contains unexpected files.
        StoreError: the cache holds another run of that name, or cannot be written.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        raise SettingsError(f"the pack {str(path)!r} cannot be read: {error.strerror}") from error
    with file, explain_errors(store.root):
        with archives.refuse_damage("the pack"):
            archive = zipfile.ZipFile(file)
        results = _list_results(archive.namelist())
        record, graph = _read_record(archive)
        run = name or record.get("run", "")
        if not _RUN_NAME.fullmatch(run):
            raise SettingsError(f"invalid run name {quote(run)}: use lowercase letters, digits, dots and dashes")
        record["run"] = run
        _require_results_of(graph, results)
        _require_free(store, run, record)
        staging = temporary_path(store.folder("runs", run))
        try:
            make_folder(staging)
            staged = Store(staging)
            for number, (kind, key) in enumerate(results):
                progress(number, len(results), "checking")
                _extract_result(archive, staged, kind, key)
            added_count = store.adopt(staged, results)
            runs.save(store, run, record)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    progress(len(results), len(results), "unpacked")
    return Unpacked(run, added_count, len(results) - added_count)


def _list_results(members: list[str]) -> list[tuple[str, str]]:
    """Return kind and key of every result in an archive with these members.

    Raises UnreadableError if the members are not those of a pack.
    """
    files = set(members)
    if runs.RECORD not in files:
        raise UnreadableError(f"the archive has no {runs.RECORD}: give a file that `gprune pack` has written")
    results = {_parse_result_path(name) for name in files - {runs.RECORD}}
    required = {f"results/{kind}/{key}/{name}" for kind, key in results for name in _file_names(kind, optional=False)}
    if not required <= files or len(members) != len(files):
        raise UnreadableError(f"the pack lacks a file of a result, or has a duplicate: {archives.REMEDY}")
    return sorted(results)


def _parse_result_path(name: str) -> tuple[str, str]:
    """Return kind and key of the result to which an archive member belongs.

    Raises UnreadableError if the member is no file of a result.
    """
    match = _RESULT_FILE.fullmatch(name)
    if match is None or match[1] not in KINDS or match[3] not in _file_names(match[1]):
        raise UnreadableError(f"the pack contains {quote(name)}, which is not a file of a run: do not use it")
    return match[1], match[2]


def _read_record(archive: zipfile.ZipFile) -> tuple[dict[str, Any], Graph]:
    """Return the fields of the pack's record that a cache may store, and the graph of its study."""
    source = f"{runs.RECORD} of the pack"
    with archives.refuse_damage(source):
        data = archive.read(runs.RECORD)
    values = runs.parse_record(data, source)
    record = {name: values[name] for name in _RECORD_FIELDS if name in values}
    left_out = (values.get("packed") or {}).get("left_out") or {}
    return record | {"packed": {"left_out": left_out}}, recorded_graph(record, source)


def _require_results_of(graph: Graph, results: list[tuple[str, str]]) -> None:
    """Raise UnreadableError if one of the results, by kind and key, is not of a stage of the graph."""
    result_keys = {(stage.kind, stage.key) for stage in stages.stages_by_name(graph).values()}
    foreign = [result for result in results if result not in result_keys]
    if foreign:
        raise UnreadableError(
            f"{len(foreign)} of {len(results)} results of the pack are of another version of this program or of "
            f"another run ({quote('/'.join(foreign[0]))}): use the program that made it"
        )


def _require_free(store: Store, run: str, record: dict[str, Any]) -> None:
    """Raise StoreError if the cache has another run of this name.

    The same record, and a run unpacked from a pack with the same study and provenance, may be replaced.
    """
    if not (store.folder("runs", run) / runs.RECORD).exists():
        return
    present = runs.read(store, run) or {}
    same_origin = "packed" in present and all(present.get(name) == record.get(name) for name in ("study", "provenance"))
    if not same_origin and {**present, "packed": None} != {**record, "packed": None}:
        raise StoreError(
            f"the cache {store.root} has another run named {run!r}: use --as NAME to unpack under a new name"
        )


def _extract_result(archive: zipfile.ZipFile, staged: Store, kind: str, key: str) -> None:
    """Extract a result to the temporary store and read it, which checks its SHA-256."""
    folder, record_type = staged.folder(kind, key), KINDS[kind].record
    make_folder(folder)
    present = set(archive.namelist())
    for name in sorted(_file_names(kind)):
        if (member := f"results/{kind}/{key}/{name}") in present:
            archives.extract_file(archive, member, folder / name)
    try:
        staged.get(kind, key, record_type or object)
    except DamagedError as error:
        reason = sentence(error.fault, 120)
        raise UnreadableError(
            f"a result of the pack ({kind}/{key}) cannot be read ({reason}): {archives.REMEDY}"
        ) from error
