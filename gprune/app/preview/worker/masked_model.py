"""A dense model that is loaded once, silenced in place, and measured a few windows at a time.

Model, device, number type, text and windows are those of the run's perplexity stage, and are checked against
the inputs of the run, so a page never shows numbers from other inputs.
"""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from gprune.app.preview.questions import WindowLosses
from gprune.app.preview.requests import Fit, ModelSpec, Pruning, ResultKey, Scaling, Text, missing_model
from gprune.data import texts
from gprune.evaluation.perplexity import window_losses, windows
from gprune.models import identity, loading
from gprune.models.devices import out_of_memory
from gprune.pipeline.stages import KINDS
from gprune.pruning import repair
from gprune.pruning.experts.surgery import mask_experts
from gprune.pruning.repair.fitting import fit
from gprune.pruning.repair.scales import fold
from gprune.pruning.sparsity.scales import learn_scales
from gprune.pruning.surgery import Silenced, cut
from gprune.records import REPAIRS, Array, PrunedModel, PruningMasks, RepairedWeights, SampledText, Tokens
from gprune.records.repairs import in_order
from gprune.store import Store
from gprune.study import EvaluationSettings
from gprune.system import machine, safe_parsing
from gprune.system.errors import CorpusError, ModelError, SettingsError
from gprune.system.progress import Progress, silent

TARGET_SECONDS = 0.5
"""target duration of a slice of windows: a newer request can start between two slices"""
FIRST_WINDOWS = 2
"""number of windows of the first slice, whose speed is unknown: a single window gives no standard error"""
FITS = 2
"""number of fits that stay in memory: those of the newest masks and of their base"""
SCALING = "learning scales"
"""description of the learning of scales in progress reports"""
_TOO_SMALL = (
    "there is too little memory for live evaluation of this model: close other programs, or run the study with dtype "
    "bfloat16 or shorter windows"
)


class MaskedModel:
    """A dense model with its evaluated texts, whose units are masked in place."""

    def __init__(self, spec: ModelSpec) -> None:
        """Load the model.

        Raises ModelError if it is missing or has changed since the run, SettingsError if the device is not
        available.
        """
        self.name, self.store = spec.model, Store(Path(spec.root))
        self._files = _file_states(self.name)
        self._tokenizer = spec.tokenizer
        device = loading.device_of(spec.device)
        with ThreadPoolExecutor(1) as executor:
            # weights are read and digested at the same time
            digests = executor.submit(_compute_digests, self.name, spec.device)
            load: Any = loading.load_experts if spec.experts else loading.load
            self.decoder = load(self.name, str(device), spec.precision, spec.trust_remote_code)
            if digests.result() != (spec.fingerprint, spec.tokenizer):
                raise identity.changed_error(self.name)
        self.seconds: dict[Text, float] = {}
        """seconds per window of each text"""
        self._windows: dict[Text, Array] = {}
        self._prepared: dict[str, dict[str, Any]] = {}
        """prepared data of repairs that are not fitted, by repairs and inputs"""
        self._fits: dict[str, RepairedWeights] = {}
        """weights of the last fits, by the key of their pruning"""
        self._silenced: tuple[str, Silenced] | None = None
        """the last pruning: its key, and the model with its units silenced"""

    def windows(self, text: Text) -> Array:
        """Return (windows, length) token ids of a text, in the windows of the run.

        For a calibration text, these are the sequences that the run has drawn. Raises CorpusError if an
        evaluation text is missing or has changed since the run, StoreError if the sequences are missing.
        """
        if text not in self._windows:
            settings = evaluation_settings(text)
            self._windows[text] = (
                windows(self.decoder.model, self._load_stream(text, settings), text.name, settings)
                if text.tokens is None
                else self.drawn_tokens(text.tokens)
            )
        return self._windows[text]

    def drawn_tokens(self, tokens: ResultKey) -> Array:
        """(samples, length) token ids of a calibration set."""
        ids: Array = self.store.get(*tokens, Tokens).ids
        return ids

    def _load_stream(self, text: Text, settings: EvaluationSettings) -> Array:
        """(tokens,) ids of an evaluation text, as the run has read it or the model has written it."""
        if text.sampled:
            return self.store.get("sampled", text.sampled, SampledText).stream
        limit = settings.tokens
        if texts.fingerprint(text.name, "evaluation", tokens=limit, cache=self.store.texts) != text.digest:
            raise CorpusError(f"the text {text.name!r} has changed since the run: restore it, or run the study again")
        bundled = texts.bundled.bundled_stream(text.digest, self._tokenizer, limit)
        if bundled is not None:
            return bundled
        ids = texts.stream(text.name, self.decoder.tokenizer, cache=self.store.texts, limit=limit)
        texts.require_embedded(ids, text.name, self.decoder.num_embeddings, self.decoder.tokenizer)
        return ids

    def require_same(self) -> None:
        """Raise ModelError if the model's files are missing or not those that were loaded."""
        if _file_states(self.name) != self._files:
            raise identity.changed_error(self.name)

    @contextmanager
    def silenced(self, pruning: Pruning | Array | None, on_progress: Progress = silent) -> Iterator[None]:
        """Silence the removed units and repair the others within the block; fits of weights call `on_progress`.

        An array is the masks of experts; see `gprune.app.preview.requests.resolve_pruning`.
        """
        if pruning is None:
            yield
            return
        if isinstance(pruning, np.ndarray):
            with mask_experts(self.decoder, pruning):
                yield
            return
        key = pruning.key
        if self._silenced is None or self._silenced[0] != key:
            # repaired weights take a third of the model's memory: free the previous ones first
            self._silenced = None
            self._silenced = key, self._prepare_model(pruning, on_progress)
        with self._silenced[1].applied():
            yield

    def _prepare_model(self, pruning: Pruning, on_progress: Progress) -> Silenced:
        repairs = in_order(pruning.repairs)
        if pruning.fit is not None:
            inputs: dict[str, Any] = {"weights": self._fit(pruning.key, pruning.masks, pruning.fit, on_progress)}
            model = PrunedModel(pruning.masks, repairs, inputs)
            return Silenced(self.decoder, model, repair.prepare_repairs(self.decoder, model))
        # repairs that are not fitted prepare the same data for all masks
        key = json.dumps([pruning.repairs, pruning.inputs])
        if key not in self._prepared:
            inputs = {name: self._load_records(keys) for name, keys in pruning.inputs.items()}
            self._prepared[key] = repair.prepare_repairs(self.decoder, PrunedModel(pruning.masks, repairs, inputs))
        return Silenced(self.decoder, PrunedModel(pruning.masks, repairs), self._prepared[key])

    def _load_records(self, keys: Any) -> Any:
        """Return the record of a ResultKey, or the records of a list of them."""
        if isinstance(keys, list):
            return [self._load_records(key) for key in keys]
        kind, key = keys
        record: Any = KINDS[kind].record
        return self.store.get(kind, key, record)

    def _fit(self, key: str, masks: PruningMasks, settings: Fit, on_progress: Progress) -> RepairedWeights:
        """Fit weights to masks, or return those that are in memory."""
        weights = self._fits.pop(key, None)
        if weights is None:
            tokens = [self.store.get(*text, Tokens) for text in settings.texts]
            weights = fit(self.decoder, masks, tokens, settings.settings, settings.batch, on_progress)
            if settings.scaling is not None:
                weights = self._learn_scales(masks, weights, settings.scaling, on_progress)
        # inserted again, so that the newest fits are last
        self._fits[key] = weights
        for oldest in list(self._fits)[:-FITS]:
            del self._fits[oldest]
        return weights

    def _learn_scales(
        self, masks: PruningMasks, weights: RepairedWeights, scaling: Scaling, on_progress: Progress
    ) -> RepairedWeights:
        """Learn scales after the fit and fold them into its weights."""
        tokens = [self.store.get(*text, Tokens) for text in scaling.texts]
        model = cut(self.decoder, PrunedModel(masks, (REPAIRS[weights.kind],), {"weights": weights}))

        def on_step(done: int, total: int, _: str) -> None:
            on_progress(done, total, SCALING)

        scales = learn_scales(self.decoder, model, masks, "", tokens, scaling.settings, scaling.seed, on_step)
        return fold(self.decoder, masks, weights, scales)


def measure_losses(model: MaskedModel, previous: WindowLosses | None, text: Text) -> WindowLosses:
    """Measure the next windows of a text, for about half a second.

    Raises GpruneError with the cause and the remedy.
    """
    ids = model.windows(text)
    losses = np.full(len(ids), np.nan) if previous is None else previous.losses.copy()
    order = visiting_order(len(ids))
    seconds = model.seconds.get(text)
    count = FIRST_WINDOWS if seconds is None else int(TARGET_SECONDS / max(seconds, 1e-9))
    indices = order[np.isnan(losses[order])][: max(1, min(count, text.batch))]
    started = time.perf_counter()
    try:
        # this uses smaller batches if the memory is too small for all windows at once
        losses[indices] = window_losses(
            model.decoder.model,
            ids[indices],
            text.name,
            evaluation_settings(text, len(indices)),
            numbers=indices,
        )
    except SettingsError as error:
        if not out_of_memory(_get_cause(error)):
            raise
        raise SettingsError(_TOO_SMALL) from error
    measured = (time.perf_counter() - started) / len(indices)
    # the mean with the earlier value, because single measurements vary
    model.seconds[text] = measured if seconds is None else 0.5 * (measured + seconds)
    return WindowLosses(losses)


def visiting_order(windows: int) -> Array:
    """Return the (windows,) order in which windows are measured: random, with a fixed seed."""
    return np.random.default_rng(0).permutation(windows)


def describe_error(error: Exception) -> str:
    """Return one sentence on an unexpected error, also if memory ran out."""
    if out_of_memory(_get_cause(error)):
        return _TOO_SMALL
    return f"live evaluation failed ({type(error).__name__}: {safe_parsing.sentence(error, 200)}): try again"


def _get_cause(error: Exception) -> Exception:
    return error.__cause__ if isinstance(error.__cause__, Exception) else error


def evaluation_settings(text: Text, batch: int = 1) -> EvaluationSettings:
    """Return the settings with which the run splits a text into windows."""
    return EvaluationSettings(preset=str(text.length), windows=text.windows, batch=batch)


def _compute_digests(name: str, device: str) -> tuple[str, str]:
    return identity.fingerprint(name, card=machine.card(device)), identity.tokenizer_fingerprint(name)


def _file_states(name: str) -> list[tuple[str, int, int]]:
    """Return names, sizes and times of the files that make a model. Raises ModelError if a file is missing."""
    try:
        folder = identity.locate(name)
        files = identity.files(folder)
        tokenizer = identity.tokenizer_folder(folder)
        files += [tokenizer / file for file in identity.TOKENIZER_FILES if (tokenizer / file).is_file()]
        states = [(str(file), file.stat()) for file in files]
    except (ModelError, OSError) as error:
        raise missing_model(name) from error
    return [(path, state.st_size, state.st_mtime_ns) for path, state in states]
