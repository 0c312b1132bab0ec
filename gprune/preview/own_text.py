"""A text of one's own against the texts of a run, at once: questions, their turn, their answers.

One worker at most, apart from that of the preview and started by the first question; it ends when nobody has
asked anything for a while. The text is written to a folder that only this user can read, and removed with
the answer.
"""

from __future__ import annotations

import atexit
import hashlib
import queue
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from gprune.bench.protocol import OWN_PAIRS
from gprune.door import require_trust
from gprune.errors import GpruneError
from gprune.preview.child import Child
from gprune.preview.keeper import IDLE_SECONDS, STUCK_SECONDS
from gprune.preview.question import Source, key_of
from gprune.preview.turns import hindrance
from gprune.records import RankDrift
from gprune.stages import drift
from gprune.store import Store

MOST_KEPT = 12
"""answers that are kept; at the size of the demo each is a megabyte"""
UNSEEN_SECONDS = 20.0
"""a question that nobody looks at for so long is dropped before its turn"""
_LOOK_OUT = 0.5
Phase = Literal["waiting", "loading", "measuring", "complete", "failed"]


@dataclass(frozen=True, slots=True, eq=False)
class OwnText:
    """A text to be held against the texts of a run."""

    source: Source
    """the run, with a study that has the text as its C, and the digest of its content"""
    raw: bytes = field(repr=False)
    """its bytes"""
    suffix: str
    """ending of its file, by which it is read"""

    @property
    def identity(self) -> str:
        """Equal where the answers are the same arrays."""
        keys = [drift(self.source.graph, *pair).key for pair in OWN_PAIRS.values()]
        return hashlib.sha256(" ".join(keys).encode()).hexdigest()[:32]

    def study_at(self, place: Path) -> dict[str, Any]:
        """The study with the text where it is now; no key depends on the name of a file."""
        return replace(self.source.graph.study, substitute=str(place)).to_dict()


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """What is known of a text."""

    phase: Phase
    """waiting: its turn is not yet, see the reason; loading: the model is read; failed: see the reason"""
    reason: str = ""
    """one sentence for people; empty where there is nothing to explain"""
    drifts: Mapping[str, RankDrift] = field(default_factory=dict)
    """once complete: the drift of every pair by its name in `OWN_PAIRS`"""


class OwnTexts:
    """Measures the texts of all sessions of one server, one after the other."""

    def __init__(
        self,
        idle: float = IDLE_SECONDS,
        start: Callable[[dict[str, Any], Callable[[], None]], Child] = Child,
        waits_for: Callable[[Path, str], str] = hindrance,
    ) -> None:
        """Starts nothing.

        Args:
            idle: seconds without a question after which the worker ends.
            start: starts a worker; replaced in tests.
            waits_for: says why a question has to wait; replaced in tests.
        """
        self.idle, self._start, self._waits_for = idle, start, waits_for
        self._changed = threading.Condition()
        self._asked: OrderedDict[str, tuple[OwnText, str]] = OrderedDict()
        self._held: OrderedDict[str, Held] = OrderedDict()
        self._seen: dict[str, float] = {}
        self._keeper: threading.Thread | None = None
        self._child: Child | None = None

    def ask(self, text: OwnText, owner: str) -> str:
        """Asks for the drifts of a text; what the owner asked before is dropped unless it has its turn.

        Args:
            text: the text.
            owner: who asks, one name a session.

        Returns:
            The identity under which `latest` has the answer; asking the same again is cheap.

        Raises:
            SettingsError: the model needs code that this server does not run.
        """
        require_trust(text.source.graph.study.trust_remote_code)
        identity = text.identity
        with self._changed:
            for other in [name for name, (_, whose) in self._asked.items() if whose == owner]:
                if other != identity and self._held[other].phase == "waiting":
                    del self._asked[other], self._held[other]
            if identity not in self._held or self._held[identity].phase == "failed":
                self._asked[identity] = text, owner
                self._note(identity, Held("waiting"))
            self._seen[identity] = time.monotonic()
            if self._keeper is None:
                self._keeper = threading.Thread(target=self._keep, name="own texts", daemon=True)
                self._keeper.start()
            self._changed.notify_all()
        return identity

    def latest(self, identity: str) -> Held | None:
        """What is known of a text; None where it was never asked for, or dropped."""
        with self._changed:
            if identity in self._held:
                self._seen[identity] = time.monotonic()
            return self._held.get(identity)

    def close(self) -> None:
        """Ends the worker and drops every question."""
        with self._changed:
            self._asked.clear()
            self._end()

    def _note(self, identity: str, held: Held) -> None:
        """Notes what is known; the oldest answers make way. The lock is held."""
        self._held[identity] = held
        self._held.move_to_end(identity)
        for name in [name for name in self._held if name not in self._asked][:-MOST_KEPT]:
            del self._held[name]
            self._seen.pop(name, None)

    def _keep(self) -> None:
        """The keeper's life: until nothing was asked for a while."""
        while True:
            with self._changed:
                if not self._asked and not self._changed.wait_for(lambda: bool(self._asked), self.idle):
                    self._end()
                    self._keeper = None
                    return
                if not self._asked:
                    continue
                identity, (text, _) = next(iter(self._asked.items()))
            found = self._answer(identity, text)
            with self._changed:
                if identity in self._asked:
                    del self._asked[identity]
                    if found is None:
                        self._held.pop(identity, None)
                    else:
                        self._note(identity, found)

    def _answer(self, identity: str, text: OwnText) -> Held | None:
        """The answer to a question whose turn it is; None where nobody waits for it any more."""
        model = text.source.model
        try:
            while reason := self._waits_for(Path(model["root"]), model["device"]):
                with self._changed:
                    if time.monotonic() - self._seen[identity] > UNSEEN_SECONDS:
                        return None
                    self._note(identity, Held("waiting", reason))
                    self._changed.wait(_LOOK_OUT)
                    if identity not in self._asked:
                        return None
            with self._changed:
                if identity not in self._asked:
                    return None
                # from here on nothing takes its place
                self._note(identity, Held("loading"))
            return self._measured(identity, text)
        except _RefusedError as error:
            return Held("failed", str(error))
        except GpruneError as error:
            return Held("failed", str(error))
        except Exception as error:
            # whatever it was, the page gets a sentence, and the next question another try
            return Held(
                "failed", f"the text could not be measured ({type(error).__name__}: {error}): ask again"
            )

    def _measured(self, identity: str, text: OwnText) -> Held:
        child = self._worker(text.source.model)
        with self._changed:
            self._note(identity, Held("measuring"))
        with tempfile.TemporaryDirectory(prefix="gprune-own-") as name:
            folder = Path(name)
            place = folder / f"text{text.suffix}"
            place.write_bytes(text.raw)
            known = {"folder": name, "study": text.study_at(place)}
            child.send({"id": identity, "own": known | {"inputs": asdict(text.source.graph.inputs)}})
            keys = self._reply(child)["drifts"]
            kept = Store(folder)
            found = {pair: _copied(kept.get("drift", str(keys[pair]), RankDrift)) for pair in OWN_PAIRS}
        return Held("complete", drifts=found)

    def _worker(self, model: dict[str, Any]) -> Child:
        """The worker with a model; another one makes way."""
        with self._changed:
            child = self._child
            if child is not None and key_of(child.model) != key_of(model):
                self._end()
                child = None
            if child is None:
                child = self._child = self._start(model, lambda: None)
        if not child.ready:
            child.ready = bool(self._reply(child).get("ready"))
        return child

    def _reply(self, child: Child) -> dict[str, Any]:
        """What the worker says next.

        Raises:
            _RefusedError: it says what is wrong, has gone, or says nothing for long.
        """
        try:
            reply = child.replies.get(timeout=STUCK_SECONDS)
        except queue.Empty:
            reply = {"problem": f"nothing was heard for {STUCK_SECONDS:g} seconds: ask again", "ready": False}
        problem = child.why() if reply is None else str(reply.get("problem", ""))
        if reply is not None and not problem:
            return reply
        if reply is None or not reply.get("ready", True):
            with self._changed:
                self._end()
        raise _RefusedError(problem)

    def _end(self) -> None:
        if self._child is not None:
            self._child.end()
        self._child = None


class _RefusedError(Exception):
    """A worker has said in one sentence why there is no answer."""


def _copied(found: RankDrift) -> RankDrift:
    """A record without its files."""
    return RankDrift(**{one.name: np.array(getattr(found, one.name)) for one in fields(found)})


OWN_TEXTS = OwnTexts()
atexit.register(OWN_TEXTS.close)


def own_texts() -> OwnTexts:
    """The one of this process."""
    return OWN_TEXTS
