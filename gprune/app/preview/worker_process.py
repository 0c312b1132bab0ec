"""The worker's process as the app sees it: started, spoken to, listened to, ended."""

import contextlib
import os
import queue
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable
from typing import Any

from gprune.app.preview.worker import messages
from gprune.system import installation, machine

COMMAND = installation.command("gprune.app.preview.worker.worker")
_SAID_BYTES = 4096
_END_SECONDS = 5.0


class WorkerProcess:
    """One worker process; it lives no longer than this one, since its input ends with it."""

    def __init__(self, model: dict[str, Any], on_reply: Callable[[], None]) -> None:
        """Starts the process and has it load a model (gprune.app.preview.request.Source).

        `on_reply` is called from another thread whenever `replies` has something new. Raises OSError where
        the system cannot start a process.
        """
        self.model = model
        self.ready = False
        """whether the model is loaded"""
        self.replies: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        """what it has said; None once it has gone"""
        self._log = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=installation.CHILD_FOLDER,
            env=environment(),
            # an interrupt at the terminal is for the app, which then ends its worker
            start_new_session=True,
        )
        self._letters: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        threading.Thread(target=self._listen, args=(on_reply,), daemon=True).start()
        threading.Thread(target=self._write, daemon=True).start()
        self.send({"model": model})

    @property
    def pid(self) -> int:
        """Number of the process."""
        return self._process.pid

    def send(self, message: dict[str, Any]) -> None:
        """Asks something and never waits; where the process has gone, `replies` says so."""
        self._letters.put(message)

    @property
    def gone(self) -> bool:
        """Return True if the process has ended and its memory is free."""
        return self._process.poll() is not None

    def end(self) -> None:
        """Ends the process, which keeps nothing that could be lost, and does not wait until it is `gone`."""
        self._letters.put(None)
        self._process.kill()
        self._log.close()

    def why(self) -> str:
        """One sentence for a process that has gone without being told to."""
        code = self._process.returncode
        if code in (-signal.SIGKILL, -signal.SIGTERM):
            return "the worker’s process was killed, probably out of memory: ask again"
        said = self._last_words()
        return f"the worker’s process ended by itself (exit code {code}{said}): ask again"

    def _last_words(self) -> str:
        try:
            size = self._log.seek(0, os.SEEK_END)
            self._log.seek(max(0, size - _SAID_BYTES))
            lines = self._log.read().decode(errors="replace").split("\n")
        except (OSError, ValueError):
            return ""
        return next((f", saying: {line.strip()}" for line in reversed(lines) if line.strip()), "")

    def _write(self) -> None:
        """Writes in a thread of its own: a process that does not read must not hold up the app."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, ValueError), self._process.stdin as given:
            while (message := self._letters.get()) is not None:
                given.write(messages.line(message))
                given.flush()

    def _listen(self, on_reply: Callable[[], None]) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                reply = messages.read(line)
                if reply is not None:
                    self.replies.put(reply)
                    on_reply()
        # here nobody waits for it
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=_END_SECONDS)
        self.replies.put(None)
        on_reply()


def environment() -> dict[str, str]:
    """The environment of a worker: a core is left to the app, and nothing is downloaded."""
    threads = os.environ.get(machine.THREADS_VARIABLE) or str(max(1, machine.cores() - 1))
    return {
        **os.environ,
        machine.THREADS_VARIABLE: threads,
        "GOMP_SPINCOUNT": os.environ.get("GOMP_SPINCOUNT", "10000"),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONIOENCODING": "utf-8",
    }
