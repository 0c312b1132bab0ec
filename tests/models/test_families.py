"""Every family is admitted here: its adapter is held against the model's own answers, by odd switches too."""

import numpy as np
import pytest
import torch
from family_switches import SIZES, SWITCHES
from masking import masked
from pruned_folder import masks_of, with_biases
from tiny_family import tiny_decoder
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

from gprune.models import language_model
from gprune.models.decoder import Decoder
from gprune.models.export import checkpoint, model_card, padded
from gprune.models.families import FAMILIES, PRUNED_PREFIX, require_prunable, require_retention, shape_of
from gprune.pruning.calibration.gradients import taylor_scores
from gprune.pruning.surgery import cut
from gprune.records import Tokens
from gprune.study.settings import BaselineSettings
from gprune.system.errors import CheckpointError, ModelError, SettingsError

TAYLOR = BaselineSettings(taylor_samples=2, taylor_length=6)
WRAPPERS = [family for family in FAMILIES if FAMILIES[family].inner_types]
CASES = [
    # of what holds a language model one case is told at once, the others among what takes long
    pytest.param(
        family, switches, marks=pytest.mark.long if family in WRAPPERS and (family, switches) != ("gemma3", {}) else ()
    )
    for family in FAMILIES
    for switches in ({}, *SWITCHES[family])
]


def spread_out(family: str, settings: dict) -> Decoder:
    """Weights drawn so that the logits spread by at least 1, whatever scales them down."""
    decoder = tiny_decoder(family, **SIZES, **settings)
    model = decoder.model
    scale = float(getattr(model.config, "logits_scaling", 1.0)) / float(getattr(model, "logit_scale", 1.0))
    model.get_output_embeddings().weight.data *= 3 * scale
    return decoder


def ids_of(*shape: int) -> torch.Tensor:
    return torch.randint(3, 64, shape, generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def relative_error(actual: torch.Tensor, expected: torch.Tensor) -> float:
    return float((actual - expected).abs().max() / expected.abs().max())


def generate(model, ids, length=6, use_cache=True):
    options = {"max_new_tokens": length, "min_new_tokens": length, "do_sample": False, "pad_token_id": 0}
    return model.generate(ids, attention_mask=torch.ones_like(ids), use_cache=use_cache, **options)


def test_every_family_has_a_case_of_its_odd_switches():
    assert SWITCHES.keys() == FAMILIES.keys() and len(FAMILIES) == 29


@pytest.mark.parametrize(("family", "settings"), CASES, ids=lambda x: x if isinstance(x, str) else len(x))
@torch.no_grad()
def test_the_adapter_says_what_the_model_says(family, settings, tmp_path):
    decoder, ids = spread_out(family, settings), ids_of(2, 12)
    logits = decoder.model(ids).logits
    assert float(logits.std()) >= 1
    assert relative_error(decoder.logits(decoder.hidden_states(ids)), logits) <= 1e-6

    masks = masks_of(decoder, [1, decoder.shape.kv_heads], [5, 9])
    live = cut(decoder, masks)
    with masked(decoder, masks):
        expected = decoder.model(ids).logits
    assert relative_error(expected, logits) > 1e-2
    assert relative_error(live(ids).logits, expected) <= 1e-5
    assert relative_error(language_model.logits(live, live.base_model(ids).last_hidden_state), expected) <= 1e-5

    checkpoint.save(live, None, tmp_path / "out", masks, source="d", fingerprint="f")
    loaded = checkpoint.load_verified(tmp_path / "out")
    assert loaded.config.model_type == PRUNED_PREFIX + family
    assert torch.equal(loaded(ids).logits, live(ids).logits)
    assert torch.equal(generate(loaded, ids), generate(loaded, ids, use_cache=False))


@pytest.mark.parametrize(("family", "settings"), CASES, ids=lambda x: x if isinstance(x, str) else len(x))
@torch.no_grad()
def test_equal_widths_are_an_ordinary_model_of_the_family(family, settings, tmp_path):
    """But where the width of heads follows from their number, which an ordinary model then cannot have,
    and where other parts stand beside the language model."""
    decoder, ids, layout = spread_out(family, settings), ids_of(2, 12), FAMILIES[family]
    masks = masks_of(decoder, [1, 1], [6, 6])
    live = cut(decoder, masks)
    with masked(decoder, masks):
        assert relative_error(live(ids).logits, decoder.model(ids).logits) <= 1e-5
    live.save_pretrained(tmp_path / "out")
    ordinary = not layout.inner_types and (not layout.prunes_heads or layout.free_heads)
    assert bool(list((tmp_path / "out").glob("*.py"))) is not ordinary
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert type(loaded) is type(live) and type(loaded).__module__.startswith("transformers.models.") is ordinary
    assert loaded.config.model_type == (family if ordinary else PRUNED_PREFIX + family)
    assert torch.equal(loaded(ids).logits, live(ids).logits)
    expected = generate(live, ids, 4)
    assert torch.equal(generate(loaded, ids, 4), expected)
    assert torch.equal(generate(live, ids, 4, use_cache=False), expected)


@pytest.mark.parametrize("family", [family for family in FAMILIES if family not in WRAPPERS])
@torch.no_grad()
def test_a_padded_model_is_an_ordinary_one_of_the_family(family, tmp_path):
    decoder, ids = spread_out(family, SWITCHES[family][0]), ids_of(2, 12)
    masks = masks_of(decoder, [1, 1], [5, 9])
    live = cut(decoder, masks)
    checkpoint.save(live, None, tmp_path / "in", masks, source="d", fingerprint="f")
    assert padded.save_padded(tmp_path / "in", tmp_path / "out") == tmp_path / "out"
    assert not list((tmp_path / "out").glob("*.py"))
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert not hasattr(loaded.config, "auto_map") and not hasattr(loaded.config, "ffn_widths")
    config, groups = loaded.config, 1 if FAMILIES[family].free_heads else 2
    assert (config.model_type, config.intermediate_size, config.num_key_value_heads) == (family, 9, groups)
    assert type(loaded).__module__.startswith("transformers.models.")
    assert relative_error(loaded(ids).logits, live(ids).logits) <= 1e-5
    assert torch.equal(generate(loaded, ids), generate(live, ids))


WITH_BIASES = {"granite": "granite", "llama": "llama", "mistral": "llama", "qwen2": "llama"}
"""the ordinary family that holds a padded model with biases"""


@pytest.mark.parametrize("family", [*WITH_BIASES, "qwen3", "olmo2", "phi3", "cohere", "stablelm"])
def test_repaired_models_come_back_and_a_padded_one_has_the_biases_or_is_refused(family, tmp_path):
    decoder, ids = spread_out(family, {}), ids_of(2, 12)
    pruned = with_biases(decoder, masks_of(decoder, [1, 1], [5, 9]))
    live = cut(decoder, pruned)
    checkpoint.save(live, None, tmp_path / "in", pruned, source="d", fingerprint="f")
    assert torch.equal(checkpoint.load_verified(tmp_path / "in")(ids).logits, live(ids).logits)
    assert model_card.read_record(tmp_path / "in").pruned.biased
    if family not in WITH_BIASES:
        with pytest.raises(CheckpointError, match=f"a stock {family} model has no biases in .*compensation"):
            padded.save_padded(tmp_path / "in", tmp_path / "out")
        assert [file.name for file in tmp_path.iterdir()] == ["in"]
        return
    padded.save_padded(tmp_path / "in", tmp_path / "out")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert loaded.config.model_type == WITH_BIASES[family]
    assert relative_error(loaded(ids).logits, live(ids).logits) <= 1e-5


def test_heads_that_are_normalised_together_are_one_group_that_stays():
    decoder = tiny_decoder("olmo2", **SIZES)
    shape = decoder.shape
    assert (shape.heads, shape.kv_heads, shape.head_width, shape.group_channels) == (2, 1, 16, 32)
    maps = [*decoder.matrices(0), *decoder.matrices(1)]
    assert shape.decoder_weights == sum(linear.weight.numel() for linear, _ in maps)
    assert shape_of(decoder.model.config.to_dict()) == shape
    smaller = cut(decoder, masks_of(decoder, [1, 1], [5, 9]))
    for name, weight in smaller.named_parameters():
        if "self_attn" in name:
            assert torch.equal(weight, decoder.model.get_parameter(name))


@pytest.mark.parametrize("family", ["glm", "phi3"])
def test_fused_projections_are_read_like_those_of_their_own(family):
    decoder, ids = tiny_decoder(family, **SIZES), ids_of(2, 6)
    layer = decoder.layers[0]
    inputs = torch.randn(2, 6, 32, generator=torch.Generator().manual_seed(0))
    gate, up = layer.mlp.gate_up_proj(inputs).chunk(2, dim=-1)
    torch.testing.assert_close(decoder.gate_proj(0)(inputs), gate)
    torch.testing.assert_close(decoder.up_proj(0)(inputs), up)
    assert decoder.neuron_parameters(0).shape == (13, 96)
    hidden = decoder.hidden_states(ids).detach()
    with torch.enable_grad():
        taylor = taylor_scores(decoder, Tokens("t", "f", ids.numpy().astype(np.int32), 2), TAYLOR)
    assert taylor.ffn.shape == (2, 13) and taylor.heads.shape == (2, 2) and taylor.ffn.min() > 0
    assert hidden.shape == (2, 6, 32) and decoder.q_proj(0).weight.shape == (32, 32)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            {"model_type": "llava", "text_config": {"model_type": "llama"}},
            "type 'llama' and other parts, a combination that cannot be pruned here: save the language model",
        ),
        (
            {"model_type": "mistral3", "text_config": {"model_type": "mixtral"}},
            "inside the model is of type 'mixtral', which cannot be pruned here: in a Mistral 3 it must be",
        ),
        ({"model_type": "llama", "num_local_experts": 8}, "is a mixture of experts .num_local_experts is 8"),
    ],
)
def test_what_cannot_be_pruned_is_known_by_its_configuration(values, words):
    with pytest.raises(ModelError, match=words):
        require_prunable(values, "the model")


@pytest.mark.parametrize("family", WRAPPERS)
def test_what_a_wrapper_leaves_out_is_what_its_own_configuration_has(family):
    layout, config = FAMILIES[family], AutoConfig.for_model(family)
    text_config = config.get_text_config()
    usual = {name: getattr(config if name == "tie_word_embeddings" else text_config, name) for name in layout.defaults}
    assert usual == layout.defaults and text_config.model_type in layout.inner_types
    sizes = {"num_hidden_layers": 2, "intermediate_size": 13, "hidden_size": 32, "num_attention_heads": 4}
    assert shape_of({"model_type": family, "text_config": sizes}).neurons == 13
    # the first ones of some have the values of the language model beside those of the whole
    assert shape_of({"model_type": family, **sizes}).hidden == 32
    assert "calibrated on text" in layout.note and "text alone" in layout.pruned_units


@torch.no_grad()
def test_parts_beside_the_language_model_stay_and_the_images_they_see_are_seen(tmp_path):
    decoder = spread_out("gemma3", {})
    live = cut(decoder, masks_of(decoder, [1, 2], [5, 9]))
    live.save_pretrained(tmp_path)
    actual = AutoModelForImageTextToText.from_pretrained(tmp_path)
    assert type(actual).__name__ == "GpruneGemma3ForConditionalGeneration"
    for name, weight in decoder.model.named_parameters():
        if "language_model.layers" not in name:
            assert torch.equal(actual.get_parameter(name), weight), name
    ids = torch.tensor([[3, 63, 63, 63, 63, 4]])
    images = [torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1)]
    answers = [actual(input_ids=ids, pixel_values=image, token_type_ids=(ids == 63).long()).logits for image in images]
    assert relative_error(answers[0][:, -1], answers[1][:, -1]) > 1e-4
    with masked(decoder, masks_of(decoder, [1, 2], [5, 9])):
        expected = decoder.model(input_ids=ids, pixel_values=images[0], token_type_ids=(ids == 63).long()).logits
    assert relative_error(answers[0], expected) <= 1e-5


def test_the_table_of_the_docs_is_that_of_the_families(project):
    text = (project / "docs" / "models.md").read_text()
    rows = [
        f"| `{family}` | {layout.label} | {layout.pruned_units} | {'yes' if layout.gguf else 'no'} |\n"
        for family, layout in FAMILIES.items()
    ]
    assert "".join(rows) in text


def test_the_smallest_pruned_model_has_to_fit_the_retention():
    values = tiny_decoder("olmo2", **SIZES).model.config.to_dict()
    with pytest.raises(SettingsError, match=r"retention 0.5 .* all heads\. Choose a retention of at least 0.7"):
        require_retention(values, 0.5)
    require_retention(values, 0.9)
    require_retention(values | {"model_type": "llama"}, 0.5)
    with pytest.raises(
        SettingsError, match=r"retention 0.1 .* one key/value group\. Choose a retention of at least 0.3"
    ):
        require_retention(values | {"model_type": "llama"}, 0.1)
