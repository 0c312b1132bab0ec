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
from typing import TYPE_CHECKING, Any, BinaryIO

from gprune.app.preview.worker import messages
from gprune.system.errors import GpruneError

if TYPE_CHECKING:
    from gprune.app.preview.worker.masked_model import MaskedModel


def main() -> int:
    """Answers until the input ends."""
    output = _claim_output()
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(sys.stdin.buffer, lines), daemon=True).start()
    handler = RequestHandler()
    while True:
        reply = handler.answer(lines.get())
        try:
            output.write(messages.line(reply))
            output.flush()
        except OSError:
            # nobody listens any more
            return 0


class RequestHandler:
    """Answers one line after another with the model that the first one names."""

    def __init__(self) -> None:
        """Loads nothing."""
        self.masked: MaskedModel | None = None

    def answer(self, data: bytes) -> dict[str, Any]:
        """The reply to a line, whatever it holds; never raises."""
        question = messages.read(data)
        if question is None:
            return {"problem": "a line that is no JSON object was passed over"}
        reply = {"id": question.get("id")}
        try:
            return reply | self._result(question)
        except GpruneError as error:
            return reply | {"problem": str(error), "ready": self.masked is not None}
        except ImportError as error:
            return reply | {
                "problem": f"the preview cannot start ({error}): check the installation",
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
        if "own" in question:
            from gprune.app.preview.worker import own_text

            return {"drifts": own_text.drifts(self.masked, question)}
        if "numbers" in question:
            return {"losses": self.masked.losses(question)}
        return {"windows": len(self.masked.windows(question["text"]))}


def _claim_output() -> BinaryIO:
    """The true output for answers alone; whatever else is printed goes to the log."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return answers


def _read(source: BinaryIO, lines: queue.SimpleQueue[bytes]) -> None:
    for line in source:
        lines.put(line)
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
