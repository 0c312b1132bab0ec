"""What the app's server sends to a browser, message by message."""

from dataclasses import dataclass
from typing import Any

from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

CHARTS = ("plotly_chart", "bidi_component", "vega_lite_chart", "echarts_chart", "deck_gl_json_chart")
"""kinds of elements that draw"""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of the server."""

    kind: str
    """the element that it carries, or what else it says"""
    called: str
    """name of the element, where it has one"""
    size: int
    """bytes as sent"""


class Traffic:
    """Messages that a page has received over its WebSocket since they were last taken."""

    def __init__(self, page: Any) -> None:
        """Listens to every WebSocket that a page will open.

        Args:
            page: a page of Playwright, before it goes anywhere.
        """
        self._received: list[Message] = []
        page.on("websocket", lambda socket: socket.on("framereceived", self._note))

    def take(self) -> list[Message]:
        """The messages so far, which are then forgotten."""
        found, self._received = self._received, []
        return found

    def _note(self, frame: bytes | str) -> None:
        raw = frame.encode() if isinstance(frame, str) else frame
        self._received.append(read(raw))


def read(raw: bytes) -> Message:
    """What a message of the server carries."""
    message = ForwardMsg.FromString(raw)
    kind = str(message.WhichOneof("type"))
    if kind != "delta":
        return Message(kind, "", len(raw))
    change = message.delta.WhichOneof("type")
    if change != "new_element":
        return Message(str(change), "", len(raw))
    kind = str(message.delta.new_element.WhichOneof("type"))
    element = getattr(message.delta.new_element, kind)
    name = str(getattr(element, "id", ""))
    # an id is a hash and, behind it, the key that the page gave
    return Message(kind, name.rpartition("-")[2] or kind, len(raw))
