"""Main loop of the worker: ``python -m gprune.app.preview.worker.loop FD``, started and ended by the app.

Receives (task, arguments, answer so far) from the socket FD and sends the extended answer back, one slice of work at a
time, so that the app can send a newer request in between. The task is `load`, `write` or a key of TASKS. Replies:

    ("answer", answer)
    ("problem", sentence, whether the model can still be used)
    ("progress", done, total, words)      while weights are fitted; the app replies True to continue
    ("interrupted",)                      after the app has replied False

The socket closes when the app ends, for whatever reason. The worker then exits at once; it has no state to save.
"""

import os
import queue
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from gprune.app.preview.worker import neuron, passages
from gprune.app.preview.worker.masked_model import MaskedModel, describe_error, measure_losses
from gprune.system.errors import Cancelled, GpruneError

TASKS: dict[str, Callable[..., Any]] = {
    "losses": measure_losses,
    "read": passages.read_passage,
    "neuron": neuron.answer_neuron,
}
Reply = tuple[Any, ...]


def main() -> int:
    """Answer requests until the socket closes."""
    connection = Connection(int(sys.argv[1]))
    messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(connection, messages), daemon=True).start()

    def go_on(*progress: Any) -> bool:
        connection.send(("progress", *progress))
        return bool(messages.get())

    handler = RequestHandler(go_on)
    while True:
        connection.send(handler.answer(*messages.get()))


class RequestHandler:
    """Answer one request after another with one model."""

    def __init__(self, go_on: Callable[[int, int, str], bool] = lambda *_: True) -> None:
        """Store `go_on`, which receives the progress of a long fit and returns False to interrupt it."""
        self.model: MaskedModel | None = None
        self._go_on = go_on

    def answer(self, task: str, arguments: dict[str, Any], previous: Any = None) -> Reply:
        """Return the reply to a request, even if it fails; `previous` is the answer so far."""
        try:
            return "answer", self._answer(task, arguments, previous)
        except Cancelled:
            return ("interrupted",)
        except GpruneError as error:
            return "problem", str(error), self.model is not None
        except Exception as error:
            return "problem", describe_error(error), self.model is not None

    def _answer(self, task: str, arguments: dict[str, Any], previous: Any) -> Any:
        if task == "load":
            self.model = MaskedModel(arguments["model"])
            return True
        assert self.model is not None
        try:
            self.model.require_same()
        except GpruneError:
            # the model in memory is no longer that of the run
            self.model = None
            raise
        if task == "write":
            # compares the pruned model with the dense one, so it silences the units itself
            return passages.extend_continuation(self.model, previous, **arguments, on_progress=self._report)
        # requests about a neuron have no pruning: they concern the dense model
        pruning = arguments.get("pruning")
        task_arguments = {name: value for name, value in arguments.items() if name != "pruning"}
        with self.model.silenced(pruning, self._report):
            return TASKS[task](self.model, previous, **task_arguments)

    def _report(self, done: int, total: int, words: str) -> None:
        if not self._go_on(done, total, str(words)):
            raise Cancelled(words)


def _receive(connection: Connection, messages: queue.SimpleQueue[Any]) -> None:
    try:
        while True:
            messages.put(connection.recv())
    except (EOFError, OSError):
        os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
