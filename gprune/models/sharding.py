"""Answers: where do the layers of a model lie that does not fit one GPU?

To learn, every process keeps a part of each layer (gprune.models.distributed.process_group). To be
evaluated, each layer lies
whole on one of the GPUs, and accelerate hands on what goes from one to the next: one process does that alone.
"""

import importlib.util
from collections.abc import Mapping
from typing import Any

from gprune.models import devices
from gprune.models.decoder import Decoder
from gprune.models.distributed.process_group import shard
from gprune.models.identity import locate, number_type, weight_files
from gprune.models.loading import (
    DTYPES,
    auto_class,
    device_of,
    load,
    load_tokenizer,
    quiet,
    read_model,
    require_finite,
)
from gprune.system.errors import ModelError
from gprune.system.limits import WEIGHTS_OF_A_GPU


def too_large(name: str, device: str, precision: str) -> bool:
    """Whether a model's weights leave one GPU too little room; on a CPU they never do.

    `device` is as a study names it, `precision` float32, bfloat16 or float16.
    """
    place, folder = device_of(device), locate(name)
    if not devices.is_gpu(place):
        return False
    files = [file for file in weight_files(folder) if file.suffix == ".safetensors"]
    stored = DTYPES.get(number_type(folder), DTYPES[precision])
    size = sum(file.stat().st_size for file in files) * DTYPES[precision].itemsize / stored.itemsize
    return size > WEIGHTS_OF_A_GPU * devices.memory(place)[1]


def sharded(name: str, device: str, precision: str, trust_remote_code: bool) -> Decoder:
    """A model of which every process keeps a part; all of them call this at the same time.

    Layers are read from their files one after the other, so that no process ever holds more than its part and
    one of them. A model without files is made whole first.
    """
    decoder = load(name, device, precision, trust_remote_code, offload=bool(weight_files(locate(name))))
    shard(decoder)
    return decoder


def spread(name: str, precision: str, trust_remote_code: bool, count: int) -> Decoder:
    """A model whose layers lie on the first `count` GPUs of this machine, as many on each as go there evenly.

    Raises ModelError where accelerate is not installed, or the GPUs together are too small.
    """
    if importlib.util.find_spec("accelerate") is None:
        raise ModelError(
            f"the model {name!r} does not fit one GPU, and the package accelerate, which lays it over "
            "several, is not installed: install it"
        )
    folder = locate(name)
    arguments = {"dtype": DTYPES[precision], "trust_remote_code": trust_remote_code}
    most = {index: devices.memory(device_of(f"{devices.GPU}:{index}"))[0] for index in range(count)}
    with quiet():
        model = read_model(auto_class(folder), folder, device_map="balanced", max_memory=most, **arguments)
    require_on_gpus(getattr(model, "hf_device_map", {}), name)
    require_finite(model, folder)
    return Decoder.from_model(model, load_tokenizer(name, trust_remote_code))


def require_on_gpus(places: Mapping[str, Any], name: str) -> None:
    """Raises ModelError where a part of a model was left for the machine's own memory, or its disk."""
    left = [part for part, place in places.items() if str(place) in ("cpu", "disk")]
    if left:
        raise ModelError(
            f"the model {name!r} does not fit the GPUs that were asked for ({len(left)} of its parts are "
            "left over): use more of them, or dtype bfloat16"
        )
