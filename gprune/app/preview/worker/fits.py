"""Weights that are fitted to masks while somebody waits: by key from the store, from memory, or made now.

What is fitted to a run's own masks goes into the store, where every what-if needs it beside itself. What-ifs
are as many as people drag lines: theirs stay in memory, the newest, and end with the worker.
"""

import contextlib
import time
from collections import OrderedDict
from typing import Any

from gprune.app.preview.worker import messages
from gprune.models.decoder import Decoder
from gprune.pipeline import provenance
from gprune.pruning.repair.fitting import fit
from gprune.pruning.repair.scales import fold
from gprune.pruning.sparsity.scales import learn_scales
from gprune.pruning.surgery import cut
from gprune.records import REPAIRS, PrunedModel, PruningMasks, RepairedWeights, Tokens
from gprune.records.repairs import FITTED
from gprune.store import Store
from gprune.study import RepairSettings, ScaleSettings
from gprune.system.errors import StoreError
from gprune.system.progress import Progress

MOST_BYTES = 2 * 2**30
"""of weights that stay in memory; what was fitted last and what it is held against stay anyway"""
FEWEST = 2


class Fits:
    """The fitted weights of one dense model."""

    def __init__(self, decoder: Decoder, store: Store) -> None:
        """Fits nothing yet."""
        self.decoder, self.store = decoder, store
        self.seconds = 0.0
        """that fitting has taken so far"""
        self._kept: OrderedDict[str, RepairedWeights] = OrderedDict()

    def weights(
        self, place: list[str], masks: PruningMasks, asked: dict[str, Any], on_progress: Progress
    ) -> RepairedWeights:
        """The weights at a place, kind and key; `asked` is `fit` of gprune.app.preview.worker.messages.

        Raises StoreError where tokens of a text are gone, and as `gprune.pruning.repair.fitting.fit`.
        """
        kind, key = place
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        if kind == FITTED and self.store.has(kind, key, RepairedWeights):
            return self.store.get(kind, key, RepairedWeights)
        started = time.perf_counter()
        texts = [self.store.get(of, name, Tokens) for of, name in asked["texts"]]
        settings = RepairSettings(**asked["settings"])
        found = fit(self.decoder, masks, texts, settings, int(asked["batch"]), on_progress)
        if "scales" in asked:
            found = self._scaled(masks, found, asked["scales"], on_progress)
        taken = time.perf_counter() - started
        self.seconds += taken
        if kind == FITTED:
            # a cache that cannot be written is as good for everything else
            with contextlib.suppress(StoreError):
                details = {"seconds": round(taken, 3), **provenance.versions()}
                self.store.put(kind, key, found, details)
        self._keep(key, found)
        return found

    def _scaled(
        self, masks: PruningMasks, weights: RepairedWeights, learning: dict[str, Any], on_progress: Progress
    ) -> RepairedWeights:
        """Learn scales after the fit and fold them into its weights."""
        texts = [self.store.get(kind, key, Tokens) for kind, key in learning["texts"]]
        repairs = (REPAIRS[weights.kind],)
        model = cut(self.decoder, PrunedModel(masks, repairs, {"weights": weights}))
        settings, seed = ScaleSettings(**learning["settings"]), int(learning["seed"])

        def on_step(done: int, total: int, _: str) -> None:
            on_progress(done, total, messages.SCALING)

        scales = learn_scales(self.decoder, model, masks, "", texts, settings, seed, on_step)
        return fold(self.decoder, masks, weights, scales)

    def _keep(self, key: str, found: RepairedWeights) -> None:
        self._kept[key] = found
        sizes = [one.numbers.nbytes + one.biases.nbytes for one in self._kept.values()]
        while len(sizes) > FEWEST and sum(sizes) > MOST_BYTES:
            self._kept.popitem(last=False)
            sizes.pop(0)
