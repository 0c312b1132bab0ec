"""Adapter of a model in memory to lm-eval, with smaller batches where memory runs out, error sentences and progress."""

import copy
import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from lm_eval.api.model import CacheHook
from lm_eval.models.huggingface import HFLM

from gprune.data.texts import require_embedded
from gprune.models.oom_backoff import AdaptiveBatches
from gprune.system.errors import CorpusError, NumericsError
from gprune.system.progress import Progress

T = TypeVar("T")
_SHOWN = 60
_REMEDY = "leave the task of the longest questions out, or use dtype bfloat16 or a device with more memory"
_GENERATED = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")


class InMemoryModel(HFLM):
    """Adapter of a dense or pruned model in memory to lm-eval; the model stays on its device.

    Log-likelihoods are summed in float32 whatever the model's number type, because equal sums, which half precision
    makes frequent, always count for the first choice.
    """

    def __init__(self, model: Any, tokenizer: Any, batch: int, on_progress: Progress) -> None:
        """Wrap a model; `batch` is the sequences of one forward pass."""
        # lm-eval adds a padding token to a tokenizer without one
        tokenizer = copy.deepcopy(tokenizer)
        super().__init__(model, tokenizer=tokenizer, backend="causal", batch_size=batch, softmax_dtype="float32")
        self._report = on_progress

    def loglikelihood(self, requests: list[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """Return the log-likelihood of each continuation. Raise CorpusError for one that the model cannot read."""
        for request in requests:
            self._require_readable(*request.args)
        return self._run_in_batches(super().loglikelihood, requests)

    def loglikelihood_rolling(self, requests: list[Any], disable_tqdm: bool = False) -> list[float]:
        """Return the log-likelihood of each text."""
        return self._run_in_batches(super().loglikelihood_rolling, requests)

    def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
        """Return the continuation of each context."""
        for request in requests:
            settings = request.args[1]
            count = next((settings[name] for name in _GENERATED if name in settings), self.max_gen_toks)
            if count >= self.max_length:
                raise CorpusError(
                    f"the task {request.task_name!r} generates up to {count} tokens and the model reads at most "
                    f"{self.max_length}: leave it out"
                )
        return self._run_in_batches(super().generate_until, requests)

    def _run_in_batches(self, measure: Callable[..., list[T]], requests: list[Any]) -> list[T]:
        """Measure requests with as many sequences at a time as memory allows."""
        texts = ("".join(part for part in request.args if isinstance(part, str)) for request in requests)
        longest = max(texts, key=len, default="")
        length = min(len(self.tok_encode(longest)) if longest else 0, self.max_length)
        sequences = AdaptiveBatches(self.batch_size, length, "evaluation.batch", _REMEDY, self.device, self._report)

        def attempt(size: int) -> list[T]:
            self.batch_size_per_gpu = size
            # the longest requests come first, so that memory runs out at the start if at all
            self.set_cache_hook(_ResponseHook(self._report, size, len(requests)))
            return measure(requests, disable_tqdm=True)

        return sequences.fitting(attempt, self.batch_size)

    def _require_readable(self, context: str, continuation: str) -> None:
        embeddings = self.model.get_input_embeddings().num_embeddings
        if len(self.tokenizer) > embeddings:
            text = context + continuation
            ids = np.array(self.tok_encode(text), dtype=np.int64)
            require_embedded(ids, text[:_SHOWN], embeddings, self.tokenizer)
        # a token is a byte at least
        if continuation.strip() and len(continuation.encode(errors="replace")) < self.max_length:
            return
        tokens = len(self.tok_encode(continuation, add_special_tokens=False))
        if not 1 <= tokens <= self.max_length:
            problem = (
                f"has {tokens} tokens and the model reads at most {self.max_length}" if tokens else "has no tokens"
            )
            raise CorpusError(f"the choice {_short(continuation)} of a task {problem}: leave that question or task out")


class _ResponseHook(CacheHook):
    """Report progress at every response that lm-eval caches, and raise NumericsError at NaN."""

    def __init__(self, on_progress: Progress, interval: int, total: int) -> None:
        super().__init__(None)
        self._on_progress, self._every, self._done, self._total = on_progress, interval, 0, total

    def add_partial(self, attr: str, req: Any, res: Any) -> None:
        """Take the response `res` to the request `req`."""
        likelihood = {"loglikelihood": lambda: res[0], "loglikelihood_rolling": lambda: res}.get(attr, lambda: 0.0)()
        if math.isnan(likelihood):
            kind = "text" if attr == "loglikelihood_rolling" else "choice"
            raise NumericsError(
                f"the log-likelihood of the {kind} {_short(req[-1])} is NaN: the model overflows in its number "
                "type, so use float32 or bfloat16, or check its weights for NaN"
            )
        self._done += 1
        if self._done % self._every == 0 or self._done == self._total:
            self._on_progress(self._done, self._total, "tasks: answering")


def _short(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")
