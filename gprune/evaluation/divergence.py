"""Answers: how far is a pruned model from the dense one, on some text?"""

from typing import Any

import numpy as np
import torch

from gprune.evaluation.perplexity import logit_blocks
from gprune.models.oom_backoff import Sequences
from gprune.records import Array
from gprune.system.errors import NumericsError
from gprune.system.progress import Progress, silent


def window_divergences(dense: Any, pruned: Any, windows: Array, batch: int, on_progress: Progress = silent) -> Array:
    """(windows,) float64 mean divergence KL(dense | pruned) of (windows, length) ids, nats per token.

    Of the distributions of the next token after every token but the last. `batch` windows go through both
    models at a time: it changes speed, not results, and is halved where memory runs out. Raises NumericsError
    where a model's scores are not finite, SettingsError where not even one window fits in memory.
    """
    found, device = np.empty(len(windows)), next(pruned.parameters()).device

    def measure(chosen: slice) -> None:
        ids = torch.as_tensor(windows[chosen].astype(np.int64), device=device)
        found[chosen] = token_divergences(dense, pruned, ids).double().mean(dim=1).cpu().numpy()
        if not np.isfinite(found[chosen]).all():
            raise NumericsError(
                "the divergence from the dense model is not finite: a model overflows in its number type, so "
                "use float32 or bfloat16"
            )
        on_progress(chosen.stop, len(windows), "divergence from the dense model")

    shorter = "use dtype bfloat16, or a device with more memory"
    going = Sequences(batch, windows.shape[1], "evaluation.batch", shorter, device, on_progress)
    going.over(len(windows), measure)
    return found


@torch.inference_mode()
def token_divergences(dense: Any, pruned: Any, ids: torch.Tensor) -> torch.Tensor:
    """(batch, length - 1) float32 KL(dense | pruned) in nats after each of (batch, length) ids but one."""
    parts = []
    for there, here in zip(logit_blocks(dense, ids), logit_blocks(pruned, ids), strict=True):
        known = there.float().log_softmax(dim=-1)
        ours = here.to(there.device).float().log_softmax(dim=-1)
        parts.append((known.exp() * (known - ours)).sum(dim=-1))
    return torch.cat(parts).view(len(ids), -1)
