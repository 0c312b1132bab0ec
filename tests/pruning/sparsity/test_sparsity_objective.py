"""Chunked losses against plain autograd, the constraint by hand, and which losses the thresholds follow."""

import numpy as np
import pytest
import torch
from sparsity.reference_sparsity import admitted, cross_entropy, distillation

from gprune.pruning.sparsity import objective
from gprune.pruning.sparsity.learning import combine_gradients
from gprune.pruning.sparsity.objective import RetentionConstraint, head_losses

VOCABULARY = 37


def _batch(dtype=torch.float32, sequences=5, tokens=7, hidden=6):
    generator = torch.Generator().manual_seed(0)
    head = torch.nn.Linear(hidden, VOCABULARY, bias=False).requires_grad_(False)
    head.weight.copy_(torch.randn(head.weight.shape, generator=generator))
    student, teacher = (torch.randn(sequences, tokens, hidden, generator=generator) for _ in range(2))
    ids = torch.randint(0, VOCABULARY, (sequences, tokens), generator=generator)
    return head.to(dtype), student.to(dtype).requires_grad_(), teacher.to(dtype), ids


@pytest.mark.parametrize("chunk_tokens", [1, 4, 1000])
@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_chunked_gradients_equal_plain_autograd(monkeypatch, chunk_tokens, temperature):
    monkeypatch.setattr(objective, "_LEAST_TOKENS", 1)
    monkeypatch.setitem(objective._CHUNK_LOGITS, "cpu", chunk_tokens * VOCABULARY)
    head, student, teacher, ids = _batch()
    losses = head_losses(head, student, teacher, ids, temperature)
    hard = cross_entropy(head(student), ids)
    soft = distillation(head(student), head(teacher), temperature)
    predictions, tokens = 5 * 6, 5 * 7
    torch.testing.assert_close(losses.cross_entropy.sum() / predictions, hard.detach())
    torch.testing.assert_close(losses.distillation.mean(), soft.detach())
    slopes = losses.cross_entropy_gradient / predictions, losses.distillation_gradient / tokens
    for slope, loss in zip(slopes, (hard, soft), strict=True):
        torch.testing.assert_close(slope, *torch.autograd.grad(loss, student), rtol=1e-5, atol=1e-6)


def test_constraint_by_hand():
    constraint = RetentionConstraint(target=0.5, penalty=20.0, dual_rate=0.1)
    # g = 0.1, -0.05, 0: slope lambda + 20 g, then lambda += 2 g
    for retention, slope, multiplier in ((0.6, 2.0, 0.2), (0.45, -0.8, 0.1), (0.5, 0.1, 0.1)):
        assert float(constraint.slope(torch.tensor(retention))) == pytest.approx(slope, rel=1e-5)
        constraint.ascend(retention)
        assert constraint.multiplier == pytest.approx(multiplier, rel=1e-12)


def test_the_multiplier_starts_in_balance():
    constraint = RetentionConstraint(target=0.5, penalty=20.0, dual_rate=0.1)
    # minimises (1 - lambda)^2 + (2 - lambda)^2 + (6 - 2 lambda)^2
    constraint.start(torch.tensor([1.0, 2.0, 6.0]), torch.tensor([-1.0, -1.0, -2.0]))
    assert constraint.multiplier == pytest.approx(2.5, rel=1e-6)


@pytest.mark.parametrize("supervision", ["adaptive", "primary", "dual"])
def test_gradients_are_those_of_the_chosen_cross_entropies(supervision):
    generator = np.random.default_rng(1)
    choices = set()
    for _ in range(100):
        # rows A', A'', B', B''; three FFN thresholds, then two of attention
        g = generator.standard_normal((4, 5)) + np.array([[0.5], [0.5], [1.0], [1.0]])
        both = {"adaptive": admitted(g[:, :3]), "primary": False, "dual": True}[supervision]
        expected = [
            (a1 + a2 + b1 + b2) / 4 if both or threshold >= 3 else (a1 + a2) / 2
            for threshold, (a1, a2, b1, b2) in enumerate(g.T)
        ]
        gradient, flag = combine_gradients(torch.tensor(g), 3, supervision)
        np.testing.assert_allclose(gradient.numpy(), expected, rtol=1e-12)
        assert bool(flag) is both
        choices.add(both)
    assert choices == ({True, False} if supervision == "adaptive" else {supervision == "dual"})
