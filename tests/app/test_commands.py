"""The command on the page makes the very study on the page."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from gprune.__main__ import main
from gprune.app.ui.commands import command, words
from gprune.study import Study, from_dict
from gprune.study.demo import demo_study

CHANGES: list[dict[str, Any]] = [
    {},
    {
        "metric": "wanda_sp",
        "retention": 0.3333333333333333,
        "seed": 7,
        "substitute": "c4",
        "name": "it's a name",
    },
    {"primary": "/a path/with spaces.txt#split=train", "trust_remote_code": True, "device": "cuda"},
    {"evaluation": {"texts": ["wikitext2", "ptb"], "preset": "2048", "windows": 12, "batch": 3}},
    {"calibration": {"samples": 64, "shards": 4, "flap_variant": "released", "square_head_score": False}},
    {"modularization": {"candidates": [4, 8], "temperature": 0.1}, "reliability": {"selection": "none"}},
    {"sparsity": {"epochs": 0, "learning_rate": 1e-07}, "dtype": "bfloat16"},
]


@pytest.mark.parametrize("changes", CHANGES, ids=range(len(CHANGES)))
def test_the_command_writes_the_study(changes: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    study = from_dict({"model": "demo", "primary": "wikitext2", "auxiliary": "ptb"} | changes)
    assert main(["study", *words(study)]) == 0
    assert from_dict(json.loads(capsys.readouterr().out)) == study


def test_the_shell_reads_the_command_as_the_same_words() -> None:
    study = Study(model="a folder/model", primary="x y", auxiliary="ptb", name="$HOME `id`; rm -rf *")
    first = command(study).splitlines()
    joined = " ".join(line.rstrip("\\") for line in first[:-1]).rsplit(">", 1)[0]
    assert shlex.split(joined) == ["python", "-m", "gprune", "study", *words(study)]
    assert first[-1] == "python -m gprune run study.json"


def test_the_demo_has_a_short_command() -> None:
    assert command(demo_study()) == "python -m gprune run demo"
