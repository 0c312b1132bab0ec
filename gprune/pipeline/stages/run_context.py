"""State that the stages of a run share: the model, loaded once, and objects built from it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gprune.data import texts
from gprune.models import identity, vocabulary
from gprune.pipeline.stages.inputs import Inputs
from gprune.records import Array, PrunedModel, Tokens
from gprune.records.experts import PrunedExperts
from gprune.study import Study
from gprune.system.errors import CorpusError, SettingsError
from gprune.system.progress import Progress, silent

if TYPE_CHECKING:
    from gprune.models.decoder import Decoder
    from gprune.models.expert_decoder import ExpertDecoder
    from gprune.models.language_model import LanguageModel
    from gprune.pruning.sparsity.learner import LearningInputs
    from gprune.store.resumption import Resumption, Spent

_PASSAGE_TOKENS = 64
"""most tokens on which a saved model is compared with the one in memory"""


class RunContext:
    """Shared state of the stages; nothing large is loaded before a stage needs it."""

    def __init__(self, study: Study, inputs: Inputs, text_cache: Path, loading: Progress = silent) -> None:
        """Bind a study to digests of its inputs.

        `text_cache` is the folder of texts in the cache; `loading` is called when the model is loaded.
        """
        self.study, self.inputs, self.text_cache = study, inputs, text_cache
        self.progress: Progress = silent
        """listener of the current stage"""
        self.learning_title = ""
        """title of a missing stage of the run with backward passes; empty if there is none"""
        self.resumption: Resumption | None = None
        """checkpoint of the current stage; None if the stage has none"""
        self.missing: set[str] = set()
        """keys of the results that the run has yet to compute"""
        self.by_products: dict[str, Any] = {}
        """records that another stage has also computed, by key, until their own stage stores them"""
        self._loading = loading
        self._streams: dict[str, Array] = {}
        self._last_model: tuple[str, Any] = ("", None)
        """method and model of the last call of `live_model`"""
        self._projected: dict[str, Any] = {}
        """results of `project`, by fingerprint of the tokens"""

    def keep(self, key: str, record: Any) -> None:
        """Keep a record, by its key, for the stage that will store it, unless the run already has this result."""
        if key in self.missing:
            self.by_products[key] = record

    @cached_property
    def decoder(self) -> Decoder:
        """Return the dense model, which is loaded when the first missing stage needs it."""
        from gprune.models.loading import load

        study = self.study
        self._loading(0, 1, f"loading {study.model}")
        decoder = load(study.model, study.device, self.inputs.precision, study.trust_remote_code, study.offload)
        if decoder.offloaded and self.learning_title:
            raise identity.offloaded_error(self.learning_title)
        self._loading(1, 1, f"loaded {study.model}")
        return decoder

    @cached_property
    def experts(self) -> ExpertDecoder:
        """Return the dense model of a study that prunes experts, which is loaded when a missing stage needs it."""
        from gprune.models.loading import load_experts

        study = self.study
        self._loading(0, 1, f"loading {study.model}")
        experts = load_experts(study.model, study.device, self.inputs.precision, study.trust_remote_code)
        self._loading(1, 1, f"loaded {study.model}")
        return experts

    @property
    def language_model(self) -> LanguageModel:
        """Return the dense model, whichever units the study prunes."""
        return self.experts if self.study.prunes_experts else self.decoder

    @property
    def _loaded_model(self) -> LanguageModel | None:
        """Return the dense model if it has been loaded; the other properties would load it."""
        return self.__dict__.get("experts") or self.__dict__.get("decoder")

    def learning_inputs(self, primary: Tokens, auxiliary: Tokens) -> LearningInputs:
        """Return the inputs of a learning stage."""
        from gprune.pruning.sparsity.learner import LearningInputs

        study = self.study
        return LearningInputs(
            self.decoder, (primary, auxiliary), study.sparsity, study.seed, self.progress, self.resumption
        )

    @cached_property
    def tokenizer(self) -> Any:
        """Return the model's tokenizer."""
        from gprune.models.loading import load_tokenizer

        return load_tokenizer(self.study.model, self.study.trust_remote_code)

    def stream(self, text: str) -> Array:
        """Return the token stream of an evaluation text, which is tokenized once per run."""
        if text not in self._streams:
            limit = self.study.evaluation.tokens
            stream = texts.bundled.bundled_stream(self.inputs.evaluation[text], self.inputs.tokenizer, limit)
            if stream is None:
                stream = texts.stream(text, self.tokenizer, cache=self.text_cache, limit=limit)
                self.require_embedded(stream, text)
            self._streams[text] = stream
        return self._streams[text]

    def passage(self) -> tuple[int, ...]:
        """Return token ids on which a saved model is compared with the one in memory.

        They are of the first evaluation text that is available; empty if there is none.
        """
        windows = map(self.first_window, self.study.evaluation.texts)
        return tuple(next((window for window in windows if window.size), np.zeros(0, int))[:_PASSAGE_TOKENS].tolist())

    def first_window(self, text: str) -> Array:
        """Return the (length,) token ids of an evaluation text's first window.

        The window is empty if the text has changed since the run, cannot be read, or is written by the model.
        """
        if texts.is_sampled(text):
            return np.zeros(0, np.int32)
        tokens, length = self.study.evaluation.tokens, self.study.evaluation.length
        with contextlib.suppress(CorpusError):
            fingerprint = partial(texts.fingerprint, text, "evaluation", tokens=tokens, cache=self.text_cache)
            if text in self._streams or fingerprint() == self.inputs.evaluation[text]:
                return self.stream(text)[:length]
        return np.zeros(0, np.int32)

    def require_embedded(self, ids: Array, text: str) -> None:
        """Raise CorpusError if the study's model has no embedding for a token of a text."""
        embeddings = vocabulary.vocabulary_size(self.study.model)
        if embeddings is not None:
            texts.require_embedded(ids, text, embeddings, self.tokenizer)

    def project(self, tokens: Tokens) -> Any:
        """Return the principal components of a text's FFN inputs, computed once for the contexts of all seeds."""
        from gprune.pruning.calibration.contexts import project_inputs

        digest = tokens.fingerprint
        if digest not in self._projected:
            settings, batch = self.study.contexts, self.study.calibration.batch
            self._projected[digest] = project_inputs(self.decoder, tokens, settings, batch, self.progress)
        return self._projected[digest]

    def live_model(self, name: str, pruned: PrunedModel | PrunedExperts | None) -> Any:
        """Return the model in memory that `pruned` describes (see `prune`); `name` identifies it.

        The last model is kept for the next stage. A call with the same name returns it, whatever `pruned` is.
        """
        if self._last_model[0] != name:
            # release the previous model before the new one is built
            self.release_model()
            self._last_model = (name, self.prune(pruned))
        return self._last_model[1]

    def release_model(self) -> None:
        """Release the model that `live_model` holds."""
        self._last_model = ("", None)

    def prune(self, pruned: PrunedModel | PrunedExperts | None) -> Any:
        """Return a physically smaller copy of the dense model with the masks and repairs, or experts, in `pruned`.

        None stands for the dense model itself.
        """
        if pruned is None:
            return self.language_model.model
        if isinstance(pruned, PrunedExperts):
            from gprune.pruning.experts.surgery import cut_experts

            return cut_experts(self.experts, pruned.masks, pruned.routers)
        from gprune.pruning import surgery

        return surgery.cut(self.decoder, pruned, self.progress)

    @contextlib.contextmanager
    def within_memory(self, title: str) -> Iterator[None]:
        """Raise SettingsError if the stage with this title runs out of memory even with the smallest batches."""
        try:
            yield
        except (RuntimeError, MemoryError) as error:
            from gprune.models import devices

            if not devices.out_of_memory(error):
                raise
            decoder = self._loaded_model
            sizes = devices.describe_memory(error, devices.CPU if decoder is None else decoder.device)
            raise SettingsError(
                f"{title}: memory ran out ({sizes}): use dtype bfloat16, close other programs, or "
                "choose a smaller model"
            ) from error

    def count_cost(self, started: float) -> Callable[[], Spent]:
        """Return a function that returns the cost of a stage so far.

        The cost is the number of tokens in passes of the dense model from now on, and the seconds since `started`, a
        value of `time.perf_counter`.
        """
        from gprune.store.resumption import Spent

        def count_tokens() -> tuple[int, int]:
            decoder = self._loaded_model
            return (0, 0) if decoder is None else (decoder.forward_tokens, decoder.backward_tokens)

        tokens_before = count_tokens()

        def cost() -> Spent:
            forward, backward = count_tokens()
            return Spent(forward - tokens_before[0], backward - tokens_before[1], time.perf_counter() - started)

        return cost
