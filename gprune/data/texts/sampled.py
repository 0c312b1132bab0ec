"""Texts sampled from the dense model, such as ``self:#seed=1&temperature=0.8`` and ``self:prompts.jsonl``.

The second form has the model's answers to the prompts of another text: to conversations without their last answer, to
the field ``prompt``, or to plain text.
The name has the options of the sampling, the study determines the size, and a stage of the run samples the text.
Calibration on text that the model writes follows Williams, Chrysostomou and Aletras (2025). As in Ji et al. (2025), the
documents with the highest perplexity are dropped.
"""

import math
import re
from dataclasses import dataclass
from typing import Literal

from gprune.data.texts import naming
from gprune.data.texts.naming import TextName
from gprune.system import forms, safe_parsing
from gprune.system.errors import SettingsError

Role = Literal["calibration", "evaluation", "held_out"]
"""purpose of a text; "held_out" text is for choosing masks and repairs"""
PREFIX = "self:"
OPTIONS = ("seed", "temperature", "length", "keep")
ANSWER_OPTIONS = ("seed", "temperature", "length", "prompt", "template", "thinking", "sequences", "positions")
"""options of a text of answers; its other options are those of the text of prompts"""
DESCRIPTION = "text that the dense model itself writes, sampled at the start of a run"
EXAMPLE = f"{PREFIX}#seed=1&temperature=0.8&keep=0.5"
EVALUATED_WINDOWS = 256
"""windows of a sampled evaluation text if the study sets no limit"""
_HIGHEST_TEMPERATURE = 10.0
_LEAST_KEPT = 0.05
_WHOLE = re.compile(r"[0-9]{1,9}")
_DECIMAL = re.compile(r"[0-9]{0,4}\.?[0-9]{0,9}")


@dataclass(frozen=True, slots=True)
class Sampling:
    """The options of a sampled text."""

    seed: int = 0
    """seed of every document"""
    temperature: float = 1.0
    """divisor of the logits; 1 is the model's own distribution"""
    length: int = 0
    """tokens of a document; 0 for the length of the calibration sequences or windows"""
    keep: float = 0.8
    """share of the documents that is kept: those with the lowest perplexity"""
    prompt: int = 0
    """tokens at the start of plain text that are a prompt; 0 for all"""


@dataclass(frozen=True, slots=True)
class Recipe:
    """Parameters of a sampled text in a study; together with the model they determine the tokens."""

    seed: int
    temperature: float
    length: int
    """tokens of a document"""
    keep: float
    """share of the sampled documents that is kept"""
    documents: int
    """number of kept documents"""
    role: Role
    """purpose of the text; the same seed gives different documents in each role"""

    @property
    def candidates(self) -> int:
        """Return the number of documents to sample, from which `documents` are kept."""
        # 1e-9 keeps a quotient such as 8.000000000000002 from being rounded up to 9
        return max(self.documents, math.ceil(self.documents / self.keep - 1e-9))


@dataclass(frozen=True, slots=True)
class AnswerRecipe(Recipe):
    """Parameters of answers; `length` limits prompt and answer together, `documents` is the number of sequences."""

    answer: int
    """maximum number of tokens of an answer; 0 for no other limit than `length`"""
    prompt: int
    """tokens at the start of plain text that are a prompt; 0 for all"""
    single: bool
    """True for one conversation per sequence, False to pack as many as fit"""


def is_sampled(text: str) -> bool:
    """Return True if a name is that of a text sampled from the model."""
    return text.strip().startswith(PREFIX)


def seed_of(text: str) -> int:
    """Return the seed of a sampled text. Raises SettingsError if its name is not valid."""
    return sampling_of(naming.parse(text)).seed


def prompts_of(name: TextName) -> str:
    """Return the name of the text whose prompts the model answers; empty for a text that is sampled without prompts."""
    location = name.base.removeprefix(PREFIX)
    if not location or location == name.base:
        return ""
    options = {key: value for key, value in name.options if key not in ANSWER_OPTIONS}
    return TextName(location, location).with_options(**options) if options else location


def sampling_of(name: TextName) -> Sampling:
    """Return the options of a sampled text. Raises SettingsError for another text or an invalid value."""
    has_prompts = bool(prompts_of(name))
    has_stray_option = name.base.removeprefix(PREFIX).partition("=")[0] in OPTIONS
    if has_stray_option or (name.base != PREFIX and not has_prompts):
        raise SettingsError(
            f"{safe_parsing.quote(name.text)} is not a text sampled from the model: type {PREFIX} with options "
            f"after a #, as in {EXAMPLE}"
        )
    if not has_prompts:
        name.require_options(OPTIONS, "sampled from the model")
    elif name.option("keep"):
        raise SettingsError(f"every answer of {safe_parsing.quote(name.text)} is kept: remove keep=")
    defaults = Sampling()
    return Sampling(
        seed=int(_parse_number(name, "seed", defaults.seed, 0, 10**9)),
        temperature=_parse_number(name, "temperature", defaults.temperature, 0.01, _HIGHEST_TEMPERATURE),
        length=int(_parse_number(name, "length", defaults.length, 2, forms.MOST_LENGTH)),
        keep=_parse_number(name, "keep", defaults.keep, _LEAST_KEPT, 1.0),
        prompt=int(_parse_number(name, "prompt", defaults.prompt, 1, forms.MOST_LENGTH)),
    )


def recipe(text: str, role: Role, sequences: int | None, length: int) -> Recipe:
    """Return the recipe of a sampled text for `sequences` sequences or windows of `length` tokens.

    `sequences` is None for an evaluation without a limit. Raises SettingsError if the name is not valid.
    """
    name = naming.parse(text)
    sampling = sampling_of(name)
    if prompts_of(name):
        # an evaluation without a limit reads the answers to all prompts
        numbers = (sampling.seed, sampling.temperature, length, 1.0, sequences or 0, role)
        return AnswerRecipe(*numbers, sampling.length, sampling.prompt, name.option("sequences") == "single")
    tokens = (EVALUATED_WINDOWS if sequences is None else sequences) * length
    document_length = sampling.length or length
    documents = math.ceil(tokens / document_length)
    return Recipe(sampling.seed, sampling.temperature, document_length, sampling.keep, documents, role)


def describe_sampling(sampling: Sampling, prompts: str = "") -> str:
    """Describe the options of a sampled text or, if `prompts` names a text of prompts, of answers."""
    if prompts:
        answer = f", at most {sampling.length:,} tokens" if sampling.length else ""
        return f"seed {sampling.seed}, temperature {sampling.temperature:g}{answer}"
    length = f"documents of {sampling.length:,} tokens, " if sampling.length else ""
    share = f"the {sampling.keep:.0%} of lowest perplexity" if sampling.keep < 1 else "all of them kept"
    return f"seed {sampling.seed}, temperature {sampling.temperature:g}, {length}{share}"


def _parse_number(name: TextName, option: str, default: float, least: float, limit: float) -> float:
    """Return the value of an option, from `least` to `limit`; it must be an integer if the default is an integer."""
    text, is_whole = name.option(option), isinstance(default, int)
    if not text:
        return default
    is_number = (_WHOLE if is_whole else _DECIMAL).fullmatch(text) and any(digit.isdigit() for digit in text)
    value = (int if is_whole else float)(text) if is_number else -1
    if not least <= value <= limit:
        number_format = "," if is_whole else "g"
        raise SettingsError(
            f"{option}={safe_parsing.quote(text)} of the text {safe_parsing.quote(name.text)} must be "
            f"{'a whole' if is_whole else 'a'} number from {least:{number_format}} to {limit:{number_format}}"
        )
    return value
