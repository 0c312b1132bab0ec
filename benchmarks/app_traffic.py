"""Record the messages that the app's server sends to a browser page."""

from dataclasses import dataclass
from typing import Any

from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

CHARTS = ("plotly_chart", "bidi_component", "vega_lite_chart", "echarts_chart", "deck_gl_json_chart")
"""kinds of elements that draw a chart"""


@dataclass(frozen=True, slots=True)
class Message:
    """One message from the server."""

    kind: str
    """kind of the element in the message, or of the message if it has no element"""
    element: str
    """key of the element, else its kind; empty without an element"""
    size: int
    """bytes on the wire"""


class Traffic:
    """The messages that a page received over its WebSockets since the last call of `take`."""

    def __init__(self, page: Any) -> None:
        """Listen to every WebSocket that a Playwright page opens from now on."""
        self._messages: list[Message] = []
        page.on("websocket", lambda socket: socket.on("framereceived", self._add))

    def take(self) -> list[Message]:
        """Return the messages so far and forget them."""
        messages, self._messages = self._messages, []
        return messages

    def _add(self, frame: bytes | str) -> None:
        self._messages.append(parse_message(frame.encode() if isinstance(frame, str) else frame))


def parse_message(raw: bytes) -> Message:
    """Parse a message of Streamlit's protocol."""
    message = ForwardMsg.FromString(raw)
    kind = str(message.WhichOneof("type"))
    if kind != "delta":
        return Message(kind, "", len(raw))
    change = message.delta.WhichOneof("type")
    if change != "new_element":
        return Message(str(change), "", len(raw))
    kind = str(message.delta.new_element.WhichOneof("type"))
    element_id = str(getattr(getattr(message.delta.new_element, kind), "id", ""))
    # an id is a hash followed by the key from the page's code
    return Message(kind, element_id.rpartition("-")[2] or kind, len(raw))
