"""Conversations: records with messages, rendered by the chat template of a tokenizer.

A conversation is read from the field ``messages`` or ``conversations``, or from an instruction and its output. Between
reading and tokenizing it is a document that starts with the record separator of JSON text sequences (RFC 7464). What
a template adds around the contents of the messages is found by rendering the conversation once more with another
content, so that it is known for every template.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gprune.data.texts.naming import TextName
from gprune.records.base import Array
from gprune.system import safe_parsing
from gprune.system.errors import CorpusError

Message = dict[str, str]
"""role and content"""
OPTIONS = ("template", "thinking", "sequences", "positions")
_SEPARATOR = "\x1e"
_INSTRUCTION, _INPUT, _OUTPUT = "instruction", "input", "output"
FORMS = (("messages",), ("conversations",), (_INSTRUCTION, _INPUT, _OUTPUT), (_INSTRUCTION, _OUTPUT))
"""fields that hold a conversation"""
_ROLES = {"human": "user", "gpt": "assistant", "model": "assistant", "bot": "assistant"}
"""roles of the ShareGPT format, by their names in chat templates"""
_SENTINEL = "\u2402content\u2403"
"""content that no template or message contains"""
_SWITCHES = ("enable_thinking", "thinking")
"""names of the switch for thinking in the templates of different families"""
_GENERATION = re.compile(r"\{%-?\s*generation\s*-?%\}")
"""statement of a template that marks what the assistant generates"""


@dataclass(frozen=True, slots=True)
class Rendering:
    """The options of a text that determine how its conversations are rendered and counted."""

    template: str = ""
    """name of one of the tokenizer's templates; empty for the default"""
    thinking: bool | None = None
    """value of the template's switch for thinking; None to leave it to the template"""
    single: bool = False
    """True for one conversation per sequence, False to pack as many as fit"""
    assistant_only: bool = False
    """True if only the tokens of the assistant count"""

    @classmethod
    def of(cls, name: TextName) -> "Rendering":
        """Return the options of the name of a text."""
        thinking = name.option("thinking")
        return cls(
            name.option("template"),
            thinking == "on" if thinking else None,
            name.option("sequences") == "single",
            name.option("positions") == "assistant",
        )


@dataclass(frozen=True, slots=True)
class RenderedChat:
    """The tokens of a conversation."""

    ids: Array
    """(tokens,) int32"""
    is_content: Array
    """(tokens,) bool, False for the tokens that the template adds"""
    is_assistant: Array
    """(tokens,) bool, True for what the assistant generates, with the token that ends its turn"""


def chat_fields(record: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the fields of a record that hold a conversation; empty if it holds none."""
    for fields in FORMS:
        kind = list if len(fields) == 1 else str
        if all(isinstance(record.get(name), kind) for name in fields) and (kind is list or "text" not in record):
            return fields
    return ()


def write_document(values: Mapping[str, Any], where: str) -> str:
    """Return the conversation in the fields `chat_fields` of a record as a document.

    Raises CorpusError if a message has no role or its content is not text; `where` describes the record.
    """
    if _OUTPUT in values:
        parts = [values[name] for name in (_INSTRUCTION, _INPUT) if values.get(name)]
        turns = [{"role": "user", "content": "\n\n".join(parts)}, {"role": "assistant", "content": values[_OUTPUT]}]
    else:
        turns = next(iter(values.values()))
    if not turns:
        raise CorpusError(f"{where} has no messages: remove it")
    messages = [_read_message(turn, f"message {number} of {where}") for number, turn in enumerate(turns, start=1)]
    return _SEPARATOR + json.dumps(messages)


def _read_message(turn: Any, where: str) -> Message:
    fields = turn if isinstance(turn, dict) else {}
    role, content = fields.get("role", fields.get("from")), fields.get("content", fields.get("value"))
    if isinstance(content, list):
        is_text = all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in content)
        content = "".join(part["text"] for part in content) if is_text else turn
    elif content is None and {"content", "value"} & set(fields):
        # a call of a tool has no content
        content = ""
    if not isinstance(role, str) or not isinstance(content, str):
        raise CorpusError(
            f"{where} must have a role and a text as content, like "
            f'{{"role": "user", "content": "..."}} (got {safe_parsing.quote(str(turn))})'
        )
    return {"role": _ROLES.get(role, role), "content": content}


def is_conversation(document: str) -> bool:
    """Return True if a document is a conversation."""
    return document.startswith(_SEPARATOR)


def read_messages(document: str) -> list[Message]:
    """Return the messages of a conversation."""
    messages: list[Message] = safe_parsing.json_value(document.removeprefix(_SEPARATOR), "a conversation")
    return messages


def count_characters(document: str) -> int:
    """Return the number of characters of a document, of a conversation those of its contents."""
    if not is_conversation(document):
        return len(document)
    return sum(len(message["content"]) for message in read_messages(document))


def encode_conversation(document: str, tokenizer: Any, rendering: Rendering, text: str) -> RenderedChat:
    """Render a conversation with the chat template of a tokenizer and tokenize it.

    Raises CorpusError, with the name of the `text`, if the tokenizer lacks the template or its switch for thinking, or
    the template refuses the conversation.
    """
    messages, template = read_messages(document), find_template(tokenizer, rendering, text)
    switches = {} if rendering.thinking is None else dict.fromkeys(_SWITCHES, rendering.thinking)

    def render(turns: Sequence[Message], **options: Any) -> Any:
        try:
            return tokenizer.apply_chat_template(list(turns), chat_template=template, **switches, **options)
        except Exception as error:  # templates raise errors of Jinja and of their own
            reason = safe_parsing.sentence(error, 200) or type(error).__name__
            raise CorpusError(f"the chat template refuses a conversation of {text!r}: {reason}") from error

    rendered = render(messages, tokenize=False)
    encoded = tokenizer(rendered, add_special_tokens=False, return_offsets_mapping=True)
    ids, offsets = np.asarray(encoded["input_ids"], np.int32), np.asarray(encoded["offset_mapping"]).reshape(-1, 2)
    spans = [_content_span(messages, number, rendered, render) for number in range(len(messages))]
    is_content, is_assistant = (np.zeros(len(ids), bool) for _ in range(2))
    added = tokenizer.added_tokens_decoder.items()
    special = np.isin(ids, [*tokenizer.all_special_ids, *(number for number, token in added if token.special)])
    for message, (start, end) in zip(messages, spans, strict=True):
        inside = (offsets[:, 0] < end) & (offsets[:, 1] > start)
        is_content |= inside
        if message["role"] == "assistant":
            # the model has to generate the end of its turn as well
            stop = int(np.searchsorted(offsets[:, 0], end))
            is_assistant |= inside
            is_assistant[stop : stop + 1] |= special[stop : stop + 1]
    if _GENERATION.search(template):
        marks = render(messages, return_dict=True, return_assistant_tokens_mask=True)["assistant_masks"]
        is_assistant = np.asarray(marks, bool)
    return RenderedChat(ids, is_content, is_assistant)


def find_template(tokenizer: Any, rendering: Rendering, text: str) -> str:
    """Return the source of the chat template for the conversations of a text; see `encode_conversation` for errors."""
    templates = getattr(tokenizer, "chat_template", None)
    if not templates:
        raise CorpusError(
            f"{text!r} has conversations, but the model's tokenizer has no chat template: use a chat model, or type "
            "#fields= with the names of text fields"
        )
    if not isinstance(templates, dict):
        templates = {"default": templates}
    name = rendering.template or "default"
    if name not in templates:
        raise CorpusError(f"the tokenizer has no chat template {name!r}, only {', '.join(sorted(templates))}")
    template: str = templates[name]
    if rendering.thinking is not None and not any(switch in template for switch in _SWITCHES):
        raise CorpusError(f"the chat template has no switch for thinking: remove thinking= from {text!r}")
    return template


def _content_span(messages: Sequence[Message], number: int, rendered: str, render: Any) -> tuple[int, int]:
    """Return start and end, in characters, of the part of a rendered conversation that a message's content causes."""
    changed = [*messages[:number], {**messages[number], "content": _SENTINEL}, *messages[number + 1 :]]
    other = render(changed, tokenize=False)
    place = other.find(_SENTINEL)
    if place < 0:
        return 0, 0
    start = _common_length(rendered[:place], other[:place])
    tail = _common_length(rendered[start:][::-1], other[place + len(_SENTINEL) :][::-1])
    return start, len(rendered) - tail


def _common_length(first: str, second: str) -> int:
    return len(os.path.commonprefix((first, second)))
