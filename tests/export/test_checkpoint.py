"""A pruned model leaves and comes back as it was, here and where this project is not installed."""

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from gprune.errors import CheckpointError
from gprune.export import checkpoint, plan_file
from gprune.models.decoder import Decoder
from gprune.models.families import FAMILIES
from gprune.models.tiny import tiny_decoder
from gprune.records import ActivationStatistics, PruningMasks
from gprune.surgery import cut

STUDY = {"model": "dense", "retention": 0.5}


def decoder_of(family: str, dtype: torch.dtype = torch.float32) -> Decoder:
    return tiny_decoder(
        family, layers=3, hidden=12, neurons=13, heads=6, kv_heads=3, head_width=6, dtype=dtype
    )


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerFast:
    words = Tokenizer(WordLevel({f"w{index}": index for index in range(64)}, unk_token="w0"))
    words.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=words, unk_token="w0", pad_token="w0")


@pytest.fixture
def masks() -> PruningMasks:
    ffn = np.zeros((3, 13), bool)
    heads = np.array([[False, True, False], [True, False, True], [True, True, True]])
    for layer, kept in enumerate(([2], [0, 1, 5, 12], range(13))):
        ffn[layer, list(kept)] = True
    return PruningMasks("gprune", ffn, heads, 0.51, 0.5)


def constant_statistics(decoder: Decoder) -> ActivationStatistics:
    shape = decoder.shape
    ffn = np.full((1, shape.layers, shape.neurons), 0.3)
    attention = np.full((1, shape.layers, shape.heads * shape.head_width), -0.2)
    one = np.array([1])
    return ActivationStatistics(
        "text", "", one, one, ffn, ffn, ffn, attention, attention, attention, ffn[0], attention[0]
    )


def saved(model: nn.Module, tokenizer: Any, folder: Path, masks: PruningMasks, **others: Any) -> Path:
    return checkpoint.save(
        model, tokenizer, folder, masks, source="dense", fingerprint="f00d", study=STUDY, **others
    )


def padded_batch() -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.randint(3, 64, (2, 7), generator=torch.Generator().manual_seed(5))
    ids[1, :3] = 0
    return ids, (ids != 0).long()


GENERATION = {"max_new_tokens": 8, "min_new_tokens": 8, "do_sample": False, "pad_token_id": 0}


@pytest.mark.parametrize("compensated", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_loaded_equals_what_was_saved(
    family: str, compensated: bool, tmp_path: Path, masks: PruningMasks
) -> None:
    decoder = decoder_of(family)
    live: Any = cut(decoder, masks, constant_statistics(decoder) if compensated else None)
    folder = saved(live, None, tmp_path / "out", masks, bias_compensation=compensated)
    loaded: Any = checkpoint.load(folder, device="cpu")
    ids, attention = padded_batch()
    assert torch.equal(loaded(ids).logits, live(ids).logits)
    expected = live.generate(ids, attention_mask=attention, **GENERATION)
    assert torch.equal(loaded.generate(ids, attention_mask=attention, **GENERATION), expected)
    assert type(loaded).__name__ == f"Gprune{family.capitalize()}ForCausalLM"
    assert sum(p.numel() for p in loaded.parameters()) == sum(p.numel() for p in live.parameters())
    assert checkpoint.verify(folder).bias_compensation == compensated


def test_folder_holds_safetensors_configuration_code_tokenizer_and_plan(
    tmp_path: Path, masks: PruningMasks, tokenizer: Any
) -> None:
    folder = saved(cut(decoder_of("llama"), masks), tokenizer, tmp_path / "deep" / "out", masks)
    names = {file.name for file in folder.iterdir()}
    assert names >= {"config.json", "generation_config.json", "model.safetensors", "modeling_gprune.py"}
    assert names >= {"plan.json", "tokenizer.json", "tokenizer_config.json"}
    assert not [name for name in names if name.endswith((".bin", ".pt", ".pkl"))]
    assert [file.name for file in folder.parent.iterdir()] == ["out"]
    values = json.loads((folder / "config.json").read_text())
    assert values["model_type"] == "gprune_llama"
    assert values["ffn_widths"] == [1, 4, 13] and values["key_value_groups"] == [1, 2, 3]
    assert not values["o_proj_bias"] and not values["down_proj_bias"]
    assert values["auto_map"]["AutoModelForCausalLM"] == "modeling_gprune.GpruneLlamaForCausalLM"


def test_plan_gives_back_the_cut(tmp_path: Path, masks: PruningMasks) -> None:
    decoder = decoder_of("mistral")
    live: Any = cut(decoder, masks)
    plan = plan_file.read(saved(live, None, tmp_path / "out", masks))
    assert (plan.source, plan.fingerprint, plan.study) == ("dense", "f00d", STUDY)
    assert (plan.masks.method, plan.masks.retention, plan.masks.target) == ("gprune", 0.51, 0.5)
    np.testing.assert_array_equal(plan.masks.ffn, masks.ffn)
    np.testing.assert_array_equal(plan.masks.heads, masks.heads)
    again: Any = cut(decoder, plan.masks)
    assert torch.equal(again(torch.arange(9)[None]).logits, live(torch.arange(9)[None]).logits)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays(tmp_path: Path, masks: PruningMasks, dtype: torch.dtype) -> None:
    live: Any = cut(decoder_of("qwen3", dtype), masks)
    folder = saved(live, None, tmp_path / "out", masks)
    assert {tensor.dtype for tensor in load_file(folder / "model.safetensors").values()} == {dtype}
    assert next(checkpoint.load(folder, device="cpu").parameters()).dtype == torch.float32
    name = str(dtype).removeprefix("torch.")
    loaded: Any = checkpoint.load(folder, device="cpu", dtype=name)
    assert torch.equal(loaded(torch.arange(9)[None]).logits, live(torch.arange(9)[None]).logits)
    assert checkpoint.verify(folder).masks.method == "gprune"


def test_tied_embeddings_are_stored_once(tmp_path: Path, masks: PruningMasks) -> None:
    decoder = decoder_of("llama")
    decoder.model.lm_head.weight = decoder.model.model.embed_tokens.weight
    decoder.model.config.tie_word_embeddings = True
    live: Any = cut(decoder, masks)
    folder = saved(live, None, tmp_path / "out", masks)
    assert "lm_head.weight" not in load_file(folder / "model.safetensors")
    loaded: Any = checkpoint.load(folder, device="cpu")
    assert loaded.lm_head.weight is loaded.model.embed_tokens.weight
    assert torch.equal(loaded(torch.arange(9)[None]).logits, live(torch.arange(9)[None]).logits)


def test_scaled_rotary_positions_travel_along(tmp_path: Path, masks: PruningMasks) -> None:
    from transformers import LlamaForCausalLM

    config = decoder_of("llama").model.config
    config.rope_parameters = {"rope_type": "linear", "factor": 4.0, "rope_theta": 500.0}
    live: Any = cut(Decoder.from_model(LlamaForCausalLM(config)), masks)
    loaded: Any = checkpoint.load(saved(live, None, tmp_path / "out", masks), device="cpu")
    assert torch.equal(loaded(torch.arange(40)[None]).logits, live(torch.arange(40)[None]).logits)


def test_plain_from_pretrained_after_register(tmp_path: Path, masks: PruningMasks, tokenizer: Any) -> None:
    live: Any = cut(decoder_of("qwen2"), masks)
    folder = saved(live, tokenizer, tmp_path / "out", masks)
    checkpoint.register()
    checkpoint.register()
    loaded = AutoModelForCausalLM.from_pretrained(folder)
    assert torch.equal(loaded(torch.arange(9)[None]).logits, live(torch.arange(9)[None]).logits)
    assert AutoTokenizer.from_pretrained(folder)("w7 w8").input_ids == [7, 8]
    loaded.save_pretrained(tmp_path / "again")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "again")
    assert torch.equal(again(torch.arange(9)[None]).logits, live(torch.arange(9)[None]).logits)


ELSEWHERE = """
import json, sys
from transformers import AutoModelForCausalLM, AutoTokenizer
import torch
families, out = json.loads(sys.argv[1]), {}
for family, folder in families.items():
    model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)
    ids = torch.tensor(json.loads(sys.argv[2]))
    made = model.generate(ids, attention_mask=(ids != 0).long(), **json.loads(sys.argv[3]))
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    out[family] = {"made": made.tolist(), "logits": model(ids[:1]).logits.tolist(),
                   "tokens": tokenizer("w9 w11").input_ids, "module": type(model).__module__}
assert "gprune" not in sys.modules
try:
    import gprune
    out["installed"] = True
except ImportError:
    out["installed"] = False
print(json.dumps(out))
"""


def test_loads_where_this_project_is_not_installed(
    tmp_path: Path, masks: PruningMasks, tokenizer: Any
) -> None:
    ids, attention = padded_batch()
    models: dict[str, Any] = {}
    for family in FAMILIES:
        decoder = decoder_of(family)
        models[family] = cut(decoder, masks, constant_statistics(decoder))
        saved(models[family], tokenizer, tmp_path / family, masks)
    folders = {family: str(tmp_path / family) for family in FAMILIES}
    arguments = [json.dumps(folders), json.dumps(ids.tolist()), json.dumps(GENERATION)]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment |= {"HF_MODULES_CACHE": str(tmp_path / "modules"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-I", "-c", ELSEWHERE, *arguments],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    out = json.loads(done.stdout)
    assert out.pop("installed") is False
    for family, result in out.items():
        expected = models[family].generate(ids, attention_mask=attention, **GENERATION)
        assert result["made"] == expected.tolist()
        logits = models[family](ids[:1]).logits.numpy()
        np.testing.assert_allclose(np.array(result["logits"]), logits, rtol=0, atol=1e-5)
        assert result["tokens"] == [9, 11]
        assert result["module"].startswith("transformers_modules.")


def test_a_taken_folder_is_refused_and_left_alone(tmp_path: Path, masks: PruningMasks) -> None:
    live = cut(decoder_of("llama"), masks)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "thesis.tex").write_text("years of work")
    (tmp_path / "file").write_text("")
    for name in ("taken", "file"):
        with pytest.raises(CheckpointError, match=f"{name}' already holds something: choose a new folder"):
            saved(live, None, tmp_path / name, masks)
    assert (tmp_path / "taken" / "thesis.tex").read_text() == "years of work"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["file", "taken"]
    (tmp_path / "empty").mkdir()
    assert checkpoint.verify(saved(live, None, tmp_path / "empty", masks)).source == "dense"


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Writes beyond the size fail, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_that_fills_leaves_nothing_behind(tmp_path: Path, masks: PruningMasks) -> None:
    live = cut(decoder_of("llama"), masks)
    with largest_file(4096), pytest.raises(CheckpointError, match="cannot be saved in .*out'"):
        saved(live, None, tmp_path / "out", masks)
    assert list(tmp_path.iterdir()) == []


def test_too_little_room_is_told_before(
    tmp_path: Path, masks: PruningMasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = shutil.disk_usage(tmp_path)._replace(free=100)
    monkeypatch.setattr(shutil, "disk_usage", lambda place: free)
    with pytest.raises(CheckpointError, match="needs 0.00 GiB, but .* has 0.00 GiB free"):
        saved(cut(decoder_of("llama"), masks), None, tmp_path / "out", masks)
    assert list(tmp_path.iterdir()) == []


def test_a_save_that_is_interrupted_leaves_nothing_behind(
    tmp_path: Path, masks: PruningMasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(plan_file, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        saved(cut(decoder_of("llama"), masks), None, tmp_path / "out", masks)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("model.layers.1.mlp.up_proj.weight", "logits differ from the live one's"),
        ("model.embed_tokens.weight", "differs from the live one in model.embed_tokens.weight"),
    ],
)
def test_what_does_not_read_back_is_not_kept(
    name: str, words: str, tmp_path: Path, masks: PruningMasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = checkpoint._write

    def damaged(model: Any, tokenizer: Any, folder: Path, *others: Any) -> None:
        original(model, tokenizer, folder, *others)
        tensors = load_file(folder / "model.safetensors")
        # Row 1 of the embedding is no token of the probe: only the comparison of tensors can see it.
        tensors[name][1] += 1
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    monkeypatch.setattr(checkpoint, "_write", damaged)
    with pytest.raises(CheckpointError, match=words):
        saved(cut(decoder_of("llama"), masks), None, tmp_path / "out", masks)
    assert list(tmp_path.iterdir()) == []


def test_a_tokenizer_that_reads_back_otherwise_is_not_kept(
    tmp_path: Path, masks: PruningMasks, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "load_tokenizer", lambda folder: lambda text: tokenizer("w1"))
    with pytest.raises(CheckpointError, match="the saved tokenizer splits"):
        saved(cut(decoder_of("llama"), masks), tokenizer, tmp_path / "out", masks)
    assert list(tmp_path.iterdir()) == []


def test_masks_and_model_must_belong_together(tmp_path: Path, masks: PruningMasks) -> None:
    decoder = decoder_of("llama")
    with pytest.raises(CheckpointError, match=r"layers of \[13, 13, 13\] neurons .* gprune masks do not keep"):
        saved(decoder.model, None, tmp_path / "out", masks)
    with pytest.raises(CheckpointError, match="type None cannot be saved"):
        saved(nn.Linear(2, 2), None, tmp_path / "out", masks)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def folder(tmp_path: Path, masks: PruningMasks) -> Path:
    return saved(cut(decoder_of("llama"), masks), None, tmp_path / "out", masks)


def change(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_verify_sees_changed_weights(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.0.self_attn.q_proj.weight"] *= 1.5
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match="is damaged: .*logits differ"):
        checkpoint.verify(folder)
    tensors["model.norm.weight"][0] = float("nan")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"is damaged: model\.norm\.weight .* NaN"):
        checkpoint.verify(folder)


def test_verify_sees_other_widths(folder: Path) -> None:
    change(folder / "config.json", ffn_widths=[1, 5, 13])
    with pytest.raises(CheckpointError, match="config.json and plan.json name different widths"):
        checkpoint.verify(folder)
    with pytest.raises(CheckpointError, match=r"disagrees with the weights.*of another size.*layers\.1"):
        checkpoint.load(folder)
    change(folder / "config.json", ffn_widths=[1, 13])
    with pytest.raises(CheckpointError, match="ffn_widths must hold 3 positive numbers"):
        checkpoint.load(folder)


def test_verify_sees_truncated_and_missing_files(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8])
    with pytest.raises(CheckpointError, match="truncated or damaged"):
        checkpoint.verify(folder)
    weights.unlink()
    with pytest.raises(CheckpointError, match="has no weights"):
        checkpoint.verify(folder)
    (folder / "plan.json").unlink()
    with pytest.raises(CheckpointError, match="has no plan.json: it is no pruned checkpoint"):
        checkpoint.verify(folder)


@pytest.mark.parametrize(
    "values",
    [{"format": "other"}, {"version": 2}, {"kept_neurons": [[99]]}, {"kept_neurons": [[-1]]}, {"probe": {}}],
)
def test_a_plan_that_is_none(folder: Path, values: dict[str, Any]) -> None:
    change(folder / "plan.json", **values)
    with pytest.raises(CheckpointError, match="plan.json' cannot be read"):
        plan_file.read(folder)


def test_a_dense_folder_is_no_pruned_checkpoint(tmp_path: Path) -> None:
    decoder_of("llama").model.save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match="model of type 'llama', not a pruned one"):
        checkpoint.load(tmp_path)
    with pytest.raises(CheckpointError, match="has no config.json"):
        checkpoint.load(tmp_path / "nothing")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_from_a_gpu_and_back(tmp_path: Path, masks: PruningMasks, dtype: torch.dtype) -> None:
    decoder = Decoder.from_model(decoder_of("llama", dtype).model.cuda())
    live: Any = cut(decoder, masks, constant_statistics(decoder))
    folder = saved(live, None, tmp_path / "out", masks)
    loaded: Any = checkpoint.load(folder)
    ids = torch.arange(9)[None].cuda()
    assert loaded.device.type == "cuda" and loaded.dtype == dtype
    torch.testing.assert_close(loaded(ids).logits, live(ids).logits, rtol=1e-2, atol=1e-2)
    assert checkpoint.verify(folder).source == "dense"


def test_a_real_model(shared: Path, tmp_path: Path) -> None:
    from gprune.models.identity import fingerprint
    from gprune.models.loading import load

    name = str(shared / "models" / "textllama-6m")
    decoder = load(name, device="cpu")
    rng = np.random.default_rng(0)
    ffn, heads = rng.random((6, 768)) < 0.5, rng.random((6, 8)) < 0.5
    heads[:, 3] = True
    masks = PruningMasks("flap", ffn, heads, 0.5, 0.5)
    live: Any = cut(decoder, masks)
    folder = checkpoint.save(
        live, decoder.tokenizer, tmp_path / "out", masks, source=name, fingerprint=fingerprint(name)
    )
    loaded: Any = checkpoint.load(folder, device="cpu")
    ids = decoder.tokenizer("The river was named after", return_tensors="pt").input_ids
    assert torch.equal(loaded(ids).logits, live(ids).logits)
    assert checkpoint.verify(folder).fingerprint == fingerprint(name)
