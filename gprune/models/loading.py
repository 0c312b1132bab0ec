"""Load model folders as ``Decoder``, from safetensors only; custom code of a model runs only if it is trusted.

For measurements of speed, dense and pruned folders and published shapes with random weights load without a tokenizer.
`random:llama2-7b` is a shape, `random:llama2-7b@0.5` is that shape with equally narrower layers, and
`random:llama2-7b#layers=2` is that shape with two layers.
"""

import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn

from gprune.models import devices, identity, loadable, sources, vocabulary
from gprune.models.decoder import Decoder
from gprune.models.devices import DeviceMap
from gprune.models.expert_decoder import ExpertDecoder
from gprune.models.export.modeling_gprune import classes_of
from gprune.models.families import FAMILIES, TIED, layout_of, shape_of
from gprune.records import budget
from gprune.system.errors import GpruneError, ModelError, SettingsError
from gprune.system.safe_parsing import quote, sentence

_TWO_WORDS = "the cat"
# text on which faulty tokenizers differ: an apostrophe, digits, indentation, blank lines, capitals
_SAMPLE = "A cat's (12345) tail.\n\n    def walk(self):\n        return self.steps + 1\n\nTHE END, or what's left\n"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def load(
    name: str, device: str = "auto", dtype: str = "auto", trust_remote_code: bool = False, offload: bool = False
) -> Decoder:
    """Load a model with its tokenizer: ``demo``, a folder, a hub name or ``random:SHAPE``.

    If a model would nearly fill its GPU, ``device_map="auto"`` distributes it over all GPUs, unless `device` names a
    GPU by number.

    Args:
        name: the model; a hub model is downloaded if it is not on this machine.
        device: ``auto`` (a GPU if there is one), ``cpu``, ``cuda`` or ``cuda:1``.
        dtype: ``auto`` (float32 on a CPU, the checkpoint's type on a GPU), float32, bfloat16 or float16.
        trust_remote_code: allow Python code in the model's folder to run.
        offload: leave the weights of the layers in their files until a pass needs them.

    Raises ModelError if the model cannot be found, read or pruned, SettingsError if the device or the number
    type is not available, or random weights do not fit there.
    """
    target, folder = device_of(device), identity.locate(name, download=True)
    loadable.require_loadable(folder)
    return Decoder.from_model(*_read_with_tokenizer(folder, target, device, dtype, trust_remote_code, offload))


def load_experts(
    name: str, device: str = "auto", dtype: str = "auto", trust_remote_code: bool = False
) -> ExpertDecoder:
    """Load a mixture-of-experts model with its tokenizer: a folder or a hub name; see `load`.

    Raises the errors of `load`, and ModelError if the experts of the model cannot be pruned.
    """
    target, folder = device_of(device), identity.locate(name, download=True)
    loadable.require_expert_model(folder)
    return ExpertDecoder.from_model(*_read_with_tokenizer(folder, target, device, dtype, trust_remote_code))


def _read_with_tokenizer(
    folder: Path, target: torch.device, device: str, dtype: str, trust_remote_code: bool, offload: bool = False
) -> tuple[nn.Module, Any]:
    tokenizer = load_tokenizer(str(folder), trust_remote_code)
    use_all_gpus = not offload and devices.needs_several_gpus(folder, device, target, _parse_dtype(dtype, target))
    device_map = "auto" if use_all_gpus else None
    return read_weights(folder, target, dtype, trust_remote_code, offload, device_map), tokenizer


def read_weights(
    folder: Path,
    target: torch.device,
    dtype: str,
    trust_remote_code: bool,
    offload: bool,
    device_map: DeviceMap | None = None,
) -> nn.Module:
    """Load the model of a folder without its tokenizer, which may be missing; see `load`.

    `device_map` places its parts as in ``from_pretrained``; None puts them on the device `target`.
    """
    if offload:
        identity.require_offloadable(folder)
    number_type = _parse_dtype(dtype, target)
    if sources.is_shape(folder):
        config = read_shape_config(folder)
        number_type = config.dtype if isinstance(number_type, str) else number_type
        return make_random_model(config, target, number_type, folder.name)
    arguments = {"dtype": number_type, "trust_remote_code": trust_remote_code}
    if offload:
        device_map = _disk_map(folder, target, trust_remote_code)
    if device_map is not None:
        model = _read_mapped(folder, device_map, arguments)
    else:
        model = move(read_model(auto_class(folder), folder, **arguments), target)
    require_finite(model, folder)
    return model


def auto_class(folder: Path) -> Any:
    """Return the Auto class of transformers that loads the dense model in a folder."""
    layout = FAMILIES.get(str(identity.configuration(folder).get("model_type")))
    return getattr(transformers, "AutoModelForCausalLM" if layout is None else layout.loaders[-1])


def load_tokenizer(name: str, trust_remote_code: bool = False) -> Any:
    """Load the tokenizer of a model. Raises ModelError if there is no such model or no readable tokenizer."""
    folder = identity.locate(name, download=True)
    identity.require_tokenizer(folder)
    remedy = "if tokenizer.json is right, set tokenizer_class in tokenizer_config.json to PreTrainedTokenizerFast"
    with quiet(), _as_model_error(f"the tokenizer in {str(folder)!r} cannot be read ({remedy})"):
        source = identity.tokenizer_folder(folder)
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            source, trust_remote_code=trust_remote_code, local_files_only=True
        )
        if fault := _find_tokenizer_fault(tokenizer, source):
            raise ModelError(
                f"the tokenizer in {str(folder)!r} {fault}. Set tokenizer_class in tokenizer_config.json to "
                "PreTrainedTokenizerFast, or use another version of transformers"
            )
    return tokenizer


def _find_tokenizer_fault(tokenizer: Any, folder: Path) -> str:
    """Describe how a loaded tokenizer differs from the files of its folder; empty if no difference is detected."""
    from transformers.models.auto import tokenization_auto

    # some versions of transformers build a byte-level tokenizer that is labelled LlamaTokenizer without its
    # pre-tokenizer
    text = tokenizer.decode(tokenizer(_TWO_WORDS, add_special_tokens=False)["input_ids"], skip_special_tokens=True)
    if text.strip() == _TWO_WORDS.replace(" ", ""):
        return f"loses the spaces between words: {_TWO_WORDS!r} is decoded as {text!r}"
    label, files = type(tokenizer).__name__, (folder / "tokenizer.json", folder / identity.CONFIG_FILE)
    if label == transformers.PreTrainedTokenizerFast.__name__ or not all(file.is_file() for file in files):
        return ""
    # for these model types the library ignores the label, so the tokens do not depend on it
    types_without_label = vars(tokenization_auto).get("MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS", ())
    if identity.configuration(folder).get("model_type") in types_without_label:
        return ""
    expected = vocabulary.tokenizer(str(folder)).encode(_SAMPLE, add_special_tokens=False).ids
    actual = tokenizer(_SAMPLE, add_special_tokens=False)["input_ids"]
    # the first two tokens are not compared, because a setting may add a space before the first word
    count = min(len(expected), len(actual)) - 2
    if count <= 0 or actual[-count:] == expected[-count:]:
        return ""
    return f"is read as {label} and splits a sample into {len(actual)} tokens, its tokenizer.json into {len(expected)}"


def device_of(device: str) -> torch.device:
    """Return the device of a setting. Raises SettingsError for a GPU that torch does not see."""
    if device == "auto":
        return devices.default_device()
    try:
        target = torch.device(device)
    except RuntimeError as error:
        raise SettingsError(f"device must be auto, cpu or cuda (got {device!r})") from error
    if not devices.is_gpu(target):
        return target
    count = devices.count()
    if (target.index or 0) >= count:
        raise SettingsError(f"device is {device!r}, but torch sees {count} CUDA devices here: use auto or cpu")
    return target


def read_model(loader: Any, folder: Path, **arguments: Any) -> nn.Module:
    """Read the model in a folder, in evaluation mode; it is on the CPU unless `arguments` have a device map.

    `loader` is a class with ``from_pretrained``, which is called with `arguments`. The weights take precedence over the
    configuration: a head that differs from the embedding is not tied, and the number type ``auto`` is that of the
    files. Raises ModelError if the files cannot be read, or weights are missing, unexpected or of another size.
    """
    if identity.configuration(folder).get(TIED) is False:
        arguments[TIED] = False
    if arguments.get("dtype") == "auto":
        arguments["dtype"] = DTYPES.get(identity.number_type(folder), "auto")
    with quiet(), _as_model_error(f"the model in {str(folder)!r} cannot be read"):
        if loadable.attention_notice(folder):
            # None selects the family's default: sdpa if it supports it, else eager
            arguments["attn_implementation"] = None
        model, report = loader.from_pretrained(
            folder,
            use_safetensors=True,
            local_files_only=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            **arguments,
        )
    for key, message in (
        ("mismatched_keys", "of another size"),
        ("missing_keys", "missing"),
        ("unexpected_keys", "unexpected"),
    ):
        names = sorted(str(entry[0] if isinstance(entry, tuple) else entry) for entry in report[key])
        if names:
            raise ModelError(
                f"config.json in {str(folder)!r} disagrees with the weights: {len(names)} are {message}, the "
                f"first is {names[0]}: copy configuration and weights from the same model"
            )
    return model.eval()


def _disk_map(folder: Path, target: torch.device, trust: bool) -> DeviceMap:
    with quiet(), _as_model_error(f"config.json in {str(folder)!r} cannot be read"):
        config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=trust, local_files_only=True)
    return devices.disk_map(auto_class(folder), config, loadable.require_loadable(folder), target)


def _read_mapped(folder: Path, device_map: DeviceMap, arguments: dict[str, Any]) -> nn.Module:
    if isinstance(device_map, str):
        arguments["max_memory"] = devices.memory_limits()
    # offloading was requested, so accelerate's warning of it is switched off; accelerate requires a folder for
    # offloaded weights, but reads safetensors from their own folder and writes nothing
    logging.getLogger("accelerate.big_modeling").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="gprune-offload-") as offload_folder:
        return read_model(auto_class(folder), folder, device_map=device_map, offload_folder=offload_folder, **arguments)


@torch.no_grad()
def require_finite(model: nn.Module, folder: Path) -> None:
    """Raise ModelError if a weight is NaN or infinite."""
    for path, module in model.named_modules():
        with devices.keep_present(module):
            for name, parameter in module.named_parameters(path, recurse=False):
                if count := int((~torch.isfinite(parameter)).sum()):
                    dtype = str(parameter.dtype).removeprefix("torch.")
                    raise ModelError(
                        f"{name} in {str(folder)!r} holds {count} values that are NaN or infinite in {dtype}: "
                        "use float32 or bfloat16, or copy the model again"
                    )


def move(model: nn.Module, target: torch.device) -> nn.Module:
    """Move a model to a device and return it. Raises ModelError if the device's memory is too small."""
    try:
        return model.to(target)
    except (RuntimeError, MemoryError) as error:
        if not devices.out_of_memory(error):
            raise
        size = sum(p.numel() * p.element_size() for p in model.parameters()) / 2**30
        raise ModelError(
            f"the model needs {size:.1f} GiB, more than {target} has free: use dtype bfloat16 or device cpu"
        ) from error


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress the progress bars and log messages of transformers while the context is open."""
    from transformers.utils import logging as library_logging

    level, bars = library_logging.get_verbosity(), library_logging.is_progress_bar_enabled()
    library_logging.set_verbosity_error()
    library_logging.disable_progress_bar()
    try:
        yield
    finally:
        library_logging.set_verbosity(level)
        if bars:
            library_logging.enable_progress_bar()


def _parse_dtype(name: str, target: torch.device) -> torch.dtype | str:
    """Return the number type of a setting; the string ``auto`` stands for the checkpoint's type."""
    if name == "auto":
        return torch.float32 if target.type == "cpu" else "auto"
    if name not in DTYPES:
        raise SettingsError(f"dtype must be one of auto, {', '.join(DTYPES)} (got {name!r})")
    return DTYPES[name]


@contextmanager
def _as_model_error(context: str) -> Iterator[None]:
    """Convert any other error into a ModelError that starts with `context`."""
    try:
        yield
    except (GpruneError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic in Rust code is a BaseException, not an Exception
        raise ModelError(f"{context}: {sentence(error, 200)}") from error


def read_shape_config(folder: Path) -> Any:
    """Return the configuration in a folder, for a model with random weights; no custom code is run.

    An attention that this machine cannot run is replaced by the default. Raises ModelError if the configuration is not
    valid.
    """
    values = identity.configuration(folder)
    if loadable.attention_notice(folder):
        values = values | {"attn_implementation": None}
    try:
        return transformers.AutoConfig.for_model(**values)
    except Exception as error:  # any error that the library raises for its fields
        raise ModelError(f"{quote(str(folder))} has no valid configuration: {sentence(error, 200)}") from error


def make_random_model(config: Any, target: torch.device, dtype: torch.dtype, shape: str) -> nn.Module:
    """Return a model with random weights in evaluation mode, identical in every process on the same kind of device.

    The state of the random generators is restored. A change of this function requires a new version in
    `sources.WEIGHTS`. `shape` is the model's name in error messages. Raises ModelError if the sizes are inconsistent,
    SettingsError if the memory is too small.
    """
    try:
        with devices.preserve_random_state(target), torch.device(target):
            torch.manual_seed(0)
            model: Any = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)
    except Exception as error:  # any error that the library raises for inconsistent sizes
        if not devices.out_of_memory(error):
            raise ModelError(f"{sources.RANDOM}{shape} cannot be created: {sentence(error, 200)}") from error
        dtype_name = str(dtype).removeprefix("torch.")
        raise SettingsError(
            f"{sources.RANDOM}{shape} in {dtype_name} does not fit in the memory of {target}: use a smaller shape, "
            "fewer models or dtype bfloat16"
        ) from error
    return model.requires_grad_(False).eval()


def load_bare_model(name: str, device: str, dtype: str, align: int = 1) -> nn.Module:
    """Load a causal language model without its tokenizer.

    `name` is a dense or pruned folder or hub name, ``demo``, or ``random:SHAPE[@RETENTION]``, where SHAPE may be a
    folder. With a retention, the FFN width is a multiple of `align`. Raises ModelError if there is no such model or it
    cannot be read, SettingsError if the device is not available, a shape is unknown, or the memory is too small.
    """
    target = device_of(device)
    if sources.is_random(name):
        shape = name.removeprefix(sources.RANDOM)
        return make_random_model(_random_config(shape, align), target, DTYPES[dtype], shape)
    folder = identity.locate(name, download=True)
    loadable.require_whole(folder)
    # set explicitly, because the library would otherwise ask on the terminal whether to run the model's code
    arguments = {"dtype": DTYPES[dtype], "trust_remote_code": False}
    model = read_model(auto_class(folder), folder, **arguments)
    return move(model.requires_grad_(False), target)


def require_loadable_name(name: str, align: int = 1) -> None:
    """Check the name of a model before it is loaded; a hub model is downloaded.

    Raises ModelError if there is no such model, SettingsError for an impossible retention or alignment.
    """
    if sources.is_random(name):
        _random_config(name.removeprefix(sources.RANDOM), align)
    else:
        loadable.require_whole(identity.locate(name, download=True))


def _random_config(text: str, align: int) -> Any:
    """Return the configuration of SHAPE or SHAPE@RETENTION, where SHAPE is a published shape or a folder."""
    name, separator, retention = text.partition("@")
    folder = identity.locate(sources.RANDOM + name if name.partition("#")[0] in sources.SHAPES else name)
    config = read_shape_config(folder)
    return _narrow_config(config, _parse_retention(retention), align) if separator else config


def _parse_retention(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0  # reported below
    if not 0 < value < 1:
        raise SettingsError(f"the retention after @ must be between 0 and 1, as in @0.5 (got {quote(text)})")
    return value


def _narrow_config(config: Any, retention: float, align: int) -> Any:
    """Return a configuration whose layers are all equally narrower, near a retention; see `load_bare_model`."""
    if align < 1:
        raise SettingsError(f"align must be 1 or more (got {align})")
    layout = layout_of(config.model_type, "a random model")
    shape = shape_of(config.to_dict())
    groups, neurons = budget.uniform_counts(shape, retention)
    width = min(max(budget.nearest_whole(neurons / align), 1) * align, shape.neurons)
    values = {name: value for name, value in config.to_dict().items() if name != "model_type"}
    return classes_of(config.model_type).config_class(
        **values,
        ffn_widths=[width] * shape.layers,
        key_value_groups=[groups] * shape.layers,
        unit_slices=layout.unit_slices(),
        unit_counts=layout.unit_counts(),
    )
