"""Measure the speed of pruned models against the dense one, in tokens a second with its spread.

The measurement of the appendix (practical inference speedup): FP16, greedy decoding with a key/value cache,
one warm-up run, then timed repetitions. Prefill and decode are timed apart. The first model stays in memory;
of the others one at a time is there beside it. These two take turns in every repetition, so that a machine
that slows down slows both; ratios to the first model are formed within each repetition, and medians are taken
last.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from gprune.evaluation.decoding import Decoding, EagerDecoding, StaticDecoding
from gprune.models import devices, oom_backoff
from gprune.models.parts import language_config
from gprune.records import Array
from gprune.system.errors import SettingsError
from gprune.system.forms import Form, Rule, at_least, validate_form
from gprune.system.machine import processor, version
from gprune.system.progress import Progress, silent

PHASES = ("prefill", "decode", "whole")
MODES = ("eager", "graph", "compiled")
WARM_UPS = 1
_MODES_RULE = Rule(
    f"one or more of {', '.join(MODES)}, each once",
    lambda modes: bool(modes) and len({*modes}) == len(modes) and {*modes} <= {*MODES},
)


@validate_form
@dataclass(frozen=True, slots=True)
class SpeedSettings(Form):
    """Settings of a speed measurement; the defaults are the paper's."""

    batch: Annotated[int, at_least(1)] = 8
    """sequences side by side"""
    prompt: Annotated[int, at_least(1)] = 2048
    """tokens of the prompt"""
    new_tokens: Annotated[int, at_least(2)] = 512
    """tokens to write; the first comes from the prompt's own pass"""
    repeats: Annotated[int, at_least(1)] = 10
    """timed repetitions of every model next to the first, after one warm-up of both"""
    dtype: Literal["float32", "bfloat16", "float16"] = "float16"
    """number type of the weights"""
    device: str = "cuda"
    """cpu, cuda or cuda:1"""
    modes: Annotated[tuple[str, ...], _MODES_RULE] = ("eager", "graph")
    """ways to decode: eager, graph (a captured CUDA graph), compiled (by torch.compile, then captured on a
    GPU; compiling takes up to a minute a model)"""

    def __post_init__(self) -> None:
        """Refuse graphs on a CPU."""
        if "graph" in self.modes and not devices.is_gpu(self.device):
            raise SettingsError(f"the mode graph needs a CUDA device (device is {self.device!r}): use eager")

    def describe(self) -> str:
        """Return the setting in one line."""
        return (
            f"{self.dtype} on {self.device}, batch {self.batch}, prompt {self.prompt}, "
            f"{self.new_tokens} new tokens, {self.repeats} repetitions after {WARM_UPS} warm-up"
        )


PRESETS = {
    "gpu": SpeedSettings(),
    "cpu": SpeedSettings(1, 128, 64, 10, "float32", "cpu", ("eager",)),
}
"""The paper's setting, and one that a small model on a CPU ends in seconds."""


def preset(name: str) -> SpeedSettings:
    """Return the settings of a preset: gpu, cpu or auto (gpu if there is one). Raise SettingsError for any other."""
    if name == "auto":
        return PRESETS["gpu" if devices.is_gpu(devices.default_device()) else "cpu"]
    if name not in PRESETS:
        raise SettingsError(f"preset must be one of auto, {', '.join(PRESETS)} (got {name!r})")
    return PRESETS[name]


def with_changes(settings: SpeedSettings, **changes: Any) -> SpeedSettings:
    """Return a copy with the fields replaced that are not None; the CPU drops modes that need a GPU.

    Raises SettingsError if the result contradicts itself.
    """
    values = {name: value for name, value in changes.items() if value is not None}
    if "modes" not in values and not devices.is_gpu(values.get("device", settings.device)):
        values["modes"] = tuple(mode for mode in settings.modes if mode != "graph") or ("eager",)
    return replace(settings, **values)


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
    """median over the repetitions, of all sequences together; the first model's are all that it has made"""
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
    """of each repetition; the first model's beside the second, then those beside the third, and so on"""


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
        """Return the seconds of each repetition."""
        if phase == "whole":
            return [first + rest for first, rest in zip(self.prefill, self.decode, strict=True)]
        return self.prefill if phase == "prefill" else self.decode


def join_repetitions(repetitions: list[Timed]) -> Timed:
    """Join all repetitions of one model in one mode."""
    timed = Timed(repetitions[0].name, repetitions[0].mode, repetitions[0].parameters)
    for part in repetitions:
        timed.prefill += part.prefill
        timed.decode += part.decode
        timed.peak = max(timed.peak, part.peak)
    return timed


class Entrant:
    """A model in memory, ready to write in every mode."""

    def __init__(self, name: str, model: nn.Module, settings: SpeedSettings) -> None:
        """Prepare the decodings of a causal language model in evaluation mode.

        Raises SettingsError if the model reads fewer positions.
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
            self.decodings = {mode: _decoding(mode, model, prompt, settings) for mode in settings.modes}


@contextmanager
def load_entrant(
    name: str, load: Callable[[], nn.Module], settings: SpeedSettings, together: bool
) -> Iterator[Entrant]:
    """Yield a model in memory, in evaluation mode; afterwards it is as it was.

    `together` says that it takes turns with another. Raises GpruneError as `Entrant`, or where the model cannot be
    loaded or does not fit in memory.
    """
    with within_memory(name, settings, together):
        model = load()
    training = model.training
    try:
        with within_memory(name, settings, together):
            entrant = Entrant(name, model.eval(), settings)
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
    SettingsError if a model does not fit in memory.
    """
    device = torch.device(settings.device)
    # reset, because the compiler silently stops compiling after eight models of one class
    torch.compiler.reset()
    times = [[Timed(entrant.name, mode, entrant.parameters) for mode in entrant.decodings] for entrant in entrants]
    with torch.inference_mode(), devices.as_current_device(device):
        for turn in range(WARM_UPS + settings.repeats):
            description = "warm-up" if turn < WARM_UPS else f"repetition {turn - WARM_UPS + 1}"
            for entrant, modes in zip(entrants, times, strict=True):
                for timed in modes:
                    with within_memory(entrant.name, settings, len(entrants) > 1):
                        if turn < WARM_UPS:
                            _warm_up(entrant.decodings[timed.mode])
                        else:
                            _run(entrant, timed, device, clock)
                    on_run(f"{description}: {timed.name}, {timed.mode}")
    return times


@contextmanager
def within_memory(name: str, settings: SpeedSettings, together: bool) -> Iterator[None]:
    """Raise SettingsError with a remedy if memory runs out while the context is open."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not oom_backoff.out_of_memory(error):
            raise
        context = " beside the model that it takes turns with" if together else ""
        raise SettingsError(
            f"{name} does not fit in the memory of {settings.device}{context} with batch {settings.batch} and "
            f"a prompt of {settings.prompt} tokens: use a smaller batch or a shorter prompt"
        ) from error


def _warm_up(decoding: Decoding) -> None:
    decoding.prefill()
    decoding.decode()
    decoding.release()


def _run(entrant: Entrant, timed: Timed, device: torch.device, clock: Callable[[], float]) -> None:
    """Time one repetition and record its memory."""
    decoding, gpu = entrant.decodings[timed.mode], devices.is_gpu(device)
    if gpu:
        bytes_before = devices.allocated_bytes(device) - entrant.bytes - decoding.static_bytes()
    timed.prefill.append(_timed(decoding.prefill, device, clock))
    timed.decode.append(_timed(decoding.decode, device, clock))
    # Another model is in memory as well, so its bytes are subtracted.
    peak = devices.peak_bytes(device) - bytes_before if gpu else entrant.bytes + decoding.cache_bytes()
    timed.peak = max(timed.peak, peak)
    decoding.release()


def _timed(run: Callable[[], None], device: torch.device, clock: Callable[[], float]) -> float:
    """Return the seconds of a call, with the device idle before and after."""
    devices.synchronise(device)
    start = clock()
    run()
    devices.synchronise(device)
    return clock() - start


def _decoding(mode: str, model: nn.Module, prompt: Tensor, settings: SpeedSettings) -> Decoding:
    if mode != "eager":
        capture = devices.is_gpu(settings.device)
        return StaticDecoding(model, prompt, settings.new_tokens, capture, compiled=mode == "compiled")
    return EagerDecoding(model, prompt, settings.new_tokens)


def _require_fit(name: str, model: nn.Module, settings: SpeedSettings) -> None:
    config = language_config(model)
    positions = getattr(config, "max_position_embeddings", None)
    length = settings.prompt + settings.new_tokens
    if positions is not None and length > positions:
        raise SettingsError(
            f"prompt and new tokens are {settings.prompt} + {settings.new_tokens} = {length}, but {name} "
            f"reads at most {positions}: use a shorter prompt or fewer new tokens"
        )


class Measurement:
    """Measures models two at a time; finished measurements are kept if the next model fails."""

    def __init__(
        self,
        models: Mapping[str, Callable[[], nn.Module]],
        settings: SpeedSettings,
        on_progress: Progress = silent,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Load nothing; see `measure` for arguments."""
        self._models, self._settings, self._clock = models, settings, clock
        self._on_progress, self._done = on_progress, 0
        self._rounds: list[list[list[Timed]]] = []
        """the first model and another, or the first alone; of each what it took in each mode"""

    def run(self) -> None:
        """Measure all models; see `measure` for errors."""
        (name, load), *following = self._models.items()
        self._tell(f"loading: {name}")
        with load_entrant(name, load, self._settings, together=False) as reference:
            for next_name, load_next in following:
                self._measure_pair(reference, next_name, load_next)
                # release the memory of this model before the next one is loaded
                oom_backoff.release_memory()
            if not following:
                self._take_turns([reference])

    def rows(self) -> list[Speed]:
        """Return the prefill of each measured model, and its decode and whole in each mode."""
        if not self._rounds:
            return []
        references = [
            join_repetitions(list(parts)) for parts in zip(*(models[0] for models in self._rounds), strict=True)
        ]
        pairs = list(zip(references, references, strict=True))
        for models in self._rounds:
            pairs += [(timed, models[0][mode]) for other in models[1:] for mode, timed in enumerate(other)]
        return [
            _speed(timed, reference, phase, self._settings)
            for timed, reference in pairs
            for phase in PHASES
            if phase != "prefill" or timed.mode == self._settings.modes[0]
        ]

    def _measure_pair(self, reference: Entrant, name: str, load: Callable[[], nn.Module]) -> None:
        """Measure one more model and release its memory."""
        self._tell(f"loading: {name}")
        with load_entrant(name, load, self._settings, together=True) as entrant:
            self._take_turns([reference, entrant])

    def _take_turns(self, entrants: list[Entrant]) -> None:
        self._rounds.append(take_turns(entrants, self._settings, self._clock, self._on_run))

    def _on_run(self, description: str) -> None:
        self._done += 1
        self._tell(description)

    def _tell(self, message: str) -> None:
        settings = self._settings
        runs = (2 * (len(self._models) - 1) or 1) * len(settings.modes) * (WARM_UPS + settings.repeats)
        self._on_progress(self._done, runs, message)


def measure(
    models: Mapping[str, Callable[[], nn.Module]],
    settings: SpeedSettings,
    on_progress: Progress = silent,
    clock: Callable[[], float] = time.perf_counter,
) -> list[Speed]:
    """Measure models side by side, two at a time; the first is the reference of the ratios.

    Every other model takes turns with the first, both warmed up anew, and its ratios are to the first in the
    same repetitions. The first model's own rows are of all its repetitions, beside whichever model. `models`
    are what gives causal language models, by name, all on the settings' device and in its number type: the
    first is asked for once and kept; each other one when its turn comes, and let go of before the next.
    `on_progress` is told before a model is loaded and after every run of one; may raise to stop. `clock`
    gives seconds that only ever grow. Gives for each model in turn its prefill, and its decode and whole in
    each mode. Raises GpruneError if a model cannot be loaded, reads fewer positions than asked for, or does not
    fit in memory beside the first. What was measured before is lost: `Measurement` keeps it.
    """
    measurement = Measurement(models, settings, on_progress, clock)
    measurement.run()
    return measurement.rows()


def _speed(timed: Timed, reference: Timed, phase: str, settings: SpeedSettings) -> Speed:
    token_counts = {"prefill": settings.prompt, "decode": settings.new_tokens - 1, "whole": settings.new_tokens}
    seconds = np.array(timed.seconds(phase))
    speed, spread = _median_and_spread(settings.batch * token_counts[phase] / seconds)
    ratio, ratio_spread = _median_and_spread(np.array(reference.seconds(phase)) / seconds)
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


def fitting(config: Any, preset: SpeedSettings) -> dict[str, int]:
    """Return prompt length and new tokens that fit the positions of a model, in the preset's proportion."""
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
