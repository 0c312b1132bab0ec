"""Find the folder of a model by its name, read its configuration, and fingerprint its files.

Fingerprints enter the key of every cached result. Needs no torch.
"""

import contextlib
import hashlib
from pathlib import Path
from typing import Any

from gprune.models import families, sources, weight_headers
from gprune.store import checksums
from gprune.system import safe_parsing
from gprune.system.errors import ModelError, SettingsError, UnreadableError

CONFIG_FILE = "config.json"
ADAPTER_FILE = "adapter_config.json"
GENERATION_FILE = "generation_config.json"
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
    "chat_template.jinja",
    "chat_template.json",
)
SENTENCE_PIECES = "tokenizer.model"
_NEEDED_PARTS = {"Bert": '"WordPiece"', "T5": '"Unigram"', "Gemma": '"<unk>"'}
"""string that tokenizer.json must contain for a tokenizer class, by the beginning of the class name"""
_OTHER_FOLDERS = {
    "*.gguf": "holds a GGUF file, which is not read: choose the folder of safetensors that {0} was made from",
    "model_index.json": "is a diffusers pipeline, which predicts no tokens: choose a causal language model",
    **dict.fromkeys(
        ("consolidated*", "params.json"),
        "is in Meta's or Mistral's own format: choose the copy that transformers reads, or convert it",
    ),
    "checkpoint-*": "holds checkpoints of a training: choose one of them, such as {0}",
    **dict.fromkeys(("trainer_state.json", "optimizer*"), "is a training state without a model: use save_pretrained"),
}
"""end of the error message for each kind of folder that is no model, by the name of a file that it contains"""
VOCABULARY_FILES = ("tokenizer.json", SENTENCE_PIECES, "vocab.json")
"""a tokenizer needs at least one of these files"""


def resolve(name: str) -> str:
    """Return the absolute folder of a bundled model, ``random:SHAPE`` or an existing folder; return others unchanged.

    The bundled models are ``demo`` and ``demo-experts``. Raises ModelError if a name cannot be a path.
    """
    from gprune.data.demo import MODEL_FOLDERS

    if name in MODEL_FOLDERS:
        return str(MODEL_FOLDERS[name])
    if sources.is_random(name):
        return str(sources.shape_folder(name))
    with safe_parsing.reraise_as(ModelError):
        folder = safe_parsing.path(name, "the model")
        return str(folder.resolve()) if folder.is_dir() else name


def is_hub_name(name: str) -> bool:
    """Return True if a name has the form of a hub name, owner/name."""
    return name.count("/") == 1 and not name.startswith((".", "/", "~", sources.RANDOM))


def locate(name: str, *, download: bool = False) -> Path:
    """Return the local folder of a model's files; the folder of ``random:SHAPE`` has no weights.

    If `download` is set, a hub model that is not on this machine is downloaded (`sources.snapshot`). Raises ModelError
    if there is no such folder or hub model, the hub model is gated, the hub cannot be reached, or the disk is too
    small.
    """
    resolved = resolve(name)
    with safe_parsing.reraise_as(ModelError):
        folder = safe_parsing.path(resolved, "the model")
    if folder.is_dir() or sources.is_shape(folder):
        return folder
    if folder.is_file():
        raise ModelError(f"{name!r} is a file: give the folder that holds it, with {CONFIG_FILE} and the weights")
    if not is_hub_name(name):
        raise ModelError(f"there is no model folder {resolved!r}: check the spelling, or give a hub name owner/name")
    return sources.snapshot(name, download, find_gap)


def find_gap(folder: Path) -> str:
    """Describe what is missing or damaged of configuration, weights and tokenizer of a folder; empty if nothing is."""
    try:
        configuration(folder)
        weight_files(folder)
        require_tokenizer(folder)
    except ModelError as error:
        # without the remedy, which follows the colon
        return str(error).partition(": ")[0]
    return ""


def configuration(folder: Path) -> dict[str, Any]:
    """Return the values of ``config.json``. Raises ModelError if it is missing or no JSON object.

    If the stored LM head differs from the embedding, ``tie_word_embeddings`` is false regardless of the file.
    """
    if sources.is_shape(folder) and (layers := sources.shape_layers(folder)):
        return sources.with_layers(configuration(sources.base_folder(folder)), layers)
    values = _read_configuration(folder)
    tied = families.language_values(values).get(families.TIED)
    is_separate = bool(tied) and weight_headers.is_head_separate(stored_tensors(folder))
    return values | {families.TIED: False} if is_separate else values


def _read_configuration(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG_FILE
    try:
        values = _read_json(folder, CONFIG_FILE)
    except FileNotFoundError as error:
        if (folder / ADAPTER_FILE).is_file():
            raise adapter_error(folder) from error
        raise _folder_error(folder, f"has no {CONFIG_FILE}: choose the model's own folder") from error
    except UnreadableError as error:
        raise ModelError(f"{str(path)!r} cannot be read ({error}): copy the model again") from error
    if not isinstance(values, dict):
        raise ModelError(f"{str(path)!r} holds no configuration (got {type(values).__name__}): copy the model again")
    return values


def optional_values(folder: Path, name: str) -> dict[str, Any]:
    """Return the values of the JSON file `name` of a model; an empty dict if it is missing or cannot be read."""
    with contextlib.suppress(OSError, UnreadableError):
        values = _read_json(folder, name)
        return values if isinstance(values, dict) else {}
    return {}


def stored_tensors(folder: Path) -> dict[str, weight_headers.Tensor]:
    """Return the tensors in the files of a model by name; an empty dict if weights are random, missing or damaged."""
    with contextlib.suppress(ModelError):
        return weight_headers.tensors(weight_files(folder))
    return {}


def parameter_tensors(folder: Path) -> list[weight_headers.Tensor]:
    """Return the stored tensors of a model; a tied LM head is left out, so that no parameter is counted twice."""
    tied = bool(families.language_values(configuration(folder)).get(families.TIED))
    return weight_headers.without_tied_head(weight_headers.tensors(weight_files(folder)), tied)


def number_type(folder: Path) -> str:
    """Return the number type of a model's stored weights, or that of its configuration for random weights."""
    values = configuration(folder)
    stored_type = weight_headers.most_common_type(stored_tensors(folder))
    return stored_type or str(values.get("dtype") or values.get("torch_dtype") or "float32")


def _folder_error(folder: Path, gap: str) -> ModelError:
    """Return the error for a folder that is no model; `gap` ends the message unless the kind of folder is known."""
    for pattern, description in _OTHER_FOLDERS.items():
        if files := sorted(folder.glob(pattern)):
            gap = description.format(files[0].name)
            break
    return ModelError(f"the folder {str(folder)!r} {gap}")


def adapter_error(folder: Path) -> ModelError:
    """Return the error for a folder with a PEFT adapter."""
    base = optional_values(folder, ADAPTER_FILE).get("base_model_name_or_path") or "another model"
    return ModelError(
        f"the model {str(folder)!r} is a PEFT adapter of {base}: merge it first (`merge_and_unload`) or name the "
        f"merged folder, which has neither {ADAPTER_FILE} nor tensors of an adapter"
    )


def _read_json(folder: Path, name: str) -> Any:
    # some configurations contain infinity, or a number of 31 digits for "no limit"
    path = safe_parsing.inside(folder, name, "the model")
    return safe_parsing.json_file(path, name, finite=False)


def weight_files(folder: Path) -> list[Path]:
    """Return the index of a model's weights, if there is one, and the safetensors files, sorted by name.

    The list is empty for random weights. Raises ModelError if the folder has no weights or only pickled ones, or a file
    that the index names is missing.
    """
    if sources.is_shape(folder):
        return []
    if (folder / WEIGHT_FILE).is_file():
        with safe_parsing.reraise_as(ModelError):
            return [safe_parsing.inside(folder, WEIGHT_FILE, f"the model {safe_parsing.quote(folder.name)}")]
    if (folder / INDEX_FILE).is_file():
        return [folder / INDEX_FILE, *_indexed_files(folder)]
    if any(any(folder.glob(pattern)) for pattern in ("*.bin", "*.pt", "*.pth")):
        raise ModelError(
            f"the folder {str(folder)!r} has pickled weights only, which can run code when they are read: "
            f"convert them to {WEIGHT_FILE}"
        )
    raise _folder_error(folder, f"has no weights: it needs {WEIGHT_FILE} or {INDEX_FILE}")


def files(folder: Path) -> list[Path]:
    """Return the files of configuration and weights. Raises ModelError, see `weight_files`."""
    config_folder = sources.base_folder(folder) if sources.is_shape(folder) else folder
    return [config_folder / CONFIG_FILE, *weight_files(folder)]


def _indexed_files(folder: Path) -> list[Path]:
    index = folder / INDEX_FILE
    try:
        names = sorted(set(_read_json(folder, INDEX_FILE)["weight_map"].values()))
        for name in names:
            safe_parsing.inside(folder, name, "its weight_map")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = safe_parsing.sentence(error, 160) if isinstance(error, UnreadableError) else repr(error)
        raise ModelError(f"{str(index)!r} cannot be read ({reason}): copy the model again") from error
    missing_files = [name for name in names if not (folder / name).is_file()]
    if missing_files:
        raise ModelError(
            f"the folder {str(folder)!r} lacks {len(missing_files)} of {len(names)} weight files, the first is "
            f"{missing_files[0]!r}: copy the model again"
        )
    return [folder / name for name in names]


def require_offloadable(folder: Path) -> None:
    """Raise ModelError if a model has no weight files, from which offloaded layers are read."""
    if not weight_files(folder):
        raise ModelError(f"{sources.RANDOM}{folder.name} has no weight files for offloaded layers: switch offload off")


def offloaded_error(purpose: str) -> SettingsError:
    """Return the error for offloaded layers if something needs all weights in memory; `purpose` names it."""
    return SettingsError(
        f"{purpose} needs the whole model in memory, and some of its layers are offloaded: switch offload off, use "
        "more GPUs, or leave out the methods that learn (dense, wanda_sp, flap, osscar and slimllm do not)"
    )


def require_same(name: str, expected: str, digests: Path | None = None, card: str = "") -> None:
    """Raise ModelError if a model is missing or its fingerprint is not `expected`, the one that a run recorded.

    For `digests` and `card` see `fingerprint`.
    """
    if fingerprint(name, digests, card) != expected:
        raise changed_error(name)


def changed_error(name: str) -> ModelError:
    """Return the error for a model that has changed since a run."""
    return ModelError(
        f"the model folder {resolve(name)!r} has changed since the run: put the model back, or run the study again"
    )


def fingerprint(name: str, digests: Path | None = None, card: str = "") -> str:
    """Return the SHA-256 of a model's configuration and weights, or of the recipe of its random weights.

    A file is read again only if it may have changed. A hub model must be on this machine; a copy of a folder has the
    same fingerprint.

    Args:
        name: the model, as in `locate`.
        digests: folder with stored digests of files, shared between processes.
        card: name of the GPU that generates random weights, which differ from those of a CPU; empty on a CPU.

    Raises ModelError if there is no such model, or a file is missing or cannot be read.
    """
    folder = locate(name)
    configuration(folder)
    digest = _combine_digests(files(folder), digests)
    if not sources.is_shape(folder):
        return digest
    layers = sources.shape_layers(folder)
    depth = f" layers {layers}" if layers else ""
    return hashlib.sha256(f"{digest} {sources.WEIGHTS} {card}{depth}".encode()).hexdigest()


def tokenizer_fingerprint(name: str) -> str:
    """Return the SHA-256 of a model's tokenizer files. Raises ModelError if model or tokenizer is missing."""
    folder = tokenizer_folder(locate(name))
    require_tokenizer(folder)
    with safe_parsing.reraise_as(ModelError):
        label = f"the tokenizer of {safe_parsing.quote(folder.name)}"
        files = [safe_parsing.inside(folder, file, label) for file in TOKENIZER_FILES if (folder / file).is_file()]
    return _combine_digests(files)


def tokenizer_folder(folder: Path) -> Path:
    """Return the folder of a model's tokenizer: its own, or that of the demo for random weights."""
    if not sources.is_shape(folder):
        return folder
    from gprune.data.demo import MODEL_FOLDER

    return MODEL_FOLDER


def require_tokenizer(folder: Path) -> None:
    """Raise ModelError if a model folder has no tokenizer; random weights use that of the demo."""
    folder = tokenizer_folder(folder)
    vocabularies = [name for name in VOCABULARY_FILES if (folder / name).is_file()]
    if not vocabularies:
        raise ModelError(
            f"the folder {str(folder)!r} has no tokenizer: it needs one of {', '.join(VOCABULARY_FILES)}; "
            "copy the one the model was trained with"
        )
    if vocabularies == [SENTENCE_PIECES] and not any(folder.glob("*.py")):
        raise ModelError(
            f"the folder {str(folder)!r} has {SENTENCE_PIECES} alone, which does not say how blanks and the start of "
            "a text become tokens: add a tokenizer.json. For a LLaMA, install sentencepiece and call transformers' "
            "LlamaTokenizer.from_pretrained(FOLDER, add_bos_token=True).save_pretrained(FOLDER)"
        )


def require_matching_class(folder: Path) -> None:
    """Raise ModelError if tokenizer_config.json names a class that cannot read tokenizer.json."""
    label = str(optional_values(folder, "tokenizer_config.json").get("tokenizer_class"))
    file = folder / "tokenizer.json"
    for name, part in _NEEDED_PARTS.items():
        if label.startswith(name) and file.is_file() and part.encode() not in file.read_bytes():
            raise ModelError(
                f"the tokenizer in {str(folder)!r} cannot be read as {label}, which needs {part} in tokenizer.json: "
                "set tokenizer_class in tokenizer_config.json to PreTrainedTokenizerFast"
            )


def _combine_digests(files: list[Path], digests: Path | None = None) -> str:
    """Return the SHA-256 of the names of files and the digests of their contents; for `digests` see `fingerprint`."""
    try:
        contents = checksums.of_files(files, digests)
    except OSError as error:
        raise ModelError(f"{str(error.filename)!r} cannot be read: {error.strerror or error}") from error
    digest = hashlib.sha256()
    for file, content in zip(files, contents, strict=True):
        digest.update(f"{file.name}:{content}\n".encode())
    return digest.hexdigest()
