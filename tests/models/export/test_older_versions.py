"""Exports are read by other versions of transformers: rotary bases, tokenizers and logits."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tiny_study
import torch
import transformers
from other_versions import environment_of, install, require_passing
from tiny_family import tiny_decoder
from transformers import AutoConfig, AutoTokenizer
from waiting import limit

from gprune import pipeline
from gprune.models.export import padded
from gprune.models.export.writing import add_older_rope_fields, save_tokenizer
from gprune.models.families import FAMILIES
from gprune.store import Store
from gprune.study import from_dict

THETA = 500_000.0
SENTENCE = "def choose(self, population):  # two  spaces"
# versions of transformers with the packages that they need: the ends of our range, and the last of 4.x
VERSIONS = {
    "4.57.6": ("tokenizers==0.22.2", "huggingface_hub==0.36.2"),
    "5.17.0": ("huggingface_hub==1.33.0", "httpx==0.28.1", "httpcore==1.0.9"),
    "5.24.0": (),
}
READER = """
import json, sys
import numpy, torch, transformers
from transformers import AutoModelForCausalLM, AutoTokenizer
assert transformers.__version__ == sys.argv[1], transformers.__version__
out = {}
for folder in sys.argv[4:]:
    tokens = AutoTokenizer.from_pretrained(folder)(sys.argv[3])["input_ids"]
    model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True).float().eval()
    with torch.no_grad():
        logits = model(torch.tensor([tokens])).logits[0]
    out[folder + ":tokens"], out[folder + ":logits"] = numpy.array(tokens), logits.numpy()
numpy.savez(sys.argv[2], **{name.replace("/", "|"): value for name, value in out.items()})
"""


@pytest.fixture(scope="module")
def exports(tmp_path_factory):
    """Folders of free, equal and padded widths of one model with a rotary base of its own."""
    root = tmp_path_factory.mktemp("exports")
    workshop = tiny_study.workshop(root)
    config = Path(workshop["model"]) / "config.json"
    values = json.loads(config.read_text())
    values["rope_parameters"] = {"rope_type": "default", "rope_theta": THETA}
    config.write_text(json.dumps(values))
    folders = {}
    for widths in ("free", "equal"):
        changes = {"methods": ["dense", "gprune"], "sparsity": {"epochs": 1, "batch": 8, "widths": widths}}
        study = from_dict(tiny_study.settings(workshop["model"], workshop["texts"], **changes))
        result = pipeline.run(study, Store(root / "cache"), tiny_study.silent)
        folders[widths] = Path(result["checkpoint"])
    padded.save_padded(folders["free"], root / "padded")
    return folders | {"padded": root / "padded", "dense": Path(workshop["model"])}


@pytest.mark.parametrize("widths", ["free", "equal", "padded"])
def test_older_versions_read_the_rotary_base_and_the_files_of_the_tokenizer(exports, widths):
    values = json.loads((exports[widths] / "config.json").read_text())
    assert values["rope_theta"] == THETA and values["rope_parameters"]["rope_theta"] == THETA
    names = {path.name for path in exports["dense"].glob("*token*")}
    assert names >= {"tokenizer.json", "tokenizer_config.json"}
    for name in names - {"tokenizer_config.json"}:
        assert (exports[widths] / name).read_bytes() == (exports["dense"] / name).read_bytes()
    source, saved = (json.loads((exports[kind] / "tokenizer_config.json").read_text()) for kind in ("dense", widths))
    assert saved == source | {"tokenizer_class": "PreTrainedTokenizerFast"}


def test_a_tokenizer_that_was_changed_after_loading_is_saved_as_it_is(exports, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(exports["dense"])
    tokenizer.add_tokens(["<|new|>"])
    save_tokenizer(tokenizer, tmp_path)
    assert "<|new|>" in AutoTokenizer.from_pretrained(tmp_path).get_vocab()


@pytest.mark.parametrize("family", FAMILIES)
def test_older_names_leave_the_rotary_parameters_of_every_family_as_they_are(family, tmp_path):
    config = tiny_decoder(family, kv_heads=2).model.config
    config.save_pretrained(tmp_path)
    before = AutoConfig.from_pretrained(tmp_path).get_text_config().rope_parameters
    add_older_rope_fields(tmp_path)
    assert AutoConfig.from_pretrained(tmp_path).get_text_config().rope_parameters == before
    values = json.loads((tmp_path / "config.json").read_text())
    values = values.get("text_config", values)
    flat = before.get("full_attention", before)
    assert values["rope_theta"] == flat["rope_theta"]
    assert ("rope_scaling" in values) == (flat["rope_type"] != "default" or "mrope_section" in flat)


def test_long_factors_of_phi3_keep_the_three_names_that_4_takes(tmp_path):
    factors = {"short_factor": [1.0] * 4, "long_factor": [2.0] * 4}
    parameters = {"rope_type": "longrope", "rope_theta": THETA, **factors}
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 1, "vocab_size": 64}
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    transformers.Phi3Config(
        **sizes, **ids, rope_parameters=parameters, max_position_embeddings=64, original_max_position_embeddings=16
    ).save_pretrained(tmp_path)
    before = AutoConfig.from_pretrained(tmp_path).rope_parameters
    add_older_rope_fields(tmp_path)
    after = AutoConfig.from_pretrained(tmp_path).rope_parameters
    assert {name: after[name] for name in before} == before
    assert json.loads((tmp_path / "config.json").read_text())["rope_scaling"] == {"type": "longrope", **factors}


def test_the_card_names_the_number_type_and_that_of_the_base_model(exports):
    assert "| number type | float32 |" in (exports["free"] / "README.md").read_text()


@pytest.fixture
def overlay(version, built_once):
    """The environment variables under which a version of transformers takes the place of the installed one."""
    packages = [f"transformers=={version}", *VERSIONS[version]]
    return environment_of(built_once(f"transformers-{version}", lambda folder: install(folder, *packages)))


@pytest.mark.long
@pytest.mark.process
@pytest.mark.timeout(limit(600))
@pytest.mark.parametrize("version", list(VERSIONS)[1:])
def test_the_tests_of_models_pruning_and_evaluation_pass_at_each_end_of_the_range(overlay):
    # the families, and whatever else reads, hooks, cuts, trains or writes a model of transformers
    files = [f"tests/models/test_{name}.py" for name in ("families", "decoder", "loading", "offloading", "tied_heads")]
    files += [f"tests/models/export/test_{name}.py" for name in ("checkpoint", "natural_way", "ordinary")]
    files += ["tests/pruning/test_surgery.py", "tests/pruning/sparsity/test_sparsity_gates.py"]
    files += ["tests/pruning/recovery", "tests/pruning/calibration"]
    files += [f"tests/evaluation/test_{name}.py" for name in ("perplexity", "accuracy")]
    require_passing(100, overlay, *files, "-m", "not (slow or process or browser or long)")


@pytest.mark.long
@pytest.mark.process
@pytest.mark.parametrize("version", VERSIONS)
def test_logits_are_equal_under_other_versions(exports, version, overlay, tmp_path):
    folders = [str(exports[kind]) for kind in ("free", "equal", "padded")]
    file = tmp_path / "logits.npz"
    command = [sys.executable, "-c", READER, version, str(file), SENTENCE, *folders]
    process = subprocess.run(command, env=overlay, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr[-2000:]
    tokens = transformers.AutoTokenizer.from_pretrained(exports["dense"])(SENTENCE)["input_ids"]
    with np.load(file) as read:
        for folder in folders:
            name = folder.replace("/", "|")
            assert read[f"{name}:tokens"].tolist() == tokens
            model = transformers.AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True).float().eval()
            with torch.no_grad():
                expected = model(torch.tensor([tokens])).logits[0].numpy()
            assert np.abs(read[f"{name}:logits"] - expected).max() <= 1e-5 * np.abs(expected).max()
