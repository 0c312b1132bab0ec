"""Answers: on which texts is the demo model trained, and on which is it measured?

Texts are built on the spot from what every installation carries, so that nothing is copied
into the project but the tokens that the demo reads: Python's own reference, the documentation of its
scientific packages, and the standard library's source code. A fourth, which no training sees, is the
table of Unicode's characters that Python's standard library has (Unicode License v3, permissive; the rest
of it is Python's own licence).
A document is one topic, docstring, source file or 64 rows of the table; about
8 % of the documents form the split "test", which no training ever sees.
"""

import ast
import gc
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import sys
import sysconfig
import unicodedata
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gprune.data.demo import prose
from gprune.data.demo.prose import docstrings
from gprune.system import safe_parsing
from gprune.system.files import make_folder, write_text

TRAINED: tuple[str, ...] = ("python-reference", "science-docs", "python-code")
"""texts that the demo model was trained on"""
NAMES: tuple[str, ...] = (*TRAINED, "unicode-table")
DESCRIPTIONS: dict[str, str] = {
    "python-reference": "English prose of Python's language topics and standard-library documentation.",
    "science-docs": "English prose of the documentation of NumPy, SciPy, scikit-learn and pandas.",
    "python-code": "Source code of Python's standard library, without its docstrings.",
    "unicode-table": "Table of Unicode's characters: code, name, category, direction and decomposition.",
}
SPLITS: tuple[str, ...] = ("train", "test")

# Goes into the key of the cache: raise it whenever a change here changes the texts.
_BUILDER = "1"
_TEST_PERCENT = 8
_CODE_CHARACTERS = 4_500_000
_SHORTEST_DOCSTRING = 41
_SHORTEST_CODE = 400
# The language topics carry more syntax than docstrings do and are still English.
_TOPIC_LETTERS = 0.75
_TABLE_ROWS = 64
"""rows of a document"""
_NAMED_BY_CODE = (
    *("CJK UNIFIED", "CJK COMPAT", "HANGUL SYLL", "TANGUT", "NUSHU", "KHITAN", "CUNEIFORM", "EGYPTIAN"),
    *("ANATOLIAN", "BAMUM", "SIGNWRITING"),
)
_SCIENCE_PACKAGES = {
    "numpy": "numpy",
    "scipy": "scipy",
    "sklearn": "scikit-learn",
    "pandas": "pandas",
}
# Tests, vendored copies, generated tables and other projects' files.
_LEFT_OUT = frozenset(
    "test tests testing _tests conftest.py idlelib lib2to3 ensurepip encodings pydoc_data "
    "turtledemo site-packages dist-packages externals _vendor vendored array_api_compat "
    "array_api_extra __pycache__ _precompute benchmarks f2py".split()
)
# Docstrings that are handed to compiled functions stand in these files as plain strings.
_ADDED_DOCUMENTATION = ("_add_newdocs.py", "_add_newdocs_scalars.py")


def documents(name: str, split: str, cache: Path | None = None) -> list[str]:
    """The documents of one of ``SPLITS`` of one of ``NAMES``, of one line or more, always in the same order.

    `cache` keeps the built text from call to call; None builds it anew. Raises ValueError where the name or
    the split is not known.
    """
    _check(name, "text", NAMES)
    _check(split, "split", SPLITS)
    if cache is None:
        return _build(name)[split]
    file = path(name, cache)
    kept = _read_whole(file)
    if kept is None:
        kept = _build(name)
        _write_whole(file, kept)
    return kept[split]


def path(name: str, cache: Path) -> Path:
    """Where a cache keeps a text, whether it is there or not; ValueError where the name is not known."""
    return cache / f"{name}-{version(name)}.json"


def version(name: str) -> str:
    """Twelve hexadecimal digits that hash everything that decides what a text says, without the sources.

    They cover the versions of Python, of the packages and of this builder. Raises ValueError where the name
    is not known.
    """
    _check(name, "text", NAMES)
    parts = [name, _BUILDER, platform.python_version()]
    if name == "science-docs":
        parts += [f"{pip} {importlib.metadata.version(pip)}" for pip in _SCIENCE_PACKAGES.values()]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def _check(value: str, kind: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"unknown {kind} {value!r}; known {kind}s: {', '.join(known)}")


def _build(name: str) -> dict[str, list[str]]:
    builders: dict[str, Callable[[], Iterator[str]]] = {
        "python-reference": _reference,
        "science-docs": _science,
        "python-code": _code,
        "unicode-table": _table,
    }
    splits: dict[str, list[str]] = {split: [] for split in SPLITS}
    with _quiet_parsing():
        for document in dict.fromkeys(builders[name]()):
            splits[_split_of(document)].append(document)
    return splits


def _split_of(document: str) -> str:
    digest = hashlib.sha256(document.encode("utf-8", "replace")).digest()
    return "test" if int.from_bytes(digest[:4], "big") % 100 < _TEST_PERCENT else "train"


@contextmanager
def _quiet_parsing() -> Iterator[None]:
    # A syntax tree is a million small objects: the cycle collector doubles the parsing time.
    collecting = gc.isenabled()
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        if collecting:
            gc.enable()


def _reference() -> Iterator[str]:
    seen: set[str] = set()
    for topic in _topics():
        yield from _fresh(prose.paragraphs(topic, least_letters=_TOPIC_LETTERS), seen)
    for docstring in _docstrings_below(_standard_library()):
        yield from _fresh(prose.paragraphs(docstring, _SHORTEST_DOCSTRING), seen)


def _science() -> Iterator[str]:
    seen: set[str] = set()
    for package in _SCIENCE_PACKAGES:
        for docstring in _docstrings_below(_package_folder(package)):
            yield from _fresh(prose.paragraphs(docstring), seen)


def _code() -> Iterator[str]:
    folder = _standard_library()
    # A hash's order mixes the modules' kinds, whichever of them the limit leaves out.
    files = sorted(_sources(folder), key=lambda file: _digest(file.relative_to(folder).as_posix()))
    characters = 0
    for file in files:
        parsed = _parse(file)
        if parsed is None:
            continue
        document = prose.without_docstrings(*parsed).strip() + "\n"
        if len(document) < _SHORTEST_CODE:
            continue
        characters += len(document)
        if characters > _CODE_CHARACTERS:
            return
        yield document


def _table() -> Iterator[str]:
    # ideographs and syllables are named by their codes alone
    rows = [
        _row(character)
        for character in map(chr, range(ord(" "), sys.maxunicode + 1))
        if (name := unicodedata.name(character, "")) and not name.startswith(_NAMED_BY_CODE)
    ]
    for start in range(0, len(rows), _TABLE_ROWS):
        yield "\n".join(rows[start : start + _TABLE_ROWS]) + "\n"


def _row(character: str) -> str:
    """What Python's standard library knows of a character, as in the file UnicodeData.txt of Unicode."""
    known = (
        unicodedata.category,
        unicodedata.combining,
        unicodedata.bidirectional,
        unicodedata.decomposition,
    )
    mirrored = "Y" if unicodedata.mirrored(character) else "N"
    parts = [
        f"{ord(character):04X}",
        unicodedata.name(character),
        *(one(character) for one in known),
        mirrored,
    ]
    return ";".join(map(str, parts))


def _fresh(lines: list[str], seen: set[str]) -> Iterator[str]:
    # A paragraph that many docstrings repeat stands once, or it would be in both splits.
    kept = [line for line in dict.fromkeys(lines) if line not in seen]
    seen.update(kept)
    if kept:
        yield "\n\n".join(kept) + "\n"


def _topics() -> Iterator[str]:
    # Python builds without its documentation lack the module; the docstrings still serve.
    if importlib.util.find_spec("pydoc_data") is None:
        return
    from pydoc_data import topics

    for topic in sorted(topics.topics):
        yield topics.topics[topic]


def _docstrings_below(folder: Path) -> Iterator[str]:
    for file in _sources(folder):
        try:
            source = file.read_text(encoding="utf-8")
            found = docstrings(source)
            if file.name in _ADDED_DOCUMENTATION:
                found += _plain_strings(ast.parse(source))
        except (UnicodeDecodeError, SyntaxError, ValueError):
            continue
        yield from found


def _plain_strings(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" in node.value:
            yield node.value


def _parse(file: Path) -> tuple[str, ast.Module] | None:
    try:
        source = file.read_text(encoding="utf-8")
        return source, ast.parse(source)
    except (UnicodeDecodeError, SyntaxError, ValueError):
        return None


def _sources(folder: Path) -> list[Path]:
    files = []
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _LEFT_OUT)
        files += [Path(place, name) for name in sorted(names) if name.endswith(".py")]
    return [file for file in files if file.name not in _LEFT_OUT]


def _standard_library() -> Path:
    return Path(sysconfig.get_path("stdlib"))


def _package_folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"the text science-docs needs the package {package!r}")
    return Path(spec.origin).parent


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def _read_whole(file: Path) -> dict[str, list[str]] | None:
    try:
        content = safe_parsing.json_file(file, file.name)
        splits: dict[str, list[str]] = content["splits"]
        whole = content["digest"] == _digest(json.dumps(splits))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return splits if whole and set(splits) == set(SPLITS) else None


def _write_whole(file: Path, splits: dict[str, list[str]]) -> None:
    content = {"digest": _digest(json.dumps(splits)), "splits": splits}
    make_folder(file.parent)
    # ASCII: a docstring may hold half of a surrogate pair, which UTF-8 cannot
    write_text(file, json.dumps(content))
