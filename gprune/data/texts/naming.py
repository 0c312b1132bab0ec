"""Parse the name of a text.

A name is a location and, after a ``#``, options joined by ``&``: ``wikitext2#split=test``,
``c4.jsonl#fields=prefix+gold_completion&documents=1280:1480``. The location is a known name, a file, a folder,
``hub:owner/name``, ``self:`` for text sampled from the model, or ``self:`` and the location of prompts for its answers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gprune.system import safe_parsing
from gprune.system.errors import CorpusError, GpruneError, SettingsError, UnreadableError
from gprune.system.safe_parsing import closest

EXAMPLE = "c4.jsonl#fields=prefix+gold_completion&documents=1280:1480"
OPTIONS: dict[str, str] = {
    "split": "the split, as in split=test",
    "config": "the configuration of a dataset, as in config=en",
    "revision": "the branch, tag or commit of a hub dataset",
    "fields": "the fields of a record that are joined, as in fields=prefix+gold_completion",
    "documents": "a slice of the documents, as in documents=1280:1480",
    "join": "join=blank-line puts all documents, a blank line between them, into one string",
    "template": "the name of a chat template of the tokenizer, for conversations",
    "thinking": "thinking=on or off, the switch of a chat template",
    "sequences": "sequences=packed or single: several whole conversations per sequence, or one",
    "positions": "positions=all or assistant: the tokens of a conversation that count in calibration",
    "prompt": "the number of tokens at the start of plain text that are a prompt for the model, as in prompt=16",
    "seed": "the seed of a text that the model writes, as in seed=1",
    "temperature": "the sampling temperature of such a text, as in temperature=0.8; 1 is the model's own distribution",
    "length": "the number of tokens of each document of such a text, or the most of an answer, as in length=256",
    "keep": "the share of the documents of such a text that is kept, those of lowest perplexity, as in keep=0.8",
}
JOIN_BLANK_LINE = "blank-line"
_VALUES = {
    "join": (JOIN_BLANK_LINE,),
    "thinking": ("on", "off"),
    "sequences": ("packed", "single"),
    "positions": ("all", "assistant"),
}
"""valid values of the options that are choices"""
# maximum number of characters of a path on Linux
_LONGEST_PATH = 4096
_MOST_DOCUMENTS = 10**15


@dataclass(frozen=True, slots=True)
class TextName:
    """A parsed name of a text."""

    text: str
    """the complete name"""
    base: str
    """the name without its options"""
    options: tuple[tuple[str, str], ...] = ()
    """the options in the order typed, as (name, value)"""

    def option(self, name: str) -> str:
        """Return the value of an option, or an empty string if the name does not have it."""
        return dict(self.options).get(name, "")

    @property
    def fields(self) -> tuple[str, ...]:
        """Return the requested fields of a record in the order of joining; empty without the option."""
        value = self.option("fields")
        return tuple(value.split("+")) if value else ()

    @property
    def documents(self) -> slice:
        """Return the slice of documents; all documents without the option."""
        start, stop = _bounds(self.option("documents") or ":")
        return slice(start, stop)

    @property
    def joined(self) -> bool:
        """Return True if the documents are joined into one string."""
        return self.option("join") == JOIN_BLANK_LINE

    def with_options(self, **changes: str) -> str:
        """Return the complete name with some options added or changed."""
        options = {**dict(self.options), **changes}
        return f"{self.base}#{'&'.join(f'{key}={value}' for key, value in options.items())}"

    def require_split(self, split: str, splits: Sequence[str], error_class: type[GpruneError] = CorpusError) -> str:
        """Return `split` if it is one of `splits`, else raise an error of class `error_class` that lists them."""
        if split in splits:
            return split
        example = self.with_options(split=closest(split, splits) or splits[0])
        raise error_class(f"{self.base!r} has no split {split!r}, only {', '.join(splits)}. Type for example {example}")

    def require_options(self, allowed: Sequence[str], kind: str) -> None:
        """Raise SettingsError if the name has an option that is not in `allowed`; `kind` describes the text."""
        for option, _ in self.options:
            if option not in allowed:
                rule = f"its options are {', '.join(allowed)}" if allowed else "it has none and is read completely"
                raise SettingsError(f"the text {self.text!r} is {kind} and has no option {option!r}: {rule}")


def parse(text: str) -> TextName:
    """Parse the name of a text.

    The location is the longest part before a ``#`` that is an existing path, because paths can contain ``#``. If there
    is no such path, the location is the part before the first ``#``.
    Raises SettingsError if the name is empty, or an option is unknown, repeated, or has no valid value.
    """
    text = text.strip()
    if not text:
        raise SettingsError("the name of a text is empty: give a known name, a file or a folder")
    location, options_text = _split_location(text)
    options: dict[str, str] = {}
    for part in options_text.split("&") if options_text else ():
        option, _, value = part.partition("=")
        _check_option(text, option, value)
        if option in options:
            raise SettingsError(f"the text {text!r} gives the option {option!r} twice: give it once")
        options[option] = value
    return TextName(text, location, tuple(options.items()))


def path_exists(text: str) -> bool:
    """Return True if a text is a path on this machine."""
    try:
        return safe_parsing.path(text, "the text").exists()
    except (OSError, UnreadableError):
        return False


def _split_location(text: str) -> tuple[str, str]:
    """Return the location and the options of a name; the options are empty without a ``#`` after the location."""
    if "#" not in text or path_exists(text):
        return text, ""
    positions = [i for i, character in enumerate(text[: _LONGEST_PATH + 1]) if character == "#"]
    position = next((i for i in reversed(positions) if i and path_exists(text[:i])), text.index("#"))
    if not text[:position] or not text[position + 1 :]:
        raise SettingsError(f"the text {text!r} has nothing before or after the #: type it like {EXAMPLE}")
    return text[:position], text[position + 1 :]


def _check_option(text: str, option: str, value: str) -> None:
    """Raise SettingsError if an option of a text is unknown or has no valid value."""
    if option not in OPTIONS:
        suggestion = closest(option, OPTIONS)
        hint = f"did you mean {suggestion!r}? " if suggestion else ""
        raise SettingsError(
            f"the text {text!r} has the unknown option {option!r}: {hint}Options are "
            f"{', '.join(OPTIONS)}, typed like {EXAMPLE}"
        )
    if not value:
        raise SettingsError(f"the option {option!r} of the text {text!r} has no value: {OPTIONS[option]}")
    if option == "fields" and not all(value.split("+")):
        raise SettingsError(f"fields={value} of the text {text!r} has an empty field: {OPTIONS[option]}")
    if value not in _VALUES.get(option, (value,)):
        raise SettingsError(f"{option}={value} of the text {text!r} is unknown: {OPTIONS[option]}")
    if option == "documents":
        try:
            _bounds(value)
        except ValueError as error:
            rule = f"{OPTIONS[option]}; either end may be left out"
            raise SettingsError(
                f"documents={value[:60]} of the text {safe_parsing.quote(text)} is not a slice: {rule}"
            ) from error


def _bounds(value: str) -> tuple[int | None, int | None]:
    """Return the bounds of a slice such as 1280:1480, None for an omitted one. Raises ValueError if it is not valid."""
    start, stop = (int(part) if part else None for part in value.split(":"))
    if any(abs(end) > _MOST_DOCUMENTS for end in (start, stop) if end is not None):
        raise ValueError(value)
    return start, stop
