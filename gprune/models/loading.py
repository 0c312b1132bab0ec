"""Answers: how does a model folder become a ``Decoder``, and if it cannot, what is wrong with it?

Weights are read from safetensors only; code that comes with a model runs only where it is asked for.
"""

import gc
import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from gprune.models import devices, identity, library_errors, loadable, offloading, random_weights, shapes
from gprune.models.decoder import Decoder
from gprune.models.families import FAMILIES, TIED
from gprune.models.oom_backoff import out_of_memory
from gprune.system.errors import GpruneError, ModelError, SettingsError

_TWO_WORDS = "the cat"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def load(
    name: str,
    device: str = "auto",
    dtype: str = "auto",
    trust_remote_code: bool = False,
    offload: bool = False,
) -> Decoder:
    """Loads a model, ``demo``, a folder, a hub name or ``random:SHAPE``, with its tokenizer.

    A hub model is downloaded once. `device` is ``auto`` (a GPU if there is one), ``cpu``, ``cuda`` or
    ``cuda:1``; `dtype` ``auto`` (float32 on a CPU, the checkpoint's type on a GPU), float32, bfloat16 or
    float16. If `offload`, the layers' weights stay in their files until they are needed
    (`gprune.models.offloading`). Raises ModelError where the model cannot be found, read or pruned,
    SettingsError where the device or the number type is not available, or random weights do not fit there.
    """
    place, folder = device_of(device), _checked(name)
    tokenizer = load_tokenizer(str(folder), trust_remote_code)
    decoder = Decoder.from_model(read_weights(folder, place, dtype, trust_remote_code, offload), tokenizer)
    if not offload:
        # imported here: it imports transformers, whose import registers what saves models, which import this;
        # of an offloaded model it would read every file once more
        from gprune.models import self_check

        self_check.require_sound(decoder, f"the model {str(folder)!r}")
    return decoder


def read_weights(folder: Path, place: torch.device, dtype: str, trust_remote_code: bool, offload: bool) -> nn.Module:
    """Loads the model of a folder without its tokenizer, which need not be there; see `load`."""
    if offload:
        identity.require_offloadable(folder)
    if shapes.holds(folder):
        return _random(folder, place, dtype)
    arguments = {"dtype": _dtype(dtype, place), "trust_remote_code": trust_remote_code}
    loader = auto_class(folder)
    if offload:
        model = _read_offloaded(loader, folder, place, arguments)
    else:
        model = move(read_model(loader, folder, **arguments), place)
    require_finite(model, folder)
    return model


def _random(folder: Path, place: torch.device, dtype: str) -> nn.Module:
    config, kind = random_weights.config_of(folder), _dtype(dtype, place)
    chosen: torch.dtype = config.dtype if isinstance(kind, str) else kind
    return random_weights.make(config, place, chosen, folder.name)


def _checked(name: str) -> Path:
    """The folder of a model whose family is supported and whose files can be opened."""
    folder = identity.locate(name, download=True)
    loadable.require_loadable(folder)
    require_readable(identity.weight_files(folder))
    return folder


def auto_class(folder: Path) -> Any:
    """The class of transformers by which the dense model in a folder loads."""
    layout = FAMILIES.get(str(identity.configuration(folder).get("model_type")))
    return _automatic("AutoModelForCausalLM" if layout is None else layout.loaders[-1])


def load_tokenizer(name: str, trust_remote_code: bool = False) -> Any:
    """Loads the tokenizer of a model without its weights.

    Raises ModelError where there is no such model, or its tokenizer is missing or cannot be read.
    """
    loader = _automatic("AutoTokenizer")
    folder = identity.locate(name, download=True)
    identity.require_tokenizer(folder)
    with quiet(), _as_model_error(f"the tokenizer in {str(folder)!r} cannot be read"):
        place = identity.tokenizer_folder(folder)
        tokenizer = loader.from_pretrained(place, trust_remote_code=trust_remote_code, local_files_only=True)
        require_blanks(tokenizer, folder)
    return tokenizer


def require_blanks(tokenizer: Any, folder: Path) -> None:
    """Raise ModelError if the blanks between words are lost on the way to tokens and back.

    Some versions of transformers build a byte-level tokenizer that is labelled ``LlamaTokenizer`` without its
    pre-tokenizer.
    """
    text = tokenizer.decode(tokenizer(_TWO_WORDS, add_special_tokens=False)["input_ids"], skip_special_tokens=True)
    if text.strip() == _TWO_WORDS.replace(" ", ""):
        raise ModelError(
            f"the tokenizer in {str(folder)!r} loses the blanks between words: {_TWO_WORDS!r} comes back as {text!r}. "
            "Set tokenizer_class in tokenizer_config.json to PreTrainedTokenizerFast, or use another version of "
            "transformers"
        )


def device_of(device: str) -> torch.device:
    """The device that a setting means; SettingsError for a GPU that torch does not see."""
    if device == "auto":
        return devices.automatic()
    try:
        place = torch.device(device)
    except RuntimeError as error:
        raise SettingsError(f"device must be auto, cpu or cuda (got {device!r})") from error
    if not devices.is_gpu(place):
        return place
    count = devices.count()
    if (place.index or 0) >= count:
        raise SettingsError(f"device is {device!r}, but torch sees {count} CUDA devices here: use auto or cpu")
    return place


def read_model(loader: Any, folder: Path, **arguments: Any) -> nn.Module:
    """Reads a model folder on the CPU, in evaluation mode; weights and configuration must say the same.

    `loader` is a class with ``from_pretrained``, whose further arguments follow. Raises ModelError where the
    files cannot be read, or weights are missing, left over or of another size.

    Where configuration and weights differ in what both can say, the weights decide: a head that is not the
    embedding is not tied, and the number type ``auto`` is that of the files.
    """
    if identity.has_separate_head(folder):
        arguments[TIED] = False
    if arguments.get("dtype") == "auto":
        arguments["dtype"] = DTYPES.get(identity.number_type(folder), "auto")
    with quiet(), _as_model_error(f"the model in {str(folder)!r} cannot be read"):
        if loadable.attention_notice(folder):
            # the family's own choice: sdpa, or eager where it has none
            arguments["attn_implementation"] = None
        model, report = loader.from_pretrained(
            folder,
            use_safetensors=True,
            local_files_only=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            **arguments,
        )
    for key, words in (
        ("mismatched_keys", "of another size"),
        ("missing_keys", "missing"),
        ("unexpected_keys", "left over"),
    ):
        names = sorted(str(entry[0] if isinstance(entry, tuple) else entry) for entry in report[key])
        if key == "missing_keys" and names == ["lm_head.weight"]:
            raise loadable.headless(folder)
        if names:
            raise ModelError(
                f"config.json in {str(folder)!r} disagrees with the weights: {len(names)} are {words}, the "
                f"first is {names[0]}: copy configuration and weights from the same model"
            )
    return model.eval()


def _read_offloaded(loader: Any, folder: Path, place: torch.device, arguments: dict[str, Any]) -> nn.Module:
    trusted = {"trust_remote_code": arguments["trust_remote_code"], "local_files_only": True}
    with quiet(), _as_model_error(f"config.json in {str(folder)!r} cannot be read"):
        known = _automatic("AutoConfig").from_pretrained(folder, **trusted)
    places = offloading.device_map(loader, known, loadable.require_loadable(folder), place)
    with offloading.workspace() as work:
        return read_model(loader, folder, device_map=places, offload_folder=work, **arguments)


def require_readable(files: list[Path]) -> None:
    """Opens every safetensors file, which checks its header against its length.

    Raises ModelError where a file is truncated or is not safetensors.
    """
    for file in (file for file in files if file.suffix == ".safetensors"):
        try:
            with safe_open(str(file), framework="pt"):
                pass
        except (SafetensorError, OSError) as error:
            raise ModelError(
                f"the weight file {str(file)!r} is truncated or damaged ({error}): copy or download it again"
            ) from error


@torch.no_grad()
def require_finite(model: nn.Module, folder: Path) -> None:
    """Checks every weight; ModelError where a tensor holds NaN or infinity."""
    for path, module in model.named_modules():
        with offloading.present(module):
            for name, parameter in module.named_parameters(path, recurse=False):
                _require_finite(name, parameter, folder)


def _require_finite(name: str, parameter: torch.Tensor, folder: Path) -> None:
    count = int((~torch.isfinite(parameter)).sum())
    if count:
        dtype = str(parameter.dtype).removeprefix("torch.")
        raise ModelError(
            f"{name} in {str(folder)!r} holds {count} values that are NaN or infinite in {dtype}: "
            "use float32 or bfloat16, or copy the model again"
        )


def move(model: nn.Module, place: torch.device) -> nn.Module:
    """Moves a model to a device; ModelError where the device's memory is too small."""
    try:
        return model.to(place)
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        size = sum(p.numel() * p.element_size() for p in model.parameters()) / 2**30
        raise ModelError(
            f"the model needs {size:.1f} GiB, more than {place} has free: use dtype bfloat16 or device cpu"
        ) from error


@contextmanager
def quiet() -> Iterator[None]:
    """Keeps transformers' progress bars and load reports off the terminal."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _automatic(name: str) -> Any:
    """One of transformers' Auto classes.

    Its first import makes a few hundred thousand objects that all stay: looking for garbage among them would
    cost a fifth of the seconds it takes.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        return getattr(importlib.import_module("transformers"), name)
    finally:
        if collecting:
            gc.enable()


def _dtype(name: str, place: torch.device) -> torch.dtype | str:
    if name == "auto":
        return torch.float32 if place.type == "cpu" else "auto"
    if name not in DTYPES:
        raise SettingsError(f"dtype must be one of auto, {', '.join(DTYPES)} (got {name!r})")
    return DTYPES[name]


@contextmanager
def _as_model_error(what: str) -> Iterator[None]:
    """Turns whatever a reading library raises into one sentence."""
    try:
        yield
    except (GpruneError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # what panics in the tokenizers' own language is no Exception
        raise ModelError(f"{what}: {library_errors.one_line(error)}") from error
