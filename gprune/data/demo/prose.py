"""Answers: which sentences of a docstring, and which lines of a source file, are text?

Docstrings mix English with doctests, parameter tables and markup. ``paragraphs`` keeps the
English; ``tree_docstrings`` finds the docstrings of a source file and ``without_docstrings``
takes them out, so that a prose text and a code text made from one file share nothing.

The syntax trees of everything the demo's texts are made from cost seconds, and almost all of a tree is thrown
away. A docstring can be seen in the text itself: only strings and comments hide where a ``def`` or ``class``
stands, so ``docstrings`` finds every header by one search that steps over both, and what follows its colon is
a docstring or is not. Where the text alone does not settle that, the file is parsed after all: the answer is
the tree's.
"""

import ast
import inspect
import re
import string
from collections.abc import Iterator

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef

_ROLE = re.compile(r":[a-zA-Z:+-]+:`~?\.?([^`<]+?)(?:\s*<[^`>]*>)?`")
_LITERAL = re.compile(r"``([^`]*)``")
_REFERENCE = re.compile(r"\s*\[\d+\]_|`([^`<]+?)(?:\s*<[^`>]*>)?`__?")
_BULLET = re.compile(r"^\s*(?:[-*+•]|\(?\d+[.)]|\.\. \[\d+\])\s+")
_RULE = re.compile(r"^\s*[-=~^*#\"+'_.|]{3,}[-=~^*#\"+'_.|\s]*$")
_DIRECTIVE = re.compile(r"^\s*(?:\.\.\s|:\w[\w ]*:)")
# What a bullet without digits, a rule and a directive can begin with: most lines need no search at all.
_BULLET_SIGNS = frozenset("-*+•(.")
_RULE_SIGNS = frozenset("-=~^*#\"+'_.|")
_DIRECTIVE_SIGNS = frozenset(".:")
_SENTENCE_END = (".", "!", "?", ":", ")", "`", '"')
_ASCII_LETTERS_AND_SPACE = (string.ascii_letters + " ").encode()


def paragraphs(docstring: str, shortest: int = 80, least_letters: float = 0.85) -> list[str]:
    """The English paragraphs of a raw docstring, in order, each on one line and without markup.

    Left out are those of fewer than `shortest` characters or a smaller share of letters and spaces.
    """
    found = []
    for block in _blocks(inspect.cleandoc(docstring)):
        marked_up = " ".join(block)
        # taking markup out never makes a line longer, and takes long
        if len(marked_up) < shortest:
            continue
        line = _plain(marked_up)
        if _is_prose(line, shortest, least_letters):
            found.append(line)
    return found


def tree_docstrings(tree: ast.Module) -> Iterator[str]:
    """Yield the docstrings of a module, its classes and its functions, as they stand, in source order."""
    for node in _documented(tree):
        literal = _docstring_literal(node)
        if literal is not None:
            yield literal.value  # type: ignore[misc]


def without_docstrings(source: str, tree: ast.Module) -> str:
    """A source file without its docstrings, otherwise untouched; a body that was only one becomes ``...``."""
    lines: list[str | None] = list(source.split("\n"))
    for node in _documented(tree):
        literal = _docstring_literal(node)
        if literal is None or literal.end_lineno is None:
            continue
        for number in range(literal.lineno - 1, literal.end_lineno):
            lines[number] = None
        if len(node.body) == 1:
            lines[literal.lineno - 1] = " " * literal.col_offset + "..."
    return "\n".join(line for line in lines if line is not None)


def _documented(tree: ast.Module) -> Iterator[Documented]:
    # Walks statements only: expressions hold no docstrings and are most of the tree.
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Documented):
            yield node
        for field in ("finalbody", "orelse", "handlers", "body"):
            children = getattr(node, field, None)
            if isinstance(children, list):
                waiting.extend(child for child in reversed(children) if hasattr(child, "body"))


def _docstring_literal(node: Documented) -> ast.Constant | None:
    if not node.body or not isinstance(node.body[0], ast.Expr):
        return None
    value = node.body[0].value
    return value if isinstance(value, ast.Constant) and isinstance(value.value, str) else None


def _blocks(text: str) -> Iterator[list[str]]:
    # A block ends at an empty line, a rule, a bullet or a change of indentation, so that a
    # parameter's description is a block apart from its "name : type" line.
    block: list[str] = []
    indentation = 0
    in_directive = False
    for line in text.split("\n"):
        bare = line.lstrip()
        if not bare:
            if block:
                yield block
                block = []
            in_directive = False
            continue
        depth = len(line) - len(bare)
        sign = bare[0]
        bullet = _BULLET.match(line) if sign in _BULLET_SIGNS or sign.isdecimal() else None
        rule = sign in _RULE_SIGNS and _RULE.match(line) is not None
        if block and (rule or bullet is not None or depth != indentation):
            yield block
            block = []
        in_directive = in_directive or (sign in _DIRECTIVE_SIGNS and _DIRECTIVE.match(line) is not None)
        if rule or in_directive:
            continue
        block.append(line[bullet.end() :] if bullet else bare.rstrip())
        indentation = bullet.end() if bullet else depth
    if block:
        yield block


def _plain(block: str) -> str:
    text = block
    # a search for markup takes long, and few blocks have the sign of any
    if "`" in text:
        text = _LITERAL.sub(r"`\1`", _ROLE.sub(r"\1", text))
    if "`" in text or "]_" in text:
        text = _REFERENCE.sub(lambda match: match.group(1) or "", text)
    return " ".join(text.replace("**", "").replace("::", ":").split())


def _is_prose(line: str, shortest: int, least_letters: float) -> bool:
    if len(line) < shortest or line.startswith((">>>", "...", "$", "|", "+")):
        return False
    # Wrapped fragments of tables and formulas do not end like a sentence.
    if not line.endswith(_SENTENCE_END):
        return False
    return _letters_and_spaces(line) >= least_letters * len(line)


def _letters_and_spaces(line: str) -> int:
    if line.isascii():
        return len(line) - len(line.encode().translate(None, _ASCII_LETTERS_AND_SPACE))
    return sum(character.isalpha() or character == " " for character in line)


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
_STRING_LITERAL = re.compile(rf"(?P<prefix>[rRuU]?+)(?P<string>{_STRING})", re.DOTALL)
_STATEMENT_END = re.compile(r"[ \t\f]*+(?:[\n#;]|\Z)")


class _UndecidedError(Exception):
    """The text alone does not tell what the syntax tree would."""


def docstrings(source: str) -> list[str]:
    """The docstrings of a source as ``prose.tree_docstrings`` finds them in the syntax tree.

    Raises SyntaxError or ValueError where the file had to be parsed and is not Python, or holds a null
    character.
    """
    try:
        return list(_seen(source))
    except _UndecidedError:
        return list(tree_docstrings(ast.parse(source)))


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
    literal = _STRING_LITERAL.match(text, begin)
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
