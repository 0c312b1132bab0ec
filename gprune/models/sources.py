"""Find models that are not named by a folder: models of the Hugging Face hub, and shapes with random weights.

Safetensors, configuration and tokenizer are downloaded from the hub, never pickled weights. A complete model in the
hub's cache is used without any request. If a model is gated or unknown, or the disk is too small, an error reports it
before a download starts.

`random:llama2-7b` has the shape of LLaMA-2 7B and the tokenizer of the bundled demo, whose vocabulary is smaller, so
that every token has a row in the embedding. It is for measurements of time and memory. `random:llama2-7b#layers=2`
has two of its layers. Needs no torch.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gprune.system import safe_parsing
from gprune.system.errors import GpruneError, ModelError
from gprune.system.files import LARGER_DISK, require_room

RANDOM = "random:"
"""prefix of the name of a model with random weights"""
WEIGHTS = "random weights 1"
"""version of the recipe of random weights: increase it with every change of `loading.make_random_model`"""
MOST_LAYERS = 512
"""maximum number of layers of a model with random weights; the deepest published models have about a hundred"""
SHAPES_FOLDER = Path(__file__).parent / "shapes"
_NAMES = ("llama2-7b", "llama2-13b", "llama3-8b", "mistral-7b", "qwen2.5-7b", "qwen3-8b")
SHAPES: dict[str, dict[str, Any]] = {
    name: safe_parsing.json_object((SHAPES_FOLDER / name / "config.json").read_bytes(), f"the shape {name}")
    for name in _NAMES
}
"""configurations of the published models that are available with random weights, by name"""
DOWNLOADED = ["*.json", "model*.safetensors", "*.py", "tokenizer.model", "merges.txt", "README.md", "LICENSE*"]
"""patterns of the files that are downloaded"""
LOCAL_HINT = "a local model folder needs no network"


def is_random(name: str) -> bool:
    """Return True if a model's name is that of a model with random weights."""
    return name.startswith(RANDOM)


def shape_folder(name: str) -> Path:
    """Return the folder of ``random:SHAPE`` or ``random:SHAPE#layers=N``.

    With another number of layers than the published model, the folder does not exist; see `base_folder`. Raises
    ModelError if there is no such shape or depth, or the name has a retention, which only `speed` accepts.
    """
    model, retention_mark, _ = name.removeprefix(RANDOM).partition("@")
    shape, depth_mark, depth = model.partition("#")
    if shape not in SHAPES:
        raise ModelError(
            f"{safe_parsing.quote(name)} is not a model with random weights: after {RANDOM} give one of "
            f"{', '.join(SHAPES)}"
        )
    if retention_mark:
        raise ModelError(
            f"{safe_parsing.quote(name)} has a retention, which only `speed` accepts. The retention of a study is a "
            f"setting of its own: give {RANDOM}{model}"
        )
    if not depth_mark:
        return SHAPES_FOLDER / shape
    layers = _parse_depth(depth)
    if layers is None:
        raise ModelError(
            f"{safe_parsing.quote(name)} has no valid depth: after # give layers=N, with N from 1 to "
            f"{MOST_LAYERS}, as in {RANDOM}{shape}#layers=2"
        )
    # with the number of layers of the published model, both names stand for the same model
    has_published_depth = SHAPES[shape].get("num_hidden_layers") == layers
    return SHAPES_FOLDER / (shape if has_published_depth else f"{shape}#{depth}")


def _parse_depth(text: str) -> int | None:
    match = re.fullmatch(r"layers=([1-9][0-9]{0,3})", text)
    return int(match[1]) if match and int(match[1]) <= MOST_LAYERS else None


def shape_layers(folder: Path) -> int | None:
    """Return the number of layers in the name of a shape's folder; None without one, as for the published model."""
    return _parse_depth(folder.name.partition("#")[2])


def base_folder(folder: Path) -> Path:
    """Return the existing folder of a shape with any number of layers."""
    return folder.with_name(folder.name.partition("#")[0])


def with_layers(values: dict[str, Any], count: int) -> dict[str, Any]:
    """Return a configuration with another number of layers; lists with an entry per layer are repeated or cut."""
    depth = values["num_hidden_layers"]
    lists = {name: value for name, value in values.items() if isinstance(value, list) and len(value) == depth}
    return {**values, **{name: (value * count)[:count] for name, value in lists.items()}, "num_hidden_layers": count}


def is_shape(folder: Path) -> bool:
    """Return True for the folder of a shape, which has no weight files."""
    shape, depth_mark, _ = folder.name.partition("#")
    is_known = shape in SHAPES and (not depth_mark or shape_layers(folder) is not None)
    return is_known and folder.parent.resolve() == SHAPES_FOLDER.resolve()


def snapshot(name: str, download: bool, find_gap: Callable[[Path], str]) -> Path:
    """Return the folder of a model, owner/name, in the hub's cache; if `download` is set, fetch missing files.

    `find_gap` describes what a folder lacks, or returns "" if it is complete. The hub's client shows progress bars.
    Raises ModelError if the model is missing or incomplete and `download` is not set or fails.
    """
    folder = _cached_folder(name)
    gap = find_gap(folder) if folder is not None else ""
    if folder is not None and not gap:
        return folder
    if not download:
        raise ModelError(_missing_message(name, gap, "has not been downloaded yet"))
    with _as_model_error(name, gap):
        from huggingface_hub import snapshot_download

        require_download(name)
        return Path(snapshot_download(name, allow_patterns=DOWNLOADED))


def require_download(name: str) -> None:
    """Check that the missing files of a model can be downloaded and fit on the disk; nothing is downloaded.

    Raises ModelError if the disk is too small, or the model is an adapter or has only pickled weights. Errors of the
    hub's client are raised unchanged if the hub refuses the request or does not answer.
    """
    from huggingface_hub import constants, snapshot_download

    files: Any = snapshot_download(name, allow_patterns=DOWNLOADED, dry_run=True)
    if any(file.filename == "adapter_config.json" for file in files):
        raise ModelError(f"the hub's model {name!r} is a PEFT adapter: merge it first (`merge_and_unload`)")
    if not any(file.filename.endswith(".safetensors") for file in files):
        raise ModelError(
            f"the hub's model {name!r} has no safetensors, and pickled weights, which can run code, are not "
            "read: choose a copy that has them"
        )
    size = sum(file.file_size or 0 for file in files if file.will_download)
    cache = Path(constants.HF_HUB_CACHE)
    require_room(ModelError, f"the download of {name!r}", size, cache, LARGER_DISK)


def _cached_folder(name: str) -> Path | None:
    """Return the folder of a model in the hub's cache, complete or not."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, IncompleteSnapshotError

    try:
        return Path(snapshot_download(name, allow_patterns=DOWNLOADED, local_files_only=True))
    except HFValidationError as error:
        raise ModelError(f"{name!r} is neither a folder on this machine nor a hub name owner/name") from error
    except IncompleteSnapshotError as error:
        return Path(error.snapshot_path)
    except (OSError, ValueError):
        return None


def _missing_message(name: str, gap: str, reason: str) -> str:
    """Return the error message for a hub model that is missing or has a `gap`, see `snapshot`."""
    if not gap:
        return f"{name!r} is not a folder on this machine, and {reason}: {LOCAL_HINT}"
    # the words after the quoted path of the folder
    fault = gap.rpartition("' ")[2]
    return (
        f"{name!r} is incomplete on this machine (it {fault}), and {reason}: repeat the command "
        f"with a network to resume the download; {LOCAL_HINT}"
    )


@contextmanager
def _as_model_error(name: str, gap: str) -> Iterator[None]:
    """Convert errors of the hub's client into a ModelError with one sentence; for `gap` see `snapshot`."""
    from huggingface_hub import constants, errors

    try:
        yield
    except GpruneError:
        raise
    except Exception as error:  # the client's transport errors have other classes in each of its versions
        # the error of a dry run has the original error as its cause
        cause = error.__cause__ if isinstance(error, errors.DryRunError) else error
        status = getattr(getattr(cause, "response", None), "status_code", None)
        reason = f"it answers {status}" if status else "no network"
        if constants.HF_HUB_OFFLINE:
            reason = "no network: HF_HUB_OFFLINE is set"
        message = _missing_message(name, gap, f"the hub cannot be reached ({reason})")
        if isinstance(cause, errors.GatedRepoError):
            message = (
                f"the model {name!r} is gated: ask for access at {constants.ENDPOINT}/{name}, and when it is "
                "granted log in with `hf auth login` (or set HF_TOKEN); nothing has been downloaded"
            )
        elif isinstance(cause, errors.RepositoryNotFoundError):
            message = (
                f"the hub has no model {name!r}: check the spelling, or log in with `hf auth login` if the model is "
                "private"
            )
        raise ModelError(message) from error
