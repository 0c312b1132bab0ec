"""Answers: which model does a name mean, and is it byte for byte the one a result was computed with?

Needs no torch, so that the app can ask. Fingerprints enter the key of every cached result.
"""

import contextlib
import hashlib
from pathlib import Path
from typing import Any

from gprune.models import families, hub, shapes, weight_headers
from gprune.store import digests
from gprune.system import safe_parsing
from gprune.system.errors import ModelError, UnreadableError
from gprune.system.progress import Progress

CONFIG_FILE = "config.json"
ADAPTER_FILE = "adapter_config.json"
WEIGHT_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
)
SENTENCE_PIECES = "tokenizer.model"
VOCABULARY_FILES = ("tokenizer.json", SENTENCE_PIECES, "vocab.json")
"""A tokenizer needs at least one of these."""
MOST_DIGITS = 40


def resolve(name: str) -> str:
    """What a person's word for a model means: ``demo``, a folder, a hub name or ``random:SHAPE``.

    The bundled model's folder, that of a shape's configuration, an existing folder as an absolute path, else
    the name itself, taken for a hub name. Raises ModelError where the word can be none of these.
    """
    if name == "demo":
        from gprune.data.demo import MODEL_FOLDER

        return str(MODEL_FOLDER)
    if shapes.is_random(name):
        return str(shapes.folder(name))
    with safe_parsing.refused_as(ModelError):
        folder = safe_parsing.path(name, "the model")
        return str(folder.resolve()) if folder.is_dir() else name


def is_hub_name(name: str) -> bool:
    """Whether a name that is no folder here can be one of the hub, owner/name."""
    return name.count("/") == 1 and not name.startswith((".", "/", "~", shapes.RANDOM))


def locate(name: str, *, download: bool = False, on_progress: Progress | None = None) -> Path:
    """The local folder that holds a model's files; none with weights for ``random:SHAPE``.

    If `download`, a hub model that is not on this machine is fetched; safetensors only, no pickled weights.
    `on_progress` is told of it; the hub's own bars are drawn where left out. Raises ModelError where there is
    no such folder, or the hub has no such model, keeps it behind a gate or cannot be reached, or the disk is
    too small for it.
    """
    resolved = resolve(name)
    with safe_parsing.refused_as(ModelError):
        folder = safe_parsing.path(resolved, "the model")
    if folder.is_dir() or shapes.holds(folder):
        return folder
    if folder.is_file():
        raise ModelError(f"{name!r} is a file: give the folder that holds it, with {CONFIG_FILE} and the weights")
    if not is_hub_name(name):
        raise ModelError(f"there is no model folder {resolved!r}: check the spelling, or give a hub name owner/name")
    return hub.snapshot(name, download, lacking, on_progress)


def lacking(folder: Path) -> str:
    """What a model's folder lacks of what every model needs; empty where it is whole."""
    try:
        configuration(folder)
        weight_files(folder)
        require_tokenizer(folder)
    except ModelError as error:
        return str(error).partition(": ")[0]
    return ""


def configuration(folder: Path) -> dict[str, Any]:
    """The values of a model folder's ``config.json``; ModelError where it is missing or no JSON object.

    A stored head that differs from the embedding is not tied, whatever the file says.
    """
    if shapes.holds(folder) and (layers := shapes.layers(folder)):
        return shapes.deepened(configuration(shapes.base(folder)), layers)
    values = _configured(folder)
    return values | {families.TIED: False} if _is_head_separate(folder, values) else values


def _configured(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG_FILE
    try:
        values = _object(folder, CONFIG_FILE)
    except FileNotFoundError as error:
        if (folder / ADAPTER_FILE).is_file():
            raise adapter_error(folder) from error
        raise ModelError(f"the folder {str(folder)!r} has no {CONFIG_FILE}: choose the model's own folder") from error
    except UnreadableError as error:
        raise ModelError(f"{str(path)!r} cannot be read ({error}): copy the model again") from error
    if not isinstance(values, dict):
        raise ModelError(f"{str(path)!r} holds no configuration (got {type(values).__name__}): copy the model again")
    return values


def has_separate_head(folder: Path) -> bool:
    """Return True if the head in a folder differs from the embedding although ``config.json`` ties them."""
    return _is_head_separate(folder, _configured(folder))


def _is_head_separate(folder: Path, values: dict[str, Any]) -> bool:
    tied = families.language_values(values).get(families.TIED)
    return bool(tied) and weight_headers.is_head_separate(stored_tensors(folder))


def stored_tensors(folder: Path) -> dict[str, weight_headers.Tensor]:
    """Return the tensors of a model folder by name; nothing for weights that are random, missing or damaged."""
    with contextlib.suppress(ModelError):
        return weight_headers.tensors(weight_files(folder))
    return {}


def number_type(folder: Path) -> str:
    """Return the number type of a model's weights as stored; for random weights the one that is configured."""
    values = configuration(folder)
    stored = weight_headers.most_common_type(stored_tensors(folder))
    return stored or str(values.get("dtype") or values.get("torch_dtype") or "float32")


def adapter_error(folder: Path) -> ModelError:
    """Return the error for a folder that holds an adapter, which transformers may apply to another model."""
    try:
        base = _object(folder, ADAPTER_FILE)["base_model_name_or_path"]
    except (OSError, UnreadableError, KeyError, TypeError):
        base = "another model"
    return ModelError(
        f"the model {str(folder)!r} is a PEFT adapter of {base}: merge it first (`merge_and_unload`) or name the "
        f"merged folder, which holds no {ADAPTER_FILE}"
    )


def _object(folder: Path, name: str) -> Any:
    """The value in a JSON file of a model's folder; links may lead to the hub's cache only."""
    # configurations of other families hold infinite limits and "no limit" as a number of 31 digits
    place = safe_parsing.inside(folder, name, "the model")
    return safe_parsing.json_file(place, name, finite=False, digits=MOST_DIGITS)


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files that hold a model's weights, in order of name; none where these are random.

    Raises ModelError where there are none, only pickled ones, or one that the index names is missing.
    """
    if shapes.holds(folder):
        return []
    if (folder / WEIGHT_FILE).is_file():
        with safe_parsing.refused_as(ModelError):
            return [safe_parsing.inside(folder, WEIGHT_FILE, f"the model {safe_parsing.quoted(folder.name)}")]
    if (folder / INDEX_FILE).is_file():
        return [folder / INDEX_FILE, *_indexed_files(folder)]
    if any(folder.glob("*.bin")) or any(folder.glob("*.pt")) or any(folder.glob("*.pth")):
        raise ModelError(
            f"the folder {str(folder)!r} has pickled weights only, which can run code when they are read: "
            f"convert them to {WEIGHT_FILE}"
        )
    raise ModelError(f"the folder {str(folder)!r} has no weights: it needs {WEIGHT_FILE} or {INDEX_FILE}")


def files(folder: Path) -> list[Path]:
    """The files that make a model: its configuration and its weights; ModelError as `weight_files`."""
    own = shapes.base(folder) if shapes.holds(folder) else folder
    return [own / CONFIG_FILE, *weight_files(folder)]


def _indexed_files(folder: Path) -> list[Path]:
    index = folder / INDEX_FILE
    try:
        names = sorted(set(_object(folder, INDEX_FILE)["weight_map"].values()))
        for name in names:
            safe_parsing.inside(folder, name, "its weight_map")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = safe_parsing.sentence(error, 160) if isinstance(error, UnreadableError) else repr(error)
        raise ModelError(f"{str(index)!r} cannot be read ({reason}): copy the model again") from error
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise ModelError(
            f"the folder {str(folder)!r} lacks {len(missing)} of {len(names)} weight files, the first is "
            f"{missing[0]!r}: copy the model again"
        )
    return [folder / name for name in names]


def require_offloadable(folder: Path) -> None:
    """Raises ModelError where a model's layers cannot wait in their files: its weights are in none."""
    if not weight_files(folder):
        raise ModelError(
            f"{shapes.RANDOM}{folder.name} has no files of weights in which layers could wait: leave offload out"
        )


def require_same(name: str, known: str, memory: Path | None = None, card: str = "") -> None:
    """Checks that the model which is here is the one that a run has read, by its known fingerprint.

    For the other arguments see `fingerprint`. Raises ModelError where it is gone, or has changed.
    """
    if fingerprint(name, memory, card) != known:
        raise changed(name)


def changed(name: str) -> ModelError:
    """What is said where a model is no longer the one that a run has read."""
    return ModelError(
        f"the model folder {resolve(name)!r} has changed since the run: put the model back, or run the study again"
    )


def fingerprint(name: str, memory: Path | None = None, card: str = "") -> str:
    """SHA-256 of a model, 64 hexadecimal digits: its configuration and its weights, or how these are made.

    A file is read once, in blocks, however large it is; again only if it may have changed since. A hub model
    must be on this machine; a copy of a folder elsewhere has the same. `memory` keeps digests for other
    processes; none where left out. `card` names the GPU that makes random weights, which makes others than a
    CPU; empty on a CPU. Raises ModelError where there is no such model, or a file is missing or cannot be
    read.
    """
    folder = locate(name)
    configuration(folder)
    found = _combined(files(folder), memory)
    if not shapes.holds(folder):
        return found
    layers = shapes.layers(folder)
    depth = f" layers {layers}" if layers else ""
    return hashlib.sha256(f"{found} {shapes.WEIGHTS} {card}{depth}".encode()).hexdigest()


def tokenizer_fingerprint(name: str) -> str:
    """SHA-256 of a model's tokenizer files; ModelError where there is no such model, or no tokenizer."""
    folder = tokenizer_folder(locate(name))
    require_tokenizer(folder)
    with safe_parsing.refused_as(ModelError):
        what = f"the tokenizer of {safe_parsing.quoted(folder.name)}"
        files = [safe_parsing.inside(folder, file, what) for file in TOKENIZER_FILES if (folder / file).is_file()]
    return _combined(files)


def tokenizer_folder(folder: Path) -> Path:
    """The folder of a model's tokenizer: its own, or that of the demo where the weights are random."""
    if not shapes.holds(folder):
        return folder
    from gprune.data.demo import MODEL_FOLDER

    return MODEL_FOLDER


def require_tokenizer(folder: Path) -> None:
    """Raises ModelError where a model folder neither has a tokenizer nor borrows one."""
    folder = tokenizer_folder(folder)
    if not any((folder / name).is_file() for name in VOCABULARY_FILES):
        raise ModelError(
            f"the folder {str(folder)!r} has no tokenizer: it needs one of {', '.join(VOCABULARY_FILES)}; "
            "copy the one the model was trained with"
        )
    alone = not any((folder / name).is_file() for name in VOCABULARY_FILES if name != SENTENCE_PIECES)
    if alone and not any(folder.glob("*.py")):
        raise ModelError(
            f"the folder {str(folder)!r} has {SENTENCE_PIECES} alone, which does not say how blanks and the start of "
            "a text become tokens: write tokenizer.json beside it. Of a LLaMA: install sentencepiece, then "
            "LlamaTokenizer.from_pretrained(FOLDER, add_bos_token=True).save_pretrained(FOLDER) of transformers"
        )


def _combined(files: list[Path], memory: Path | None = None) -> str:
    try:
        contents = digests.of_files(files, memory)
    except OSError as error:
        raise ModelError(f"{str(error.filename)!r} cannot be read: {error.strerror or error}") from error
    digest = hashlib.sha256()
    for file, content in zip(files, contents, strict=True):
        digest.update(f"{file.name}:{content}\n".encode())
    return digest.hexdigest()
