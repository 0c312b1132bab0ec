"""Load the models whose speed is measured: dense and pruned folders, and published shapes with random weights.

`random:llama2-7b` is a shape, `random:llama2-7b@0.5` the same cut to one narrower width in every layer, and
`random:llama2-7b#layers=2` the same with fewer layers.
"""

from typing import Any

from torch import nn

from gprune.models import loading, random_weights
from gprune.models.export.modeling_gprune import classes_of
from gprune.models.families import layout_of, shape_of
from gprune.models.identity import locate
from gprune.models.loadable import require_whole
from gprune.models.shapes import RANDOM, SHAPES, is_random
from gprune.records import budget
from gprune.system.errors import SettingsError
from gprune.system.safe_parsing import quote


def load_model(name: str, device: str, dtype: str, align: int = 1) -> nn.Module:
    """Load a causal language model without its tokenizer.

    `name` is a dense or pruned folder or hub name, ``demo``, or ``random:SHAPE[@RETENTION]``, where SHAPE may be a
    folder; FFN widths of a random model that is cut are multiples of `align`. Raises ModelError if there is no
    such model or it cannot be read, SettingsError if the device is not there, a shape is unknown, or the memory is
    too small.
    """
    target = loading.device_of(device)
    if is_random(name):
        shape = name.removeprefix(RANDOM)
        return random_weights.make_model(_random_config(shape, align), target, loading.DTYPES[dtype], shape)
    folder = locate(name, download=True)
    require_whole(folder)
    # set explicitly, because the library would otherwise ask on the terminal whether to run the model's code
    arguments = {"dtype": loading.DTYPES[dtype], "trust_remote_code": False}
    model = loading.read_model(loading.auto_class(folder), folder, **arguments)
    return loading.move(model.requires_grad_(False), target)


def require_known(name: str, align: int = 1) -> None:
    """Check a name before its model is loaded; a hub model is fetched.

    Raises ModelError if there is no such model, SettingsError for an impossible retention or alignment.
    """
    if is_random(name):
        _random_config(name.removeprefix(RANDOM), align)
    else:
        require_whole(locate(name, download=True))


def _random_config(text: str, align: int) -> Any:
    name, sign, fraction = text.partition("@")
    folder = locate(RANDOM + name if name.partition("#")[0] in SHAPES else name)
    config = random_weights.config_of(folder)
    return _narrow(config, _retention(fraction), align) if sign else config


def _retention(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise SettingsError(f"after @ comes a retention between 0 and 1, as in @0.5 (got {quote(text)})")
    return value


def _narrow(config: Any, target: float, align: int) -> Any:
    """Return the configuration of a model with layers of one width near the target retention."""
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
