"""Measure the speed of pruned models relative to the dense model, in tokens per second with interquartile ranges.

The measurement follows the appendix (practical inference speedup): FP16, greedy decoding with a key/value cache,
one warm-up run, then timed repetitions. Prefill and decode are timed separately. The first model stays in memory, and
the others are loaded one at a time. In every repetition the two models in memory run in turn, so that a change in the
machine's speed affects both. Speed ratios to the first model are computed per repetition before medians are taken.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from gprune.evaluation.decoding import Decoding, EagerDecoding, StaticDecoding
from gprune.models import devices
from gprune.models.parts import language_config
from gprune.records import Array
from gprune.study.settings import require_choice
from gprune.system.errors import SettingsError
from gprune.system.forms import Form, Rule, at_least, validate_form
from gprune.system.machine import processor, version
from gprune.system.progress import Progress, silent

PHASES = ("prefill", "decode", "whole")
MODES = ("eager", "graph", "compiled")
WARM_UPS = 1
"""number of runs that are not timed"""
_MODES_RULE = Rule(
    f"one or more of {', '.join(MODES)}, each once",
    lambda modes: bool(modes) and len({*modes}) == len(modes) and {*modes} <= {*MODES},
)


@validate_form
@dataclass(frozen=True, slots=True)
class SpeedSettings(Form):
    """Settings of a speed measurement; the defaults are the paper's."""

    batch: Annotated[int, at_least(1)] = 8
    """sequences per batch"""
    prompt: Annotated[int, at_least(1)] = 2048
    """tokens of the prompt"""
    new_tokens: Annotated[int, at_least(2)] = 512
    """number of tokens to generate; the forward pass of the prompt gives the first"""
    repeats: Annotated[int, at_least(1)] = 10
    """timed repetitions of each pair of the first and another model, after one warm-up run of both"""
    dtype: Literal["float32", "bfloat16", "float16"] = "float16"
    """number type of the weights"""
    device: str = "cuda"
    """cpu, cuda or cuda:1"""
    modes: Annotated[tuple[str, ...], _MODES_RULE] = ("eager", "graph")
    """ways to decode: eager, graph (a captured CUDA graph), compiled (by torch.compile, and on a GPU also captured as a
    graph; compiling takes up to a minute per model)"""

    def __post_init__(self) -> None:
        """Raise SettingsError if the mode graph is requested on a CPU."""
        if "graph" in self.modes and not devices.is_gpu(self.device):
            raise SettingsError(f"the mode graph needs a CUDA device (device is {self.device!r}): use eager")

    def describe(self) -> str:
        """Return the setting in one line."""
        return (
            f"{self.dtype} on {self.device}, batch {self.batch}, prompt {self.prompt}, "
            f"{self.new_tokens} new tokens, {self.repeats} repetitions after {WARM_UPS} warm-up"
        )


PRESETS = {"gpu": SpeedSettings(), "cpu": SpeedSettings(1, 128, 64, 10, "float32", "cpu", ("eager",))}
"""the paper's settings, and settings that take seconds for a small model on a CPU"""


def preset(name: str) -> SpeedSettings:
    """Return the settings of a preset: gpu, cpu or auto (gpu if there is one). Raise SettingsError for any other."""
    if name == "auto":
        return PRESETS["gpu" if devices.is_gpu(devices.default_device()) else "cpu"]
    require_choice("preset", name, ("auto", *PRESETS))
    return PRESETS[name]


def with_changes(settings: SpeedSettings, **changes: Any) -> SpeedSettings:
    """Return a copy with other values of some fields; None keeps a value, and a CPU drops modes that need a GPU.

    Raises SettingsError if the result contradicts itself.
    """
    values = {name: value for name, value in changes.items() if value is not None}
    if "modes" not in values and not devices.is_gpu(values.get("device", settings.device)):
        values["modes"] = tuple(mode for mode in settings.modes if mode != "graph") or ("eager",)
    return replace(settings, **values)


@dataclass(frozen=True, slots=True)
class Speed:
    """Measured speed of one model in one phase and mode."""

    model: str
    """name given by the caller"""
    parameters: int
    """of the whole model"""
    phase: str
    """prefill (prompt tokens), decode (new tokens after the first) or whole (all new tokens, over the time of prefill
    and decode; the paper's measure)"""
    mode: str
    """eager or graph; a prefill is eager in both"""
    tokens_per_second: float
    """median over all repetitions of the model, for all sequences of the batch together"""
    spread: float
    """interquartile range of `tokens_per_second` over the repetitions"""
    ratio: float
    """median over the repetitions of the speed relative to that of the first model in the same repetition"""
    ratio_spread: float
    """interquartile range of the ratio over the repetitions"""
    peak_bytes: int
    """peak memory of the model with cache and workspace"""
    memory: str
    """source of `peak_bytes`: allocated (by CUDA) or weights and cache (counted)"""
    seconds: tuple[float, ...]
    """time of each repetition; for the first model, those next to the second model, then to the third, and so on"""


@dataclass(slots=True)
class Timed:
    """Times of the repetitions of one model in one mode."""

    name: str
    mode: str
    parameters: int
    """of the whole model"""
    repetitions: list[tuple[float, float]] = field(default_factory=list)
    """seconds of prefill and of decode of each repetition"""
    peak: int = 0
    """largest memory of the model with cache and workspace, in bytes"""

    def seconds(self, phase: str) -> Array:
        """Return the seconds of each repetition in a phase."""
        prefill, decode = np.array(self.repetitions).T
        return {"prefill": prefill, "decode": decode, "whole": prefill + decode}[phase]


def join_repetitions(parts: Sequence[Timed]) -> Timed:
    """Join the repetitions of one model in one mode that were measured with different other models."""
    repetitions = [seconds for part in parts for seconds in part.repetitions]
    return replace(parts[0], repetitions=repetitions, peak=max(part.peak for part in parts))


class LoadedModel:
    """A model in memory with a decoding for every mode."""

    def __init__(self, name: str, model: nn.Module, settings: SpeedSettings) -> None:
        """Prepare the decodings of a causal language model in evaluation mode.

        Raises SettingsError if prompt and new tokens exceed the model's positions.
        """
        _require_fit(name, model, settings)
        # tied parameters count once
        self.name, self.parameters = name, sum(parameter.numel() for parameter in model.parameters())
        self.bytes = sum(tensor.nbytes for tensor in [*model.parameters(), *model.buffers()])
        table: Any = model.get_input_embeddings()  # type: ignore[operator]
        with torch.inference_mode(), devices.as_current_device(torch.device(settings.device)):
            size = (settings.batch, settings.prompt)
            prompt = torch.randint(table.num_embeddings, size, generator=torch.Generator().manual_seed(0))
            prompt = prompt.to(settings.device)
            self.decodings = {mode: _create_decoding(mode, model, prompt, settings) for mode in settings.modes}


def load_model(name: str, load: Callable[[], nn.Module], settings: SpeedSettings, together: bool) -> LoadedModel:
    """Load a model and put it in evaluation mode.

    `together` is True if the reference model is in memory too. Raises the errors of `LoadedModel`, and GpruneError if
    the model cannot be loaded or does not fit in memory.
    """
    with within_memory(name, settings, together):
        return LoadedModel(name, load().eval(), settings)


def take_turns(
    models: list[LoadedModel], settings: SpeedSettings, clock: Callable[[], float], on_run: Callable[[str], None]
) -> list[list[Timed]]:
    """Time each model in each mode: one warm-up run each, then every repetition runs all of them in turn.

    `clock` returns seconds that never decrease; `on_run` is called with a description after every run. Raises
    SettingsError if a model does not fit in memory.
    """
    device = torch.device(settings.device)
    # reset, because the compiler silently stops compiling after eight models of one class
    torch.compiler.reset()
    times = [[Timed(model.name, mode, model.parameters) for mode in model.decodings] for model in models]
    with torch.inference_mode(), devices.as_current_device(device):
        for turn in range(WARM_UPS + settings.repeats):
            description = "warm-up" if turn < WARM_UPS else f"repetition {turn - WARM_UPS + 1}"
            for model, modes in zip(models, times, strict=True):
                for timed in modes:
                    with within_memory(model.name, settings, len(models) > 1):
                        prefill, decode, peak = _run(model, timed.mode, device, clock)
                    if turn >= WARM_UPS:
                        timed.repetitions.append((prefill, decode))
                        timed.peak = max(timed.peak, peak)
                    on_run(f"{description}: {timed.name}, {timed.mode}")
    return times


@contextmanager
def within_memory(name: str, settings: SpeedSettings, together: bool) -> Iterator[None]:
    """Raise SettingsError with a remedy if memory runs out while the context is open."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not devices.out_of_memory(error):
            raise
        context = " in addition to the reference model" if together else ""
        raise SettingsError(
            f"{name} does not fit in the memory of {settings.device}{context} with batch {settings.batch} and "
            f"a prompt of {settings.prompt} tokens: use a smaller batch or a shorter prompt"
        ) from error


def _run(model: LoadedModel, mode: str, device: torch.device, clock: Callable[[], float]) -> tuple[float, float, int]:
    """Return the seconds of prefill and of decode, and the largest memory in bytes."""
    decoding, is_gpu = model.decodings[mode], devices.is_gpu(device)
    if is_gpu:
        # bytes of another model in memory
        other_bytes = devices.allocated_bytes(device) - model.bytes - decoding.cache_bytes()
    prefill = _seconds_of(decoding.prefill, device, clock)
    decode = _seconds_of(decoding.decode, device, clock)
    peak = devices.peak_bytes(device) - other_bytes if is_gpu else model.bytes + decoding.cache_bytes()
    decoding.release()
    return prefill, decode, peak


def _seconds_of(run: Callable[[], None], device: torch.device, clock: Callable[[], float]) -> float:
    """Return the seconds of a call, with the device idle before and after."""
    devices.synchronise(device)
    start = clock()
    run()
    devices.synchronise(device)
    return clock() - start


def _create_decoding(mode: str, model: nn.Module, prompt: Tensor, settings: SpeedSettings) -> Decoding:
    if mode != "eager":
        capture = devices.is_gpu(settings.device)
        return StaticDecoding(model, prompt, settings.new_tokens, capture, compiled=mode == "compiled")
    return EagerDecoding(model, prompt, settings.new_tokens)


def _require_fit(name: str, model: nn.Module, settings: SpeedSettings) -> None:
    """Raise SettingsError if prompt and new tokens exceed the model's positions."""
    config = language_config(model)
    positions = getattr(config, "max_position_embeddings", None)
    length = settings.prompt + settings.new_tokens
    if positions is not None and length > positions:
        raise SettingsError(
            f"prompt and new tokens are {settings.prompt} + {settings.new_tokens} = {length}, but {name} "
            f"reads at most {positions}: use a shorter prompt or fewer new tokens"
        )


def measure(
    models: Mapping[str, Callable[[], nn.Module]],
    settings: SpeedSettings,
    on_progress: Progress = silent,
    clock: Callable[[], float] = time.perf_counter,
) -> list[Speed]:
    """Measure the speed of each model in turn with the first, which is the reference of the ratios.

    The first and each other model run in turn, after one warm-up run of both, and ratios compare the same repetition.
    The rows of the first model cover its repetitions with all other models.

    Args:
        models: Functions that load causal language models, by name, on the device and in the number type of
            `settings`. The first stays loaded; each other model is released before the next is loaded.
        settings: Batch, lengths, repetitions and modes.
        on_progress: Called before a model is loaded and after every run; may raise to stop.
        clock: Returns seconds that never decrease.

    Returns:
        For each model its prefill, then decode and whole in each mode.

    Raises:
        GpruneError: A model cannot be loaded, has too few positions, or does not fit in memory with the first.
    """
    runs = max(1, 2 * (len(models) - 1)) * len(settings.modes) * (WARM_UPS + settings.repeats)
    finished_runs = 0

    def on_run(description: str) -> None:
        nonlocal finished_runs
        finished_runs += 1
        on_progress(finished_runs, runs, description)

    # a function of its own, so that no local variable keeps the last model in memory
    def measure_beside(name: str, load: Callable[[], nn.Module]) -> list[list[Timed]]:
        on_progress(finished_runs, runs, f"loading: {name}")
        model = load_model(name, load, settings, together=True)
        return take_turns([reference, model], settings, clock, on_run)

    (first_name, load_first), *following = models.items()
    on_progress(0, runs, f"loading: {first_name}")
    reference = load_model(first_name, load_first, settings, together=False)
    rounds = [] if following else [take_turns([reference], settings, clock, on_run)]
    for name, load in following:
        rounds.append(measure_beside(name, load))
        # release the memory of this model before the next one is loaded
        devices.release_memory()
    references = [join_repetitions(parts) for parts in zip(*(times[0] for times in rounds), strict=True)]
    pairs = list(zip(references, references, strict=True))
    for first_times, *other_times in rounds:
        pairs += [pair for times in other_times for pair in zip(times, first_times, strict=True)]
    return [
        _summarize(timed, reference_times, phase, settings)
        for timed, reference_times in pairs
        for phase in PHASES
        if phase != "prefill" or timed.mode == settings.modes[0]
    ]


def _summarize(timed: Timed, reference: Timed, phase: str, settings: SpeedSettings) -> Speed:
    """Return the speed of a model in one phase, and its ratio to that of the reference model."""
    token_counts = {"prefill": settings.prompt, "decode": settings.new_tokens - 1, "whole": settings.new_tokens}
    seconds = timed.seconds(phase)
    speed, spread = _median_and_spread(settings.batch * token_counts[phase] / seconds)
    ratio, ratio_spread = _median_and_spread(reference.seconds(phase) / seconds)
    return Speed(
        model=timed.name,
        parameters=timed.parameters,
        phase=phase,
        mode=timed.mode if phase != "prefill" else "eager",
        tokens_per_second=speed,
        spread=spread,
        ratio=ratio,
        ratio_spread=ratio_spread,
        peak_bytes=timed.peak,
        memory="allocated" if devices.is_gpu(settings.device) else "weights and cache",
        seconds=tuple(seconds.tolist()),
    )


def _median_and_spread(values: Array) -> tuple[float, float]:
    """Return median and interquartile range."""
    low, middle, high = np.percentile(values, [25, 50, 75])
    return float(middle), float(high - low)


def fit_preset(config: Any, preset: SpeedSettings) -> dict[str, int]:
    """Return prompt and new tokens in the preset's ratio that fit the model's positions; {} if the preset fits."""
    positions = getattr(config, "max_position_embeddings", None)
    if positions is None or preset.prompt + preset.new_tokens <= positions:
        return {}
    prompt = positions * preset.prompt // (preset.prompt + preset.new_tokens)
    return {"prompt": prompt, "new_tokens": positions - prompt}


def describe_device(device: torch.device) -> str:
    """Describe the processor or GPU of a measurement, its threads, and the libraries."""
    libraries = f"torch {torch.__version__}, transformers {version('transformers')}"
    if devices.is_gpu(device):
        return f"{devices.name(device)}, {libraries}"
    threads = torch.get_num_threads()
    return f"{processor()}, {threads} thread{'' if threads == 1 else 's'}, {libraries}"
