"""Answers: can one model of a study lie over so many GPUs (`run --model-gpus`)?"""

from collections.abc import Sequence

from gprune.study.settings import require
from gprune.study.study import Study
from gprune.system import machine
from gprune.system.limits import MOST_PROCESSES


def require_possible(count: int, study: Study, seeds: Sequence[int] | None, here: bool = True) -> None:
    """Raises SettingsError where a study, of seeds or of none, cannot be run by so many processes."""
    require(1 <= count <= MOST_PROCESSES, "--model-gpus", count, f"1 to {MOST_PROCESSES}")
    require(not seeds, "--model-gpus", count, "left out with --seeds: run the seeds one after the other")
    rule = "none with --model-gpus: recovery is not shared out over several GPUs"
    require(count == 1 or study.recovery.kind == "none", "recovery.kind", study.recovery.kind, rule)
    rule = "auto, cpu or cuda with --model-gpus, which uses the first GPUs of the machine"
    require(":" not in study.device, "device", study.device, rule)
    gpu = machine.has_gpu()
    rule = "auto or cpu on a machine without GPUs"
    require(not here or gpu or study.device in ("auto", "cpu"), "device", study.device, rule)
    if here and study.device != "cpu" and gpu:
        there = len(machine.cards())
        require(count <= there, "--model-gpus", count, f"at most {there}, the GPUs that are here")
