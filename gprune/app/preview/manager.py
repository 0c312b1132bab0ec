"""The app's side of the live preview: requests of all sessions, and the one worker that answers them.

Sessions send requests and read answers from their own threads, without blocking. One thread starts and ends the worker
and gives it one slice of work at a time, so a newer request, a job or another run waits for at most one slice. The
thread ends when there is neither a worker nor a request.
"""

import atexit
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Pipe
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from gprune.app.preview.questions import Answer, Progress, Question, Reading, TokenQuestion, WindowLosses, WorkerState
from gprune.app.preview.requests import (
    ModelSpec,
    Source,
    WorkerRequest,
    base_question,
    digest,
    missing_model,
    resolve,
    resolve_tokens,
)
from gprune.app.server import require_trust
from gprune.jobs import queue
from gprune.jobs.folder import CPU, NO_DEVICE
from gprune.system import installation, machine
from gprune.system.errors import GpruneError, ModelError

COMMAND = installation.command("gprune.app.preview.worker.loop")
LOOK_SECONDS = 20.0
"""time after which a question is dropped if no page has read its answer"""
JOBS_SECONDS = 0.5
"""time between two reads of the job queue"""
IDLE_SECONDS = 120.0
"""time after which a worker without questions ends and frees its memory"""
RETRY_SECONDS = 10.0
"""delay before a failed question is retried"""
MOST_ENTRIES = 256
"""maximum number of questions whose answers are stored"""
_TICK = 0.25
"""seconds that the thread waits for news if it has nothing to do"""
_WIDTHS = {"bfloat16": 2, "float16": 2}
"""bytes per number; 4 for other types"""
_LOG_BYTES = 4096
"""length of the end of a worker's log that is searched for an error message"""
GoOn = Callable[[int, int, str], bool]
"""receives done and total of a fit and a description, and returns False to interrupt the fit"""


class RequestError(GpruneError):
    """The worker could not answer a request; `usable` is True if it can still answer others."""

    def __init__(self, problem: str, usable: bool = False) -> None:
        """Store the problem: one sentence with the cause and the remedy."""
        super().__init__(problem)
        self.usable = usable


class WorkerProcess:
    """A worker process; it ends with this process, which closes its socket."""

    def __init__(self, model: ModelSpec) -> None:
        """Start the process.

        Raises ModelError if the model is gone or needs more memory than is free, OSError if the system
        cannot start a process.
        """
        self.model = model
        self.loading = f"The model is being loaded: {describe_memory(model)}"
        """sentence for the pages while the model is loaded"""
        self._connection, child = Pipe()
        self._log = tempfile.TemporaryFile()
        with child:
            self._process = subprocess.Popen(
                [*COMMAND, str(child.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                pass_fds=[child.fileno()],
                cwd=installation.CHILD_FOLDER,
                env=environment(),
                # an interrupt at the terminal is for the app, which then ends its worker
                start_new_session=True,
            )
        self.pid = self._process.pid

    @property
    def alive(self) -> bool:
        """True while the process runs."""
        return self._process.poll() is None

    def call(self, task: str, arguments: dict[str, Any], previous: Any, go_on: GoOn) -> Any:
        """Return the answer of a slice of work, None if it was interrupted.

        `task`, `arguments` and `previous`, the answer so far, are explained in `gprune.app.preview.worker.loop`. Raises
        RequestError.
        """
        try:
            self._connection.send((task, arguments, previous))
            reply = self._connection.recv()
            while reply[0] == "progress":
                self._connection.send(go_on(*reply[1:]))
                reply = self._connection.recv()
        except (EOFError, OSError):
            self._process.wait()
            raise RequestError(self.exit_sentence()) from None
        if reply[0] == "problem":
            raise RequestError(*reply[1:])
        return reply[1] if reply[0] == "answer" else None

    def kill(self) -> None:
        """End the process at once; it has no state that could be lost."""
        self._process.kill()

    def end(self) -> None:
        """Kill the process and wait until its memory is free."""
        self.kill()
        self._process.wait()
        self._connection.close()
        self._log.close()

    def exit_sentence(self) -> str:
        """Return one sentence on why the process ended unexpectedly."""
        code = self._process.returncode
        if code in (-signal.SIGKILL, -signal.SIGTERM):
            return "the worker process was killed, probably out of memory: try again"
        self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - _LOG_BYTES))
        lines = [line for line in self._log.read().decode(errors="replace").splitlines() if line.strip()]
        last = f", last line: {lines[-1].strip()}" if lines else ""
        return f"the worker process ended unexpectedly (exit code {code}{last}): try again"


def describe_memory(model: ModelSpec) -> str:
    """Return how much memory the weights of a model need; raise ModelError if less is free on a CPU."""
    # imported when a worker starts, because most pages do not need this module
    from gprune.models import identity

    try:
        folder = identity.locate(model.model)
        stored_type = identity.number_type(folder)
        # a random model has no weight files
        stored = sum(file.stat().st_size for file in identity.weight_files(folder))
    except (ModelError, OSError) as error:
        raise missing_model(model.model) from error
    size = stored * _WIDTHS.get(model.precision, 4) // _WIDTHS.get(stored_type, 4)
    free = psutil.virtual_memory().available
    if model.device != CPU:
        return f"it needs {_format_bytes(size)} of the GPU’s memory"
    if size > free:
        raise ModelError(
            f"the model needs {_format_bytes(size)}, more than the {_format_bytes(free)} of free memory: close other "
            "programs, or run the study with dtype bfloat16"
        )
    return f"it needs {_format_bytes(size)} of the {_format_bytes(free)} of free memory"


def _format_bytes(size: int) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"


def environment() -> dict[str, str]:
    """Return the environment of a worker, which leaves one core to the app and downloads nothing."""
    threads = os.environ.get(machine.THREADS_VARIABLE) or str(max(1, machine.cores() - 1))
    return {
        **os.environ,
        machine.THREADS_VARIABLE: threads,
        # waiting threads spin only briefly, as in gprune.__main__
        "GOMP_SPINCOUNT": os.environ.get("GOMP_SPINCOUNT", "10000"),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }


def blocking_job(root: Path, device: str) -> str:
    """Return the reason why a preview on cpu, cuda or cuda:1 waits for a job; empty if it does not."""
    for job in queue.at_work(root):
        # a job that has no device yet will use the one that it asks for, by default the first GPU
        job_device = job.device or job.asks
        same_gpu = job_device != CPU and _gpu_number(job_device) == _gpu_number(device)
        if job.asks != NO_DEVICE and (device == CPU or same_gpu):
            return f"live evaluation waits while a job is running: {job.label}"
    return ""


def _gpu_number(device: str) -> int:
    """Return the index of a GPU: 1 for cuda:1, 0 for cuda."""
    number = device.partition(":")[2]
    return int(number) if number.isdecimal() else 0


@dataclass(eq=False)
class Entry:
    """A question of one or more sessions: its requests, one for each model that it compares, and their state."""

    identity: str
    requests: tuple[WorkerRequest, ...]
    owners: dict[str, bool] = field(default_factory=dict)
    """owners of the question, each with True for a preview and False for a point of a curve"""
    last_viewed: float = 0.0
    """time at which a page last read its answer"""
    served: int = 0
    """number of the last slice of work for this question, counted over all questions"""
    progress: Progress = "open"
    problem: str = ""
    retry: float = 0.0
    """time before which a failed question is not tried again"""

    @property
    def model(self) -> ModelSpec:
        """The model that its worker loads."""
        return self.requests[0].model


class Client:
    """Requests of all sessions of a server, which share at most one worker."""

    def __init__(
        self,
        idle: float = IDLE_SECONDS,
        start: Callable[[ModelSpec], WorkerProcess] = WorkerProcess,
        waits_for: Callable[[Path, str], str] = blocking_job,
    ) -> None:
        """Store the settings: a worker ends after `idle` seconds without work; tests replace the other arguments."""
        self.idle = idle
        self._start, self._waits_for = start, waits_for
        self._lock, self._news = threading.RLock(), threading.Event()
        self._thread: threading.Thread | None = None
        self._entries: dict[str, Entry] = {}
        self._answers: dict[str, Any] = {}
        """answers so far by the identity of their requests"""
        self._turns = 0
        """number of slices of work so far"""
        self._worker: WorkerProcess | None = None
        self._loaded = False
        """whether the worker has loaded its model"""
        self._report: tuple[int, int, str] | None = None
        """done, total and description of the fit in progress"""
        self._worked = 0.0
        """when the last slice of work ended"""
        self._jobs: dict[ModelSpec, tuple[float, str]] = {}
        """when the queue of jobs was read for a model, and the reason to wait"""
        self._ended: dict[ModelSpec, str] = {}
        """why the last worker of a model was ended"""

    def ask(self, source: Source, question: Question, owner: str, base: Question | None = None) -> str:
        """Request the losses of a masked model; the owner's earlier question is dropped unless it is the same.

        `owner` names a session and a place on a page; questions of other owners continue. `base` is the
        question it is compared with on the same text, the dense model by default. Returns the identity under
        which `latest` has the answer. Repeating a question does not repeat its measurement. Raises SettingsError if the
        study does not measure the text, there is no such method, or its model needs code that this server does
        not run, StoreError if the run lacks masks or statistics.
        """
        return self.ask_many(source, [question], owner, base, preview=True)[0]

    def ask_many(
        self,
        source: Source,
        questions: Sequence[Question],
        owner: str,
        base: Question | None = None,
        preview: bool = False,
    ) -> list[str]:
        """Request the points of a curve, which are measured in turn, after all previews; for the rest see `ask`."""
        require_trust(source.graph.study.trust_remote_code)
        pairs = [(question, base_question(source, question, base)) for question in questions]
        requests = [(resolve(source, question), resolve(source, reference)) for question, reference in pairs]
        return self._replace_questions(requests, owner, preview)

    def read(self, source: Source, question: TokenQuestion, models: Sequence[Question], owner: str) -> str:
        """Request token losses, a continuation, or facts of a neuron; the owner's earlier request is dropped.

        Each of `models` gives the method and masks of a model; its text is not used. Facts of a neuron are those of the
        dense model. Returns the identity under
        which `reading` has the answers; for errors see `ask`.
        """
        require_trust(source.graph.study.trust_remote_code)
        requests = resolve_tokens(source, question, models)
        return self._replace_questions([requests], owner, preview=True)[0]

    def latest(self, identity: str) -> Answer | None:
        """Return the newest answer, or None if the identity was never requested or has expired.

        A question whose answer is not read for LOOK_SECONDS is dropped. The next read resumes it.
        """
        with self._lock:
            entry = self._touch_entry(identity)
            if entry is None:
                return None
            answers = [self._answers.get(request.identity) for request in entry.requests]
            count = max((len(answer.losses) for answer in answers if answer is not None), default=0)
            losses, base = (np.full(count, np.nan) if answer is None else answer.losses for answer in answers)
            question = entry.requests[0].question
            return Answer(identity, question.method, question.text, entry.progress, losses, base, entry.problem)

    def reading(self, identity: str) -> Reading | None:
        """Return the answers of `read` so far; None if it was never requested or has expired."""
        with self._lock:
            entry = self._touch_entry(identity)
            if entry is None:
                return None
            answers = tuple(self._answers.get(request.identity) for request in entry.requests)
            return Reading(entry.progress, answers, entry.problem)

    def state(self, source: Source) -> WorkerState:
        """Return the state of the worker of a run."""
        model = source.model
        with self._lock:
            worker, waiting, reason = self._worker, bool(self._open_entries(model)), self._reason_to_wait(model)
            if worker is not None and worker.model == model:
                if not self._loaded:
                    return WorkerState("loading", worker.loading, worker.pid)
                if self._report is not None and not reason:
                    return _fit_state(*self._report, worker.pid)
                return WorkerState("waiting" if reason else "warm", reason, worker.pid)
            if waiting and worker is not None:
                return WorkerState("waiting", "live evaluation of another run is in progress")
            if waiting and reason:
                return WorkerState("waiting", reason)
            if waiting:
                return WorkerState("loading", "a process is being started")
            return WorkerState("ended", self._ended[model]) if model in self._ended else WorkerState("cold")

    def close(self) -> None:
        """End the worker and drop every question."""
        with self._lock:
            for entry in self._open_entries():
                entry.owners.clear()
                entry.progress = "dropped"
            if self._worker is not None:
                self._worker.kill()
            self._news.set()

    # --- questions, under the lock

    def _replace_questions(
        self, questions: Sequence[tuple[WorkerRequest, ...]], owner: str, preview: bool
    ) -> list[str]:
        """Replace the owner's questions by new ones; return their identities."""
        moment = time.monotonic()
        identities = [digest(*[request.identity for request in requests]) for requests in questions]
        with self._lock:
            for entry in self._entries.values():
                if entry.identity not in identities and entry.owners.pop(owner, None) is not None:
                    # it continues if it has other owners
                    if not entry.owners and entry.progress == "open":
                        entry.progress = "dropped"
            for identity, requests in zip(identities, questions, strict=True):
                # removed and inserted again, so that the newest questions are last
                entry = self._entries[identity] = self._entries.pop(identity, Entry(identity, requests))
                entry.owners[owner], entry.last_viewed = preview, moment
                for request in requests:
                    if request.stored is not None:
                        self._answers[request.identity] = request.stored
                self._reopen_entry(entry, moment)
            self._evict_entries()
            self._wake_thread()
        return identities

    def _touch_entry(self, identity: str) -> Entry | None:
        """Return a question whose answer a page reads now; resume it if it was dropped."""
        entry, moment = self._entries.get(identity), time.monotonic()
        if entry is None:
            return None
        entry.last_viewed = moment
        if entry.owners and entry.progress == "dropped":
            self._reopen_entry(entry, moment)
        self._wake_thread()
        return entry

    def _reopen_entry(self, entry: Entry, moment: float) -> None:
        """Set the progress of a question: complete if nothing is missing, else open, unless it has failed just now."""
        if self._next_request(entry) is None:
            entry.progress, entry.problem = "complete", ""
        elif entry.progress != "failed" or moment >= entry.retry:
            entry.progress, entry.problem = "open", ""

    def _evict_entries(self) -> None:
        """Remove the oldest entries that are not open, and answers without an entry."""
        surplus = len(self._entries) - MOST_ENTRIES
        for entry in [entry for entry in self._entries.values() if entry.progress != "open"][: max(surplus, 0)]:
            del self._entries[entry.identity]
        identities = {request.identity for entry in self._entries.values() for request in entry.requests}
        self._answers = {identity: self._answers[identity] for identity in identities & self._answers.keys()}

    def _open_entries(self, model: ModelSpec | None = None) -> list[Entry]:
        """Return the open questions of one model, or of all."""
        with self._lock:
            entries = self._entries.values()
            return [entry for entry in entries if entry.progress == "open" and model in (None, entry.model)]

    def _next_request(self, entry: Entry) -> WorkerRequest | None:
        """Return the incomplete request of a question with the fewest measured windows, or None if all are complete."""
        answers = [(request, self._answers.get(request.identity)) for request in entry.requests]
        pending = [pair for pair in answers if pair[1] is None or not getattr(pair[1], "complete", True)]
        if not pending:
            return None
        return min(pending, key=lambda pair: pair[1].done if isinstance(pair[1], WindowLosses) else 0)[0]

    def _next_entry(self) -> Entry | None:
        """Return the next question: previews before curves, those of the loaded model first, in turn.

        Questions whose answers are no longer read are dropped.
        """
        moment = time.monotonic()
        for entry in self._open_entries():
            if moment - entry.last_viewed > LOOK_SECONDS:
                entry.progress = "dropped"
        loaded = None if self._worker is None else self._worker.model
        entries = [entry for entry in self._open_entries() if not self._reason_to_wait(entry.model)]
        return min(
            entries,
            key=lambda entry: (not any(entry.owners.values()), entry.model != loaded, entry.served),
            default=None,
        )

    def _entries_for(self, request: WorkerRequest) -> list[Entry]:
        """Return the open questions that wait for a request; sessions can share it."""
        return [
            entry for entry in self._open_entries() if request.identity in (other.identity for other in entry.requests)
        ]

    def _reason_to_wait(self, model: ModelSpec) -> str:
        """Return the reason why the worker of a model must not compute now; empty if it may."""
        return self._jobs.get(model, (0.0, "the job queue is being read"))[1]

    def _wake_thread(self) -> None:
        """Start the thread if there is work for one, and interrupt the waiting of a running one."""
        if self._thread is None and self._open_entries():
            self._thread = threading.Thread(target=self._run, name="preview", daemon=True)
            self._thread.start()
        self._news.set()

    # --- the thread of the worker

    def _run(self) -> None:
        while True:
            try:
                self._read_jobs()
                with self._lock:
                    entry = self._next_entry()
                    if self._worker is None and not self._open_entries():
                        self._thread = None
                        return
                if reason := self._reason_to_end():
                    self._end_worker(reason)
                elif entry is not None:
                    self._compute_slice(entry)
                else:
                    self._news.wait(_TICK)
                    self._news.clear()
            except Exception as error:
                # the pages show a sentence for any error, and the next question starts a new worker
                self._fail_entries(
                    self._open_entries(), f"live evaluation failed ({type(error).__name__}: {error}): try again"
                )

    def _read_jobs(self) -> None:
        """Update the reasons to wait from the job queue. Reads files, so the lock is not held."""
        moment = time.monotonic()
        with self._lock:
            models = {entry.model for entry in self._open_entries()}
            if self._worker is not None:
                models.add(self._worker.model)
        for model in models:
            if model not in self._jobs or moment - self._jobs[model][0] >= JOBS_SECONDS:
                self._jobs[model] = moment, self._waits_for(Path(model.root), model.device)

    def _reason_to_end(self) -> str:
        """Return the reason to end the worker now; empty if there is none."""
        worker = self._worker
        if worker is None:
            return ""
        if not worker.alive:
            return worker.exit_sentence()
        if worker.model.device != CPU and (reason := self._reason_to_wait(worker.model)):
            return reason
        if time.monotonic() - self._worked > self.idle:
            return f"nothing was measured for {self.idle:g} seconds"
        return ""

    def _compute_slice(self, entry: Entry) -> None:
        """Compute one slice of a question, or load its model first."""
        try:
            if self._worker is None or self._worker.model != entry.model:
                # only load: a newer question may have arrived when the model is loaded
                self._load(entry.model)
            else:
                self._extend_answer(entry, self._worker)
        finally:
            self._report, self._worked = None, time.monotonic()

    def _load(self, model: ModelSpec) -> None:
        """Start a worker with a model, after ending the worker of another model."""
        if self._worker is not None:
            self._end_worker("live evaluation of another run replaced it")
        try:
            self._worker = self._start(model)
            self._worker.call("load", {"model": model}, None, lambda *_: True)
            self._loaded = True
        except OSError as error:
            problem = f"no process can be started ({error.strerror or error}): free some memory and try again"
            self._fail_entries(self._open_entries(model), problem)
        except GpruneError as error:
            self._fail_entries(self._open_entries(model), str(error))

    def _extend_answer(self, entry: Entry, worker: WorkerProcess) -> None:
        with self._lock:
            request = self._next_request(entry)
            if request is None or entry.progress != "open":
                return
            self._turns += 1
            entry.served = self._turns
            previous = self._answers.get(request.identity)

        def go_on(*report: Any) -> bool:
            self._report = report
            self._read_jobs()
            return bool(self._entries_for(request)) and not self._reason_to_wait(request.model)

        try:
            answer = worker.call(request.task, request.arguments, previous, go_on)
        except RequestError as error:
            entries = self._entries_for(request) if error.usable else self._open_entries(request.model)
            self._fail_entries(entries, str(error), error.usable)
            return
        with self._lock:
            if answer is not None:
                self._answers[request.identity] = answer
            for entry in self._entries_for(request):
                if self._next_request(entry) is None:
                    entry.progress = "complete"

    def _fail_entries(self, entries: list[Entry], problem: str, usable: bool = False) -> None:
        """Store the problem of questions; end the worker unless it is `usable`."""
        if not usable:
            self._end_worker(problem, entries[0].model if entries else None)
        with self._lock:
            for entry in entries:
                if entry.progress == "open":
                    entry.progress, entry.problem = "failed", problem
                    entry.retry = time.monotonic() + RETRY_SECONDS

    def _end_worker(self, reason: str, model: ModelSpec | None = None) -> None:
        """End the worker if it runs, and store the reason for the pages."""
        worker = self._worker
        if worker is not None:
            # waits until its memory is free, before another worker is started
            worker.end()
            model = worker.model
        with self._lock:
            if model is not None:
                self._ended[model] = reason
            self._worker, self._loaded, self._report = None, False, None


def _fit_state(done: int, total: int, action: str, pid: int) -> WorkerState:
    # scales are learned in steps, weights are fitted layer by layer
    unit = "step" if "scales" in action else "layer"
    progress = f": {unit} {min(done + 1, total)} of {total}" if total > 1 else ""
    return WorkerState("fitting", f"The worker is {action}{progress}", pid, min(done / max(total, 1), 1.0))


CLIENT = Client()
"""the one client of this process"""
atexit.register(CLIENT.close)
