"""Are docstrings found in the text of a file exactly those of its syntax tree?"""

import ast
import random

import pytest

from gprune.data.demo import prose
from gprune.data.demo.prose import docstrings

STATEMENTS = [
    '"""Of the module."""',
    "'one quote'",
    'r"raw \\d"',
    "u'unicode'",
    'b"bytes are none"',
    'f"formatted {1} is none"',
    '"over a\\\n line"',
    '"escaped \\x41 \\u00fc \\N{BULLET}"',
    '"""quote " and "" inside, \\""" escaped"""',
    "''",
    '""',
    '""""starts with a quote"""',
    '"a"; x = 1',
    '"a"  # a comment with "quotes" and def',
    'x = \'def f(): """no"""\'',
    "x = \"\"\"\nclass A:\n    '''no'''\n\"\"\"",
    "# def f(): '''no'''",
    "x = {'a': 1, 'b': [2, (3, )]}",
    "x = '#'",
    "pass",
    "...",
]
# The file is parsed where one of these can be a docstring, holds an open brace, or may belong to a `match`.
UNSETTLED = [
    '"put " "together"',
    '("in brackets")',
    '"percent %s" % 1',
    '"tuple", 1',
    'x = f"{x!r:>{9}} {{"',
    "case = 3",
]
HEADERS = [
    "def f():",
    "def f(a, b=1, *c, **d):",
    "def f(a: dict[str, int] = {'a:': 1}, b=(lambda: 0)) -> list[int]:",
    "def f(\n    a,  # a: comment):\n    b=':',\n):",
    "async def f(a=')'):",
    "async  def f( ) :  # comment",
    "class A:",
    "class A(B, metaclass=(lambda *a: type(*a))):",
    "class A[T: int]:" if hasattr(ast, "TypeAlias") else "class A(B[int]):",
    "def f() -> 'x: y':",
    "def f(a=f'{1:>3}'):",
    "def f \\\n  ():",
    "if x:",
    "for x in 'def':",
    "with x as y:",
    "while x:",
]


def block(draw, depth=0):
    """Source of a few statements, the headers among them with blocks of their own."""
    margin, text = "    " * depth, ""
    for _ in range(draw.randint(1, 3)):
        if depth >= 4 or draw.random() < 0.5:
            text += f"{margin}{draw.choice(UNSETTLED if draw.random() < 0.02 else STATEMENTS)}\n"
        elif draw.random() < 0.02:
            text += f"{margin}match x:\n{margin}    case 1:\n{block(draw, depth + 2)}"
        elif draw.random() < 0.1:
            text += f"{margin}try:\n{block(draw, depth + 1)}{margin}except x:\n{block(draw, depth + 1)}"
        else:
            text += f"{margin}{draw.choice(HEADERS)}\n{block(draw, depth + 1)}"
    # a comment alone is no block
    return text + margin + draw.choice(["pass", "'''the end'''", "'a' + 'b'"]) + "\n"


@pytest.fixture
def parsed(monkeypatch):
    """The syntax trees that docstrings were looked for in after all."""
    trees, from_tree = [], prose.tree_docstrings
    monkeypatch.setattr(prose, "tree_docstrings", lambda tree: trees.append(tree) or from_tree(tree))
    return trees


def in_the_tree(source):
    """Docstrings by Python's own function, from everything that has a body of statements."""

    def walk(node):
        found = []
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            own = ast.get_docstring(node, clean=False)
            found += [own] if own is not None else []
        for child in ast.iter_child_nodes(node):
            found += [] if isinstance(child, ast.Match) else walk(child)
        return found

    return walk(ast.parse(source))


def test_as_the_tree_says(parsed):
    draw, found = random.Random(0), 0
    for _ in range(2000):
        source = draw.choice(["", "\n", "# comment\n\n", "\f\n"]) + block(draw)
        source = source.rstrip("\n") if draw.random() < 0.5 else source
        expected = in_the_tree(source)
        assert docstrings(source) == expected, source
        found += len(expected)
    assert found > 2000 and len(parsed) < 1000


@pytest.mark.parametrize("statement", STATEMENTS + UNSETTLED)
def test_every_statement_under_every_header(statement):
    for header in HEADERS:
        source = f"{header}\n\n    # first\n\n    {statement}\n    y = 'z'\n\n\ndef g(): 'doc'\n"
        assert docstrings(source) == in_the_tree(source), source


@pytest.mark.parametrize(
    "source",
    [
        'x = f"{x["a"]}"\ndef f(): "doc"\n',
        "x = f'{x['#']}'\ndef f(): 'doc'\n",
        "x = rf'{x['''\ndef f(): 'no' ''']}'\n",
        "x = 'never closed\ndef f(): 'doc'\n",
        '"""never closed\n',
        "def f(:\n",
        "\ufeffdef f(): 'doc'\n",
    ],
)
def test_what_the_text_does_not_settle_is_parsed(source):
    # strings within strings of the same quotes are Python from 3.12 on
    try:
        expected = in_the_tree(source)
    except SyntaxError:
        with pytest.raises(SyntaxError):
            docstrings(source)
        return
    assert docstrings(source) == expected
