"""The worker of the preview: ``python -m gprune.app.preview.worker.worker``, started and ended by the app.

Reads questions from its input and writes answers to its output, see gprune.app.preview.worker.messages. Its
input ends
when the app ends, however that happens, and then it ends at once, whatever it is doing: it keeps nothing.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, BinaryIO

from gprune.app.preview.worker import messages
from gprune.system.errors import Cancelled, GpruneError

if TYPE_CHECKING:
    from gprune.app.preview.worker.masked_model import MaskedModel


def main() -> int:
    """Answers until the input ends."""
    output = _claim_output()
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def say(reply: dict[str, Any]) -> None:
        output.write(messages.line(reply))
        output.flush()

    handler = RequestHandler(say)
    threading.Thread(target=_read, args=(sys.stdin.buffer, lines, handler.drop), daemon=True).start()
    while True:
        reply = handler.answer(lines.get())
        try:
            say(reply)
        except OSError:
            # nobody listens any more
            return 0


class RequestHandler:
    """Reply to one line after another with the model that the first one names."""

    def __init__(self, say: Callable[[dict[str, Any]], None] = lambda _: None) -> None:
        """Loads nothing; `say` is told how far an answer is that takes long."""
        self.masked: MaskedModel | None = None
        self._say = say
        self._dropped: set[Any] = set()

    def drop(self, identity: object) -> None:
        """Cancel a long request; called from any thread."""
        self._dropped.add(identity)

    def answer(self, data: bytes) -> dict[str, Any]:
        """The reply to a line, whatever it holds; never raises."""
        question = messages.read(data)
        if question is None:
            return {"problem": "a line that is no JSON object was passed over"}
        reply = {"id": question.get("id")}
        try:
            return reply | self._result(question)
        except Cancelled:
            self._dropped.discard(reply["id"])
            return reply | {"dropped": True}
        except GpruneError as error:
            return reply | {"problem": str(error), "ready": self.masked is not None}
        except ImportError as error:
            return reply | {
                "problem": f"live evaluation cannot start ({error}): check the installation",
                "ready": False,
            }
        except Exception as error:
            from gprune.app.preview.worker.masked_model import sentence

            return reply | {"problem": sentence(error), "ready": self.masked is not None}

    def _result(self, question: dict[str, Any]) -> dict[str, Any]:
        if "model" in question:
            # says what else it has to say only once torch is loaded, which takes seconds
            from gprune.app.preview.worker.masked_model import MaskedModel

            self.masked = None
            self.masked = MaskedModel(question["model"])
            return {"ready": True}
        if self.masked is None:
            return {"problem": "no model is loaded: name one first", "ready": False}
        try:
            self.masked.require_same()
        except GpruneError:
            # what is in the memory is no model of the run any more
            self.masked = None
            raise
        if "read" in question or "write" in question:
            from gprune.app.preview.worker import passages

            return (passages.read if "read" in question else passages.write)(self.masked, question)
        if asked := {"fires", "spread", "direction"} & question.keys():
            from gprune.app.preview.worker import activations

            answers = {"fires": activations.fires, "spread": activations.spread}
            return answers.get(asked.pop(), activations.promoted)(self.masked, question)
        if "numbers" in question:
            return self._losses(self.masked, question)
        return {"windows": len(self.masked.windows(question["text"]))}

    def _losses(self, masked: MaskedModel, question: dict[str, Any]) -> dict[str, Any]:
        def tell(done: int, total: int, words: str) -> None:
            if question.get("id") in self._dropped:
                raise Cancelled(words)
            self._say({"id": question.get("id"), "progress": [done, total, str(words)]})

        before = masked.fits.seconds
        losses = masked.losses(question, tell)
        taken = masked.fits.seconds - before
        return {"losses": losses} | ({"fitting": taken} if taken else {})


def _claim_output() -> BinaryIO:
    """The true output for answers alone; whatever else is printed goes to the log."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return answers


def _read(source: BinaryIO, lines: queue.SimpleQueue[bytes], drop: Callable[[object], None]) -> None:
    for line in source:
        # does not wait for its turn: it ends what has it
        told = messages.read(line) if line.startswith(b'{"drop"') else None
        if told is None:
            lines.put(line)
        else:
            drop(str(told["drop"]))
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
