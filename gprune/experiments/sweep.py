"""Sweeps: read a sweep file, run the missing studies, and return the state of each study.

A study is done if the record of its run says so. Until then, its latest job determines the state. A killed job or run
is interrupted rather than failed, because it may succeed when started again.
"""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

from gprune import jobs
from gprune.experiments.scheduler import INCOMPLETE, Schedule, ScheduledStudy, Watcher, arguments
from gprune.jobs.folder import fingerprint
from gprune.pipeline import opened, runs
from gprune.pipeline.record import RunRecord
from gprune.pipeline.stages import UNTIL, Graph, Results
from gprune.pipeline.stages.inputs import read_inputs
from gprune.store import Store
from gprune.study import Study, run_name, short, study
from gprune.study.demo import DEMOS
from gprune.study.settings import read, require
from gprune.system import forms, safe_parsing
from gprune.system.errors import GpruneError, SettingsError
from gprune.system.forms import Form, Listed, Rule, one_of

NOT_VARIED = ("name", "group", "text_names")
"""fields for display, which a sweep cannot vary because it sets them itself"""


_TITLE = Rule(
    f"text in one line, of at most {forms.LONGEST_NAME} characters",
    lambda title: title.isprintable() and len(title) <= forms.LONGEST_NAME and bool(title.strip()),
)


@dataclass(frozen=True, slots=True)
class Variation:
    """One study of a sweep."""

    settings: tuple[tuple[str, Any], ...]
    """varied dotted fields with their values in this study"""
    label: str
    """`settings` as text for display"""
    study: Study
    """the study, whose name consists of the title of the sweep and the label"""


@dataclass(frozen=True, slots=True)
class Sweep(Form):
    """A base study, and the values of its varied fields."""

    WHAT: ClassVar = "a sweep"
    title: Annotated[str, _TITLE]
    """title of the sweep, which is also the group of its studies and the beginning of their names"""
    study: Study
    """base study"""
    space: dict[str, Listed[Any]] = field(default_factory=dict)
    """values of dotted fields; every combination of values is a study"""
    cases: Listed[dict[str, Any]] = ()
    """sets of fields that change together, such as two texts; each is combined with every combination of `space`"""
    until: Annotated[str, one_of(UNTIL)] = "perplexity"
    """last stage of the studies, one of gprune.pipeline.stages.UNTIL"""

    def __post_init__(self) -> None:
        """Check the names and the number of studies; values are checked when the studies are built.

        Raises SettingsError if nothing or too much is varied, or if a field is varied twice.
        """
        require(bool(self.space or self.cases), "space", {}, "given at least one field, unless cases are given")
        for name, values in self.space.items():
            require(bool(values), f"space[{name}]", list(values), "a list of at least one value")
        in_cases = {name for case in self.cases for name in case}
        fields = dict.fromkeys((*self.space, *in_cases))
        for name in fields:
            parent = next((field_name for field_name in fields if name.startswith(f"{field_name}.")), "")
            require(not parent, "space", name, f"varied alone, without {parent!r}, which contains it")
            is_twice = name in self.space and name in in_cases
            require(not is_twice, "space", name, "varied either in the space or in the cases, not in both")
            require(name not in NOT_VARIED, "space", name, "a field that a sweep can vary: the sweep names its studies")
        limit = forms.MOST_STUDIES
        if self.count > limit:
            raise SettingsError(
                f"the sweep has {self.count:,} studies, more than the limit of {limit:,}: shorten a list"
            )

    @property
    def count(self) -> int:
        """Return the number of studies of the sweep."""
        return math.prod(len(values) for values in self.space.values()) * max(1, len(self.cases))

    def variations(self) -> list[Variation]:
        """Return the studies of the sweep; the last field varies fastest.

        Raises SettingsError if a field is unknown, a value is not valid, or two studies are equal.
        """
        axes = [[(name, value) for value in values] for name, values in self.space.items()]
        points = [(*case.items(), *point) for case in self.cases or ({},) for point in itertools.product(*axes)]
        names = [format_settings(point) for point in points]
        name_counts = Counter(names)
        # values with equal short forms, such as files of one name in different folders, are written in full
        names = [
            name if name_counts[name] == 1 else format_settings(point, full=True)
            for name, point in zip(names, points, strict=True)
        ]
        labelled = enumerate(zip(points, names, strict=True), 1)
        variations = [self._build_variation(number, point, name) for number, (point, name) in labelled]
        require_distinct(variations)
        return variations

    def _build_variation(self, number: int, settings: tuple[tuple[str, Any], ...], label: str) -> Variation:
        """Build one study of the sweep, with a name for display. Raises SettingsError if a value is not valid."""
        try:
            study = self.study.with_settings(dict(settings))
        except SettingsError as error:
            raise SettingsError(f"study {number} of {self.count} ({label}): {error}") from error
        # the name is for display, so it may be truncated
        name = safe_parsing.sentence(f"{self.title}: {label}", forms.LONGEST_NAME)
        return Variation(settings, label, replace(study, name=name, group=self.title))


def require_distinct(variations: Sequence[Variation]) -> None:
    """Raise SettingsError if two studies are equal."""
    by_digest: dict[str, Variation] = {}
    for variation in variations:
        first_variation = by_digest.setdefault(variation.study.digest, variation)
        if first_variation is not variation:
            raise SettingsError(
                f"{variation.label!r} and {first_variation.label!r} are the same study: name each value once"
            )


def format_settings(settings: tuple[tuple[str, Any], ...], *, full: bool = False) -> str:
    """Format dotted settings with their values for display: `drift quantile 0.85, seed 1`.

    With `full`, texts keep their folders, and numbers have all digits.
    """
    last_parts = Counter(name.rpartition(".")[2] for name, _ in settings)

    def short_name(name: str) -> str:
        last_part = name.rpartition(".")[2]
        return (last_part if last_parts[last_part] == 1 else name).replace("_", " ")

    return safe_parsing.sentence(
        ", ".join(f"{short_name(name)} {_format_value(value, full)}" for name, value in settings)
    )


def _format_value(value: Any, full: bool) -> str:
    if isinstance(value, list | tuple):
        return "+".join(_format_value(entry, full) for entry in value)
    if isinstance(value, float) and not full:
        return f"{value:g}"
    return short(value) if isinstance(value, str) and not full else str(value)


def from_file(path: Path) -> Sweep:
    """Read a sweep file; the path of its study is relative to the file's folder.

    Raises SettingsError if the file is missing or does not contain a valid sweep.
    """
    return read(path, "sweep file", lambda values: _build_sweep(values, path))


def _build_sweep(values: Any, path: Path) -> Sweep:
    if isinstance(values, dict):
        values = {"title": path.stem} | values
        if isinstance(values.get("study"), str):
            values |= {"study": _load_study(values["study"], path.parent)}
    sweep = Sweep.parse(values)
    sweep.variations()
    return sweep


def _load_study(value: str, folder: Path) -> Study:
    """Return a sweep's study: a bundled study by name, or a study file relative to the sweep's folder."""
    if value in DEMOS:
        return DEMOS[value]()
    with safe_parsing.reraise_as(SettingsError):
        return study.from_file(folder / safe_parsing.path(value, "the study file"))


DONE, FAILED, MISSING, INTERRUPTED = "done", "failed", "missing", "interrupted"
STATES = (DONE, "running", "queued", "cancelling", INTERRUPTED, "cancelled", FAILED, MISSING)
"""`missing` means not started yet, or that its results were removed"""


@dataclass(frozen=True, slots=True)
class StudyStatus:
    """The state of one study of a sweep."""

    variation: Variation
    run: str
    """name of the study's run"""
    state: str
    """one of STATES"""
    detail: str
    """reason for a failure or a wait, or the current stage; may be empty"""
    job: str
    """id of the latest job; empty if there is none"""


def prepare(variations: Sequence[Variation], store: Store) -> None:
    """Read the inputs of all studies once, so that missing inputs are reported before the first study starts.

    Raises GpruneError if a model, a text or a task is missing or cannot be used; see pipeline.stages.inputs.
    """
    for variation in variations:
        read_inputs(variation.study, {}, store=store)


def run(
    variations: Sequence[Variation],
    store: Store,
    until: str,
    *,
    watch: Watcher = lambda _: None,
    on_end: Callable[[ScheduledStudy, str], None] = lambda _entry, _reason: None,
    build: jobs.CommandBuilder = jobs.worker_command,
) -> list[StudyStatus]:
    """Run the studies that are not done, and wait for those that already run.

    Args:
        variations: The studies of a sweep.
        store: The cache.
        until: Last stage of every run.
        watch: Called with the status after every poll.
        on_end: Called with every study that has ended and the reason for its failure, empty if it succeeded.
        build: Builds the argument list of a run, as for gprune.jobs.submit.

    Returns:
        The states of the studies at the end.

    Raises:
        GpruneError: The cache cannot be written; the jobs of this call are cancelled.
    """

    def needed(entry: ScheduledStudy) -> bool:
        return not is_finished(entry.study, store, entry.until)

    # mark killed jobs as interrupted, so that they do not count as running
    jobs.reconcile(store.root)
    entries = [ScheduledStudy(study, until) for study in unfinished_studies(variations, store, until)]
    Schedule(store.root, watch, on_end, needed, build).run(entries)
    return study_statuses(variations, store, until)


def unfinished_studies(variations: Sequence[Variation], store: Store, until: str) -> list[Study]:
    """Return the unfinished studies of a sweep."""
    statuses = study_statuses(variations, store, until)
    return [status.variation.study for status in statuses if status.state != DONE]


def shared_stages(studies: Sequence[Study], store: Store, until: str) -> list[tuple[int, str]]:
    """Return the runs that should come first, because several studies need all the stages that they compute.

    A run is an index in `studies` and its last stage. Results that the cache already has do not count.
    """
    results = [opened(study, store) for study in studies]
    # number of studies that need each missing result
    counts = Counter(key for result in results for key in result.missing_keys(until))
    planned: set[str] = set()
    shared_runs = []
    for index, result in enumerate(results):
        for end in reversed(UNTIL[: UNTIL.index(until) + 1]):
            missing = result.missing_keys(end)
            if missing and all(counts[key] > 1 for key in missing):
                if not missing <= planned:
                    shared_runs.append((index, end))
                    planned |= missing
                break
    return shared_runs


def is_finished(study: Study, store: Store, until: str) -> bool:
    """Return True if a study has a finished run with every result up to `until`."""
    record = runs.read(store, run_name(study))
    if record is None or runs.current_state(store.root, record) != "done":
        return False
    missing_tasks: dict[str, str] = {}
    try:
        inputs = read_inputs(study, missing_tasks, download=False, store=store)
    except GpruneError:
        # an input is missing, so the results cannot be checked
        return False
    results = Results(store, Graph(study, inputs, failures=runs.failures(record)))
    stages = results.plan(until)
    run_record = RunRecord(results, until, {}, missing_tasks, lambda *_: None)
    return run_record.is_done(stages) and run_record.has_all_results(stages)


def study_statuses(variations: Sequence[Variation], store: Store, until: str) -> list[StudyStatus]:
    """Return the states of a sweep's studies in the order of `variations`."""
    newest: dict[str, jobs.Job] = {}
    for job in jobs.jobs(store.root):
        newest.setdefault(job.fingerprint, job)
    return [
        _read_status(variation, store, until, newest.get(fingerprint(variation.study, arguments(until))))
        for variation in variations
    ]


def _read_status(variation: Variation, store: Store, until: str, job: jobs.Job | None) -> StudyStatus:
    """Return the state of one study from its results, its latest job, or the record of its run, in this order."""
    run, job_id = run_name(variation.study), job.id if job else ""
    if (job is None or not job.active) and is_finished(variation.study, store, until):
        return StudyStatus(variation, run, DONE, "", job_id)
    if job is not None and job.state != "done":
        state = INTERRUPTED if job.killed else job.state
        return StudyStatus(variation, run, state, _describe_progress(job, store), job_id)
    record = runs.read(store, run) or {}
    state = runs.current_state(store.root, record)
    if state and state != "done":
        # this run was started from a terminal, not as a job
        return StudyStatus(variation, run, state, record.get("error") or "", job_id)
    return StudyStatus(variation, run, MISSING, INCOMPLETE if job is not None and state else "", job_id)


def _describe_progress(job: jobs.Job, store: Store) -> str:
    if job.state not in ("running", "cancelling"):
        return job.error
    progress = jobs.progress(store.root, job.id)
    count = f" {progress.done}/{progress.total}" if progress.total else ""
    activity = progress.waits or f"{progress.stage}{count}"
    return f"{activity} on {job.device}" if job.device else activity
