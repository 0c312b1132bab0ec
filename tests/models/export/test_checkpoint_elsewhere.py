"""Where this project is not installed, a pruned folder loads, generates with a cache and answers the same."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from pruned_folder import masks_of, save, small_decoder
from safetensors.torch import save_file

pytestmark = pytest.mark.process

PROGRAM = """
import json, sys
from importlib.util import find_spec
assert find_spec("gprune") is None
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM
report = {}
for folder in sys.argv[1:]:
    # of equal widths, it is an ordinary model
    trust = {} if "equal" in folder.rpartition("/")[2] else {"trust_remote_code": True}
    model = AutoModelForCausalLM.from_pretrained(folder, **trust).eval()
    known = load_file(folder + "/known.safetensors")
    ids, expected = known["ids"], known["logits"]
    with torch.inference_mode():
        logits = model(ids).logits
        greedy = dict(do_sample=False, pad_token_id=0, min_new_tokens=6, max_new_tokens=6)
        made = model.generate(ids[:1], attention_mask=torch.ones_like(ids[:1]), use_cache=True, **greedy)
        slow = ids[:1]
        for _ in range(6):
            scores = model(slow, use_cache=False).logits[:, -1]
            # a greedy search that must make six tokens never chooses the end
            scores[:, model.generation_config.eos_token_id] = float("-inf")
            slow = torch.cat([slow, scores.argmax(-1)[:, None]], 1)
        left = torch.nn.functional.pad(ids[1:, 3:], (3, 0))
        mask = torch.nn.functional.pad(torch.ones_like(ids[1:, 3:]), (3, 0))
        batch = torch.cat([ids[:1], left]), torch.cat([torch.ones_like(ids[:1]), mask])
        both = model.generate(batch[0], attention_mask=batch[1], use_cache=True, **greedy)
        short = ids[1:, 3:]
        alone = model.generate(short, attention_mask=torch.ones_like(short), use_cache=True, **greedy)
    width = ids.shape[1]
    report[folder] = {
        "difference": float((logits - expected).abs().max() / expected.abs().max()),
        "cached": made[0, width:].tolist(), "uncached": slow[0, width:].tolist(),
        "padded": both[:, width:].tolist(), "alone": alone[0, short.shape[1]:].tolist(),
        "kind": type(model).__name__,
        "shapes": [[layer.self_attn.k_proj.out_features, layer.mlp.down_proj.in_features,
                    layer.mlp.down_proj.bias is not None] for layer in model.model.layers],
    }
assert "gprune" not in sys.modules
print(json.dumps(report))
"""

KINDS = {
    "mha": ("llama", {"heads": 6, "kv_heads": 6}, [1, 5, 3], False, ""),
    "mha_compensated": ("mistral", {"heads": 6, "kv_heads": 6}, [1, 5, 3], True, ""),
    "gqa": ("qwen2", {"heads": 8, "kv_heads": 4}, [3, 1, 2], False, ""),
    "gqa_compensated": ("llama", {"heads": 8, "kv_heads": 4}, [3, 1, 2], True, ""),
    "by_save_pretrained": ("glm", {"heads": 8, "kv_heads": 4}, [3, 1, 2], False, ""),
    "one_group": ("qwen3", {"heads": 3, "kv_heads": 1}, [1, 1, 1], True, ""),
    "mha_equal": ("llama", {"heads": 6, "kv_heads": 6}, [2, 2, 2], False, "Llama"),
    "mha_equal_odd": ("llama", {"heads": 6, "kv_heads": 6}, [5, 5, 5], False, "Mistral"),
    "mha_equal_compensated": ("llama", {"heads": 6, "kv_heads": 6}, [3, 3, 3], True, "Llama"),
    "gqa_equal": ("qwen2", {"heads": 8, "kv_heads": 4}, [3, 3, 3], False, "Qwen2"),
    "gqa_equal_compensated": ("mistral", {"heads": 8, "kv_heads": 4}, [3, 3, 3], True, "Llama"),
    "gqa_equal_by_save_pretrained": ("glm", {"heads": 8, "kv_heads": 4}, [3, 3, 3], False, "Glm"),
}
"""family, heads, groups of each layer, bias compensation, and the family that transformers loads without our code"""


def neurons_of(name):
    return [6, 6, 6] if "equal" in name else [2, 13, 6]


@pytest.fixture(scope="module")
def elsewhere(built_once):
    """Return the report of one process without this project on all models."""
    location = built_once("elsewhere", ask)
    report = json.loads((location / "report.json").read_text())
    return {Path(folder).name: values for folder, values in report.items()}


def ask(folder):
    """Saves the models in a folder, and there the report on them."""
    ids = torch.randint(3, 300, (2, 8), generator=torch.Generator().manual_seed(2))
    for name, (family, sizes, groups, compensated, _) in KINDS.items():
        decoder = small_decoder(family, **sizes)
        masks = masks_of(decoder, groups, neurons_of(name))
        live = save(decoder, folder / name, masks=masks, compensated=compensated)
        if name.endswith("by_save_pretrained"):
            shutil.rmtree(folder / name)
            live.save_pretrained(folder / name)
        with torch.inference_mode():
            reference = {"ids": ids, "logits": live(ids).logits.contiguous()}
        save_file(reference, folder / name / "known.safetensors")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "HF_"))}
    environment |= {"HF_HOME": str(folder / "home"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-I", "-c", PROGRAM, *(str(folder / name) for name in KINDS)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    (folder / "report.json").write_text(done.stdout)


@pytest.mark.parametrize("name", KINDS)
def test_it_answers_as_here_with_and_without_cache_and_padding(name, elsewhere):
    assert elsewhere[name]["difference"] <= 1e-5
    _, _, groups, compensated, stock = KINDS[name]
    expected = [[4 * group, width, compensated] for group, width in zip(groups, neurons_of(name), strict=True)]
    assert elsewhere[name]["shapes"] == expected
    assert not stock or elsewhere[name]["kind"] == f"{stock}ForCausalLM"
    assert len(elsewhere[name]["cached"]) == 6
    assert elsewhere[name]["cached"] == elsewhere[name]["uncached"]
    assert elsewhere[name]["padded"] == [elsewhere[name]["cached"], elsewhere[name]["alone"]]
