"""What is handed to the API and cannot be used is refused by a sentence, and no record runs code."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from torch import nn

import gprune
from gprune.system import errors

DOCUMENTS = [f"a text number {number} said in a few words" for number in range(40)]


@pytest.fixture
def run(at_home: Path) -> gprune.Run:
    return gprune.open(gprune.runs()["run"][0])


def require_refused(cases: list[tuple[Callable[[], Any], str]]) -> None:
    for call, words in cases:
        with pytest.raises(errors.GpruneError) as raised:
            call()
        assert words in str(raised.value), str(raised.value)


def test_what_is_no_run_option_or_setting_is_named(run):
    assert run.masks.get("fang") is None and len(run.masks.get("flap")) == len(run.masks["flap"])
    require_refused(
        [
            (lambda: gprune.open(5), "the run is a name or a folder (got 5)"),
            (lambda: gprune.runs(cache=b"x"), "the cache is a name or a folder (got b'x')"),
            (lambda: run.study.with_settings({5: 1}), "a study has no field 5"),
            (lambda: run.figure("ranks", layer="first"), "layer must be a whole number (got 'first')"),
            (lambda: run.figure("ranks", layer=0.5), "layer must be a whole number (got 0.5)"),
            (lambda: run.figure("perplexity", runs=[1]), "runs must be names of runs (got 1)"),
        ]
    )


def test_a_run_that_is_compared_is_looked_for_in_the_cache_of_the_run(run, tmp_path):
    other = tmp_path / "runs" / run.name
    shutil.copytree(Path("cache") / "runs" / run.name, other)
    alone = gprune.open(other)
    with pytest.raises(errors.StoreError, match=f"there is no run 'absent' in {tmp_path}"):
        alone.figure("perplexity", runs=["absent"])
    record = json.loads((other / "run.json").read_text())
    later = tmp_path / "runs" / "later"
    later.mkdir()
    (later / "run.json").write_text(json.dumps(record | {"study": record["study"] | {"colour": "red"}}))
    with pytest.raises(errors.StoreError, match="holds a study of another version"):
        alone.figure("perplexity", runs=["later"])


def test_a_text_a_tokenizer_and_numbers_of_another_kind_are_named(run, tmp_path):
    dense, tokenizer = run.model("dense"), run.tokenizer
    known = {"tokenizer": tokenizer, "samples": 8, "length": 16}

    def foreign(*given: Any, **options: Any) -> dict[str, Any]:
        return {"input_ids": [[10**6] * 20 for _ in given[0]]}

    def scored(**changed: Any) -> Any:
        return gprune.scores(dense, DOCUMENTS, **(known | changed))

    def measured(**changed: Any) -> Any:
        return gprune.measure.perplexity(dense, tokenizer, DOCUMENTS, **({"length": 16} | changed))

    require_refused(
        [
            (
                lambda: gprune.scores(dense, 5, **known),
                "a text is a name, a file or a list of strings (got 5)",
            ),
            (lambda: scored(samples="8"), "samples must be a whole number (got '8')"),
            (lambda: scored(batch=1.5), "batch must be a whole number (got 1.5)"),
            (lambda: scored(seed=None), "seed must be a whole number (got None)"),
            (lambda: scored(seed=-1), "seed must be 0 or more (got -1)"),
            (lambda: scored(tokenizer=5), "tokenizer must be one of transformers (got 5)"),
            (lambda: scored(tokenizer=foreign), "tokenize it with the model's own tokenizer"),
            (lambda: measured(windows=1.5), "windows must be a whole number (got 1.5)"),
            (
                lambda: gprune.measure.perplexity(nn.Linear(2, 2), tokenizer, DOCUMENTS),
                "a model is a causal language model of transformers (got Linear)",
            ),
        ]
    )
    path = tmp_path / "words.txt"
    path.write_text("\n\n".join(DOCUMENTS))
    assert scored(samples=np.int64(8)).equals(scored())
    assert len(gprune.scores(dense, path, **known)) == len(scored())


def test_a_mark_that_is_no_truth_value_is_not_taken_for_kept(run):
    dense, masks = run.model("dense"), run.masks["flap"]
    plain = gprune.prune(dense, masks).num_parameters()
    assert gprune.prune(dense, masks.assign(kept=masks["kept"].astype(object))).num_parameters() == plain
    require_refused(
        [
            (lambda: gprune.prune(dense, pd.concat([masks, masks], axis=1)), "two columns of one name"),
            (
                lambda: gprune.prune(dense, masks.assign(kept="False")),
                "must hold True or False (got 'False')",
            ),
            (lambda: gprune.prune(dense, masks.assign(kept=np.nan)), "must hold True or False (got nan)"),
            (
                lambda: gprune.prune(dense, masks.assign(layer="first")),
                "layer of masks must hold whole numbers",
            ),
            (
                lambda: gprune.prune(dense, masks.assign(index=masks["index"] + 0.5)),
                "the column index of masks must hold whole numbers",
            ),
        ]
    )


def test_a_record_alone_runs_no_code_of_a_model(run, tmp_path):
    folder = tmp_path / "cache" / "runs" / run.name
    shutil.copytree(Path("cache") / "runs" / run.name, folder)
    values = json.loads((folder / "run.json").read_text())
    values["study"]["trust_remote_code"] = True
    (folder / "run.json").write_text(json.dumps(values))
    opened = gprune.open(folder)
    for wanted in (lambda: opened.tokenizer, lambda: opened.model("dense")):
        with pytest.raises(
            errors.SettingsError, match=r"Python code would run.*trust_remote_code=True. only if"
        ):
            wanted()
    assert gprune.open(folder, trust_remote_code=True).tokenizer.vocab_size == run.tokenizer.vocab_size
