"""A model laid over several GPUs, and what processes tell each other."""

import numpy as np
import torch
from accelerate import dispatch_model

from gprune.evaluation.perplexity import token_losses
from gprune.models.decoder import Decoder
from gprune.models.tiny import tiny_decoder
from gprune.pruning.surgery import cut
from gprune.records import PruningMasks

IDS = torch.from_numpy(np.random.default_rng(0).integers(3, 64, (2, 9)))


def test_a_model_with_the_hooks_of_a_device_map_is_cut_and_measured_like_any_other():
    """The hooks hand on what goes from one device to the next; here all of them are the CPU."""
    plain, hooked = (tiny_decoder(layers=3, neurons=13, kv_heads=2) for _ in range(2))
    places = {"model.embed_tokens": "cpu", "model.norm": "cpu", "model.rotary_emb": "cpu", "lm_head": "cpu"}
    places |= {f"model.layers.{layer}": "cpu" for layer in range(3)}
    spread = Decoder.from_model(dispatch_model(hooked.model, places, main_device="cpu", force_hooks=True))
    assert hasattr(spread.layers[0], "_hf_hook") and not spread.offloaded
    rng = np.random.default_rng(1)
    masks = PruningMasks("test", rng.random((3, 13)) < 0.6, np.array([[1, 0], [0, 1], [1, 1]], bool), 0.5, 0.5)
    for one, other in ((plain.model, spread.model), (cut(plain, masks), cut(spread, masks))):
        assert torch.equal(token_losses(one, IDS), token_losses(other, IDS))
    # the dense one is as it was
    assert torch.equal(token_losses(plain.model, IDS), token_losses(spread.model, IDS))
