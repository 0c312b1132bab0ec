"""Speed of pruned models in tokens a second, beside the dense one, with its spread.

The measurement of the appendix (practical inference speedup): FP16, greedy decoding with a key/value cache,
one warm-up run, then timed repetitions. Prefill and decode are timed apart. The first model stays in memory;
of the others one at a time is there beside it. These two take turns in every repetition, so that a machine
that slows down slows both; ratios to the first model are formed within each repetition, and medians are taken
last.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from gprune.evaluation.interleaved_timing import WARM_UPS, Entrant, Timed, join_repetitions, load_entrant, take_turns
from gprune.evaluation.interleaved_timing import SpeedSettings as SpeedSettings
from gprune.models import devices, oom_backoff
from gprune.records import Array
from gprune.system.errors import SettingsError
from gprune.system.machine import processor, version
from gprune.system.progress import Progress, silent

PHASES = ("prefill", "decode", "whole")

PRESETS = {
    "gpu": SpeedSettings(),
    "cpu": SpeedSettings(1, 128, 64, 10, "float32", "cpu", ("eager",)),
}
"""The paper's setting, and one that a small model on a CPU ends in seconds."""


def preset(name: str) -> SpeedSettings:
    """Settings by name: gpu, cpu, or auto, gpu where there is one. SettingsError for any other."""
    if name == "auto":
        return PRESETS["gpu" if devices.is_gpu(devices.automatic()) else "cpu"]
    if name not in PRESETS:
        raise SettingsError(f"preset must be one of auto, {', '.join(PRESETS)} (got {name!r})")
    return PRESETS[name]


def with_changes(settings: SpeedSettings, **changes: Any) -> SpeedSettings:
    """A copy with those fields replaced that are not None; on the CPU without modes that need a GPU.

    Raises SettingsError where the result contradicts itself.
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


class Measurement:
    """Models measured two at a time; what is measured so far stays, whatever happens to the next one."""

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
        with load_entrant(name, load, self._settings) as first:
            for other, load_other in following:
                self._measure_pair(first, other, load_other)
                # only now, when nothing holds this model any more, is there room for the next
                oom_backoff.release()
            if not following:
                self._take_turns([first])

    def rows(self) -> list[Speed]:
        """For each model that has been measured: its prefill, and its decode and whole in each mode."""
        if not self._rounds:
            return []
        first = [join_repetitions(list(parts)) for parts in zip(*(models[0] for models in self._rounds), strict=True)]
        pairs = list(zip(first, first, strict=True))
        for models in self._rounds:
            pairs += [(timed, models[0][mode]) for other in models[1:] for mode, timed in enumerate(other)]
        return [
            _speed(timed, reference, phase, self._settings)
            for timed, reference in pairs
            for phase in PHASES
            if phase != "prefill" or timed.mode == self._settings.modes[0]
        ]

    def _measure_pair(self, first: Entrant, name: str, load: Callable[[], nn.Module]) -> None:
        """Measure one more model, which is gone from memory afterwards."""
        self._tell(f"loading: {name}")
        with load_entrant(name, load, self._settings, first) as other:
            self._take_turns([first, other])

    def _take_turns(self, entrants: list[Entrant]) -> None:
        self._rounds.append(take_turns(entrants, self._settings, self._clock, self._on_run))

    def _on_run(self, words: str) -> None:
        self._done += 1
        self._tell(words)

    def _tell(self, words: str) -> None:
        settings = self._settings
        runs = (2 * (len(self._models) - 1) or 1) * len(settings.modes) * (WARM_UPS + settings.repeats)
        self._on_progress(self._done, runs, words)


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
    each mode. Raises GpruneError where a model cannot be loaded, reads fewer positions than asked for, or does not
    fit in memory beside the first. What was measured before is lost: `Measurement` keeps it.
    """
    measurement = Measurement(models, settings, on_progress, clock)
    measurement.run()
    return measurement.rows()


def _speed(timed: Timed, reference: Timed, phase: str, settings: SpeedSettings) -> Speed:
    counts = {"prefill": settings.prompt, "decode": settings.new_tokens - 1, "whole": settings.new_tokens}
    seconds = np.array(timed.seconds(phase))
    speed, spread = _median_and_spread(settings.batch * counts[phase] / seconds)
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
    threads = torch.get_num_threads()
    return f"{processor()}, {threads} thread{'' if threads == 1 else 's'}, {libraries}"
