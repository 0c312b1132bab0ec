"""Every mixture-of-experts family is admitted here: removed experts equal router logits of -inf, also when reloaded."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from tiny_experts import EXPERTS, MIXTURES, tiny_mixture
from transformers import AutoConfig, AutoModelForCausalLM

from gprune.models import inspection
from gprune.models.expert_decoder import ExpertDecoder
from gprune.models.expert_families import EXPERT_FAMILIES
from gprune.models.export.checkpoint import load_verified
from gprune.models.export.expert_folder import save_experts
from gprune.models.families import require_expert_retention
from gprune.models.loadable import require_expert_model
from gprune.pruning.experts.surgery import cut_experts, mask_experts
from gprune.records.experts import ExpertMasks, PrunedExperts
from gprune.system.errors import CheckpointError, ModelError, SettingsError

IMPLEMENTATIONS = ("eager", "grouped_mm", "batched_mm")


def random_masks(decoder: ExpertDecoder, kept: int, seed: int = 2) -> ExpertMasks:
    shape, generator = decoder.shape, np.random.default_rng(seed)
    scores = generator.random((len(shape.layers), shape.groups, shape.experts // shape.groups))
    kept_in_group = np.argsort(np.argsort(-scores, axis=2), axis=2) < kept // shape.groups
    masks = kept_in_group.reshape(len(shape.layers), -1)
    return ExpertMasks("experts_random", masks, kept / shape.experts, kept / shape.experts)


def ids_of(*shape: int) -> torch.Tensor:
    return torch.randint(3, 320, shape, generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def relative_error(actual: torch.Tensor, expected: torch.Tensor) -> float:
    return float((actual - expected).abs().max() / expected.abs().max())


def test_every_family_has_a_small_model_and_the_defaults_of_its_configuration():
    assert MIXTURES.keys() == EXPERT_FAMILIES.keys() and len(EXPERT_FAMILIES) == 11
    for family, layout in EXPERT_FAMILIES.items():
        config = AutoConfig.for_model(family)
        assert {name: getattr(config, name) for name in layout.defaults} == layout.defaults


@pytest.mark.parametrize("family", EXPERT_FAMILIES)
@torch.no_grad()
def test_removed_experts_equal_logits_of_minus_infinity_and_reload_as_a_stock_model(family, tmp_path):
    decoder, ids = tiny_mixture(family), ids_of(2, 24)
    before, dense = {n: t.clone() for n, t in decoder.model.state_dict().items()}, decoder.model(ids).logits
    masks = random_masks(decoder, 6)
    with mask_experts(decoder, masks.experts):
        expected = decoder.model(ids).logits
    assert relative_error(expected, dense) > 1e-2

    live = cut_experts(decoder, masks)
    assert all(torch.equal(before[name], tensor) for name, tensor in decoder.model.state_dict().items())
    assert decoder.shape.experts == EXPERTS and torch.equal(decoder.model(ids).logits, dense)
    live.save_pretrained(tmp_path)
    loaded, report = AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert type(loaded) is type(decoder.model) and not list(tmp_path.glob("*.py"))
    for model in (live, loaded):
        for implementation in IMPLEMENTATIONS:
            model.set_experts_implementation(implementation)
            assert relative_error(model(ids).logits, expected) <= 1e-5, implementation
    shape = ExpertDecoder.from_model(loaded).shape
    assert shape.experts == masks.count == 6
    assert shape.parameters == decoder.shape.pruned_parameters(6) < decoder.shape.parameters


GENERATE = """
import importlib.util, sys, torch, transformers
assert importlib.util.find_spec("gprune") is None
for folder in sys.argv[1:]:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    ids = model.generate(torch.arange(3, 19)[None], max_new_tokens=5, do_sample=False, eos_token_id=None)
    print(*ids[0, 16:].tolist())
"""


@pytest.mark.long
@pytest.mark.process
def test_a_folder_of_every_family_generates_in_a_process_without_this_package(tmp_path):
    expected = []
    for family in EXPERT_FAMILIES:
        decoder = tiny_mixture(family)
        masks = random_masks(decoder, 6)
        live = cut_experts(decoder, masks)
        save_experts(live, None, tmp_path / family, PrunedExperts(masks), source=family, fingerprint="")
        ids = live.generate(torch.arange(3, 19)[None], max_new_tokens=5, do_sample=False, eos_token_id=None)
        expected.append(ids[0, 16:].tolist())
        contents = inspection.inspect(str(tmp_path / family))
        assert (
            contents.form.startswith("stock model without some experts")
            and contents.layers == 3
            and contents.neurons == ()
        )
        assert contents.experts.startswith("6 in a mixture") and contents.experts.endswith(", 2 per token")
        with pytest.raises(CheckpointError, match="stock model without some experts"):
            load_verified(tmp_path / family)
    command = [sys.executable, "-I", "-c", GENERATE, *(str(tmp_path / family) for family in EXPERT_FAMILIES)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert [[*map(int, line.split())] for line in done.stdout.splitlines()] == expected


@pytest.mark.parametrize("family", EXPERT_FAMILIES)
@torch.no_grad()
def test_mixtures_can_keep_different_numbers_of_experts_while_they_are_masked(family):
    decoder, ids = tiny_mixture(family), ids_of(2, 24)
    masks, first = random_masks(decoder, 6), decoder.shape.layers[0]
    live = cut_experts(decoder, masks)
    live.get_submodule(decoder.layout.layers)[first] = decoder.model.get_submodule(decoder.layout.layers)[first]
    experts = np.concatenate([np.ones((1, EXPERTS), bool), masks.experts[1:]])
    with mask_experts(decoder, experts):
        assert relative_error(live(ids).logits, decoder.model(ids).logits) <= 1e-5

    def fail(*_):
        raise ValueError("out")

    dense = decoder.model(ids).logits
    for module in (decoder.mixtures[1].experts, decoder.mixtures[1].router):
        failure = module.register_forward_pre_hook(fail)
        with pytest.raises(ValueError, match="out"), mask_experts(decoder, experts):
            decoder.model(ids)
        failure.remove()
        assert torch.equal(decoder.model(ids).logits, dense)


def test_masks_leave_the_experts_of_a_token():
    decoder = tiny_mixture("mixtral")
    experts = np.arange(EXPERTS) < np.array([[EXPERTS], [2], [1]])
    with pytest.raises(ModelError, match="would keep 1 of 12 experts, but its router needs 2"):
        mask_experts(decoder, experts).__enter__()
    with pytest.raises(ModelError, match=re.escape("the model has 3 mixtures of 12 experts")):
        mask_experts(decoder, experts[:, :6]).__enter__()


@pytest.mark.parametrize("family", EXPERT_FAMILIES)
def test_a_folder_is_admitted_and_its_configuration_says_what_the_router_needs(family, tmp_path):
    decoder = tiny_mixture(family)
    decoder.model.save_pretrained(tmp_path)
    assert require_expert_model(tmp_path) is EXPERT_FAMILIES[family]
    values = json.loads((tmp_path / "config.json").read_text())
    least = decoder.shape.groups * max(2 / decoder.shape.top_groups, 2) / EXPERTS
    require_expert_retention(values, least)
    with pytest.raises(SettingsError, match=f"choose a retention of at least {least:.4g}"):
        require_expert_retention(values, least - 0.02)
    assert decoder.shape.kept_experts(0.5) == 6 and decoder.shape.kept_experts(0.999) in (11, 9)


def test_masks_that_do_not_fit_are_refused():
    decoder = tiny_mixture("deepseek_v3")
    with pytest.raises(ModelError, match=re.escape("masks have the shape (2, 6), the model has 2 mixtures of 12")):
        cut_experts(decoder, ExpertMasks("experts_reap", np.ones((2, 6), bool), 0.5, 0.5))
    unequal = np.zeros((2, 12), bool)
    unequal[:, :6] = True
    with pytest.raises(ModelError, match="keep 0 to 4 experts in a router group: keep the same number in every group"):
        cut_experts(decoder, ExpertMasks("experts_reap", unequal, 0.5, 0.5))
    single = np.tile([True, False, False, False], (2, 3))
    with pytest.raises(ModelError, match="keep 1 to 1 experts in a router group: .* at least 2"):
        cut_experts(decoder, ExpertMasks("experts_reap", single, 0.25, 0.25))


def test_experts_that_are_stored_separately_need_a_newer_library():
    model = tiny_mixture("mixtral").model
    for layer in model.model.layers:
        layer.mlp.experts = torch.nn.ModuleList([torch.nn.Linear(2, 2)])
    with pytest.raises(
        ModelError, match=r"no layer of the Mixtral model has fused experts: .* transformers 5\.0 or lat"
    ):
        ExpertDecoder.from_model(model)


def test_a_folder_that_cannot_be_pruned_is_refused_with_its_remedy(tmp_path):
    tiny_mixture("gpt_oss").model.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps(values | {"quantization_config": {"quant_method": "mxfp4"}}))
    with pytest.raises(
        ModelError, match=r"quantized \(mxfp4\): load it with Mxfp4Config\(dequantize=True\), save it in"
    ):
        require_expert_model(tmp_path)
    path.write_text(json.dumps(values | {"model_type": "dbrx"}))
    with pytest.raises(
        ModelError, match="is of model type 'dbrx', whose experts cannot be pruned here: choose a model"
    ):
        require_expert_model(tmp_path)
    path.write_text(json.dumps(values | {"model_type": "llama"}))
    with pytest.raises(ModelError, match="is a dense model, whose experts cannot be pruned here"):
        require_expert_model(tmp_path)
