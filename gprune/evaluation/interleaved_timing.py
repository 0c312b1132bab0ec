"""Time models that are in memory together and take turns.

One model is timed after the other in every repetition, so that a machine that slows down slows all of them.
Prefill and decode are timed apart.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from gprune.evaluation.decoding import Decoding, EagerDecoding, StaticDecoding
from gprune.models import devices
from gprune.models.oom_backoff import out_of_memory
from gprune.models.parts import language_config
from gprune.system.errors import SettingsError

MODES = ("eager", "graph", "compiled")
WARM_UPS = 1
_DTYPES = ("float32", "bfloat16", "float16")
_SEED = 0


@dataclass(frozen=True, slots=True)
class SpeedSettings:
    """Settings of a speed measurement; the defaults are the paper's."""

    batch: int = 8
    """sequences side by side"""
    prompt: int = 2048
    """tokens of the prompt"""
    new_tokens: int = 512
    """tokens to write; the first comes from the prompt's own pass"""
    repeats: int = 10
    """timed repetitions of every model beside the first, after one warm-up of both"""
    dtype: str = "float16"
    """number type of the weights"""
    device: str = "cuda"
    """cpu, cuda or cuda:1"""
    modes: tuple[str, ...] = ("eager", "graph")
    """ways to decode: eager, graph (a captured CUDA graph), compiled (by torch.compile, then captured on a
    GPU; compiling takes up to a minute a model)"""

    def __post_init__(self) -> None:
        """Check every field."""
        for name, least in (("batch", 1), ("prompt", 1), ("new_tokens", 2), ("repeats", 1)):
            if getattr(self, name) < least:
                raise SettingsError(f"{name} must be {least} or more (got {getattr(self, name)})")
        if self.dtype not in _DTYPES:
            raise SettingsError(f"dtype must be one of {', '.join(_DTYPES)} (got {self.dtype!r})")
        if not self.modes or len({*self.modes}) < len(self.modes) or not {*self.modes} <= {*MODES}:
            raise SettingsError(f"modes must be one or more of {', '.join(MODES)} (got {self.modes})")
        if "graph" in self.modes and not devices.is_gpu(self.device):
            raise SettingsError(f"the mode graph needs a CUDA device (device is {self.device!r}): use eager")

    def describe(self) -> str:
        """The setting in one line."""
        return (
            f"{self.dtype} on {self.device}, batch {self.batch}, prompt {self.prompt}, "
            f"{self.new_tokens} new tokens, {self.repeats} repetitions after {WARM_UPS} warm-up"
        )


@dataclass(slots=True)
class Timed:
    """Times of the repetitions of one model in one mode; the model itself may be gone."""

    name: str
    mode: str
    parameters: int
    """of the whole model"""
    prefill: list[float] = field(default_factory=list)
    """seconds of each repetition"""
    decode: list[float] = field(default_factory=list)
    """seconds of each repetition"""
    peak: int = 0
    """largest memory of the model with cache and workspace, in bytes"""

    def seconds(self, phase: str) -> list[float]:
        """Seconds of each repetition."""
        if phase == "whole":
            return [first + rest for first, rest in zip(self.prefill, self.decode, strict=True)]
        return self.prefill if phase == "prefill" else self.decode


def join_repetitions(parts: list[Timed]) -> Timed:
    """All repetitions of one model in one mode, one part after the other."""
    timed = Timed(parts[0].name, parts[0].mode, parts[0].parameters)
    for part in parts:
        timed.prefill += part.prefill
        timed.decode += part.decode
        timed.peak = max(timed.peak, part.peak)
    return timed


class Entrant:
    """A model in memory, ready to write in every mode."""

    def __init__(self, name: str, model: nn.Module, settings: SpeedSettings, prompt: Tensor | None = None) -> None:
        """Prepare the decodings of a causal language model in evaluation mode.

        `prompt` (batch, tokens) ids are folded into the model's vocabulary; random where left out. Raises
        SettingsError where the model reads fewer positions.
        """
        _require_fit(name, model, settings)
        self.name, self.parameters = name, parameters(model)
        self.bytes = sum(tensor.nbytes for tensor in [*model.parameters(), *model.buffers()])
        table: Any = model.get_input_embeddings()  # type: ignore[operator]
        ids = _prompt(table.num_embeddings, settings) if prompt is None else prompt
        with torch.inference_mode(), devices.current(torch.device(settings.device)):
            self.prompt = ids % table.num_embeddings
            self.decodings = {mode: _decoding(mode, model, self.prompt, settings) for mode in settings.modes}


@contextmanager
def load_entrant(
    name: str, load: Callable[[], nn.Module], settings: SpeedSettings, reference: Entrant | None = None
) -> Iterator[Entrant]:
    """A model in memory for as long as the context is open; in evaluation mode, and after that as it was.

    `reference` is the model that it takes turns with, whose prompt it reads; None for the first. Raises
    GpruneError as `Entrant`, or where the model cannot be loaded or does not fit in memory.
    """
    with within_memory(name, settings, together=reference is not None):
        model = load()
    training = model.training
    try:
        with within_memory(name, settings, together=reference is not None):
            entrant = Entrant(name, model.eval(), settings, None if reference is None else reference.prompt)
        yield entrant
    finally:
        model.train(training)


def take_turns(
    entrants: list[Entrant],
    settings: SpeedSettings,
    clock: Callable[[], float],
    on_run: Callable[[str], None],
) -> list[list[Timed]]:
    """Time each model in each mode: all once for warm-up, then in turn for every repetition.

    `clock` gives seconds that only ever grow; `on_run` is told after every run, in words. Raises
    SettingsError where a model does not fit in memory.
    """
    device = torch.device(settings.device)
    # the compiler gives up, in silence, after eight models of one class
    torch.compiler.reset()
    times = [[Timed(entrant.name, mode, entrant.parameters) for mode in entrant.decodings] for entrant in entrants]
    with torch.inference_mode(), devices.current(device):
        for turn in range(WARM_UPS + settings.repeats):
            words = "warm-up" if turn < WARM_UPS else f"repetition {turn - WARM_UPS + 1}"
            for entrant, modes in zip(entrants, times, strict=True):
                for timed in modes:
                    with within_memory(entrant.name, settings, together=len(entrants) > 1):
                        if turn < WARM_UPS:
                            _warm_up(entrant.decodings[timed.mode])
                        else:
                            _run(entrant, timed, device, clock)
                    on_run(f"{words}: {timed.name}, {timed.mode}")
    return times


def parameters(model: nn.Module) -> int:
    """Parameters of a model; tied ones count once."""
    return sum(parameter.numel() for parameter in model.parameters())


@contextmanager
def within_memory(name: str, settings: SpeedSettings, together: bool) -> Iterator[None]:
    """Say in one sentence, as a SettingsError, that memory ran out."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        other = " beside the model that it takes turns with" if together else ""
        raise SettingsError(
            f"{name} does not fit in the memory of {settings.device}{other} with batch {settings.batch} and "
            f"a prompt of {settings.prompt} tokens: use a smaller batch or a shorter prompt"
        ) from error


def _warm_up(decoding: Decoding) -> None:
    decoding.prefill()
    decoding.decode()
    decoding.release()


def _run(entrant: Entrant, timed: Timed, device: torch.device, clock: Callable[[], float]) -> None:
    """One timed repetition and its memory."""
    decoding, gpu = entrant.decodings[timed.mode], devices.is_gpu(device)
    if gpu:
        before = devices.allocated(device) - entrant.bytes - decoding.static_bytes()
    timed.prefill.append(_timed(decoding.prefill, device, clock))
    timed.decode.append(_timed(decoding.decode, device, clock))
    # Another model is resident as well: only what this one has beyond it counts.
    peak = devices.peak(device) - before if gpu else entrant.bytes + decoding.cache_bytes()
    timed.peak = max(timed.peak, peak)
    decoding.release()


def _timed(work: Callable[[], None], device: torch.device, clock: Callable[[], float]) -> float:
    """Seconds of a piece of work, from an idle device to an idle device."""
    devices.synchronise(device)
    start = clock()
    work()
    devices.synchronise(device)
    return clock() - start


def _decoding(mode: str, model: nn.Module, prompt: Tensor, settings: SpeedSettings) -> Decoding:
    if mode != "eager":
        capture = devices.is_gpu(settings.device)
        return StaticDecoding(model, prompt, settings.new_tokens, capture, compiled=mode == "compiled")
    return EagerDecoding(model, prompt, settings.new_tokens)


def _prompt(vocabulary: int, settings: SpeedSettings) -> Tensor:
    """(batch, prompt) random tokens."""
    generator = torch.Generator().manual_seed(_SEED)
    ids = torch.randint(vocabulary, (settings.batch, settings.prompt), generator=generator)
    return ids.to(settings.device)


def _require_fit(name: str, model: nn.Module, settings: SpeedSettings) -> None:
    config = language_config(model)
    positions = getattr(config, "max_position_embeddings", None)
    length = settings.prompt + settings.new_tokens
    if positions is not None and length > positions:
        raise SettingsError(
            f"prompt and new tokens are {settings.prompt} + {settings.new_tokens} = {length}, but {name} "
            f"reads at most {positions}: use a shorter prompt or fewer new tokens"
        )
