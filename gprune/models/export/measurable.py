"""Answers: which model does a name mean where speed is measured?

Dense and pruned folders, and true shapes with random weights, `random:llama2-7b`, also cut to a narrower
width in every layer, `random:llama2-7b@0.5`, or with fewer layers, `random:llama2-7b#layers=2`.
"""

from typing import Any

from torch import nn

from gprune.models import loading, random_weights
from gprune.models.export import checkpoint
from gprune.models.export.modeling_gprune import classes_of
from gprune.models.families import PRUNED_PREFIX, layout_of, shape_of
from gprune.models.identity import configuration, locate, weight_files
from gprune.models.loadable import require_whole
from gprune.models.shapes import RANDOM, SHAPES, is_random
from gprune.records import budget
from gprune.system.errors import ModelError, SettingsError
from gprune.system.safe_parsing import quoted


def load_model(name: str, device: str, dtype: str, align: int = 1) -> nn.Module:
    """A causal language model to measure, without its tokenizer.

    `name` is a dense or pruned folder or hub name, ``demo``, or ``random:SHAPE[@RETENTION]``; FFN widths of a
    random model that is cut are multiples of `align`. Raises ModelError where there is no such model or it
    cannot be read, SettingsError where the device is not there, a shape is unknown, or the memory is too
    small.
    """
    if is_random(name):
        return _random_model(name.removeprefix(RANDOM), device, dtype, align)
    place, folder = loading.device_of(device), locate(name, download=True)
    if str(configuration(folder).get("model_type")).startswith(PRUNED_PREFIX):
        return checkpoint.load_checkpoint(folder, device, dtype)
    require_whole(folder)
    loading.require_readable(weight_files(folder))
    # left open, the library would ask on the terminal whether to run the model's code
    arguments = {"dtype": loading.DTYPES[dtype], "trust_remote_code": False}
    model = loading.read_model(loading.auto_class(folder), folder, **arguments)
    return loading.move(model.requires_grad_(False), place)


def require_known(name: str, align: int = 1) -> None:
    """Checks that a name means a model, long before it is loaded; a hub model is fetched.

    Raises ModelError where there is none, SettingsError where a random one's retention or alignment is none.
    """
    if is_random(name):
        _random_config(name.removeprefix(RANDOM), align)
    else:
        require_whole(locate(name, download=True))


def _random_model(text: str, device: str, dtype: str, align: int) -> nn.Module:
    """A model of a published shape with random weights, made on the device itself.

    `text` is SHAPE or SHAPE@RETENTION; SHAPE is a key of ``SHAPES`` or a folder whose configuration is taken.
    Errors as `load`.
    """
    checkpoint.register_classes()
    config, place = _random_config(text, align), loading.device_of(device)
    return random_weights.make(config, place, loading.DTYPES[dtype], text)


def _random_config(text: str, align: int) -> Any:
    name, sign, fraction = text.partition("@")
    try:
        shaped = name.partition("#")[0] in SHAPES
        folder = locate(RANDOM + name if shaped else name)
    except ModelError as error:
        if shaped:
            raise
        raise ModelError(
            f"{RANDOM}{name} is neither a folder nor one of {', '.join(SHAPES)}: check the spelling"
        ) from error
    config = random_weights.config_of(folder)
    return _narrowed(config, _retention(fraction), align) if sign else config


def _retention(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise SettingsError(f"after @ comes a retention between 0 and 1, as in @0.5 (got {quoted(text)})")
    return value


def _narrowed(config: Any, target: float, align: int) -> Any:
    """The configuration of a model whose layers are all cut to one width near the target retention."""
    if align < 1:
        raise SettingsError(f"align must be 1 or more (got {align})")
    layout = layout_of(config.model_type, "a random model")
    shape = shape_of(config.to_dict())
    groups, neurons = budget.uniform_counts(shape, target)
    width = min(max(budget.nearest_whole(neurons / align), 1) * align, shape.neurons)
    values = {name: value for name, value in config.to_dict().items() if name != "model_type"}
    return classes_of(config.model_type).config_class(
        **values,
        ffn_widths=[width] * shape.layers,
        key_value_groups=[groups] * shape.layers,
        unit_slices=layout.table(),
        unit_counts=layout.numbers(),
    )
