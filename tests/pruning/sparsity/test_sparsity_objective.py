"""Chunked losses against plain autograd, the constraint by hand, and which losses the thresholds follow."""

import numpy as np
import pytest
import torch
from sparsity.reference_sparsity import admitted, cross_entropy, distillation

from gprune.pruning.sparsity import objective
from gprune.pruning.sparsity.learning import admits, combine
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
    found = head_losses(head, student, teacher, ids, temperature)
    hard = cross_entropy(head(student), ids)
    soft = distillation(head(student), head(teacher), temperature)
    predictions, tokens = 5 * 6, 5 * 7
    torch.testing.assert_close(found.cross_entropy.sum() / predictions, hard.detach())
    torch.testing.assert_close(found.distillation.mean(), soft.detach())
    (hard_slope,) = torch.autograd.grad(hard, student)
    (soft_slope,) = torch.autograd.grad(soft, student)
    torch.testing.assert_close(found.cross_entropy_gradient / predictions, hard_slope, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found.distillation_gradient / tokens, soft_slope, rtol=1e-5, atol=1e-6)


def test_losses_of_each_token():
    head, student, teacher, ids = _batch()
    found = head_losses(head, student, teacher, ids, 1.0)
    mine = torch.log_softmax(head(student).detach(), dim=-1)
    theirs = torch.log_softmax(head(teacher), dim=-1)
    assert found.cross_entropy[:, -1].abs().max() == 0
    for sequence, token in [(0, 0), (2, 3), (4, 5)]:
        expected = -mine[sequence, token, ids[sequence, token + 1]]
        torch.testing.assert_close(found.cross_entropy[sequence, token], expected)
        divergence = sum(
            torch.exp(p) * (p - q) for p, q in zip(theirs[sequence, token], mine[sequence, token], strict=True)
        )
        torch.testing.assert_close(found.distillation[sequence, token], divergence, rtol=1e-5, atol=1e-6)


def test_without_a_teacher_only_the_cross_entropy_is_there():
    head, student, teacher, ids = _batch()
    alone = head_losses(head, student, None, ids, 1.0)
    both = head_losses(head, student, teacher, ids, 1.0)
    assert alone.distillation_gradient is None
    assert alone.distillation.abs().max() == 0
    assert torch.equal(alone.cross_entropy_gradient, both.cross_entropy_gradient)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays_near_float32(dtype):
    head, student, teacher, ids = _batch(dtype)
    found = head_losses(head, student, teacher, ids, 1.0)
    exact = head_losses(head.float(), student.float(), teacher.float(), ids, 1.0)
    assert found.cross_entropy.dtype == torch.float32
    assert found.distillation_gradient.dtype == dtype
    # bfloat16 logits carry 8 bits
    torch.testing.assert_close(found.cross_entropy, exact.cross_entropy, rtol=2e-2, atol=5e-2)
    slopes = found.cross_entropy_gradient.float(), exact.cross_entropy_gradient
    torch.testing.assert_close(*slopes, rtol=5e-2, atol=5e-2)


def test_constraint_by_hand():
    constraint = RetentionConstraint(target=0.5, penalty=20.0, dual_rate=0.1)
    # g = 0.1, -0.05, 0: slope lambda + 20 g, then lambda += 2 g
    slopes, multipliers = [], []
    for retention in (0.6, 0.45, 0.5):
        slopes.append(float(constraint.slope(torch.tensor(retention))))
        constraint.ascend(retention)
        multipliers.append(constraint.multiplier)
    np.testing.assert_allclose(slopes, [2.0, -0.8, 0.1], rtol=1e-5)
    np.testing.assert_allclose(multipliers, [0.2, 0.1, 0.1], rtol=1e-12)


def test_the_multiplier_starts_in_balance():
    constraint = RetentionConstraint(target=0.5, penalty=20.0, dual_rate=0.1)
    # minimises (1 - lambda)^2 + (2 - lambda)^2 + (6 - 2 lambda)^2
    constraint.start(torch.tensor([1.0, 2.0, 6.0]), torch.tensor([-1.0, -1.0, -2.0]))
    assert constraint.multiplier == pytest.approx(2.5, rel=1e-6)


def test_slope_is_the_derivative_of_the_augmented_lagrangian():
    constraint = RetentionConstraint(target=0.4, penalty=7.0, dual_rate=1.0, multiplier=-0.3)
    retention = torch.tensor(0.55, dtype=torch.float64, requires_grad=True)
    g = retention - 0.4
    (expected,) = torch.autograd.grad(-0.3 * g + 7.0 / 2 * g**2, retention)
    assert float(constraint.slope(retention.detach())) == pytest.approx(float(expected), rel=1e-12)


@pytest.mark.parametrize(
    ("auxiliary", "expected"),
    [
        # The change is (g_B - g_A) / 2: B has to point further along A than A itself does.
        ([[2.0, 0.0], [2.0, 0.0]], True),
        ([[0.5, 9.0], [2.0, 0.0]], False),
        ([[2.0, 0.0], [0.5, 9.0]], False),
        ([[1.0, 0.0], [1.0, 0.0]], False),
    ],
)
def test_both_subset_pairs_have_to_agree(auxiliary, expected):
    gradients = torch.tensor([[1.0, 0.0], [1.0, 0.0], *auxiliary])
    assert bool(admits(gradients)) is expected


@pytest.mark.parametrize(
    ("supervision", "expected", "was_admitted"),
    [("primary", 2.0, False), ("dual", 5.0, True), ("adaptive", 5.0, True)],
)
def test_ffn_thresholds_follow_the_choice_and_attention_always_both(supervision, expected, was_admitted):
    gradients = torch.tensor([[1.0, 1.0], [3.0, 3.0], [7.0, 7.0], [9.0, 9.0]])
    gradient, flag = combine(gradients, 1, supervision)
    assert gradient.tolist() == [expected, 5.0]
    assert bool(flag) is was_admitted


@pytest.mark.parametrize("supervision", ["adaptive", "primary", "dual"])
def test_gradients_are_those_of_the_chosen_cross_entropies(supervision):
    generator = np.random.default_rng(1)
    seen = set()
    for _ in range(100):
        # rows A', A'', B', B''; three FFN thresholds, then two of attention
        g = generator.standard_normal((4, 5)) + np.array([[0.5], [0.5], [1.0], [1.0]])
        both = {"adaptive": admitted(g[:, :3]), "primary": False, "dual": True}[supervision]
        expected = []
        for threshold in range(5):
            of_a = (g[0, threshold] + g[1, threshold]) / 2
            of_b = (g[2, threshold] + g[3, threshold]) / 2
            expected.append((of_a + of_b) / 2 if both or threshold >= 3 else of_a)
        gradient, flag = combine(torch.tensor(g), 3, supervision)
        np.testing.assert_allclose(gradient.numpy(), expected, rtol=1e-12)
        assert bool(flag) is both
        seen.add(both)
    assert seen == ({True, False} if supervision == "adaptive" else {supervision == "dual"})
