"""Are the demo's texts disjoint, the same every time, large enough, and readable English or code?"""

import ast
import json
from pathlib import Path

import pytest

from gprune.demo import prose, texts

PROSE = ("python-reference", "science-docs")
# Characters of the train split that a demo run needs: well below the readings on CPython 3.11.
LEAST_CHARACTERS = {"python-reference": 600_000, "science-docs": 2_000_000, "python-code": 2_500_000}


@pytest.fixture
def no_building(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes building a text an error, so that only the cache can answer."""

    def refuse(name: str) -> dict[str, list[str]]:
        raise AssertionError(f"built {name} although the cache holds it")

    monkeypatch.setattr(texts, "_build", refuse)


def test_every_text_is_described() -> None:
    assert set(texts.DESCRIPTIONS) == set(texts.NAMES)
    assert all(sentence.endswith(".") for sentence in texts.DESCRIPTIONS.values())


@pytest.mark.parametrize("name", texts.NAMES)
def test_splits_share_no_document(name: str, text_cache: Path) -> None:
    train, test = (texts.documents(name, split, text_cache) for split in texts.SPLITS)
    assert not set(train) & set(test)
    assert len(set(train)) == len(train)


@pytest.mark.parametrize("name", PROSE)
def test_splits_of_prose_share_no_paragraph(name: str, text_cache: Path) -> None:
    train, test = (
        {
            line
            for document in texts.documents(name, split, text_cache)
            for line in document.split("\n")
            if line
        }
        for split in texts.SPLITS
    )
    assert not train & test


@pytest.mark.parametrize("name", texts.NAMES)
def test_test_split_is_about_8_percent_of_the_documents(name: str, text_cache: Path) -> None:
    train, test = (len(texts.documents(name, split, text_cache)) for split in texts.SPLITS)
    assert 0.04 < test / (train + test) < 0.14


@pytest.mark.parametrize("name", texts.NAMES)
def test_train_split_is_large_enough(name: str, text_cache: Path) -> None:
    characters = sum(map(len, texts.documents(name, "train", text_cache)))
    assert characters > LEAST_CHARACTERS[name]


@pytest.mark.parametrize("name", PROSE)
def test_prose_is_mostly_letters_without_tables_or_doctests(name: str, text_cache: Path) -> None:
    text = "".join(texts.documents(name, "test", text_cache))
    letters = sum(character.isalpha() or character.isspace() for character in text)
    assert letters > 0.88 * len(text)
    assert ">>> " not in text
    assert "----" not in text


def test_code_parses_and_has_no_docstrings(text_cache: Path) -> None:
    for document in texts.documents("python-code", "test", text_cache):
        assert not list(prose.docstrings(ast.parse(document)))


def test_no_reference_paragraph_stands_in_the_code(text_cache: Path) -> None:
    code = "".join(texts.documents("python-code", "train", text_cache))
    held_out = texts.documents("python-reference", "test", text_cache)
    copied = [document for document in held_out if document.split("\n")[0] in code]
    assert len(copied) <= 0.01 * len(held_out)


def test_a_second_build_gives_the_same_documents(text_cache: Path) -> None:
    assert texts.documents("python-reference", "train") == texts.documents(
        "python-reference", "train", text_cache
    )


@pytest.mark.usefixtures("no_building")
def test_whole_cache_is_used_instead_of_building(text_cache: Path) -> None:
    assert texts.documents("science-docs", "test", text_cache)


def test_cache_leaves_no_partial_files(text_cache: Path) -> None:
    names = {file.name for file in text_cache.iterdir()}
    assert names == {f"{name}-{texts.version(name)}.json" for name in texts.NAMES}


@pytest.mark.parametrize("damage", ["cut", "changed", "empty"])
def test_damaged_cache_is_built_again(damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = {"train": ["first\n", "second\n"], "test": ["third\n"]}
    monkeypatch.setattr(texts, "_build", lambda name: whole)
    texts.documents("python-code", "train", tmp_path)
    (file,) = tmp_path.iterdir()
    kept = file.read_text()
    damaged = {"cut": kept[: len(kept) // 2], "changed": kept.replace("second", "zweite"), "empty": "{}"}
    file.write_text(damaged[damage])
    assert texts.documents("python-code", "train", tmp_path) == whole["train"]
    assert json.loads(file.read_text())["splits"] == whole


def test_version_follows_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {name: texts.version(name) for name in texts.NAMES}
    assert len(set(before.values())) == len(texts.NAMES)
    monkeypatch.setattr(texts.importlib.metadata, "version", lambda package: "0.0")
    assert texts.version("science-docs") != before["science-docs"]
    assert texts.version("python-code") == before["python-code"]


@pytest.mark.parametrize("call", [texts.version, lambda name: texts.documents(name, "train")])
def test_unknown_name_is_named_beside_the_known(call) -> None:
    with pytest.raises(
        ValueError, match=r"unknown text 'novels'; known texts: python-reference, science-docs"
    ):
        call("novels")


def test_unknown_split_is_named_beside_the_known() -> None:
    with pytest.raises(ValueError, match=r"unknown split 'dev'; known splits: train, test"):
        texts.documents("python-code", "dev")


def test_paragraphs_keep_sentences_and_drop_tables() -> None:
    docstring = """Return the weighted mean of the values along the given axis.

    Parameters
    ----------
    values : array_like of shape (n, m)
        The values whose mean is wanted, as an :class:`~numpy.ndarray` of real numbers.

    Examples
    --------
    >>> mean([1, 2, 3], weights=[1, 1, 2])
    2.25
    """
    assert prose.paragraphs(docstring, shortest=41) == [
        "Return the weighted mean of the values along the given axis.",
        "The values whose mean is wanted, as an numpy.ndarray of real numbers.",
    ]


def test_without_docstrings_keeps_the_rest_of_the_source() -> None:
    empty_class = 'class Empty:\n    """Nothing."""\n'
    function = 'def two():\n    """Two.\n\n    More."""\n    return 2\n'
    source = f'"""Module."""\n\n{empty_class}\n{function}'
    left = prose.without_docstrings(source, ast.parse(source))
    assert left == "\nclass Empty:\n    ...\n\ndef two():\n    return 2\n"
