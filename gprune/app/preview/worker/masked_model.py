"""A model on the masked: loaded once, silenced in place, measured a few windows at a time.

Model, device, number type, text and windows are those of the run's perplexity stage, and are checked against
what the run has read: a number on a page is one of the run at hand or none.
"""

import json
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch

from gprune.app.preview.worker.fits import Fits
from gprune.app.preview.worker.messages import unpacked
from gprune.data import texts
from gprune.evaluation.perplexity import window_losses, windows
from gprune.models import identity, library_errors, loading, random_weights
from gprune.models.oom_backoff import out_of_memory
from gprune.pipeline.stages import KINDS
from gprune.pruning import repair
from gprune.pruning.surgery import Silenced
from gprune.records import Array, PrunedModel, SampledText, Tokens
from gprune.records.repairs import in_order
from gprune.store import Store
from gprune.study import EvaluationSettings
from gprune.system import machine
from gprune.system.errors import CorpusError, ModelError, SettingsError
from gprune.system.progress import Progress, silent

MOST_PREPARED = 64
"""masks that stay prepared: the points of a curve take turns"""
_TOO_SMALL = (
    "the memory is too small for live evaluation of this model: close what else uses it, or run the study "
    "with dtype bfloat16 or shorter windows"
)
Stamp = tuple[tuple[str, int, int], ...]


class MaskedModel:
    """One dense model with its texts."""

    def __init__(self, model: dict[str, Any]) -> None:
        """Loads the model; see gprune.app.preview.request.Source.

        Raises ModelError where it is gone, has changed since the run or does not fit into the memory,
        SettingsError where the device is not available.
        """
        self.name, self.store = str(model["model"]), Store(Path(model["root"]))
        self._stamp = _stamp(self.name)
        self._tokenizer = str(model["tokenizer"])
        place = loading.device_of(model["device"])
        if place.type == "cpu":
            _require_memory(self.name, model["precision"])
        with ThreadPoolExecutor(1) as beside:
            # weights are read and digested at the same time
            digests = beside.submit(_digests, self.name, str(model["device"]))
            self.decoder = loading.load(self.name, str(place), model["precision"], model["trust_remote_code"])
            if digests.result() != (model["fingerprint"], model["tokenizer"]):
                raise identity.changed(self.name)
        self._texts: dict[str, Array] = {}
        self._ready: dict[str, dict[str, Any]] = {}
        self.fits = Fits(self.decoder, self.store)
        self._prepared: OrderedDict[str, Silenced] = OrderedDict()
        self.typed: tuple[str, Array] = ("", np.empty(0, dtype=np.int32))
        """the text that was typed last, and its tokens: several models read it one after the other"""

    def windows(self, text: dict[str, Any]) -> Array:
        """(windows, length) token ids of a text, cut as the run has cut it; see question.Resolved.

        Of a calibration text these are the sequences that the run has drawn. Raises CorpusError where an
        evaluation text is gone or has changed since the run, StoreError where the sequences are gone.
        """
        known = json.dumps(text, sort_keys=True)
        if known not in self._texts:
            self._texts[known] = self._windows(text)
        return self._texts[known]

    def _windows(self, text: dict[str, Any]) -> Array:
        if "tokens" in text:
            return self.drawn(text["tokens"])
        name, settings = str(text["name"]), _evaluation(text)
        return windows(self.decoder.model, self._stream(name, text, settings), name, settings)

    def drawn(self, place: tuple[str, str]) -> Array:
        """(samples, length) token ids of a calibration set, by kind and key of its result."""
        found: Array = self.store.get(*place, Tokens).ids
        return found

    def _stream(self, name: str, text: dict[str, Any], settings: EvaluationSettings) -> Array:
        """The tokens of a text: read as the run has read it, or those that the model wrote for it."""
        if "sampled" in text:
            ids: Array = self.store.get("sampled", str(text["sampled"]), SampledText).ids
            return ids.ravel()
        limit = settings.tokens
        if texts.fingerprint(name, "evaluation", tokens=limit, cache=self.store.texts) != text["digest"]:
            raise CorpusError(f"the text {name!r} has changed since the run: put it back, or run the study again")
        known = texts.bundled.stream(text["digest"], self._tokenizer, limit)
        if known is not None:
            return known
        ids = texts.stream(name, self.decoder.tokenizer, cache=self.store.texts, limit=limit)
        texts.require_embedded(ids, name, self.decoder.embeddings, self.decoder.tokenizer)
        return ids

    def losses(self, question: dict[str, Any], on_progress: Progress = silent) -> list[float]:
        """Mean loss of some windows while units are silent; see gprune.app.preview.worker.messages.

        `on_progress` is told how far weights are that have to be fitted first.

        Raises GpruneError with one sentence that says what is wrong and what to do.
        """
        read, text = self.windows(question["text"]), question["text"]
        numbers = np.asarray(question["numbers"], dtype=np.int64)
        if not len(numbers) or numbers.min() < 0 or numbers.max() >= len(read):
            raise SettingsError(f"the text has the windows 0 to {len(read) - 1}: ask for some of them")
        with self.silenced(question, on_progress):
            found = self._measured(read, numbers, text)
        return [float(loss) for loss in found]

    def silenced(self, question: dict[str, Any], on_progress: Progress = silent) -> AbstractContextManager[None]:
        """Keeps what a question's masks remove silent, the rest repaired, for as long as one wants."""
        pruned = question["pruned"]
        return nullcontext() if pruned is None else self._silenced(pruned, on_progress).applied()

    def require_same(self) -> None:
        """Raises ModelError where the model's files are gone or not those that were loaded."""
        if _stamp(self.name) != self._stamp:
            raise identity.changed(self.name)

    def _measured(self, read: Array, numbers: Array, text: dict[str, Any]) -> Array:
        """Losses of some windows; in smaller batches where the memory is too small for all at once."""
        settings = _evaluation({**text, "batch": len(numbers)})
        try:
            return window_losses(self.decoder.model, read[numbers], str(text["name"]), settings, numbers=numbers)
        except SettingsError as error:
            if not out_of_memory(_origin(error)):
                raise
            raise SettingsError(_TOO_SMALL) from error

    def _silenced(self, pruned: dict[str, Any], on_progress: Progress) -> Silenced:
        """What is left of the model, prepared; what was asked for longest ago makes way."""
        known = json.dumps(pruned, sort_keys=True)
        if known not in self._prepared:
            model = PrunedModel(unpacked(pruned["masks"]), in_order(pruned["repairs"]))
            # repaired weights are a third of the model, other biases next to nothing
            most = 1 if any(one.weights for one in model.repairs) else MOST_PREPARED
            while len(self._prepared) >= most:
                self._prepared.popitem(last=False)
            if "fit" in pruned:
                place = pruned["inputs"]["weights"]
                weights = self.fits.weights(place, model.masks, pruned["fit"], on_progress)
                ready = repair.ready(self.decoder, replace(model, inputs={"weights": weights}))
            else:
                ready = self._known(model, pruned["inputs"])
            self._prepared[known] = Silenced(self.decoder, model, ready)
        self._prepared.move_to_end(known)
        return self._prepared[known]

    def _known(self, model: PrunedModel, inputs: dict[str, list[list[str]]]) -> dict[str, Any]:
        """What the repairs of a model know of its texts, found once."""
        asked = json.dumps([[one.name for one in model.repairs], inputs])
        if asked not in self._ready:
            records = {name: self._records(places) for name, places in inputs.items()}
            self._ready[asked] = repair.ready(self.decoder, replace(model, inputs=records))
        return self._ready[asked]

    def _records(self, places: list[Any]) -> Any:
        """The record at a place, kind and key, or those at several."""
        if places and isinstance(places[0], list):
            return [self._records(place) for place in places]
        kind, key = places
        record: Any = KINDS[kind].record
        return self.store.get(kind, key, record)


def sentence(error: Exception) -> str:
    """What went wrong, for people: running out of memory first, then whatever else a library says."""
    if out_of_memory(_origin(error)):
        return _TOO_SMALL
    return f"live evaluation failed ({type(error).__name__}: {library_errors.one_line(error)}): ask again"


def _origin(error: Exception) -> Exception:
    """What torch itself has said."""
    return error.__cause__ if isinstance(error.__cause__, Exception) else error


def _evaluation(text: dict[str, Any]) -> EvaluationSettings:
    return EvaluationSettings(preset=str(text["length"]), windows=text["windows"], batch=text["batch"])


def _digests(name: str, device: str) -> tuple[str, str]:
    made = identity.fingerprint(name, card=machine.card(device))
    return made, identity.tokenizer_fingerprint(name)


def _stamp(name: str) -> Stamp:
    """Names, sizes and times of the files that make a model; ModelError where some are gone."""
    try:
        folder = identity.locate(name)
        files = identity.files(folder)
        lexicon = identity.tokenizer_folder(folder)
        files += [lexicon / file for file in identity.TOKENIZER_FILES if (lexicon / file).is_file()]
        states = [(str(file), file.stat()) for file in files]
    except (ModelError, OSError) as error:
        raise ModelError(
            f"the model folder {identity.resolve(name)!r} is not there any more, or lacks files: put it "
            "back, or choose another run"
        ) from error
    return tuple((path, state.st_size, state.st_mtime_ns) for path, state in states)


def _require_memory(name: str, precision: str) -> None:
    """Checks that the weights fit, before the system ends a process of its own choice for them."""
    folder = identity.locate(name)
    found = [getattr(torch, word, None) for word in (precision, identity.number_type(folder))]
    widths = [(dtype if isinstance(dtype, torch.dtype) else torch.float32).itemsize for dtype in found]
    files = identity.weight_files(folder)
    held = sum(file.stat().st_size for file in files) or random_weights.weights(folder) * widths[1]
    size = held * widths[0] / widths[1]
    free = psutil.virtual_memory().available
    if size > free:
        raise ModelError(
            f"the model needs {size / 2**30:.1f} GiB, more than the {free / 2**30:.1f} GiB of memory that "
            "are free: close what else uses it, or run the study with dtype bfloat16"
        )
