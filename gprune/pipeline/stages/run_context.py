"""What the stages of one run share while they compute: the model, loaded once, and what is made from it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gprune.data import texts
from gprune.models import vocabulary
from gprune.pipeline.stages.inputs import Inputs
from gprune.records import Array, PrunedModel, Tokens
from gprune.store.resumption import Resumption
from gprune.study import Study
from gprune.system.errors import CorpusError, SettingsError
from gprune.system.progress import Progress, silent

if TYPE_CHECKING:
    from gprune.models.decoder import Decoder
    from gprune.pruning.sparsity.learner import Setting

_PASSAGE_TOKENS = 64


class RunContext:
    """The hands of a run; nothing heavy is loaded before a stage asks for it."""

    def __init__(
        self,
        study: Study,
        inputs: Inputs,
        text_cache: Path,
        loading: Progress = silent,
    ) -> None:
        """Binds a study to digests of what it reads.

        `text_cache` is the folder of texts in the cache; `loading` is told when the model is loaded.
        """
        self.study, self.inputs, self.text_cache = study, inputs, text_cache
        self.progress: Progress = silent
        """listener of the stage at work"""
        self.resumption: Resumption | None = None
        """where the stage at work leaves what it can go on from; None where nothing is kept"""
        self._loading = loading
        self._streams: dict[str, Array] = {}
        self._cut: tuple[str, Any] = ("", None)
        self._projected: dict[str, Any] = {}

    @cached_property
    def decoder(self) -> Decoder:
        """The dense model, loaded when the first missing stage needs it."""
        from gprune.models.loading import load

        study = self.study
        self._loading(0, 1, f"loading {study.model}")
        decoder = load(study.model, study.device, self.inputs.precision, study.trust_remote_code, study.offload)
        self._loading(1, 1, f"loaded {study.model}")
        return decoder

    def learning(self, primary: Tokens, auxiliary: Tokens) -> Setting:
        """Return what a learning works with."""
        from gprune.pruning.sparsity.learner import Setting

        study = self.study
        return Setting(self.decoder, (primary, auxiliary), study.sparsity, study.seed, self.progress, self.resumption)

    @cached_property
    def tokenizer(self) -> Any:
        """The model's tokenizer."""
        from gprune.models.loading import load_tokenizer

        return load_tokenizer(self.study.model, self.study.trust_remote_code)

    def stream(self, text: str) -> Array:
        """Token stream of an evaluation text, tokenized once a run unless it comes with the project."""
        if text not in self._streams:
            limit = self.study.evaluation.tokens
            known = texts.bundled.stream(self.inputs.evaluation[text], self.inputs.tokenizer, limit)
            if known is None:
                known = texts.stream(text, self.tokenizer, cache=self.text_cache, limit=limit)
                self.require_embedded(known, text)
            self._streams[text] = known
        return self._streams[text]

    def passage(self) -> tuple[int, ...]:
        """Token ids of an evaluation text, at which a saved model is compared; none where no text is read."""
        windows = map(self.first_window, self.study.evaluation.texts)
        return tuple(next((window for window in windows if window.size), np.zeros(0, int))[:_PASSAGE_TOKENS].tolist())

    def first_window(self, text: str) -> Array:
        """(length,) ids of an evaluation text's first window; none where it is not what the run has read."""
        if texts.is_sampled(text):
            return np.zeros(0, np.int32)
        tokens, length = self.study.evaluation.tokens, self.study.evaluation.length
        try:
            if (
                text not in self._streams
                and texts.fingerprint(text, "evaluation", tokens=tokens, cache=self.text_cache)
                != (self.inputs.evaluation[text])
            ):
                return np.zeros(0, np.int32)
            return self.stream(text)[:length]
        except CorpusError:
            return np.zeros(0, np.int32)

    def require_embedded(self, ids: Array, text: str) -> None:
        """Raise CorpusError if a token of a text has no embedding in the study's model."""
        embeddings = vocabulary.entries(self.study.model)
        if embeddings is not None:
            texts.require_embedded(ids, text, embeddings, self.tokenizer)

    def projected(self, tokens: Tokens) -> Any:
        """The FFN inputs of a text in their principal components, which contexts of all seeds share."""
        from gprune.pruning.calibration.contexts import project_inputs

        known = tokens.fingerprint
        if known not in self._projected:
            settings, batch = self.study.contexts, self.study.calibration.batch
            self._projected[known] = project_inputs(self.decoder, tokens, settings, batch, self.progress)
        return self._projected[known]

    def cut(self, method: str, model: PrunedModel | None) -> Any:
        """The model of a method, as `pruned` gives it; the last one is kept for the next stage."""
        if self._cut[0] != method:
            # the old copy goes before the new one is made
            self.let_go()
            self._cut = (method, self.pruned(model))
        return self._cut[1]

    def let_go(self) -> None:
        """Keeps no model of a method any longer."""
        self._cut = ("", None)

    def pruned(self, model: PrunedModel | None) -> Any:
        """The dense model itself, or a physically smaller copy; `model` has the records its repairs need."""
        if model is None:
            return self.decoder.model
        from gprune.pruning import surgery

        return surgery.cut(self.decoder, model, self.progress)

    @contextmanager
    def lent(self, who: str) -> Iterator[Any]:
        """Lend the dense model to code of another package; the tokens of its passes are counted."""
        self.decoder.require_whole(who)
        with self.decoder.counting() as model:
            yield model

    @contextmanager
    def within_memory(self, what: str) -> Iterator[None]:
        """Raises SettingsError where memory ran out in the work `what`; fewer sequences do not help."""
        try:
            yield
        except (RuntimeError, MemoryError) as error:
            from gprune.models import oom_backoff

            if not oom_backoff.out_of_memory(error):
                raise
            decoder = self.__dict__.get("decoder")
            sizes = oom_backoff.sizes(error, oom_backoff.MACHINE if decoder is None else decoder.device)
            raise SettingsError(
                f"{what}: memory ran out ({sizes}): use dtype bfloat16, close what else uses the memory, or "
                "choose a smaller model"
            ) from error

    def tokens_passed(self) -> tuple[int, int]:
        """Tokens that the dense model has been run over so far, forward and backward."""
        decoder = self.__dict__.get("decoder")
        return (0, 0) if decoder is None else (decoder.forward_tokens, decoder.backward_tokens)
