"""The command `speed`: what it accepts, what it prints and writes, and what it refuses."""

import argparse
import json

import numpy as np
import pytest

from gprune.cli import speed
from gprune.evaluation.speed import Speed
from gprune.models.export import checkpoint
from gprune.models.tiny import tiny_decoder
from gprune.pruning.surgery import cut
from gprune.records import PruningMasks
from gprune.system.errors import ModelError, SettingsError

QUICK = ["--preset", "cpu", "--batch", "2", "--prompt", "6", "--new", "3", "--repeats", "2"]


def command(*words):
    parser = argparse.ArgumentParser()
    speed.add(parser.add_subparsers())
    options = parser.parse_args(["speed", *map(str, words)])
    return options.command(options)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A dense model and a pruned one, both without a tokenizer."""
    folder = tmp_path_factory.mktemp("speed")
    decoder = tiny_decoder(kv_heads=2)
    decoder.model.save_pretrained(folder / "dense")
    ffn, heads = np.ones((2, 12), bool), np.ones((2, 2), bool)
    ffn[0, 5:], heads[1, 0] = False, False
    masks = PruningMasks("hand", ffn, heads, 0.5, 0.5)
    model = cut(decoder, masks)
    checkpoint.save(model, None, folder / "pruned", masks, source="dense", fingerprint="none")
    return folder


def test_dense_and_pruned_are_measured_side_by_side(folders, capsys, tmp_path):
    dense, out = str(folders / "dense"), tmp_path / "out.json"
    assert command(dense, folders / "pruned", dense, *QUICK, "--json", out) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:4] == ["model", "parameters", "phase", "mode"]
    assert len({line.index("eager") for line in lines[1:10]}) == 1
    assert "float32 on cpu, batch 2, prompt 6, 3 new tokens, 2 repetitions after 1 warm-up" in lines[11]
    written = json.loads(out.read_text())
    rows = written["rows"]
    assert [row["model"] for row in rows[::3]] == [dense, str(folders / "pruned"), f"{dense} #2"]
    assert [row["phase"] for row in rows[:3]] == ["prefill", "decode", "whole"]
    # 7 neurons of 3 * 8 weights and a group of 2 query heads: 2 * 2 * 2 * 8 + 2 * 2 * 8
    assert rows[0]["parameters"] - rows[3]["parameters"] == 7 * 24 + 96
    assert rows[0]["peak_bytes"] > rows[3]["peak_bytes"]
    # the first model's own are those beside either of the others
    assert [len(row["seconds"]) for row in rows] == [4] * 3 + [2] * 6
    assert all(min(row["seconds"]) > 0 for row in rows)
    assert lines[13].endswith("whose rows are of all the repetitions that it made.")
    assert written["setting"]["prompt"] == 6
    assert set(written["machine"]) == {"threads", "torch", "transformers"}


def test_the_rows_of_the_models_before_one_that_fails_are_printed_and_written(folders, capsys, tmp_path):
    short, out = tmp_path / "short", tmp_path / "out.json"
    model = tiny_decoder().model
    model.config.max_position_embeddings = 8
    model.save_pretrained(short)
    with pytest.raises(
        SettingsError, match=r"^2 of 3 models are measured .* 6 \+ 3 = 9, but .*short reads at most 8"
    ):
        command(folders / "dense", folders / "pruned", short, *QUICK, "--json", out)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:7]] == [str(folders / "dense")] * 3 + [
        str(folders / "pruned")
    ] * 3
    written = json.loads(out.read_text())
    assert len(written["rows"]) == 6 and written["problem"].startswith("2 of 3 models are measured")


@pytest.mark.parametrize("name", ["/no/such/folder", "random:gpt9", "random:llama2-7b@2"])
def test_a_name_of_no_model_is_told_before_anything_is_loaded(folders, capsys, name):
    with pytest.raises(
        (ModelError, SettingsError), match="no model folder|neither a folder|retention between"
    ):
        command(folders / "dense", name, *QUICK)
    assert "loading" not in capsys.readouterr().err


def test_the_table_is_exact():
    rows = [
        Speed("A", 1234, "prefill", "eager", 1000.0, 10.0, 1.0, 0.0, 2**20, "allocated", (1.0,)),
        Speed("long", 7, "decode", "graph", 52.25, 0.5, 1.5, 0.25, 3 * 2**19, "allocated", (1.0,)),
    ]
    assert speed.table(rows) == [
        "model  parameters  phase    mode   tokens/s  spread  ratio  spread        peak memory",
        "A           1,234  prefill  eager   1,000.0   ±10.0  1.00x   ±0.00  1.0 MiB allocated",
        "long            7  decode   graph      52.2    ±0.5  1.50x   ±0.25  1.5 MiB allocated",
    ]


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        (["/no/such/folder"], ModelError, "no model folder '/no/such/folder'"),
        (["random:gpt9"], ModelError, "neither a folder nor one of llama2-7b"),
        (["random:llama2-7b@2"], SettingsError, r"retention between 0 and 1.*got '2'"),
        (["random:llama2-7b@0.5", "--align", "0"], SettingsError, "align must be 1 or more"),
        (["{dense}", "--prompt", "600"], SettingsError, r"600 \+ 3 = 603, but .* reads at most 512"),
        (["{dense}", "--modes", "graph"], SettingsError, "graph needs a CUDA device"),
        (["{dense}", "--dtype", "int4"], SettingsError, "dtype must be one of"),
        (["{dense}", "--json", "/no/such/out.json"], SettingsError, "'/no/such' does not exist"),
        (["{dense}", "--preset", "tpu"], SettingsError, "preset must be one of"),
    ],
)
def test_slips_are_one_sentence(folders, words, error, message):
    words = [word.format(dense=folders / "dense") for word in words]
    quick = QUICK if "--preset" not in words else []
    with pytest.raises(error, match=message):
        command(words[0], *quick, *words[1:])
