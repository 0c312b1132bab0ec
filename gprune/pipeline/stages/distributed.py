"""The other processes of a run, as stages see them: what they take part in, and with which model.

Results and their keys do not depend on how many there are (docs/several_gpus.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from gprune.records import PruningMasks, Tokens
from gprune.study import Study
from gprune.study.settings import CalibrationSettings, RepairSettings

if TYPE_CHECKING:
    from gprune.models.decoder import Decoder
    from gprune.models.distributed.process_group import Ranks

STATISTICS, POSITIONS, REPAIR = "statistics", "positions", "repair"
SHARD, LET_GO = "shard", "let go"
"""what the others are told to take part in, beside learning"""


class Processes:
    """Has the other processes take part, and loads the model in the form that the work at hand needs."""

    def __init__(self, ranks: Ranks, study: Study, precision: str, forget: Callable[[], None]) -> None:
        """Binds a run."""
        self.ranks, self._study, self._precision, self._forget = ranks, study, precision, forget
        self._before = (0, 0)
        self._held: Any = None
        self.helped = False
        """whether the others have taken part since this was said to be false"""

    def load(self) -> Decoder:
        """The model as each process has it for a pass: whole, or with its layers left in their files."""
        from gprune.models.loading import load

        values = self._about()
        trust, offload = values["trust_remote_code"], values["offload"]
        decoder = load(values["model"], self.ranks.device, self._precision, trust, offload)
        decoder.in_company = True
        return decoder

    def whole(self) -> Decoder:
        """The model with all its weights in memory: over all GPUs, or on the CPU where there are none."""
        from gprune.models import sharding
        from gprune.models.loading import load

        if self._held is None:
            study = self._study
            precision, trusted = self._precision, study.trust_remote_code
            if self.ranks.device == "cpu":
                self._held = load(study.model, "cpu", precision, trusted)
            else:
                # what the others hold takes room on the GPUs that it is laid over
                self.ranks.order(LET_GO, {}, {})
                self._held = sharding.spread(study.model, precision, trusted, self.ranks.count)
        return self._held

    def called(self, name: str, tokens: Tokens, settings: CalibrationSettings, count: int = 0) -> Ranks:
        """Has the others take part in a pass, STATISTICS or POSITIONS, over a calibration set.

        `count` is the strongest positions kept for each neuron; 0 for none.
        """
        about = {"text": tokens.text, "fingerprint": tokens.fingerprint, "available": tokens.available}
        values = self._about() | about | {"settings": asdict(settings), "count": count}
        self.ranks.order(name, values, {"ids": tokens.ids})
        self.helped = True
        return self.ranks

    def repairing(self, masks: PruningMasks, texts: Sequence[Tokens], settings: RepairSettings) -> Ranks:
        """Has the others take part in fitting weights to masks on calibration sets."""
        study = self._study
        values = {"repair": asdict(settings), "batch": study.calibration.batch, "texts": len(texts)}
        arrays = {f"ids{number}": text.ids for number, text in enumerate(texts)}
        self.ranks.order(REPAIR, self._about() | values, arrays | {"ffn": masks.ffn, "heads": masks.heads})
        self.helped = True
        return self.ranks

    @contextmanager
    def sharded(self, passed: tuple[int, int]) -> Iterator[Decoder]:
        """The model in shards over all processes; nothing else of it is in memory meanwhile.

        `passed` counts the tokens that the models which are let go have been run over.
        """
        from gprune.models import oom_backoff
        from gprune.models.sharding import sharded

        self._before, self._held = passed, None
        self._forget()
        oom_backoff.release()
        self.ranks.order(SHARD, self._about(), {})
        with self.ranks.working():
            trusted = self._study.trust_remote_code
            self._held = decoder = sharded(self._study.model, self.ranks.device, self._precision, trusted)
        self.helped = True
        try:
            yield decoder
        finally:
            self._before, self._held = self.passed((0, 0)), None
            if not self.ranks.within:
                self.ranks.order(LET_GO, {}, {})

    def passed(self, here: tuple[int, int]) -> tuple[int, int]:
        """Tokens that all models of the run were run over, given those of the one that is whole."""
        held = (self._held.forward_tokens, self._held.backward_tokens) if self._held is not None else (0, 0)
        return self._before[0] + held[0] + here[0], self._before[1] + held[1] + here[1]

    def _about(self) -> dict[str, Any]:
        """The model as the others load it."""
        from gprune.models.sharding import too_large

        study = self._study
        return {
            "model": study.model,
            "precision": self._precision,
            "trust_remote_code": study.trust_remote_code,
            "offload": study.offload or too_large(study.model, self.ranks.device, self._precision),
        }
