"""Write exports that transformers 4.x and 5 can read, under a temporary name until they are complete.

The temporary path is next to the target. transformers 4.x has other names for some configuration values.
"""

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gprune.models import identity
from gprune.models.loading import load_tokenizer, quiet
from gprune.system import files, safe_parsing
from gprune.system.errors import CheckpointError, GpruneError, ModelError
from gprune.system.files import replace_file, temporary_path
from gprune.system.safe_parsing import sentence

_LANGUAGE_CONFIG = "text_config"
_TOKENIZER_CONFIG = "tokenizer_config.json"
# tokenizer classes that transformers 5 alone knows, and that 4.x and 5 know
_CLASS_OF_5, _CLASS_OF_BOTH = "TokenizersBackend", "PreTrainedTokenizerFast"
_LONG_FACTORS = "short_factor", "long_factor"


def require_free_space(target: Path, size: int) -> None:
    """Raise CheckpointError if `target`, an absolute path, is in use, or its disk has less than `size` bytes free."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise CheckpointError(f"{str(target)!r} exists and is not an empty folder: choose a new folder or file name")
    remedy = "free some space or choose another folder"
    files.require_room(CheckpointError, "the model", size, target.parent, remedy)


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty temporary folder; it is renamed to `folder` when the context ends without an error.

    `folder` is an absolute path that ``require_free_space`` has checked. Converts any error inside the context into a
    CheckpointError with one sentence, and removes the temporary folder.
    """
    partial = temporary_path(folder)
    try:
        with as_checkpoint_error(f"the model cannot be saved in {str(folder)!r}"):
            partial.mkdir(parents=True, exist_ok=True)
            yield partial
            if folder.is_dir():
                folder.rmdir()
            partial.replace(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def new_file(file: Path) -> Iterator[Path]:
    """Yield a temporary path for a file that is renamed to `file` at the end; for errors see `new_folder`."""
    with as_checkpoint_error(f"the model cannot be saved as {str(file)!r}"):
        file.parent.mkdir(parents=True, exist_ok=True)
        with replace_file(file) as partial:
            yield partial


@contextmanager
def as_checkpoint_error(context: str) -> Iterator[None]:
    """Turn errors of transformers, safetensors and the disk into a CheckpointError that starts with `context`."""
    try:
        yield
    except (CheckpointError, ModelError) as error:
        raise CheckpointError(f"{context}: {error}") from error
    except GpruneError:
        raise
    except Exception as error:
        raise CheckpointError(f"{context}: {sentence(error, 200)}") from error


def save_model(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write configuration and weights of a model to a folder, and its tokenizer unless that is None."""
    with quiet():
        model.save_pretrained(folder)
    if tokenizer is not None:
        save_tokenizer(tokenizer, folder)
    add_older_rope_fields(folder)


def add_older_rope_fields(folder: Path) -> None:
    """Add the rotary parameters to ``config.json`` again under their names in transformers 4.x.

    If ``rope_theta`` is missing at the top level, 4.x silently uses a base of 10,000.
    """
    path = folder / identity.CONFIG_FILE
    values = safe_parsing.json_file(path, f"{path.name} of the saved model", finite=False)
    values |= older_rope_fields(values)
    if isinstance(language := values.get(_LANGUAGE_CONFIG), dict):
        values[_LANGUAGE_CONFIG] = language | older_rope_fields(language)
    path.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")


def older_rope_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of ``rope_parameters`` under their names in transformers 4.x."""
    parameters = values.get("rope_parameters")
    if not isinstance(parameters, Mapping):
        return {}
    if "full_attention" in parameters:
        # Gemma 3 has one base for windowed layers, and another base with a scaling for all other layers
        local = parameters.get("sliding_attention") or {}
        fields = older_rope_fields({"rope_parameters": parameters["full_attention"]})
        return fields | ({"rope_local_base_freq": local["rope_theta"]} if "rope_theta" in local else {})
    fields = {name: parameters[name] for name in ("rope_theta", "partial_rotary_factor") if name in parameters}
    scaling = {name: value for name, value in parameters.items() if name not in fields}
    if set(scaling) - {"rope_type", "type"} or scaling.get("rope_type", "default") != "default":
        fields["rope_scaling"] = dict(parameters)
    if scaling.get("rope_type") == "longrope":
        # Phi-3 in 4.x accepts only these three names
        fields["rope_scaling"] = {"type": "longrope", **{name: parameters[name] for name in _LONG_FACTORS}}
    return fields


def save_tokenizer(tokenizer: Any, folder: Path) -> None:
    """Write a tokenizer: copy its source files, or save it again if it was changed after loading.

    Transformers 5 writes the name of a class that 4.x lacks, so this name is replaced.
    """
    source = Path(str(getattr(tokenizer, "name_or_path", "")))
    names = identity.TOKENIZER_FILES
    if source.is_dir() and any((source / name).is_file() for name in identity.VOCABULARY_FILES):
        for name in names:
            if (source / name).is_file():
                shutil.copyfile(safe_parsing.inside(source, name, "the tokenizer"), folder / name)
        _name_class_of_both(folder)
        reloaded = load_tokenizer(str(folder))
        if reloaded.get_vocab() == tokenizer.get_vocab() and reloaded.chat_template == tokenizer.chat_template:
            return
        for name in names:
            (folder / name).unlink(missing_ok=True)
    with quiet():
        tokenizer.save_pretrained(folder)
    _name_class_of_both(folder)


def _name_class_of_both(folder: Path) -> None:
    """Replace the name of the tokenizer's class if only transformers 5 accepts it."""
    path = folder / _TOKENIZER_CONFIG
    if not path.is_file():
        return
    values = safe_parsing.json_file(path, f"{path.name} of the saved model", finite=False)
    if values.get("tokenizer_class") == _CLASS_OF_5:
        values["tokenizer_class"] = _CLASS_OF_BOTH
        path.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
