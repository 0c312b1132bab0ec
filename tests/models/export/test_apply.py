"""A plan and the dense model give the first checkpoint again, tensor for tensor, or say why not."""

import argparse
import json

import pytest
import torch
from pruned_folder import byte_tokenizer, save, small_decoder
from safetensors.torch import load_file

from gprune.cli import export
from gprune.models import identity
from gprune.models.export import apply, plan_file
from gprune.pruning.surgery import cut
from gprune.system.errors import CheckpointError


def dense(folder, family="llama", dtype=torch.float32, **sizes):
    """A dense model as a folder, and read back as a run would."""
    from gprune.models.loading import load

    small_decoder(family, dtype=dtype, **sizes).model.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return load(str(folder), device="cpu", dtype=str(dtype).removeprefix("torch."))


def first(decoder, tmp_path, compensated=False):
    fingerprint = identity.fingerprint(str(tmp_path / "dense"))
    arguments = {"compensated": compensated, "tokenizer": decoder.tokenizer, "fingerprint": fingerprint}
    save(decoder, tmp_path / "first", **arguments)
    return tmp_path / "first"


def change(path, **values):
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("compensated", [False, True])
@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
def test_tensors_plan_and_configuration_are_equal(family, compensated, dtype, tmp_path):
    decoder = dense(tmp_path / "dense", family, dtype)
    folder = first(decoder, tmp_path, compensated)
    again = apply.save(folder, str(tmp_path / "dense"), tmp_path / "again", cut)
    before, after = (load_file(place / "model.safetensors") for place in (folder, again))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert ("model.layers.0.mlp.down_proj.bias" in after) == compensated
    for name in ("plan.json", "config.json", "tokenizer.json"):
        assert (folder / name).read_text() == (again / name).read_text()


def test_another_model_is_refused(tmp_path):
    folder = first(dense(tmp_path / "dense"), tmp_path)
    dense(tmp_path / "other", seed=1)
    with pytest.raises(CheckpointError, match="plan is for the model 'dense' .* give the dense model with"):
        apply.save(folder, str(tmp_path / "other"), tmp_path / "again", cut)
    assert not (tmp_path / "again").exists()


def test_a_compensated_plan_without_biases_needs_its_study(tmp_path):
    folder = first(dense(tmp_path / "dense"), tmp_path, compensated=True)
    change(folder / "plan.json", biases=None)
    with pytest.raises(CheckpointError, match="does not hold the biases, .* run its study again"):
        apply.save(folder, str(tmp_path / "dense"), tmp_path / "again", cut)


def test_a_plan_of_the_first_version_still_applies(tmp_path):
    folder = first(dense(tmp_path / "dense"), tmp_path)
    values = json.loads((folder / "plan.json").read_text())
    del values["dtype"], values["biases"]
    (folder / "plan.json").write_text(json.dumps(values))
    again = apply.save(folder, str(tmp_path / "dense"), tmp_path / "again", cut)
    assert plan_file.read(again).dtype == "float32"


def test_changed_units_and_biases_are_seen(tmp_path):
    folder = first(dense(tmp_path / "dense"), tmp_path, compensated=True)
    plan = plan_file.read(folder)
    kept = json.loads((folder / "plan.json").read_text())["kept_neurons"]
    free = next(unit for unit in range(13) if unit not in kept[1])
    change(folder / "plan.json", kept_neurons=[kept[0], [*kept[1][:-1], free], kept[2]])
    with pytest.raises(CheckpointError, match="answers otherwise than the first checkpoint did"):
        apply.save(folder, str(tmp_path / "dense"), tmp_path / "again", cut)
    assert plan.biases is not None
    narrow = {name: rows[:, :5] for name, rows in plan.biases.items()}
    change(folder / "plan.json", biases=plan_file._encoded(narrow))
    with pytest.raises(CheckpointError, match="5 biases for o_proj of layer 0, which has 24 rows"):
        apply.save(folder, str(tmp_path / "dense"), tmp_path / "again", cut)
    change(folder / "plan.json", biases={"o_proj": "?", "down_proj": "?"})
    with pytest.raises(CheckpointError, match="plan.json' cannot be read"):
        apply.save(folder, str(tmp_path / "dense"), tmp_path / "again", cut)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["dense", "first"]


def run(*words):
    parser = argparse.ArgumentParser()
    export.add(parser.add_subparsers())
    options = parser.parse_args(words)
    code: int = options.command(options)
    return code


def test_the_commands_say_one_line(tmp_path, capsys):
    folder = first(dense(tmp_path / "dense"), tmp_path)
    again, wide = str(tmp_path / "again"), str(tmp_path / "wide")
    assert run("apply", str(folder), str(tmp_path / "dense"), again) == 0
    out = capsys.readouterr().out
    assert out == f"{again}: {tmp_path / 'dense'} cut by gprune to 51.00%, read back and compared\n"
    assert run("pad", again, wide) == 0
    out = capsys.readouterr().out
    assert out.startswith(
        f"{wide}: an ordinary llama, 11 neurons and 2 key/value groups in every layer, 1,440 zeros added; "
    )
    assert out.endswith(" of what pruning saved is left\n") and out.count("\n") == 1
