"""Answers: how much faster is a pruned model, in tokens a second, and how sure is that?

The measurement of the appendix (practical inference speedup): FP16, greedy decoding with a key/value cache,
one warm-up run, then timed repetitions. Prefill and decode are timed apart. All models are measured in one
run and take turns in every repetition, so that a machine that slows down slows all of them; ratios to the
first model are formed within each repetition, and medians are taken last.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gprune.errors import SettingsError
from gprune.evaluation.decoding import Decoding, EagerDecoding, StaticDecoding
from gprune.machine import processor, version
from gprune.models import devices
from gprune.models.room import out_of_memory
from gprune.progress import Progress, silent
from gprune.records import Array

MODES = ("eager", "graph")
PHASES = ("prefill", "decode", "whole")
_WARM_UPS = 1
_DTYPES = ("float32", "bfloat16", "float16")
_SEED = 0


@dataclass(frozen=True, slots=True)
class SpeedSettings:
    """What is measured; the defaults are the paper's."""

    batch: int = 8
    """sequences side by side"""
    prompt: int = 2048
    """tokens of the prompt"""
    new_tokens: int = 512
    """tokens to write; the first comes from the prompt's own pass"""
    repeats: int = 10
    """timed repetitions, after one warm-up"""
    dtype: str = "float16"
    """number type of the weights"""
    device: str = "cuda"
    """cpu, cuda or cuda:1"""
    modes: tuple[str, ...] = MODES
    """ways to decode: eager, graph (a captured CUDA graph)"""

    def __post_init__(self) -> None:
        """Checks every field."""
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
            f"{self.new_tokens} new tokens, {self.repeats} repetitions after {_WARM_UPS} warm-up"
        )


PRESETS = {
    "gpu": SpeedSettings(),
    "cpu": SpeedSettings(1, 128, 64, 10, "float32", "cpu", ("eager",)),
}
"""The paper's setting, and one that a small model on a CPU ends in seconds."""


def preset(name: str) -> SpeedSettings:
    """Settings by name.

    Args:
        name: gpu, cpu, or auto: gpu where there is one.

    Raises:
        SettingsError: the name is unknown.
    """
    if name == "auto":
        return PRESETS["gpu" if devices.is_gpu(devices.automatic()) else "cpu"]
    if name not in PRESETS:
        raise SettingsError(f"preset must be one of auto, {', '.join(PRESETS)} (got {name!r})")
    return PRESETS[name]


def with_changes(settings: SpeedSettings, **changes: Any) -> SpeedSettings:
    """A copy with those fields replaced that are not None.

    Moving to the CPU leaves out the modes that need a GPU.

    Raises:
        SettingsError: the result contradicts itself.
    """
    given = {name: value for name, value in changes.items() if value is not None}
    if "modes" not in given and not devices.is_gpu(given.get("device", settings.device)):
        given["modes"] = tuple(mode for mode in settings.modes if mode != "graph") or ("eager",)
    return replace(settings, **given)


@dataclass(frozen=True, slots=True)
class Speed:
    """One model in one phase and mode."""

    model: str
    """as the person named it"""
    parameters: int
    """of the whole model"""
    phase: str
    """prefill (prompt tokens), decode (new tokens after the first) or whole (all new tokens in the time of
    both, the paper's measure)"""
    mode: str
    """eager or graph; a prefill is eager in both"""
    tokens_per_second: float
    """median over the repetitions, of all sequences together"""
    spread: float
    """interquartile range of the same"""
    ratio: float
    """median over the repetitions of the speed relative to the first model's in the same repetition"""
    ratio_spread: float
    """interquartile range of the same"""
    peak_bytes: int
    """largest memory of the model with cache and workspace"""
    memory: str
    """how that was found: allocated (by CUDA) or weights and cache (counted)"""
    seconds: tuple[float, ...]
    """of each repetition"""


@dataclass(slots=True)
class _Runner:
    """One model in one mode, with what its repetitions gave."""

    name: str
    model: nn.Module
    mode: str
    decoding: Decoding
    prefill: list[float] = field(default_factory=list)
    decode: list[float] = field(default_factory=list)
    peak: int = 0

    def seconds(self, phase: str) -> list[float]:
        """Seconds of each repetition."""
        if phase == "whole":
            return [first + rest for first, rest in zip(self.prefill, self.decode, strict=True)]
        return self.prefill if phase == "prefill" else self.decode


def measure(
    models: dict[str, nn.Module],
    settings: SpeedSettings,
    on_progress: Progress = silent,
    clock: Callable[[], float] = time.perf_counter,
) -> list[Speed]:
    """Measures models side by side; the first is the reference of the ratios.

    Args:
        models: causal language models by name, all on the settings' device and in its number type.
        settings: sizes, repetitions and modes.
        on_progress: told after every run of a model; may raise to stop.
        clock: seconds that only ever grow.

    Returns:
        For each model in turn: its prefill, and its decode and whole in each mode.

    Raises:
        SettingsError: no model; a model is elsewhere or of another number type, reads fewer positions than
            asked for, or does not fit in memory.
    """
    if not models:
        raise SettingsError("there is no model to measure: name at least one")
    for name, model in models.items():
        _require_fit(name, model, settings)
    prompt = _prompt(models, settings)
    training = {name: model.training for name, model in models.items()}
    try:
        with torch.inference_mode(), devices.current(torch.device(settings.device)):
            runners = [
                _Runner(name, model.eval(), mode, _decoding(mode, model, prompt, settings))
                for name, model in models.items()
                for mode in settings.modes
            ]
            _repeat(runners, settings, on_progress, clock)
    finally:
        for name, model in models.items():
            model.train(training[name])
    return _summary(runners, settings)


def parameters(model: nn.Module) -> int:
    """Parameters of a model; tied ones count once."""
    return sum(parameter.numel() for parameter in model.parameters())


def _repeat(
    runners: list[_Runner], settings: SpeedSettings, on_progress: Progress, clock: Callable[[], float]
) -> None:
    """All runners once for warm-up, then in turn for every repetition."""
    total = len(runners) * (_WARM_UPS + settings.repeats)
    for turn in range(_WARM_UPS + settings.repeats):
        for number, runner in enumerate(runners):
            try:
                if turn < _WARM_UPS:
                    _warm_up(runner)
                else:
                    _run(runner, torch.device(settings.device), clock)
            except (RuntimeError, MemoryError) as error:
                if not out_of_memory(error):
                    raise
                raise SettingsError(
                    f"{runner.name} does not fit in the memory of {settings.device} beside the other models "
                    f"with batch {settings.batch} and a prompt of {settings.prompt} tokens: use a smaller "
                    "batch, a shorter prompt or fewer models"
                ) from error
            words = "warm-up" if turn < _WARM_UPS else f"repetition {turn - _WARM_UPS + 1}"
            on_progress(turn * len(runners) + number + 1, total, f"{words}: {runner.name}, {runner.mode}")


def _warm_up(runner: _Runner) -> None:
    runner.decoding.prefill()
    runner.decoding.decode()
    runner.decoding.release()


def _run(runner: _Runner, device: torch.device, clock: Callable[[], float]) -> None:
    """One timed repetition and its memory."""
    decoding, gpu = runner.decoding, devices.is_gpu(device)
    own = _weight_bytes(runner.model)
    if gpu:
        before = devices.allocated(device) - own - decoding.static_bytes()
    runner.prefill.append(_timed(decoding.prefill, device, clock))
    runner.decode.append(_timed(decoding.decode, device, clock))
    # Other models are resident as well: only what this one has beyond them counts.
    peak = devices.peak(device) - before if gpu else own + decoding.cache_bytes()
    runner.peak = max(runner.peak, peak)
    decoding.release()


def _timed(work: Callable[[], None], device: torch.device, clock: Callable[[], float]) -> float:
    """Seconds of a piece of work, from an idle device to an idle device."""
    devices.synchronise(device)
    start = clock()
    work()
    devices.synchronise(device)
    return clock() - start


def _decoding(mode: str, model: nn.Module, prompt: Tensor, settings: SpeedSettings) -> Decoding:
    if mode == "graph":
        return StaticDecoding(model, prompt, settings.new_tokens, capture=True)
    return EagerDecoding(model, prompt, settings.new_tokens)


def _prompt(models: dict[str, nn.Module], settings: SpeedSettings) -> Tensor:
    """(batch, prompt) random tokens that every model knows."""
    tables: list[Any] = [model.get_input_embeddings() for model in models.values()]  # type: ignore[operator]
    vocabulary = min(table.num_embeddings for table in tables)
    generator = torch.Generator().manual_seed(_SEED)
    ids = torch.randint(vocabulary, (settings.batch, settings.prompt), generator=generator)
    return ids.to(settings.device)


def _require_fit(name: str, model: nn.Module, settings: SpeedSettings) -> None:
    weight = next(model.parameters())
    dtype = str(weight.dtype).removeprefix("torch.")
    if weight.device.type != torch.device(settings.device).type or dtype != settings.dtype:
        raise SettingsError(
            f"{name} is in {dtype} on {weight.device}, the measurement in {settings.dtype} on "
            f"{settings.device}: load the model so, or change dtype and device"
        )
    config: Any = model.config
    positions = getattr(config, "max_position_embeddings", None)
    length = settings.prompt + settings.new_tokens
    if positions is not None and length > positions:
        raise SettingsError(
            f"prompt and new tokens are {settings.prompt} + {settings.new_tokens} = {length}, but {name} "
            f"reads at most {positions}: use a shorter prompt or fewer new tokens"
        )


def _weight_bytes(model: nn.Module) -> int:
    return sum(tensor.nbytes for tensor in [*model.parameters(), *model.buffers()])


def _summary(runners: list[_Runner], settings: SpeedSettings) -> list[Speed]:
    first_mode = settings.modes[0]
    # written from the last to the first: what stays of each mode is the first model
    references = {runner.mode: runner for runner in reversed(runners)}
    return [
        _speed(runner, references[runner.mode], phase, settings)
        for runner in runners
        for phase in PHASES
        if phase != "prefill" or runner.mode == first_mode
    ]


def _speed(runner: _Runner, reference: _Runner, phase: str, settings: SpeedSettings) -> Speed:
    counts = {"prefill": settings.prompt, "decode": settings.new_tokens - 1, "whole": settings.new_tokens}
    seconds = np.array(runner.seconds(phase))
    speed, spread = _median_and_spread(settings.batch * counts[phase] / seconds)
    ratio, ratio_spread = _median_and_spread(np.array(reference.seconds(phase)) / seconds)
    return Speed(
        model=runner.name,
        parameters=parameters(runner.model),
        phase=phase,
        mode=runner.mode if phase != "prefill" else "eager",
        tokens_per_second=speed,
        spread=spread,
        ratio=ratio,
        ratio_spread=ratio_spread,
        peak_bytes=runner.peak,
        memory="allocated" if devices.is_gpu(settings.device) else "weights and cache",
        seconds=tuple(seconds.tolist()),
    )


def _median_and_spread(values: Array) -> tuple[float, float]:
    """Median and interquartile range."""
    low, middle, high = np.percentile(values, [25, 50, 75])
    return float(middle), float(high - low)


def fitting(config: Any, preset: SpeedSettings) -> dict[str, int]:
    """Prompt and new tokens that fit the positions of a model, in the preset's proportion."""
    positions = getattr(config, "max_position_embeddings", None)
    if positions is None or preset.prompt + preset.new_tokens <= positions:
        return {}
    prompt = positions * preset.prompt // (preset.prompt + preset.new_tokens)
    return {"prompt": prompt, "new_tokens": positions - prompt}


def where(device: torch.device) -> str:
    """Processor or GPU on which a speed is measured, its threads, and the libraries."""
    libraries = f"torch {torch.__version__}, transformers {version('transformers')}"
    if devices.is_gpu(device):
        return f"{devices.name(device)}, {libraries}"
    return f"{processor()}, {torch.get_num_threads()} threads, {libraries}"
