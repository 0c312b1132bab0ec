"""Make models with random weights on the device itself."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from gprune.models import devices
from gprune.models.identity import configuration
from gprune.models.loadable import attention_notice
from gprune.models.oom_backoff import out_of_memory
from gprune.models.shapes import RANDOM
from gprune.system.errors import ModelError, SettingsError
from gprune.system.safe_parsing import quote, sentence

_SEED = 0


def config_of(folder: Path) -> Any:
    """Return the configuration in a folder without running its code. Raises ModelError if it is that of no model."""
    from transformers import AutoConfig

    values = configuration(folder)
    if attention_notice(folder):
        values = values | {"attn_implementation": None}
    try:
        return AutoConfig.for_model(**values)
    except Exception as error:  # any error that the library raises for its fields
        raise ModelError(f"{quote(str(folder))} has a configuration of no model: {sentence(error, 200)}") from error


def make_model(config: Any, target: torch.device, dtype: torch.dtype, shape: str) -> nn.Module:
    """Make a model with random weights in evaluation mode, the same in every process on the same kind of device.

    The state of the random generators is restored. Increase `shapes.WEIGHTS` with every change here. `shape` names
    the model in errors. Raises ModelError if its sizes do not make a model, SettingsError if the memory is too
    small.
    """
    from transformers import AutoModelForCausalLM

    try:
        with devices.preserve_random_state(target), torch.device(target):
            torch.manual_seed(_SEED)
            model: Any = AutoModelForCausalLM.from_config(config, dtype=dtype)
    except Exception as error:  # sizes that are too large or inconsistent
        if not out_of_memory(error):
            raise ModelError(f"{RANDOM}{shape} cannot be made: {sentence(error, 200)}") from error
        kind = str(dtype).removeprefix("torch.")
        raise SettingsError(
            f"{RANDOM}{shape} in {kind} does not fit in the memory of {target}: use a smaller shape, fewer "
            "models or dtype bfloat16"
        ) from error
    return model.requires_grad_(False).eval()
