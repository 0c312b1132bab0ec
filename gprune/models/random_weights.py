"""Answers: how is a model with random weights made on the device itself?"""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from gprune.models import devices
from gprune.models.identity import configuration
from gprune.models.loadable import attention_notice
from gprune.models.oom_backoff import out_of_memory
from gprune.models.shapes import RANDOM
from gprune.system import safe_parsing
from gprune.system.errors import ModelError, SettingsError

_SEED = 0
_MESSAGE_LENGTH = 160


def config_of(folder: Path) -> Any:
    """The configuration in a folder; none of its code is run. ModelError where it is that of no model."""
    from transformers import AutoConfig

    values = configuration(folder)
    if attention_notice(folder):
        values = values | {"attn_implementation": None}
    try:
        return AutoConfig.for_model(**values)
    except Exception as error:  # whatever the library finds wrong with its fields
        place = safe_parsing.quoted(str(folder))
        raise ModelError(f"{place} has a configuration of no model: {_said(error)}") from error


def make(config: Any, place: torch.device, dtype: torch.dtype, shape: str) -> nn.Module:
    """A model with random weights in evaluation mode, the same in every process on the same kind of device.

    The random numbers of whoever asks are left as they were. `shapes.WEIGHTS` has the version of this.
    `shape` is what the model is called after ``random:``, for errors. Raises ModelError where its sizes do
    not make a model, SettingsError where the memory is too small.
    """
    from transformers import AutoModelForCausalLM

    try:
        with devices.kept_random(place), torch.device(place):
            torch.manual_seed(_SEED)
            model: Any = AutoModelForCausalLM.from_config(config, dtype=dtype)
    except Exception as error:  # sizes that fit nowhere or not together
        if not out_of_memory(error):
            raise ModelError(f"{RANDOM}{shape} cannot be made: {_said(error)}") from error
        kind = str(dtype).removeprefix("torch.")
        raise SettingsError(
            f"{RANDOM}{shape} in {kind} does not fit in the memory of {place}: use a smaller shape, fewer "
            "models or dtype bfloat16"
        ) from error
    return model.requires_grad_(False).eval()


def weights(folder: Path) -> int:
    """How many weights a model of a folder's configuration has; none is made."""
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(config_of(folder))
    return sum(parameter.numel() for parameter in model.parameters())


def _said(error: Exception) -> str:
    """What a library says, in one line of bounded length."""
    return safe_parsing.sentence(str(error) or type(error).__name__, _MESSAGE_LENGTH)
