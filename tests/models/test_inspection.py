"""What a folder says of itself: dense, pruned here or elsewhere, damaged, of families that we have not."""

import json

import pytest
import torch
from pruned_folder import masks_of, save, small_decoder
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from gprune.__main__ import main
from gprune.models import inspection
from gprune.models.families import FAMILIES
from gprune.system.errors import ModelError


def changed(folder, tensors=None, **values):
    """The folder with other values in its configuration, and other tensors."""
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))
    if tensors:
        reference = load_file(folder / "model.safetensors")
        save_file({name: tensors.get(name, lambda x: x)(item).contiguous() for name, item in reference.items()},
                  folder / "model.safetensors")  # fmt: skip
    return folder


def dense(folder, family="llama", **sizes):
    decoder = small_decoder(family, **sizes)
    decoder.model.save_pretrained(folder)
    return folder, decoder


@pytest.mark.parametrize("family", ["llama", "glm", "phi3", "stablelm", "olmo2", "gemma2", "mistral3"])
def test_a_dense_and_a_pruned_folder_tell_what_their_models_have(family, tmp_path):
    folder, decoder = dense(tmp_path / "dense", family)
    result = inspection.inspect(str(folder))
    assert result.neurons == (13, 13, 13) and set(result.groups) == {decoder.shape.kv_heads}
    assert result.parameters == sum(parameter.numel() for parameter in decoder.model.parameters())
    assert result.family == FAMILIES[family].label and result.prunable == FAMILIES[family].pruned_units
    assert result.form.startswith("stock model") and result.loads == "without custom code"
    groups = [3, 1, 2] if FAMILIES[family].prunes_heads else [1, 1, 1]
    live = save(decoder, tmp_path / "out", masks=masks_of(decoder, groups, [2, 13, 6]))
    result = inspection.inspect(str(tmp_path / "out"))
    assert (result.neurons, result.groups) == ((2, 13, 6), tuple(groups))
    assert result.parameters == sum(parameter.numel() for parameter in live.parameters())
    assert (result.dense_neurons, result.dense_groups) == (13, decoder.shape.kv_heads)
    assert result.form == "pruned here by gprune to 51.00% of the decoder's weights, every layer of its own width"
    assert "has been pruned already" in result.prunable and "import gprune" in result.loads


def test_a_folder_that_somebody_cut_without_telling_its_configuration_does_not_load(tmp_path):
    folder, _ = dense(tmp_path)
    names = {"gate_proj": lambda x: x[:9], "up_proj": lambda x: x[:9], "down_proj": lambda x: x[:, :9]}
    changed(folder, {f"model.layers.1.mlp.{name}.weight": cut for name, cut in names.items()})
    result = inspection.inspect(str(folder))
    assert result.neurons == (13, 9, 13)
    words = "layer 1 has 9 neurons, but its configuration says 13"
    assert result.form == f"pruned elsewhere, with a configuration that does not match: {words}"
    assert f"does not fit its config.json: {words}. Copy both" in result.prunable and result.loads == f"not: {words}"
    with pytest.raises((RuntimeError, ValueError)):
        AutoModelForCausalLM.from_pretrained(folder)
    assert inspection.inspect(str(changed(folder, auto_map={"a": "b.c"}))).loads.startswith("only with its custom code")


@pytest.mark.parametrize(
    ("values", "prunable", "loads"),
    [
        ({"model_type": "no_such"}, "nothing: .* is of model type 'no_such'", "not: transformers knows no model type"),
        ({"model_type": "no_such", "auto_map": {"a": "b"}}, "nothing", "only with its custom code"),
        ({"auto_map": {"a": "b"}}, "FFN neurons", "without custom code, although the folder has some"),
        (
            {"quantization_config": {"quant_method": "gptq"}},
            "nothing: the weights of the model .* are quantized .gptq.",
            "not without changes",
        ),
        ({"per_layer_config": {"0": {}}}, "FFN neurons", "if transformers' model class .* per_layer_config"),
        ({"num_experts": 8}, "nothing: .* mixture of experts", "without custom code"),
        ({"num_hidden_layers": 4}, "nothing: .*its weights have 3 layers", "not: its weights have 3 layers"),
    ],
)
def test_other_peoples_folders_are_told_by_their_configuration(values, prunable, loads, tmp_path):
    import re

    result = inspection.inspect(str(changed(dense(tmp_path)[0], **values)))
    assert re.match(prunable, result.prunable) and re.match(loads, result.loads)
    assert result.neurons == (13, 13, 13)


def test_a_damaged_folder_of_ours_is_told(tmp_path):
    decoder = small_decoder()
    save(decoder, tmp_path / "out", masks=masks_of(decoder, [3, 1, 2], [2, 13, 6]))
    result = inspection.inspect(str(changed(tmp_path / "out", ffn_widths=[2, 12, 6])))
    words = "layer 1 has 13 neurons, but its configuration says 12"
    assert (result.form, result.loads) == (f"damaged: {words}", f"not: {words}")


def test_what_is_no_model_is_refused_in_a_sentence(tmp_path, capsys):
    folder, _ = dense(tmp_path / "dense")
    weights = (folder / "model.safetensors").read_bytes()
    length = len(weights)
    for damaged in (
        b"",
        b"\xff" * 8,
        (2**40).to_bytes(8, "little") + b"{}",
        weights[: length // 2],
        b"\x02" + b"\0" * 7 + b"[]",
    ):
        (folder / "model.safetensors").write_bytes(damaged)
        with pytest.raises(ModelError, match="is truncated or damaged .*copy or download it again"):
            inspection.inspect(str(folder))
    (folder / "model.safetensors").unlink()
    torch.save({}, folder / "pytorch_model.bin")
    capsys.readouterr()
    for name, words in (
        (str(folder), "has pickled weights only"),
        (str(tmp_path), "has no config.json"),
        (str(tmp_path / "nowhere"), "there is no model folder"),
        ("random:llama2-7b", "has no weights of its own"),
    ):
        assert main(["models", name]) == 2
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert line.startswith("error: ") and words in line


def test_the_command_says_it_in_lines(capsys):
    assert main(["models", "demo"]) == 0
    printed = capsys.readouterr().out
    assert "5,475,584" in printed and "LLaMA (llama)" in printed and "704" in printed
