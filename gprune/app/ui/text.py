"""Text from outside, made safe for Markdown, for figures and for spreadsheets."""

import html
import re
from collections import Counter

from gprune.study import study
from gprune.system import safe_parsing

_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+\-.!|$:<>~&])")
_ADDRESS = re.compile(r"(?i)(https?:(?=//)|www(?=\.))")
_CODE = re.compile(r"`([^`]+)`")
_ESCAPED = re.compile(r"\\([\\`*_{}\[\]()#+\-.!|$:<>~&])")
_ICON = re.compile(r"(?<!\\):(material/\w+|[a-z]+-badge):?")
_SPACE_IN_NUMBER = re.compile(r"(?<=\d) (?=[±×])|(?<=[±≈≤≥=<>]) (?=\d)")
_LETTER = re.compile(r"(?<![\w|-])[ABC](?![\w|-])")
_JOINER = "\u2060"
"""word joiner, an invisible character"""


def escape(text: object) -> str:
    """Escape Markdown, so that a name or a path is shown literally and is never a link.

    An escaped web address would still become a link, so it is interrupted by an invisible character.
    """
    return _escape_line(" ".join(str(text).split()))


def _escape_line(line: str) -> str:
    return _SPECIAL.sub(r"\\\1", _ADDRESS.sub(rf"\1{_JOINER}", line))


def strip_markdown(text: str) -> str:
    """Return Markdown of the pages as one line of plain text."""
    line = _ICON.sub("", text.replace(_JOINER, ""))
    line = re.sub(r"(?<!\\)(\*\*|`)", "", line)
    return " ".join(_ESCAPED.sub(r"\1", line).split())


def join_numbers(text: str) -> str:
    """Join numbers to their sign and error by no-break spaces, so that no line ends between them."""
    return _SPACE_IN_NUMBER.sub("\u00a0", text)


def in_figure(text: object) -> str:
    """Escape the mark-up that Plotly understands in names and titles."""
    return html.escape(str(text), quote=False)


def text_names(settings: study.Study) -> dict[str, str]:
    """Return the short names of a study's calibration texts by letter; each name is unique."""
    names = {letter: name_texts(letter, settings) for letter in "ABC"[: 2 + bool(settings.substitute)]}
    count = Counter(names.values())
    return {letter: name if count[name] == 1 else f"{name} ({letter})" for letter, name in names.items()}


def names_in_figure(settings: study.Study) -> dict[str, str]:
    """Return the names of `text_names`, escaped for figures."""
    return {letter: in_figure(name) for letter, name in text_names(settings).items()}


def name_texts(sentence: str, settings: study.Study) -> str:
    """Replace the letters of a study's calibration texts by their short names."""
    texts = {"A": settings.primary, "B": settings.auxiliary, "C": settings.substitute}
    return _LETTER.sub(lambda letter: short_text(settings, texts[letter[0]] or letter[0]), sentence)


def text_pair(settings: study.Study) -> tuple[str, str]:
    """Return the short names of a study's texts A and B as Markdown."""
    return escape(short_text(settings, settings.primary)), escape(short_text(settings, settings.auxiliary))


def from_figure(text: object) -> str:
    """Return the plain text of a name or title in a figure, without Plotly's mark-up."""
    return " ".join(html.unescape(re.sub(r"</?[a-z]+[^<>]*>", " ", str(text))).split())


def short(text: str, width: int = 22) -> str:
    """Return a name without its folders and options, cut to `width` characters for narrow labels."""
    last = study.short(text.partition("#")[0]) or text
    return last if len(last) <= width else last[: width - 1] + "…"


def short_text(settings: study.Study, text: str, width: int = 22) -> str:
    """Return the study's name of a text, by default its file name, cut to `width` characters for narrow labels."""
    return short(settings.text_name(text), width)


def escape_error(error: object) -> str:
    """Return an error for a page: one sentence of bounded length, without mark-up of its own.

    Text between backticks, such as a command, is shown as code without mark-up.
    """
    # the split puts the text between backticks at the odd indices
    parts = _CODE.split(safe_parsing.sentence(error))
    return "".join(f"`{part}`" if i % 2 else _escape_line(part) for i, part in enumerate(parts))
