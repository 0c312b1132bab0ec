"""Compute the objective of MSL: cross-entropy, distillation and retention constraint (section 3.3, Eqs. 11 and 18).

The language-model head and its gradients are computed in chunks of tokens, so that the logits of a whole batch never
exist at once. The result is the gradient of each of the two losses with respect to the final hidden states.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gprune.pruning.sparsity.activation_checkpointing import at_least_float32
from gprune.records import Array
from gprune.records.calibration import unsigned_ids

# logits per chunk: few enough for the cache of a CPU core, but enough to use a GPU fully
_CHUNK_LOGITS = {"cpu": 2**18, "cuda": 2**25}
# with fewer tokens, the matrix product of the head would be limited by reading its weights
_LEAST_TOKENS = 64


@dataclass(frozen=True, slots=True)
class HeadLosses:
    """Losses of each token, and the gradients of their sums.

    Sums instead of means keep the gradients of order one, within the range of float16.
    """

    cross_entropy: Tensor
    """(sequences, tokens) float32 loss in nats of the next token; 0 at the last token"""
    distillation: Tensor
    """(sequences, tokens) float32 KL(teacher || student) times the temperature squared; 0 without a teacher"""
    cross_entropy_gradient: Tensor
    """(sequences, tokens, hidden) gradient of the summed cross-entropy with respect to the hidden states"""
    distillation_gradient: Tensor | None
    """(sequences, tokens, hidden) gradient of the summed distillation; None without a teacher"""


def read_signed_ids(signed: Array, device: torch.device) -> tuple[Tensor, Tensor | None]:
    """Return the ids and weights of `Tokens.signed_ids` (..., tokens).

    The weight of a position is that of the prediction of its next token: 0 if that does not count, else one divided by
    the number of counted predictions of the sequence. The weights are None if every position counts.
    """
    counted = signed >= 0
    if counted.all():
        return torch.from_numpy(signed).to(device), None
    predicted = np.zeros(signed.shape, np.float32)
    predicted[..., :-1] = counted[..., 1:]
    weights = predicted / predicted.sum(axis=-1, keepdims=True).clip(min=1)
    return torch.from_numpy(unsigned_ids(signed)).to(device), torch.from_numpy(weights).to(device)


def head_losses(
    head: Callable[[Tensor], Tensor],
    student: Tensor,
    teacher: Tensor | None,
    ids: Tensor,
    temperature: float,
    weights: Tensor | None = None,
) -> HeadLosses:
    """Return both losses of a batch and their gradients with respect to the final hidden states.

    Args:
        head: the language-model head, (tokens, hidden) -> (tokens, vocabulary).
        student: (sequences, tokens, hidden) hidden states of the masked decoder.
        teacher: (sequences, tokens, hidden) hidden states of the dense decoder; None for no distillation.
        ids: (sequences, tokens) int64 token ids.
        temperature: distillation temperature, > 0.
        weights: (sequences, tokens) weights of `read_signed_ids`. The weighted losses and gradients have the scale of
            those without weights, where each sequence has tokens - 1 predictions and tokens distributions.
    """
    labels = torch.cat([ids[:, 1:], torch.full_like(ids[:, :1], -1)], dim=1).flatten()
    flat = student.detach().flatten(0, 1)
    flat_teacher = None if teacher is None else teacher.flatten(0, 1)
    losses = flat.new_zeros((2, len(flat)), dtype=torch.float32)
    gradients = [torch.empty_like(flat) for _ in range(1 if teacher is None else 2)]
    vocabulary = head(flat[:1]).shape[-1]
    size = max(_LEAST_TOKENS, _CHUNK_LOGITS["cpu" if flat.device.type == "cpu" else "cuda"] // vocabulary)
    for start in range(0, len(flat), size):
        part = slice(start, start + size)
        chunk = None if flat_teacher is None else flat_teacher[part]
        pairs = _chunk_losses(head, flat[part], chunk, labels[part], temperature)
        for index, (loss, gradient) in enumerate(pairs):
            losses[index, part] = loss
            gradients[index][part] = gradient
    if weights is not None:
        for index, predictions in enumerate((ids.shape[1] - 1, ids.shape[1])[: len(gradients)]):
            factors = weights.flatten() * predictions
            losses[index] *= factors
            gradients[index] *= factors.unsqueeze(1).to(gradients[index].dtype)
    shaped = [gradient.view_as(student) for gradient in gradients]
    return HeadLosses(
        cross_entropy=losses[0].view_as(ids),
        distillation=losses[1].view_as(ids),
        cross_entropy_gradient=shaped[0],
        distillation_gradient=None if teacher is None else shaped[1],
    )


def _chunk_losses(
    head: Callable[[Tensor], Tensor],
    student: Tensor,
    teacher: Tensor | None,
    labels: Tensor,
    temperature: float,
) -> list[tuple[Tensor, Tensor]]:
    """Return (tokens,) losses and (tokens, hidden) gradients of cross-entropy and, with a teacher, distillation."""
    hidden = student.detach().requires_grad_()
    with torch.enable_grad():
        logits = head(hidden)
    with torch.no_grad():
        float_logits = logits.detach().to(at_least_float32(logits.dtype))
        hard = torch.log_softmax(float_logits, dim=1)
        pairs = []
        if teacher is not None:
            soft = hard if temperature == 1 else torch.log_softmax(float_logits / temperature, dim=1)
            target = torch.log_softmax(head(teacher).to(float_logits.dtype) / temperature, dim=1)
            pairs.append(_distillation(soft, target, temperature))
        # computed last, because it overwrites the log-probabilities
        pairs.insert(0, _cross_entropy(hard, labels))
    results = []
    for number, (loss, logits_gradient) in enumerate(pairs, start=1):
        retain = number < len(pairs)
        (gradient,) = torch.autograd.grad(logits, hidden, logits_gradient.to(logits.dtype), retain_graph=retain)
        results.append((loss, gradient))
    return results


def _cross_entropy(student: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the (tokens,) cross-entropy and its gradient with respect to the logits; both are 0 if the label is -1.

    `student` is (tokens, vocabulary) log-probabilities and is overwritten.
    """
    has_label = labels >= 0
    index = labels.clamp(min=0).unsqueeze(1)
    loss = -student.gather(1, index).squeeze(1) * has_label
    slope = student.exp_()
    slope.scatter_add_(1, index, slope.new_full(index.shape, -1.0))
    return loss, slope.mul_(has_label.unsqueeze(1))


def _distillation(student: Tensor, teacher: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Return (tokens,) KL(teacher || student) times temperature squared (Hinton et al. 2015), and its gradient.

    The inputs are (tokens, vocabulary) log-probabilities at this temperature.
    """
    target = teacher.exp()
    loss = torch.linalg.vecdot(target, teacher - student)
    slope = student.exp().sub_(target)
    # the gradient keeps one power of the temperature, because the logits are divided by it
    return loss * temperature**2, slope.mul_(temperature) if temperature != 1 else slope


@dataclass(slots=True)
class RetentionConstraint:
    """Augmented Lagrangian of g = R-hat - R* (Eq. 11): multiplier * g + penalty / 2 * g^2."""

    target: float
    """R*, the requested retention"""
    penalty: float
    """rho"""
    dual_rate: float
    """the multiplier grows by dual_rate * rho * g at every step"""
    multiplier: float = 0.0
    """lambda_c"""

    def start(self, gradient: Tensor, slope: Tensor) -> None:
        """Initialize the multiplier so that the constraint balances the performance term in the least-squares sense.

        Starting from zero, the retention would first move far from the target.

        Args:
            gradient: (thresholds,) gradient of the performance term.
            slope: (thresholds,) gradient of R-hat.
        """
        self.multiplier = -float(torch.dot(gradient, slope) / torch.dot(slope, slope))

    def slope(self, retention: Tensor) -> Tensor:
        """Return the derivative of the constraint term with respect to R-hat."""
        return self.multiplier + self.penalty * (retention - self.target)

    def ascend(self, retention: float) -> None:
        """Take one step of dual ascent."""
        self.multiplier += self.dual_rate * self.penalty * (retention - self.target)
