"""A folder of equal widths runs in llama.cpp by its own converter, and in ONNX Runtime."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from pruned_folder import masks_of, save, small_decoder
from tiny_experts import EXPERTS, tiny_mixture
from tiny_family import assert_close
from transformers import AutoModelForCausalLM

from gprune.models.export import padded
from gprune.models.export.expert_folder import save_experts
from gprune.models.loading import load, load_tokenizer
from gprune.pruning.experts.surgery import cut_experts
from gprune.records.experts import ExpertMasks, PrunedExperts

pytestmark = [pytest.mark.long, pytest.mark.process]

CONVERTER = Path(sys.prefix) / "llama.cpp" / "convert_hf_to_gguf.py"
needs_converter = pytest.mark.skipif(
    not CONVERTER.is_file() or not importlib.util.find_spec("llama_cpp"),
    reason="llama.cpp's converter and llama-cpp-python are not installed: run make test-long",
)
needs_onnx = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("onnx", "onnxscript", "onnxruntime")),
    reason="onnx, onnxscript and onnxruntime are not installed: pip install -r requirements-onnx.txt",
)


# The converter knows a byte-level tokenizer by a digest in a list of its own, where the bundled demo's is
# not: the line that its error asks for is added here.
LISTED = """
import runpy, sys
sys.path.insert(0, sys.argv[1])
from conversion.base import TextModel
TextModel.get_vocab_base_pre = lambda *_: "gpt-2"
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@needs_converter
@pytest.mark.parametrize(
    ("model", "groups", "compensated", "family"),
    [
        ("stories260K", 2, True, "llama"),
        ("stories260K", 2, False, "llama"),
        ("stories260K", 3, False, "mistral"),
        ("stories260K", 2, True, "padded"),
        ("demo", 2, True, "llama"),
    ],
)
@torch.inference_mode()
def test_llama_cpp_takes_what_its_own_converter_makes_of_the_folder(
    model, groups, compensated, family, request, tmp_path
):
    demo = model == "demo"
    decoder = load("demo" if demo else str(request.getfixturevalue("shared") / "models" / model), "cpu")
    layers = decoder.shape.layers
    narrower = range(layers) if family == "padded" else [0] * layers
    masks = masks_of(decoder, [groups - layer % 2 for layer in narrower], [96 - layer for layer in narrower])
    folder = tmp_path / "in"
    live = save(decoder, folder, masks=masks, compensated=compensated, tokenizer=decoder.tokenizer)
    if family == "padded":
        folder = padded.save_padded(folder, tmp_path / "padded")
    else:
        assert live.config.model_type == family
    converted = require_same_logits_in_llama_cpp(folder, live, demo)
    text = "def area(radius):\n    return 3.14159 * radius ** 2  # of a circle"
    if demo:
        assert converted.tokenize(text.encode(), add_bos=False) == decoder.tokenizer.encode(
            text, add_special_tokens=False
        )


def require_same_logits_in_llama_cpp(folder, live, is_byte_level):
    """Convert a folder with llama.cpp's converter, compare its logits with those of a model, and return what runs."""
    from llama_cpp import GGML_TYPE_F32, Llama

    file = folder.parent / "out.gguf"
    command = [sys.executable, *(["-c", LISTED, str(CONVERTER.parent)] if is_byte_level else []), str(CONVERTER)]
    command += [str(folder), "--outfile", str(file), "--outtype", "f32"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder.parent, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    converted = Llama(
        str(file), n_ctx=128, n_batch=128, n_threads=1, logits_all=True, verbose=False,
        type_k=GGML_TYPE_F32, type_v=GGML_TYPE_F32,
    )  # fmt: skip
    ids = torch.randint(3, 500, (1, 64), generator=torch.Generator().manual_seed(4))
    converted.eval(ids[0].tolist())
    assert_close(torch.tensor(converted.scores[:64]), live(ids).logits[0], 1e-4)
    return converted


@needs_converter
@pytest.mark.parametrize("family", ["qwen3_moe", "mixtral"])
@torch.inference_mode()
def test_llama_cpp_takes_a_mixture_without_some_experts(family, tmp_path):
    tokenizer = load_tokenizer("demo")
    # llama.cpp has no dense layers beside mixtures
    fields = {"vocab_size": len(tokenizer)} | ({"mlp_only_layers": []} if family == "qwen3_moe" else {})
    decoder = tiny_mixture(family, **fields)
    kept = np.random.default_rng(2).permuted(
        np.tile(np.arange(EXPERTS) % 2 == 0, (len(decoder.shape.layers), 1)), axis=1
    )
    masks = ExpertMasks("experts_random", kept, 0.5, 0.5)
    live = cut_experts(decoder, masks)
    folder = save_experts(live, tokenizer, tmp_path / "out", PrunedExperts(masks), source=family, fingerprint="")
    require_same_logits_in_llama_cpp(folder, live, is_byte_level=True)


class Logits(torch.nn.Module):
    """The logits of a causal language model, alone."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids):
        return self.model(input_ids=input_ids, use_cache=False).logits


@needs_onnx
@pytest.mark.parametrize(
    ("family", "compensated", "form"),
    [("llama", True, "equal"), ("qwen3", False, "equal"), ("llama", True, "padded"), ("llama", False, "free")],
)
@torch.no_grad()
def test_onnx_runtime_gives_the_same_logits_at_other_lengths(family, compensated, form, tmp_path):
    import onnxruntime

    decoder = small_decoder(family)
    masks = masks_of(decoder, *([[2] * 3, [6] * 3] if form == "equal" else [[2, 1, 3], [6, 9, 4]]))
    folder = tmp_path / "in"
    live = save(decoder, folder, masks=masks, compensated=compensated)
    if form == "padded":
        folder = padded.save_padded(folder, tmp_path / "padded")
    opened = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=form == "free")
    model = Logits(opened).eval()
    sizes = ({0: torch.export.Dim("batch"), 1: torch.export.Dim("length", min=2, max=128)},)
    example = (torch.arange(3, 19).view(2, 8),)
    names = {"input_names": ["input_ids"], "output_names": ["logits"]}
    torch.onnx.export(model, example, tmp_path / "out.onnx", dynamo=True, dynamic_shapes=sizes, **names)
    session = onnxruntime.InferenceSession(tmp_path / "out.onnx", providers=["CPUExecutionProvider"])
    for shape in ((2, 8), (3, 5), (1, 33)):
        ids = torch.randint(3, 300, shape, generator=torch.Generator().manual_seed(1))
        (result,) = session.run(None, {"input_ids": ids.numpy()})
        assert_close(torch.tensor(result), live(ids).logits, 1e-5)
