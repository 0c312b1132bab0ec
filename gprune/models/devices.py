"""Use GPUs, distribute or offload the layers of a model, and halve batches when memory runs out.

Other modules only ask whether a device is a GPU, so that every branch also runs on the pretend device of the tests.

A stage passes its work to `AdaptiveBatches` as a function of the batch size, so that neither the results nor their keys
depend on the memory of a machine. The function must leave no partial result if memory runs out: it first computes all
updates, and then applies them without allocating memory.

Device maps of the library accelerate place layers on several GPUs, in CPU memory or in files. The hooks of accelerate
move the input of a layer to the layer's device. They read an offloaded weight when its module is called and drop it
afterwards, so the results equal those of the model on one device.
"""

import gc
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from gprune.models import identity
from gprune.models.families import Layout
from gprune.system import machine
from gprune.system.errors import GpruneError, SettingsError
from gprune.system.progress import Notice, Progress

GPU = "cuda"
"""torch's name for GPUs as a type of device"""
T = TypeVar("T")
CPU = torch.device("cpu")
Pending = list[tuple[torch.Tensor, torch.Tensor]]
"""tensors of the measurements so far, each with its new values after a batch"""
# messages of torch's CPU allocators, cuBLAS and CUDA, which raise plain RuntimeErrors
_OUT_OF_MEMORY = ("can't allocate memory", "not enough memory", "ALLOC_FAILED", "CUDA error: out of memory")
_REQUESTED = re.compile(r"allocate ([0-9.]+) ?([KMGT]iB|bytes)")
DeviceMap = Mapping[str, Any] | str
"""a device, ``cpu`` or ``disk`` for each part of a model, or ``auto``"""
_DISK = "disk"


def is_gpu(device: torch.device | str) -> bool:
    """Return True if a device is a GPU; a name from a setting is accepted as well."""
    return str(device).partition(":")[0] == GPU


def count() -> int:
    """Return the number of GPUs that torch sees."""
    return _backend().device_count()


def default_device() -> torch.device:
    """Return a GPU if there is one, else the CPU."""
    return torch.device(GPU if _backend().is_available() else "cpu")


def name(device: torch.device | str) -> str:
    """Return the product name of a GPU."""
    return _backend().get_device_name(device)


def memory(device: torch.device) -> tuple[int, int]:
    """Return free and total bytes of a GPU's memory."""
    free, total = _backend().mem_get_info(device)
    return int(free), int(total)


def empty_cache() -> None:
    """Release the memory that torch caches on a GPU."""
    if _backend().is_available():
        _backend().empty_cache()


def synchronise(device: torch.device) -> None:
    """Wait until a GPU has finished its work."""
    if is_gpu(device):
        _backend().synchronize(device)


def as_current_device(device: torch.device) -> AbstractContextManager[Any]:
    """Return a context in which a GPU is the current device, on whose streams graphs are captured."""
    return _backend().device(device) if is_gpu(device) else nullcontext()


def allocated_bytes(device: torch.device) -> int:
    """Return the bytes of this process's tensors on a GPU, and reset the peak."""
    _backend().reset_peak_memory_stats(device)
    return _backend().memory_allocated(device)


def peak_bytes(device: torch.device) -> int:
    """Return the peak bytes of this process's tensors on a GPU since the last call of `allocated_bytes`."""
    return _backend().max_memory_allocated(device)


def run_on_side_stream(step: Callable[[], None]) -> None:
    """Run a function on a separate stream before `capture_graph`, which must not capture its initialization."""
    backend = _backend()
    stream = backend.Stream()
    stream.wait_stream(backend.current_stream())
    with backend.stream(stream):
        step()
    backend.current_stream().wait_stream(stream)


def capture_graph(step: Callable[[], None]) -> Any:
    """Capture one call of a function as a CUDA graph; the graph's `replay` repeats the call.

    Raises RuntimeError if the function does something that cannot be captured, such as waiting for the device.
    """
    backend = _backend()
    graph = backend.CUDAGraph()
    with backend.graph(graph):
        step()
    return graph


def preserve_random_state(device: torch.device) -> AbstractContextManager[Any]:
    """Return a context that on exit restores the random states of the CPU and, if it is a GPU, of the device."""
    return torch.random.fork_rng(devices=[device] if is_gpu(device) else [], device_type=GPU)


def random_states(device: torch.device) -> dict[str, torch.Tensor]:
    """Return the states of the random generators of the CPU, and of the device if it is a GPU, by type of device."""
    states = {"cpu": torch.get_rng_state()}
    return states | {GPU: _backend().get_rng_state(device)} if is_gpu(device) else states


def set_random_states(device: torch.device, states: Mapping[str, torch.Tensor]) -> None:
    """Set the states of `random_states`; a missing one is left unchanged. Raises RuntimeError for other values."""
    if "cpu" in states:
        torch.set_rng_state(states["cpu"])
    if GPU in states and is_gpu(device):
        _backend().set_rng_state(states[GPU], device)


def _backend() -> Any:
    return getattr(torch, GPU)


def out_of_memory(error: BaseException) -> bool:
    """Return True if an error of torch or Python reports that memory ran out."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(phrase in str(error) for phrase in _OUT_OF_MEMORY)


def commit(pending: Pending) -> None:
    """Apply the updates of a batch; this allocates no memory, so it cannot fail halfway."""
    for tensor, values in pending:
        tensor.copy_(values)


@dataclass(slots=True)
class AdaptiveBatches:
    """Batch size that is halved whenever memory runs out."""

    size: int
    """sequences per batch; it only decreases"""
    length: int
    """tokens of a sequence"""
    setting: str
    """name of the setting that gives the initial size"""
    remedy: str
    """remedy in the message of the error that is raised if a single sequence does not fit"""
    device: torch.device
    """device of the model"""
    on_progress: Progress
    """called with a notice whenever the size is halved"""
    error_class: type[GpruneError] = SettingsError
    """class of the error that is raised if a single sequence does not fit"""

    def attempt(self, run: Callable[[int], T], limit: int, finished: int = 0, total: int = 1) -> T:
        """Call `run` with the largest batch size, at most `limit`, for which memory suffices, and return its result.

        `run` takes the batch size and must leave no partial result if it fails. `finished` and `total` are the steps
        of the stage for the progress report. Raises `error_class` if memory runs out with a single sequence.
        """
        while True:
            count = min(self.size, limit)
            try:
                return run(count)
            except (RuntimeError, MemoryError) as error:
                if not out_of_memory(error):
                    raise
                if count == 1:
                    fault = f"{self.setting}: memory ran out with a single sequence of {self.length:,} tokens"
                    raise self.error_class(f"{fault} ({describe_memory(error, self.device)}): {self.remedy}") from error
            # halve outside the except block, when the frames of the attempt have released their tensors
            self._halve(count, finished, total)

    def run_batches(self, total: int, run: Callable[[slice], None], progress: tuple[int, int] | None = None) -> None:
        """Process `total` sequences batch by batch; see `attempt`.

        `run` takes the slice of the sequences of a batch. `progress` has the finished and the total steps of the stage;
        by default the steps are the sequences.
        """
        start = 0

        def run_batch(count: int) -> int:
            run(slice(start, start + count))
            return count

        while start < total:
            start += self.attempt(run_batch, total - start, *(progress or (start, total)))

    def _halve(self, count: int, finished: int, total: int) -> None:
        release_memory()
        self.size = count // 2
        problem = f"memory ran out with {count} sequences of {self.length:,} tokens at a time ({self.setting}): "
        self.on_progress(
            finished,
            total,
            Notice(f"{problem}continuing with {self.size}, which is slower but does not change results"),
        )


def release_memory() -> None:
    """Free the memory of unreachable objects, and the memory that torch caches on a GPU."""
    gc.collect()
    empty_cache()


def device_memory(device: torch.device) -> tuple[int, int]:
    """Return free and total bytes of a device's memory; on a CPU those of the machine."""
    return memory(device) if is_gpu(device) else machine.memory()


def describe_memory(error: BaseException, device: torch.device) -> str:
    """Describe the requested memory, if the error states it, and the free memory."""
    free, total = device_memory(device)
    available = f"{free / 2**30:,.1f} of {total / 2**30:,.1f} GiB are free on {device}"
    match = _REQUESTED.search(str(error))
    if match is None:
        return available
    number, unit = match.groups()
    requested = f"{float(number) / 2**20:,.1f} MiB" if unit == "bytes" else f"{number} {unit}"
    return f"{requested} more were requested, {available}"


def disk_map(loader: Any, configuration: Any, layout: Layout, device: torch.device) -> dict[str, str]:
    """Return a device map that places the decoder layers on the disk and all other parts on a device.

    `loader` is the Auto class of the model.
    """
    with torch.device("meta"):
        # eager attention is used because only the module names matter and every family supports it
        parent: nn.Module = loader.from_config(configuration, attn_implementation="eager")
    # safetensors needs device names, with a number if there are several GPUs
    device_name = f"{device.type}:{device.index or 0}" if is_gpu(device) else str(device)
    devices_by_module: dict[str, str] = {}
    prefix = ""
    # walk down to the list of layers; everything beside the path is on the device
    for step in layout.layers.split("."):
        for child, _ in parent.named_children():
            if child != step:
                devices_by_module[prefix + child] = device_name
        parent, prefix = parent.get_submodule(step), f"{prefix}{step}."
    return devices_by_module | {prefix + child: _DISK for child, _ in parent.named_children()}


def needs_several_gpus(folder: Path, device: str, target: torch.device, dtype: Any) -> bool:
    """Return True if the weights in a folder nearly fill the GPU `target` and there are other GPUs.

    `device` is the setting; the result is False if it names one GPU. `dtype` is ``auto`` or a torch dtype.
    """
    if ":" in device or not is_gpu(target) or count() < 2:
        return False
    size = sum(tensor.bytes for tensor in identity.stored_tensors(folder).values())
    stored_dtype = getattr(torch, identity.number_type(folder) or "float32")
    factor = 1.0 if dtype == "auto" else dtype.itemsize / stored_dtype.itemsize
    return factor * size > machine.WEIGHTS_OF_A_GPU * memory(target)[1]


def memory_limits() -> dict[int | str, int]:
    """Return the bytes that weights may occupy on each GPU and in CPU memory; the rest is reserved for passes."""
    gpus = {index: memory(torch.device(GPU, index))[0] for index in range(count())}
    sizes = gpus | {"cpu": machine.memory()[0]}
    return {device: int(machine.WEIGHTS_OF_A_GPU * size) for device, size in sizes.items()}


def execution_device(module: nn.Module) -> torch.device:
    """Return the device on which a module computes, even if its weights are offloaded."""
    weight = next(module.parameters())
    if not weight.is_meta or not hasattr(module, "_hf_hook"):
        return weight.device
    hook: Any = module._hf_hook
    is_index = isinstance(hook.execution_device, int)
    return torch.device(GPU, hook.execution_device) if is_index else torch.device(hook.execution_device)


def keep_present(module: nn.Module) -> AbstractContextManager[None]:
    """Return a context in which the offloaded weights of a module itself, not of its submodules, are in memory."""
    offloaded = any(parameter.is_meta for parameter in module.parameters(recurse=False))
    return _resident(module) if offloaded and hasattr(module, "_hf_hook") else nullcontext()


@contextmanager
def _resident(module: nn.Module) -> Iterator[None]:
    from accelerate.utils import align_module_device

    hook: Any = module._hf_hook
    with align_module_device(module):
        # while the context is open, a call of the module neither reads nor drops its weights
        hook.offload = False
        try:
            yield
        finally:
            hook.offload = True


def load_offloaded(module: nn.Module) -> None:
    """Load all offloaded weights of a module and its submodules to their execution devices permanently."""
    from accelerate.hooks import remove_hook_from_module

    for part in module.modules():
        if not any(parameter.is_meta for parameter in part.parameters(recurse=False)):
            continue
        with keep_present(part):
            weights = {name: weight.detach().clone() for name, weight in part.named_parameters(recurse=False)}
        remove_hook_from_module(part)
        for name, weight in weights.items():
            part.register_parameter(name, nn.Parameter(weight, requires_grad=False))


def release_hooks(model: nn.Module) -> None:
    """Remove accelerate's hooks from a model whose weights are all on one device."""
    from accelerate.hooks import remove_hook_from_submodules

    if not hasattr(model, "hf_device_map") or len({parameter.device for parameter in model.parameters()}) > 1:
        return
    remove_hook_from_submodules(model)
    del model.hf_device_map
    for part in model.modules():
        # accelerate leaves the forward function of the class on the instance
        part.__dict__.pop("forward", None)
