"""On a small trained model with grouped-query attention: learned masks predict held-out text better."""

import numpy as np
import pytest
import torch
from sparsity.reference_sparsity import NaiveMasks, cross_entropy, random_partition

from gprune.models.loading import load
from gprune.pruning.sparsity.learning import learn
from gprune.records import Tokens
from gprune.study import SparsitySettings
from gprune.system.progress import silent

LENGTH, SAMPLES, RETENTION = 48, 64, 0.6


@pytest.fixture(scope="module")
def case(shared):
    decoder = load(str(shared / "models" / "stories260K"), device="cpu", dtype="float32")
    sources = ("data/webtext/tiny.utf8", "data/wikitext-2/valid.txt")
    texts = [(shared / source).read_text(encoding="utf-8")[:60_000] for source in sources]
    ids = [np.array(decoder.tokenizer(text, verbose=False)["input_ids"], dtype=np.int32) for text in texts]
    blocks = [text[: len(text) // LENGTH * LENGTH].reshape(-1, LENGTH) for text in ids]
    sets = [Tokens("text", "", part[:SAMPLES], len(part)) for part in blocks]
    # The squared norm of a unit's outgoing weights: a plain importance score.
    scores = np.stack(
        [decoder.down_proj(i).weight.square().sum(0).numpy() for i in range(decoder.shape.layers)]
    )
    columns = [decoder.o_proj(i).weight.square().sum(0) for i in range(decoder.shape.layers)]
    groups = torch.stack(columns).unflatten(1, (decoder.shape.kv_heads, -1)).sum(-1).numpy()
    partition = random_partition(decoder.shape, 8, np.random.default_rng(0))
    held_out = [torch.tensor(part[SAMPLES : 2 * SAMPLES].astype(np.int64)) for part in blocks]
    return (decoder, scores, groups, partition, *sets), held_out


def _loss(decoder, masks, texts):
    naive = NaiveMasks(decoder, masks.ffn, masks.heads)
    with torch.no_grad():
        losses = [float(cross_entropy(decoder.logits(decoder.hidden_states(ids)), ids)) for ids in texts]
    naive.remove()
    return np.array(losses)


@pytest.mark.long
def test_learned_masks_predict_both_held_out_texts_better_than_one_ratio_for_all(case):
    arguments, held_out = case
    uniform, _ = learn(*arguments, SparsitySettings(epochs=0), RETENTION, 0, silent)
    learned, history = learn(*arguments, SparsitySettings(epochs=3, batch=16), RETENTION, 0, silent)
    difference = _loss(arguments[0], learned, held_out) - _loss(arguments[0], uniform, held_out)
    assert (difference < -0.1).all(), difference
    assert abs(learned.retention - RETENTION) <= 0.001
    assert abs(history.steps[-1, history.columns.index("retention")] - RETENTION) < 0.1
