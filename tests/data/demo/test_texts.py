"""Are the demo's texts disjoint, the same every time, large enough, and readable English or code?"""

import inspect
import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from gprune.data import texts as corpora
from gprune.data.demo import MODEL_FOLDER, prose, texts
from gprune.models.loading import load_tokenizer

PROSE = ("python-reference", "science-docs")


@pytest.fixture
def no_building(monkeypatch):
    """Makes building a text an error, so that only the cache can answer."""

    def refuse(name):
        raise AssertionError(f"built {name} although the cache holds it")

    monkeypatch.setattr(texts, "_build", refuse)


@pytest.mark.parametrize("name", texts.NAMES)
def test_splits_share_no_document_and_the_test_split_is_about_8_percent(name, text_cache):
    train, test = (texts.documents(name, split, text_cache) for split in texts.SPLITS)
    assert not set(train) & set(test)
    assert len(set(train)) == len(train)
    train, test = (len(texts.documents(name, split, text_cache)) for split in texts.SPLITS)
    assert 0.04 < test / (train + test) < 0.14


@pytest.mark.parametrize("name", PROSE)
def test_prose_is_mostly_letters_without_tables_or_doctests(name, text_cache):
    text = "".join(texts.documents(name, "test", text_cache))
    letters = sum(character.isalpha() or character.isspace() for character in text)
    assert letters > 0.88 * len(text)
    assert ">>> " not in text
    assert "----" not in text


def test_a_second_build_gives_the_same_documents(text_cache):
    assert texts.documents("python-reference", "train") == texts.documents("python-reference", "train", text_cache)


@pytest.mark.long
def test_drawn_tokens_are_permuted_blocks_of_the_documents_tokens(text_cache):
    tokenizer = Tokenizer.from_file(str(MODEL_FOLDER / "tokenizer.json"))
    documents = texts.documents("python-reference", "train", text_cache)
    flow = [token for document in documents for token in tokenizer.encode(document).ids]
    blocks = [flow[start : start + 128] for start in range(0, len(flow) - 127, 128)]
    order = np.random.default_rng(7).permutation(len(blocks))
    drawn = corpora.draw("python-reference", load_tokenizer("demo"), 144, 128, 7, cache=text_cache)
    assert drawn.available == len(blocks)
    np.testing.assert_array_equal(drawn.ids, [blocks[place] for place in order[:144]])


@pytest.mark.usefixtures("no_building")
def test_whole_cache_is_used_instead_of_building(text_cache):
    assert texts.documents("science-docs", "test", text_cache)


@pytest.mark.parametrize("damage", ["cut", "changed", "empty"])
def test_damaged_cache_is_built_again(damage, tmp_path, monkeypatch):
    whole = {"train": ["first\n", "second\n"], "test": ["third\n"]}
    monkeypatch.setattr(texts, "_build", lambda name: whole)
    texts.documents("python-code", "train", tmp_path)
    (file,) = tmp_path.iterdir()
    kept = file.read_text()
    damaged = {"cut": kept[: len(kept) // 2], "changed": kept.replace("second", "zweite"), "empty": "{}"}
    file.write_text(damaged[damage])
    assert texts.documents("python-code", "train", tmp_path) == whole["train"]
    assert json.loads(file.read_text())["splits"] == whole


def test_version_follows_the_packages(monkeypatch):
    before = {name: texts.version(name) for name in texts.NAMES}
    assert len(set(before.values())) == len(texts.NAMES)
    monkeypatch.setattr(texts.importlib.metadata, "version", lambda package: "0.0")
    assert texts.version("science-docs") != before["science-docs"]
    assert texts.version("python-code") == before["python-code"]


@pytest.mark.parametrize("call", [texts.version, lambda name: texts.documents(name, "train")])
def test_unknown_name_is_named_beside_the_known(call):
    with pytest.raises(ValueError, match=r"unknown text 'novels'; known texts: python-reference, science-docs"):
        call("novels")


def rule_by_rule(docstring, shortest, least_letters):
    """The paragraphs of a docstring with every rule tried on every line."""
    blocks, block, indentation, in_directive = [], [], 0, False
    for line in inspect.cleandoc(docstring).split("\n"):
        depth = len(line) - len(line.lstrip())
        bullet = re.match(r"\s*(?:[-*+•]|\(?\d+[.)]|\.\. \[\d+\])\s+", line)
        ruled = re.match(r"\s*[-=~^*#\"+'_.|]{3,}[-=~^*#\"+'_.|\s]*$", line)
        empty = not line.strip()
        if empty or ruled or bullet or depth != indentation:
            blocks.append(block)
            block = []
        starts = re.match(r"\s*(?:\.\.\s|:\w[\w ]*:)", line)
        in_directive = bool(starts) or (in_directive and not empty)
        if not (empty or ruled or in_directive):
            block.append(line[bullet.end() :] if bullet else line.strip())
            indentation = bullet.end() if bullet else depth
    found = []
    for lines in [*blocks, block]:
        text = re.sub(r":[a-zA-Z:+-]+:`~?\.?([^`<]+?)(?:\s*<[^`>]*>)?`", r"\1", " ".join(lines))
        text = re.sub(r"``([^`]*)``", r"`\1`", text)
        text = re.sub(r"\s*\[\d+\]_|`([^`<]+?)(?:\s*<[^`>]*>)?`__?", lambda match: match[1] or "", text)
        text = re.sub(r"\s+", " ", text.replace("**", "").replace("::", ":")).strip()
        sentence = text.endswith((".", "!", "?", ":", ")", "`", '"'))
        table = text.startswith((">>>", "...", "$", "|", "+"))
        letters = sum(character.isalpha() or character == " " for character in text)
        if len(text) >= shortest and sentence and not table and letters >= least_letters * len(text):
            found.append(text)
    return found


PIECES = (
    "Words of a sentence. \n|\n\n|    |\t|- |* |• |1. |(2) |٣. |.. [3] |.. note:: |:param x: |----\n|== ==\n"
    "|[1]_|:func:`~a.b`|:class:`A <b.A>`|``code``|`link <x>`_|`name`__|**bold**|::|>>> |...|é ü |½ ² ٣ "
    '|\u2003|\x1f|"'
).split("|")


@given(st.lists(st.sampled_from(PIECES), max_size=30), st.integers(1, 40), st.sampled_from([0.5, 0.85]))
def test_paragraphs_follow_every_rule(pieces, shortest, least_letters):
    docstring = "".join(pieces)
    expected = rule_by_rule(docstring, shortest, least_letters)
    assert prose.paragraphs(docstring, shortest, least_letters) == expected


def test_paragraphs_of_installed_docstrings_follow_every_rule():
    found = 0
    for module in (np, np.linalg, np.random, np.ma, json, re, inspect):
        for value in vars(module).values():
            docstring = value.__doc__ if callable(value) and isinstance(value.__doc__, str) else ""
            expected = rule_by_rule(docstring, 80, 0.85)
            assert prose.paragraphs(docstring) == expected
            found += len(expected)
    assert found > 1000
