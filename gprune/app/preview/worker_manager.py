"""The worker manager of the preview: one worker at most, handed one thing at a time.

One thread starts and ends the worker and hands it one batch of windows, one passage or a few tokens of a
continuation at a time, so that something newer, a job, or another run never waits
for more than that. It ends itself when there is neither a worker nor a question.
"""

import itertools
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from gprune.app.preview.request import key_of
from gprune.app.preview.request_queue import Entry, RequestQueue, order
from gprune.app.preview.token_requests import TokenRequests
from gprune.app.preview.window_scheduler import WindowScheduler
from gprune.app.preview.worker_process import WorkerProcess
from gprune.jobs import Job, queue
from gprune.jobs.device_slots import CPU, NO_DEVICE, OPEN_CHOICE

LOOK_OUT_SECONDS = 0.5
"""how often the queue of jobs is looked at"""
IDLE_SECONDS = 120.0
"""a worker that has measured nothing for so long ends and gives its memory back"""
TURN_SECONDS = 20.0
"""a loaded model answers at least so long before that of another run takes its place"""
URGENT_SECONDS = 3.0
"""the same where the other run has a preview and this one only a curve"""
RETRY_SECONDS = 10.0
"""a model that could not be loaded is not loaded again before"""
_TICK = 0.25
STUCK_SECONDS = 600.0
"""a batch of windows takes half a second, on a huge model on a CPU minutes; beyond this nothing will come"""
_BROKEN = "live evaluation failed ({}): ask again"


class JobGate:
    """Reasons to wait for the queue of jobs, by model."""

    def __init__(self, waits_for: Callable[[Path, str], str]) -> None:
        """Looks at nothing yet; `waits_for` says why a preview has to wait, as `hindrance` does."""
        self._waits_for = waits_for
        self._said: dict[str, tuple[float, str]] = {}

    def look(self, models: Iterable[dict[str, Any]]) -> None:
        """Looks at the queue for some models, where that was not done just now."""
        for model in models:
            last = self._said.get(key_of(model))
            if last is None or time.monotonic() - last[0] >= LOOK_OUT_SECONDS:
                reason = self._waits_for(Path(model["root"]), model["device"])
                self._said[key_of(model)] = time.monotonic(), reason

    def reason(self, model: dict[str, Any]) -> str:
        """Return the reason why a model waits; nothing starts before the queue was read."""
        return self._said.get(key_of(model), (0.0, "the queue of jobs is being read"))[1]


def hindrance(root: Path, device: str) -> str:
    """Return the reason why a preview on cpu, cuda or cuda:1 waits; empty if it does not."""
    for job in queue.at_work(root):
        if job.asks != NO_DEVICE and (device == CPU or _wants(job, _card(device))):
            return f"live evaluation waits while a job is at work: {job.label}"
    return ""


def _wants(job: Job, card: int) -> bool:
    """Whether a job computes on a GPU: one that the queue has given it, or that its study asks for."""
    if not job.device and job.asks in OPEN_CHOICE:
        # nobody has chosen: it computes on the first one
        return card == 0
    device = job.device or job.asks
    return device != CPU and _card(device) == card


def _card(device: str) -> int:
    """Number of a GPU, by whatever name it is asked for."""
    number = device.partition(":")[2]
    return int(number) if number.isdecimal() else 0


class WorkerManager:
    """Run at most one worker for the open requests, and end it when there are none."""

    def __init__(
        self,
        idle: float = IDLE_SECONDS,
        start: Callable[[dict[str, Any], Callable[[], None]], WorkerProcess] = WorkerProcess,
        waits_for: Callable[[Path, str], str] = hindrance,
    ) -> None:
        """Starts nothing; a worker ends after `idle` seconds without work. The rest is replaced in tests."""
        self.idle = idle
        self._start, self._job_gate = start, JobGate(waits_for)
        turns = itertools.count(1)
        self._scheduler, self._token_requests = WindowScheduler(turns), TokenRequests(turns)
        self._request_queues: tuple[RequestQueue[Any, Any], ...] = self._scheduler, self._token_requests
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._child: WorkerProcess | None = None
        self._leaving: WorkerProcess | None = None
        """the worker before, until its memory is free"""
        self._flight: tuple[RequestQueue[Any, Any], Any, float] | None = None
        self._under_way: tuple[int, int, str] | None = None
        """how far the answer in flight is, and what is being done, where it says so"""
        self._worked = self._warm = 0.0
        self._measured = False
        self._ended: dict[str, str] = {}

    def _open(self, model: str | None = None) -> list[Entry]:
        """Every question that lacks something, of one model or all."""
        return [entry for request_queue in self._request_queues for entry in request_queue.open(model)]

    def _wake(self) -> None:
        """Wake the manager if a request is open; the caller holds the lock."""
        if self._thread is None and self._open():
            self._thread = threading.Thread(target=self._keep, name="preview", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _keep(self) -> None:
        """The life of its thread."""
        while True:
            try:
                self._look_out()
                with self._changed:
                    self._step(time.monotonic())
            except Exception as error:
                # whatever it was, pages get a sentence, and the next question another try
                with self._changed:
                    self._give_up(_BROKEN.format(f"{type(error).__name__}: {error}"), time.monotonic())
            with self._changed:
                if self._child is None and not self._open():
                    self._thread = None
                    return
                if self._child is None or self._child.replies.empty():
                    self._changed.wait(_TICK)

    def _step(self, now: float) -> None:
        self._hear(now)
        for request_queue in self._request_queues:
            request_queue.expire(now)
        self._drop_unwanted()
        self._manage(now)
        self._hand_over(now)

    def _look_out(self) -> None:
        """Asks the queue of jobs, without the lock: that reads files."""
        with self._changed:
            models = {entry.model: entry.loads for entry in self._open()}
            if self._child is not None:
                models[key_of(self._child.model)] = self._child.model
        self._job_gate.look(models.values())

    def _hear(self, now: float) -> None:
        """Takes in what the worker has said."""
        while self._child is not None and not self._child.replies.empty():
            reply = self._child.replies.get()
            if reply is not None and "progress" in reply:
                self._note_progress(reply, now)
            elif reply is None:
                self._give_up(self._child.why(), now, 0.0 if self._measured else RETRY_SECONDS)
            elif "dropped" in reply:
                self._flight, self._under_way = None, None
            elif "problem" in reply:
                self._note_problem(reply, now)
            elif reply.get("ready"):
                self._child.ready, self._warm, self._worked = True, now, now
            elif self._flight is not None:
                self._note_result(reply, now)

    def _note_progress(self, reply: dict[str, Any], now: float) -> None:
        """Notes how far an answer is that takes long."""
        if self._flight is not None and reply.get("id") == self._flight[1].identity:
            done, total, words = reply["progress"]
            self._under_way, self._worked = (int(done), int(total), str(words)), now

    def _drop_unwanted(self) -> None:
        """Has the worker give up what takes long and nobody waits for any more."""
        if self._flight is None or self._under_way is None or self._child is None:
            return
        request_queue, item, _ = self._flight
        if not request_queue.wanted(item):
            self._child.send({"drop": item.identity})

    def _note_problem(self, reply: dict[str, Any], now: float) -> None:
        flight, self._flight, self._under_way = self._flight, None, None
        if not reply.get("ready", True):
            self._give_up(str(reply["problem"]), now, RETRY_SECONDS)
        elif flight is not None:
            flight[0].fail(flight[1], str(reply["problem"]), now + RETRY_SECONDS)

    def _note_result(self, reply: dict[str, Any], now: float) -> None:
        assert self._flight is not None
        (request_queue, item, sent), self._flight = self._flight, None
        self._worked, self._under_way = now, None
        if reply.get("id") != item.identity:
            raise RuntimeError("an answer to another question")
        self._measured = self._measured or "windows" not in reply
        request_queue.heard(item, reply, now - sent)

    def _manage(self, now: float) -> None:
        """Ends the worker where that is due, and starts one where it is wanted."""
        if self._flight is not None and now - max(self._flight[2], self._worked) > STUCK_SECONDS:
            self._give_up(f"the worker has said nothing for {STUCK_SECONDS:g} seconds: ask again", now)
        wanted = self._wanted()
        reason = self._due(wanted, now)
        if reason:
            self._end(reason)
        if self._child is not None or wanted is None or self._job_gate.reason(wanted.loads):
            return
        if self._leaving is not None and not self._leaving.gone:
            return
        try:
            self._child = self._start(wanted.loads, self._notify)
        except OSError as error:
            problem = f"no process can be started ({error.strerror or error}): free some memory, ask again"
            self._fail_model(wanted.model, problem, now + RETRY_SECONDS)
        self._measured, self._worked = False, now

    def _due(self, wanted: Entry | None, now: float) -> str:
        """Return the reason to end the worker now; empty if there is none."""
        child = self._child
        if child is None:
            return ""
        reason = self._job_gate.reason(child.model)
        if reason and child.model["device"] != "cpu":
            return reason
        if wanted is not None and self._turn_over(wanted, now):
            return "live evaluation of another run has taken its place"
        rests = child.ready and self._flight is None
        if now - self._worked > self.idle and (rests or not self._open(key_of(child.model))):
            return f"nothing was measured for {self.idle:g} seconds"
        return ""

    def _wanted(self) -> Entry | None:
        """The question whose model should be loaded, were there no other: a preview, longest without turn."""
        mine = None if self._child is None else key_of(self._child.model)
        entries = [entry for entry in self._open() if not self._job_gate.reason(entry.loads)]
        others = [entry for entry in entries if entry.model != mine]
        return min(others or entries, key=order, default=None)

    def _turn_over(self, wanted: Entry, now: float) -> bool:
        """Whether the loaded model makes way for that of another run."""
        assert self._child is not None
        key = key_of(self._child.model)
        mine = self._open(key)
        if wanted.model == key:
            return False
        if not mine or self._job_gate.reason(self._child.model):
            return True
        urgent = any(entry.urgent for entry in mine)
        # what is being fitted would be begun again at every turn, and never be done
        if not self._child.ready or self._under_way is not None or (urgent and not wanted.urgent):
            return False
        return now - self._warm > (URGENT_SECONDS if wanted.urgent and not urgent else TURN_SECONDS)

    def _hand_over(self, now: float) -> None:
        """Gives a worker that rests its next batch."""
        child = self._child
        if child is None or not child.ready or self._flight is not None or self._job_gate.reason(child.model):
            return
        waiting = [
            (entry, request_queue)
            for request_queue in self._request_queues
            for entry in request_queue.open(key_of(child.model))
        ]
        for entry, request_queue in sorted(waiting, key=lambda pair: order(pair[0])):
            item = request_queue.turn(entry)
            if item is not None:
                self._flight = request_queue, item, now
                child.send(item.message)
                return

    def _fail_model(self, model: str, problem: str, retry: float) -> None:
        for request_queue in self._request_queues:
            request_queue.fail_model(model, problem, retry)

    def _give_up(self, problem: str, now: float, pause: float = 0.0) -> None:
        """Ends the worker for a reason that all questions of its model share."""
        if self._child is not None:
            self._fail_model(key_of(self._child.model), problem, now + pause)
            self._end(problem)
        else:
            for model in {entry.model for entry in self._open()}:
                self._fail_model(model, problem, now + pause)

    def _end(self, reason: str) -> None:
        if self._child is not None:
            self._ended[key_of(self._child.model)] = reason
            self._child.end()
            self._leaving = self._child
        self._child, self._flight, self._under_way = None, None, None

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()
