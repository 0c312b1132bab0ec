"""The admission rule and the combination of the four cross-entropy gradients."""

import numpy as np
import pytest
import torch
from sparsity.reference_sparsity import admitted

from gprune.pruning.sparsity.loss_selection import admits, combine


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
