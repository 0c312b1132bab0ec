"""Answers: which files of a dataset folder belong to which split?

The layout is the hub's: a README.md whose header lists configurations and the files of their splits, or
files and folders whose names say the split. It is worked out from paths alone, so that a local folder and
the listing of a hub repository are read in the same way. Loading scripts are never run.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from gprune.corpora.naming import TextName, closest
from gprune.errors import CorpusError

Splits = dict[str, list[str]]

CARD = "README.md"
_DATA_SUFFIXES = (
    ".parquet",
    ".arrow",
    ".jsonl",
    ".ndjson",
    ".json",
    ".txt",
    ".text",
    ".raw",
    ".utf8",
    ".tokens",
)
# what dataset and model folders hold beside data
_NOT_DATA = frozenset(
    "dataset_info.json dataset_infos.json dataset_dict.json state.json config.json generation_config.json "
    "tokenizer.json tokenizer_config.json special_tokens_map.json added_tokens.json vocab.json merges.txt "
    "model.safetensors.index.json requirements.txt".split()
)
_SPLIT_WORDS = {
    "train": "train",
    "training": "train",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "dev": "validation",
    "test": "test",
    "testing": "test",
    "eval": "test",
    "evaluation": "test",
}


def folder_files(folder: Path, name: TextName, split: str) -> tuple[Path, ...]:
    """The files of one split of a local folder, in hub layout or written by `save_to_disk`.

    Args:
        folder: the folder.
        name: the name the person typed, for its configuration and for the messages.
        split: the split.

    Raises:
        CorpusError: the folder holds no data, or not this split or configuration.
    """
    saved = _saved_to_disk(folder)
    splits = saved or splits_of(listing(folder), read_card(folder / CARD), name)
    return tuple(folder / path for path in pick_split(splits, name, split))


def pick_split(splits: Splits, name: TextName, split: str) -> list[str]:
    """The files of one split.

    Raises:
        CorpusError: there are no data files, or none of this split; the message lists the splits.
    """
    if not any(splits.values()):
        kinds = ", ".join(_DATA_SUFFIXES)
        raise CorpusError(f"{name.place!r} holds no data files ({kinds}, also with .gz): give another folder")
    if splits.get(split):
        return splits[split]
    known = [known for known, files in splits.items() if files]
    example = name.typed(split=closest(split, known) or known[0])
    raise CorpusError(
        f"{name.place!r} has no split {split!r}, only {', '.join(known)}. Type for example {example}"
    )


def splits_of(paths: Sequence[str], card: Mapping[str, Any], name: TextName) -> Splits:
    """Sorts the files of a repository into splits.

    Args:
        paths: paths inside the repository, with forward slashes.
        card: header of the repository's README.md; may be empty.
        name: the name the person typed, for its configuration and for the messages.

    Returns:
        The paths of each split, sorted.

    Raises:
        CorpusError: the configuration is unknown, or there are several and none was named.
    """
    data = sorted(path for path in paths if _is_data(path))
    listed = {str(c["config_name"]): c for c in card.get("configs") or () if "config_name" in c}
    if not listed:
        return _by_words(_below(data, name.option("config"), name))
    chosen = listed[_pick_config(listed, name)]
    base = str(chosen.get("data_dir") or "")
    if not chosen.get("data_files"):
        return _by_words(_below(data, base, name))
    patterns = _patterns(chosen["data_files"])
    return {split: _matching(data, globs, base) for split, globs in patterns.items()}


def listing(folder: Path) -> list[str]:
    """Paths of all files below a folder, with forward slashes; hidden ones are left out.

    Raises:
        CorpusError: the folder cannot be read.
    """

    def refuse(error: OSError) -> None:
        raise CorpusError(f"the folder {error.filename!r} cannot be read: {error.strerror}") from error

    paths = []
    for place, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = sorted(child for child in folders if not child.startswith("."))
        inside = Path(place).relative_to(folder)
        paths += [(inside / child).as_posix() for child in names]
    return paths


def read_card(card: Path) -> Mapping[str, Any]:
    """The header of a README.md, or nothing where there is none."""
    if not card.is_file():
        return {}
    from huggingface_hub import metadata_load

    try:
        return metadata_load(card) or {}
    except Exception as error:  # the YAML library's own classes, and this file is not ours
        raise CorpusError(f"the header of {str(card)!r} is not valid YAML: {error}") from error


def _saved_to_disk(folder: Path) -> Splits:
    """Files of a folder written by `save_to_disk` of the datasets library, in their order."""
    try:
        if (folder / "dataset_dict.json").is_file():
            splits = json.loads((folder / "dataset_dict.json").read_text(encoding="utf-8"))["splits"]
            return {split: _saved_files(folder, split) for split in splits}
        if (folder / "state.json").is_file() and (folder / "dataset_info.json").is_file():
            split = json.loads((folder / "state.json").read_text(encoding="utf-8")).get("_split")
            return {split or "train": _saved_files(folder, "")}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorpusError(f"the dataset saved in {str(folder)!r} is damaged: {error!r}") from error
    return {}


def _saved_files(folder: Path, split: str) -> list[str]:
    state = json.loads((folder / split / "state.json").read_text(encoding="utf-8"))
    return [(PurePosixPath(split) / file["filename"]).as_posix() for file in state["_data_files"]]


def _is_data(path: str) -> bool:
    name = PurePosixPath(path).name.lower()
    hidden = any(part.startswith(".") for part in PurePosixPath(path).parts)
    return not hidden and name not in _NOT_DATA and name.removesuffix(".gz").endswith(_DATA_SUFFIXES)


def _below(data: list[str], base: str, name: TextName) -> list[str]:
    """Without a README.md a configuration is a folder."""
    if not base:
        return data
    prefix = f"{PurePosixPath(base).as_posix()}/"
    found = [path for path in data if path.startswith(prefix)]
    if not found:
        folders = sorted({PurePosixPath(path).parts[0] for path in data if "/" in path})
        known = f"its folders are {', '.join(folders)}" if folders else "it has no folders: leave config out"
        raise CorpusError(f"{name.place!r} has no configuration or folder {base!r}; {known}")
    return found


def _by_words(data: list[str]) -> Splits:
    """Sorts by split words in the names, a file's own name before its folders'; else all is train."""
    for by_name in (True, False):
        splits: Splits = {}
        for path in data:
            split = _split_word(path, by_name)
            if split:
                splits.setdefault(split, []).append(path)
        if splits:
            return splits
    return {"train": data}


def _split_word(path: str, by_name: bool) -> str:
    pure = PurePosixPath(path)
    parts = [pure.name] if by_name else reversed(pure.parent.parts)
    for part in parts:
        for word in re.split(r"[^a-z]+", part.lower()):
            if word in _SPLIT_WORDS:
                return _SPLIT_WORDS[word]
    return ""


def _pick_config(listed: Mapping[str, Mapping[str, Any]], name: TextName) -> str:
    asked = name.option("config")
    if asked in listed:
        return asked
    if not asked:
        standard = [config for config, values in listed.items() if values.get("default")]
        if standard or "default" in listed:
            return (standard or ["default"])[0]
        if len(listed) == 1:
            return next(iter(listed))
    problem = f"has no configuration {asked!r}" if asked else "has several configurations"
    example = name.typed(config=closest(asked, tuple(listed)) or next(iter(listed)))
    raise CorpusError(f"{name.place!r} {problem}: {', '.join(listed)}. Type for example {example}")


def _patterns(data_files: Any) -> dict[str, list[str]]:
    """The card's data_files: a pattern, a list of patterns, a list of splits, or patterns by split."""
    if isinstance(data_files, Mapping):
        return {str(split): _as_list(globs) for split, globs in data_files.items()}
    entries = _as_list(data_files)
    if all(isinstance(entry, Mapping) for entry in entries):
        return {str(entry.get("split", "train")): _as_list(entry.get("path")) for entry in entries}
    return {"train": entries}


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [] if value is None else [value]


def _matching(data: list[str], globs: list[str], base: str) -> list[str]:
    rules = [re.compile(_expression((PurePosixPath(base) / str(glob)).as_posix())) for glob in globs]
    return [path for path in data if any(rule.fullmatch(path) for rule in rules)]


def _expression(glob: str) -> str:
    """A path pattern as a regular expression: ** crosses folders, * and ? do not."""
    pieces = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts = re.split(r"(\*\*/|\*\*|\*|\?|\[[^\]]+\])", glob)
    return "".join(pieces.get(part) or (part if part.startswith("[") else re.escape(part)) for part in parts)
