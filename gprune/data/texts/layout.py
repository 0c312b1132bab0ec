"""Answers: which files of a dataset folder belong to which split?

The layout is the hub's: a README.md whose header lists configurations and the files of their splits, or
files and folders whose names say the split. It is worked out from paths alone, so that a local folder and
the listing of a hub repository are read in the same way. Loading scripts are never run.
"""

import os
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any

from gprune.data.texts.naming import TextName
from gprune.system import safe_parsing
from gprune.system.errors import CorpusError, UnreadableError
from gprune.system.nearest import closest

Splits = dict[str, list[str]]

CARD = "README.md"
_MOST_CARD = 16 * 2**20
_LONGEST_PATTERN, _MOST_PATTERNS = 1000, 10_000
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
SPLIT_WORDS = {
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

    Raises CorpusError where the folder holds no data, or not this split or configuration.
    """
    saved = _saved_to_disk(folder)
    splits = saved or splits_of(listing(folder), read_card(folder / CARD), name)
    with safe_parsing.refused_as(CorpusError):
        what = f"the dataset folder {safe_parsing.quoted(folder.name)}"
        return tuple(safe_parsing.inside(folder, path, what) for path in pick_split(splits, name, split))


def pick_split(splits: Splits, name: TextName, split: str) -> list[str]:
    """The files of one split.

    Raises CorpusError where there are no data files, or none of this split; the message lists the splits.
    """
    if not any(splits.values()):
        kinds = ", ".join(_DATA_SUFFIXES)
        raise CorpusError(f"{name.place!r} holds no data files ({kinds}, also with .gz): give another folder")
    if splits.get(split):
        return splits[split]
    known = [known for known, files in splits.items() if files]
    example = name.typed(split=closest(split, known) or known[0])
    raise CorpusError(f"{name.place!r} has no split {split!r}, only {', '.join(known)}. Type for example {example}")


def splits_of(paths: Sequence[str], card: Mapping[str, Any], name: TextName) -> Splits:
    """The sorted files of each split, of paths inside a repository with forward slashes.

    `card` is the header of its README.md, maybe empty; `name` has the configuration. Raises CorpusError where
    that is unknown, or there are several and none was named.
    """
    data = sorted(path for path in paths if _is_data(path))
    listed = _configurations(card)
    if not listed:
        return _by_words(_below(data, name.option("config"), name))
    chosen = listed[_pick_config(listed, name)]
    base = chosen.get("data_dir")
    base = base if isinstance(base, str) else ""
    if not chosen.get("data_files"):
        return _by_words(_below(data, base, name))
    patterns = _patterns(chosen["data_files"], name)
    return {split: _matching(data, globs, base) for split, globs in patterns.items()}


def listing(folder: Path) -> list[str]:
    """Paths of all files below a folder, with forward slashes; hidden ones are left out.

    Raises CorpusError where the folder cannot be read.
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
    """The header of a README.md, or nothing where there is none.

    Raises CorpusError where it cannot be read, or is not valid YAML.
    """
    what = f"the header of {safe_parsing.quoted(str(card))}"
    with safe_parsing.refused_as(CorpusError, "name a file of the folder instead"):
        try:
            data = safe_parsing.contents(card, what, most=_MOST_CARD)
        except FileNotFoundError:
            return {}
        lines = data.decode("utf-8-sig", errors="replace").splitlines()
        start = next((number for number, line in enumerate(lines) if line.strip()), len(lines))
        if start == len(lines) or lines[start].strip() != "---":
            return {}
        end = next((n for n in range(start + 1, len(lines)) if lines[n].rstrip() == "---"), None)
        return safe_parsing.yaml_object("\n".join(lines[start + 1 : end]), what) if end is not None else {}


def _saved_to_disk(folder: Path) -> Splits:
    """Files of a folder written by `save_to_disk` of the datasets library, in their order."""
    with safe_parsing.refused_as(CorpusError, "save the dataset again"):
        if (folder / "dataset_dict.json").is_file():
            splits = _object(folder, "dataset_dict.json").get("splits")
            return {split: _saved_files(folder, split) for split in _texts(splits, folder, "splits")}
        if (folder / "state.json").is_file() and (folder / "dataset_info.json").is_file():
            split = _object(folder, "state.json").get("_split")
            return {split if isinstance(split, str) and split else "train": _saved_files(folder, "")}
    return {}


def _saved_files(folder: Path, split: str) -> list[str]:
    state = _object(folder, f"{split}/state.json" if split else "state.json").get("_data_files")
    entries = state if isinstance(state, list) else [state]
    names = [entry.get("filename") if isinstance(entry, dict) else None for entry in entries]
    return [(PurePosixPath(split) / name).as_posix() for name in _texts(names, folder, "_data_files")]


def _object(folder: Path, name: str) -> dict[str, Any]:
    """The object in a file of a saved dataset."""
    what = f"the dataset saved in {safe_parsing.quoted(str(folder))} is damaged: {safe_parsing.quoted(name)}"
    try:
        values = safe_parsing.json_file(safe_parsing.inside(folder, name, what), what, finite=False)
    except FileNotFoundError as error:
        raise UnreadableError(f"{what} is missing") from error
    if not isinstance(values, dict):
        raise UnreadableError(f"{what} holds no object")
    return values


def _texts(values: Any, folder: Path, field: str) -> list[str]:
    """A list of names that files may have, out of a file that may hold anything."""
    if not isinstance(values, list) or not all(isinstance(value, str) and value for value in values):
        what = f"the dataset saved in {safe_parsing.quoted(str(folder))} is damaged"
        raise UnreadableError(f"{what}: its {field} are {safe_parsing.quoted(values)}, and no list of names")
    return values


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
            if word in SPLIT_WORDS:
                return SPLIT_WORDS[word]
    return ""


def _pick_config(listed: Mapping[str, Mapping[str, Any]], name: TextName) -> str:
    asked = name.option("config")
    if asked in listed:
        return asked
    if not asked:
        standard = [config for config, values in listed.items() if _truth(values.get("default"))]
        if standard or "default" in listed:
            return (standard or ["default"])[0]
        if len(listed) == 1:
            return next(iter(listed))
    problem = f"has no configuration {asked!r}" if asked else "has several configurations"
    example = name.typed(config=closest(asked, listed) or next(iter(listed)))
    raise CorpusError(f"{name.place!r} {problem}: {', '.join(listed)}. Type for example {example}")


def _configurations(card: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The card's configurations by name; what is not in the form of one is passed over."""
    entries = card.get("configs")
    listed = [entry for entry in entries if isinstance(entry, Mapping)] if isinstance(entries, list) else []
    named = {entry.get("config_name"): entry for entry in listed if isinstance(entry.get("config_name"), str)}
    return {str(name): entry for name, entry in named.items() if name}


def _truth(value: Any) -> bool:
    """Whether a card says yes; its values are texts."""
    return value is True or (isinstance(value, str) and value.lower() in ("true", "yes", "on"))


def _patterns(data_files: Any, name: TextName) -> dict[str, list[str]]:
    """The card's data_files: a pattern, a list of patterns, a list of splits, or patterns by split.

    Raises CorpusError where it is something else, or more or longer patterns than a card has use for.
    """
    entries = _as_list(data_files)
    if isinstance(data_files, Mapping):
        found = {str(split): _as_list(globs) for split, globs in data_files.items()}
    elif all(isinstance(entry, Mapping) for entry in entries):
        found = {}
        for entry in entries:
            split = entry.get("split", "train")
            found[split if isinstance(split, str) else "train"] = _as_list(entry.get("path"))
    else:
        found = {"train": entries}
    for globs in found.values():
        odd = [glob for glob in globs if not isinstance(glob, str) or len(glob) > _LONGEST_PATTERN]
        if odd or len(globs) > _MOST_PATTERNS:
            raise CorpusError(
                f"the card of {safe_parsing.quoted(name.place)} has data_files that are no patterns "
                f"({safe_parsing.quoted(odd[0] if odd else f'{len(globs)} of them')}): name a file of the "
                f"folder"
            )
    return found


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [] if value is None else [value]


def _matching(data: list[str], globs: list[str], base: str) -> list[str]:
    whole = [(PurePosixPath(base) / glob).as_posix() for glob in globs]
    return [path for path in data if any(matches(path, glob) for glob in whole)]


def matches(name: str, pattern: str) -> bool:
    """Whether a relative path with forward slashes is one of those that a dataset's pattern means.

    ``*`` and ``?`` stay within a folder, ``**`` between two slashes is any number of folders. Nothing in a
    pattern is worse than slow by its own length.
    """
    folders = name.split("/")
    # which beginnings of the path the pattern so far means, by number of parts
    reached = {0}
    for part in pattern.split("/"):
        if part == "**":
            reached = set(range(min(reached, default=len(folders) + 1), len(folders) + 1))
        else:
            reached = {count + 1 for count in reached if count < len(folders) and fnmatchcase(folders[count], part)}
    return len(folders) in reached
