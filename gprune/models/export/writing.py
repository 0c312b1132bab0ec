"""Write exports under a temporary name next to their target, so that transformers 4.x reads them too.

They are renamed when they are complete. transformers 4.x has other names for some values.
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

_NESTED = "text_config"
_TOKENIZER_CONFIG = "tokenizer_config.json"
_CLASS_OF_5, _CLASS_OF_BOTH = "TokenizersBackend", "PreTrainedTokenizerFast"
_LONG_FACTORS = "short_factor", "long_factor"
_TEMPLATES = ("chat_template.jinja", "chat_template.json")


def require_free_space(target: Path, size: int) -> None:
    """Raise CheckpointError if an absolute path is taken, or the disk has fewer bytes left than `size`."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise CheckpointError(f"{str(target)!r} already holds something: choose a new folder or file name")
    remedy = "free some space or choose another folder"
    files.require_room(CheckpointError, "the model", size, target.parent, remedy)


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty folder to write into; it gets its name when the context ends without an error.

    `folder` is an absolute path that ``require_free_space`` has checked. Raises CheckpointError, one sentence, for
    any error inside. Nothing is left behind.
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
    """Yield a temporary path for one file, which is renamed at the end; for errors see `new_folder`."""
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
    """Write configuration, weights and, if there is one, the tokenizer of a model."""
    with quiet():
        model.save_pretrained(folder)
    if tokenizer is not None:
        save_tokenizer(tokenizer, folder)
    add_older_rope_fields(folder)


def add_older_rope_fields(folder: Path) -> None:
    """Write rotary parameters to ``config.json`` in the fields of transformers 4.x as well.

    Without ``rope_theta`` at the top, 4.x takes a base of 10,000 and says nothing.
    """
    path = folder / identity.CONFIG_FILE
    values = safe_parsing.json_file(path, f"{path.name} of the saved model", finite=False)
    values |= older_rope_fields(values)
    if isinstance(nested := values.get(_NESTED), dict):
        values[_NESTED] = nested | older_rope_fields(nested)
    path.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")


def older_rope_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``rope_parameters`` under the names of transformers 4.x."""
    parameters = values.get("rope_parameters")
    if not isinstance(parameters, Mapping):
        return {}
    if "full_attention" in parameters:
        # Gemma 3: one base for windowed layers, another with a scaling for the others
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
    """Write a tokenizer: the files that it was read from as they are, or its own if it was changed since.

    Saved anew, the files name a class that transformers 4.x does not have.
    """
    source = Path(str(getattr(tokenizer, "name_or_path", "")))
    names = (*identity.TOKENIZER_FILES, *_TEMPLATES)
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
    """Name the tokenizer's class as both versions know it."""
    path = folder / _TOKENIZER_CONFIG
    if not path.is_file():
        return
    values = safe_parsing.json_file(path, f"{path.name} of the saved model", finite=False)
    if values.get("tokenizer_class") == _CLASS_OF_5:
        values["tokenizer_class"] = _CLASS_OF_BOTH
        path.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
