"""The app's side of the preview: sessions ask and look, each from threads of its own.

Whatever is asked is put on a request_queue and answered by the one worker; looking never waits.
"""

import atexit
import time
from collections.abc import Sequence

from gprune.app.preview.request import Question, Source, against, key_of, resolve
from gprune.app.preview.request_queue import CURVE, PREVIEW
from gprune.app.preview.response import Answer, State
from gprune.app.preview.token_answers import Reading, What
from gprune.app.preview.token_requests import parts
from gprune.app.preview.worker.messages import SCALING
from gprune.app.preview.worker_manager import WorkerManager
from gprune.app.server import require_trust


class Client(WorkerManager):
    """Client of the preview: all sessions of a server share at most one worker."""

    def ask(self, source: Source, question: Question, owner: str, base: Question | None = None) -> str:
        """Asks what masks cost; the owner's earlier preview is dropped, unless it is the same.

        `owner` is one name a session and place (tab); other owners' questions go on. `base` is what it is
        compared with on the same text, the dense model by default. Gives the identity under which `latest`
        has the answer; asking the same again is harmless and cheap. Raises SettingsError where the study does
        not measure the text, there is no such method, or its model needs code that this server does not run,
        StoreError where the run lacks masks or statistics.
        """
        return self._put(source, [question], owner, PREVIEW, base)[0]

    def ask_many(
        self, source: Source, questions: Sequence[Question], owner: str, base: Question | None = None
    ) -> list[str]:
        """Asks the points of a curve, behind every preview; all of them refine in turn.

        The owner's earlier curve is dropped where it has other points. See `ask`.
        """
        return self._put(source, questions, owner, CURVE, base)

    def read(self, source: Source, what: What, models: Sequence[Question], owner: str) -> str:
        """Request a passage token by token, a continuation of a prompt, or facts of a neuron.

        The owner's last one is dropped. A neuron is asked of the dense model.

        Of `models`, text counts not. Gives the identity under which `reading` has the answer; for `owner` and
        errors see `ask`.
        """
        require_trust(source.graph.study.trust_remote_code)
        wanted = parts(source, what, models)
        with self._changed:
            asked = self._token_requests.put(wanted, owner, time.monotonic())
            self._wake()
        return asked

    def reading(self, identity: str) -> Reading | None:
        """Return the state of a passage or continuation; None if it was never requested or has expired."""
        with self._changed:
            found = self._token_requests.look(identity, time.monotonic())
            self._wake()
            return found

    def latest(self, identity: str) -> Answer | None:
        """The newest answer; None where nothing of this identity was asked, or long ago.

        Looking keeps a question at work: one that nobody looks at for a while is dropped.
        """
        with self._changed:
            answer = self._scheduler.look(identity, time.monotonic())
            self._wake()
            return answer

    def state(self, source: Source) -> State:
        """Return the state of the worker of a run."""
        key = key_of(source.model)
        with self._changed:
            child, waiting = self._child, bool(self._open(key))
            reason = self._job_gate.reason(source.model)
            if child is not None and key_of(child.model) == key:
                if not child.ready:
                    return State("loading", "the model is being loaded", child.pid)
                if self._under_way is not None and not reason:
                    return _fitting(*self._under_way, child.pid)
                phase = "waiting" if reason else "warm"
                return State(phase, reason, child.pid)  # type: ignore[arg-type]
            if waiting and child is not None:
                return State("waiting", "live evaluation of another run has its turn")
            if waiting and reason:
                return State("waiting", reason)
            if waiting:
                return State("loading", "a process is being started")
            return State("ended", self._ended[key]) if key in self._ended else State("cold")

    def close(self) -> None:
        """Ends the worker and drops every question."""
        with self._changed:
            for request_queue in self._request_queues:
                request_queue.drop()
            self._end("the app has ended it")
            self._changed.notify_all()

    def _put(
        self, source: Source, questions: Sequence[Question], owner: str, kind: str, base: Question | None
    ) -> list[str]:
        require_trust(source.graph.study.trust_remote_code)
        pairs = []
        for question in questions:
            other = resolve(source, against(source, question, base))
            pairs.append((resolve(source, question), other))
        with self._changed:
            asked = self._scheduler.put(pairs, owner, kind, time.monotonic())
            self._wake()
        return asked


def _fitting(done: int, total: int, words: str, pid: int) -> State:
    unit = "step" if words == SCALING else "layer"
    where = f": {unit} {min(done + 1, total)} of {total}" if total > 1 else ""
    return State("fitting", f"The worker is {words}{where}", pid, min(done / max(total, 1), 1.0))


POOL = Client()
atexit.register(POOL.close)


def pool() -> Client:
    """The one pool of this process."""
    return POOL
