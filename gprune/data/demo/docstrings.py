"""Answers: which docstrings does a source file hold, found without building its syntax tree?

The syntax trees of everything the demo's texts are made from cost seconds, and almost all of a tree is thrown
away. A docstring can be seen in the text itself: only strings and comments hide where a ``def`` or ``class``
stands, so one search that steps over both finds every header, and what follows its colon is a docstring or is
not. Where the text alone does not settle that, the file is parsed after all: the answer is the tree's.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from gprune.data.demo import prose


def _string_pattern(quote: str) -> str:
    """A string in three or in one of a kind of quotes; a backslash takes the next character with it."""
    # possessive: text that a string has taken is never tried again in another way
    long = rf"{quote * 2}[^{quote}\\]*+(?:(?:\\.|{quote}(?!{quote * 2}))[^{quote}\\]*+)*+{quote * 3}"
    short = rf"(?!{quote * 2})[^{quote}\\\n]*+(?:\\.[^{quote}\\\n]*+)*+{quote}"
    return rf"{quote}(?:{long}|{short}"


_DOUBLE, _SINGLE = _string_pattern('"'), _string_pattern("'")
_STRING = rf"{_DOUBLE})|{_SINGLE})"
# Every alternative begins with a plain character, which lets the search skip all other text in one go.
_STEP = re.compile(
    rf"#[^\n]*+|{_DOUBLE}|(?P<open>))|{_SINGLE}|(?P<open_single>))"
    r"|\n[ \t\f]*+(?:(?P<header>(?:async[ \t]+)?(?:def|class)\b)|(?P<case>case\b))",
    re.DOTALL,
)
_PLAIN_HEADER = re.compile(r"""[^()\[\]{}:#"'\\]*+(?:\([^()\[\]{}#"'\\]*+\)[^()\[\]{}:#"'\\]*+)?+:""")
_HEADER_PART = re.compile(rf"#[^\n]*+|{_STRING}|[()\[\]{{}}:]", re.DOTALL)
_TO_BODY = re.compile(r"(?:[ \t\f]*+(?:#[^\n]*+)?+\n)*+[ \t\f]*+")
_LITERAL = re.compile(rf"(?P<prefix>[rRuU]?+)(?P<string>{_STRING})", re.DOTALL)
_STATEMENT_END = re.compile(r"[ \t\f]*+(?:[\n#;]|\Z)")


class _UndecidedError(Exception):
    """The text alone does not tell what the syntax tree would."""


def docstrings(source: str) -> list[str]:
    """Returns the docstrings of a module, its classes and its functions, in source order.

    Returns:
        Each docstring as it stands in the source, as ``prose.docstrings`` finds them in the syntax tree.

    Raises:
        SyntaxError: the file had to be parsed and is not Python.
        ValueError: the file had to be parsed and holds a null character.
    """
    try:
        return list(_seen(source))
    except _UndecidedError:
        return list(prose.docstrings(ast.parse(source)))


def _seen(source: str) -> Iterator[str]:
    if source.startswith("\ufeff") or "\0" in source:
        raise _UndecidedError
    text = "\n" + source
    yield from _docstring_at(text, 0)
    for step in _STEP.finditer(text):
        kind = step.lastgroup
        if kind == "header":
            yield from _docstring_at(text, _after_colon(text, step.end()))
        elif kind is not None:
            # an open quote; or `case`, under which the tree's docstrings are not looked for
            raise _UndecidedError
        elif _may_be_cut(text, step.start(), step.end()):
            raise _UndecidedError


def _may_be_cut(text: str, start: int, end: int) -> bool:
    """Whether what looks like a string can be the beginning of a formatted one that goes on.

    Its fields may hold strings in the same quotes. At the first of those a field's brace is still open, while
    the braces of a whole formatted string are even.
    """
    if text[start] == "#" or text[start - 1] not in "fFtTrR":
        return False
    if text[start - 1] in "rR" and text[start - 2] not in "fFtT":
        return False
    return (text.count("{", start, end) - text.count("}", start, end)) != 0


def _after_colon(text: str, place: int) -> int:
    plain = _PLAIN_HEADER.match(text, place)
    if plain is not None:
        return plain.end()
    depth = 0
    for part in _HEADER_PART.finditer(text, place):
        sign = text[part.start()]
        if sign in "([{":
            depth += 1
        elif sign in ")]}":
            depth -= 1
        elif sign == ":" and depth == 0:
            return part.end()
    raise _UndecidedError


def _docstring_at(text: str, place: int) -> Iterator[str]:
    """The string that a body consists of or begins with; nothing where it begins with something else."""
    begin = _TO_BODY.match(text, place).end()  # type: ignore[union-attr]
    if text[begin : begin + 1] in ("(", "\\"):
        # a docstring can stand in brackets or behind a continued line
        raise _UndecidedError
    literal = _LITERAL.match(text, begin)
    if literal is None:
        return
    if _STATEMENT_END.match(text, literal.end()) is None:
        # strings that are put together, or an expression that begins with a string
        raise _UndecidedError
    yield _value(literal["prefix"], literal["string"])


def _value(prefix: str, string: str) -> str:
    if "\\" in string and prefix not in ("r", "R"):
        try:
            value: str = ast.literal_eval(string)
        except (SyntaxError, ValueError) as error:
            raise _UndecidedError from error
        return value
    quotes = 3 if string[:3] in ('"""', "'''") and len(string) > 2 else 1
    return string[quotes:-quotes]
