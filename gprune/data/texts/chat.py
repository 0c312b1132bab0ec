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
from functools import cached_property
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


def as_conversation(document: str) -> str:
    """Return a document as a conversation; plain text becomes the message of a user."""
    if is_conversation(document):
        return document
    return write_document({"messages": [{"role": "user", "content": document}]}, "a prompt")


def is_conversation(document: str) -> bool:
    """Return True if a document is a conversation."""
    return document.startswith(_SEPARATOR)


def read_messages(document: str) -> list[Message]:
    """Return the messages of a conversation, without surrogates, which tokenizers reject."""
    messages: list[Message] = safe_parsing.json_value(document.removeprefix(_SEPARATOR), "a conversation")
    return [{key: safe_parsing.replace_surrogates(value) for key, value in message.items()} for message in messages]


def count_characters(document: str) -> int:
    """Return the number of characters of a document, of a conversation those of its contents."""
    if not is_conversation(document):
        return len(document)
    return sum(len(message["content"]) for message in read_messages(document))


class ChatEncoder:
    """Render the conversations of a text with a chat template of the tokenizer, and tokenize them."""

    def __init__(self, tokenizer: Any, rendering: Rendering, text: str) -> None:
        """Find the template; `text` is the name of the text.

        Raises CorpusError if the tokenizer lacks the template, or the template its switch for thinking.
        """
        self._tokenizer, self._text = tokenizer, text
        self._template = _find_template(tokenizer, rendering, text)
        self._switches = {} if rendering.thinking is None else dict.fromkeys(_SWITCHES, rendering.thinking)

    def encode(self, document: str) -> Array:
        """Return the (tokens,) int32 ids of a conversation. Raises CorpusError if the template refuses it."""
        return np.asarray(self._tokenize(self._render(read_messages(document)))["input_ids"], np.int32)

    def encode_prompt(self, document: str) -> RenderedChat:
        """Return the ids up to the point where the assistant answers the last message of another role.

        Raises CorpusError if there is no such message; see also `encode`.
        """
        messages = read_messages(document)
        while messages and messages[-1]["role"] == "assistant":
            messages.pop()
        if not messages:
            raise CorpusError(f"a conversation of {self._text!r} has no message to answer: remove it")
        return self._encode_messages(messages, add_generation_prompt=True)

    def encode_with_roles(self, document: str) -> RenderedChat:
        """Return the ids of a conversation, and which are content or the assistant's; for errors see `encode`."""
        return self._encode_messages(read_messages(document))

    def _encode_messages(self, messages: Sequence[Message], **options: Any) -> RenderedChat:
        rendered = self._render(messages, **options)
        encoded = self._tokenize(rendered, return_offsets_mapping=True)
        ids, offsets = np.asarray(encoded["input_ids"], np.int32), np.asarray(encoded["offset_mapping"]).reshape(-1, 2)
        is_content, is_assistant = (np.zeros(len(ids), bool) for _ in range(2))
        is_special = np.isin(ids, self._special_ids)
        for number, message in enumerate(messages):
            start, end = self._content_span(messages, number, rendered, **options)
            is_inside = (offsets[:, 0] < end) & (offsets[:, 1] > start)
            is_content |= is_inside
            if message["role"] == "assistant":
                # the model has to generate the end of its turn as well
                stop = int(np.searchsorted(offsets[:, 0], end))
                is_assistant |= is_inside
                is_assistant[stop : stop + 1] |= is_special[stop : stop + 1]
        if _GENERATION.search(self._template):
            options |= {"tokenize": True, "return_dict": True, "return_assistant_tokens_mask": True}
            marks = self._render(messages, **options)
            is_assistant = np.asarray(marks["assistant_masks"], bool)
        return RenderedChat(ids, is_content, is_assistant)

    @cached_property
    def _special_ids(self) -> list[int]:
        added = self._tokenizer.added_tokens_decoder.items()
        return [*self._tokenizer.all_special_ids, *(number for number, token in added if token.special)]

    def _render(self, messages: Sequence[Message], tokenize: bool = False, **options: Any) -> Any:
        options |= {"chat_template": self._template, "tokenize": tokenize} | self._switches
        try:
            return self._tokenizer.apply_chat_template(list(messages), **options)
        except Exception as error:  # templates raise errors of Jinja and of their own
            reason = safe_parsing.sentence(error, 200) or type(error).__name__
            raise CorpusError(f"the chat template refuses a conversation of {self._text!r}: {reason}") from error

    def _tokenize(self, rendered: str, **options: Any) -> Any:
        return self._tokenizer(rendered, add_special_tokens=False, verbose=False, **options)

    def _content_span(self, messages: Sequence[Message], number: int, rendered: str, **options: Any) -> tuple[int, int]:
        """Return start and end, in characters, of what the content of a message adds to a rendered conversation."""
        changed = [*messages[:number], {**messages[number], "content": _SENTINEL}, *messages[number + 1 :]]
        other = self._render(changed, **options)
        place = other.find(_SENTINEL)
        if place < 0:
            return 0, 0
        start = _common_length(rendered[:place], other[:place])
        tail = _common_length(rendered[start:][::-1], other[place + len(_SENTINEL) :][::-1])
        return start, len(rendered) - tail


def _find_template(tokenizer: Any, rendering: Rendering, text: str) -> str:
    """Return the source of the chat template for the conversations of a text; for errors see `ChatEncoder`."""
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


def _common_length(first: str, second: str) -> int:
    return len(os.path.commonprefix((first, second)))
