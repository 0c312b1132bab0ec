"""One look at runs and jobs for all sessions of a server, however many of them follow what is computed."""

import threading
import time
from dataclasses import dataclass, field

from gprune.app.ui import work

FRESH_SECONDS = 1.0
"""a look that is younger serves the next session as well"""
GONE_SECONDS = 30.0
"""a session that has not looked for so long follows nothing any more"""


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen, and when."""

    situation: work.Situation
    at: float
    """on the clock of `time.monotonic`"""
    told: dict[str, tuple[str, float]] = field(default_factory=dict)
    """sentence and share of each job that was described since"""


_LOOKING = threading.Lock()
_looks: dict[str, Look] = {}
_followers: dict[str, float] = {}
"""when each session has looked last, by its identity"""


def look(root: str) -> Look:
    """Runs and jobs as one of the sessions has seen them less than a second ago."""
    with _LOOKING:
        known, now = _looks.get(root), time.monotonic()
        if known is None or now - known.at >= FRESH_SECONDS:
            # one server looks at one cache; a second one is that of a test
            _looks.clear()
            known = _looks[root] = Look(work.look(root), time.monotonic())
        return known


def follow(session: str) -> int:
    """Notes that a session follows what is computed.

    Gives how many sessions do, at least 1.
    """
    now = time.monotonic()
    with _LOOKING:
        _followers[session] = now
        for name in [name for name, seen in _followers.items() if now - seen > GONE_SECONDS]:
            del _followers[name]
        return len(_followers)
