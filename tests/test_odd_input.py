"""What people type and no reader had reckoned with: refused in one sentence, case by case."""

import json

import pytest
from system.test_odd_files import DEEP, refused

from gprune.__main__ import main
from gprune.data.texts import source
from gprune.models import identity
from gprune.models.families import layout_of
from gprune.study import from_dict, from_file
from gprune.system import safe_parsing
from gprune.system.errors import CorpusError, ModelError, SettingsError

STUDY = {"model": "demo", "primary": "python-reference", "auxiliary": "science-docs"}
SIZES = {
    "samples": {"calibration": {"samples": 10**9, "length": 2048}},
    "length": {"calibration": {"length": 10**7}},
    "epochs": {"sparsity": {"epochs": 10**9}},
    "restarts": {"modularization": {"restarts": 10**9}},
    "steps": {"modularization": {"steps": 10**9}},
    "contexts": {"contexts": {"tokens": 10**12}},
    "gradients": {"baselines": {"taylor_samples": 10**9}},
}


def test_a_study_that_nests_deeply_or_is_infinite(tmp_path):
    infinite = json.dumps(STUDY)[:-1] + ', "retention": 1e400}'
    messages = {'{"model": ' + DEEP: "nests too deeply: flatten it", infinite: "retention must be a finite number"}
    for content, message in messages.items():
        (tmp_path / "study.json").write_text(content)
        with refused(SettingsError, message):
            from_file(tmp_path / "study.json")


@pytest.mark.parametrize("preset", ["long", "²", "٣", "9" * 4000, "-5", "1_000", " 128", ""])
def test_a_preset_that_looks_like_a_number(preset):
    with pytest.raises(SettingsError, match="evaluation.preset must be 128, 2048 or another number of tokens"):
        from_dict({**STUDY, "evaluation": {"preset": preset}})


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000, "x/" * 3000], ids=["nul", "long", "deep"])
def test_a_model_or_text_that_no_file_can_be_or_of_a_user_who_is_not_there(name):
    with pytest.raises(ModelError, match="'~nosuchuser/model': this machine has no such user; give the full path"):
        identity.locate("~nosuchuser/model")
    with refused(ModelError, "the model cannot be"):
        identity.locate(name)
    with refused(CorpusError, "there is no text there: the path cannot be"):
        source.resolve(name, "calibration")


@pytest.mark.parametrize("kind", [["llama"], {"a": 1}, 3, None, "x" * 5000])
def test_a_model_type_that_is_no_word(kind):
    with refused(ModelError, "cannot be pruned here") as refusal:
        layout_of(kind, "the model")
    ending = "choose a dense model of a family that `python -m gprune models` lists"
    assert safe_parsing.sentence(refusal.value).endswith(ending)


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES.keys())
def test_a_size_that_no_machine_has_time_for(size):
    with refused(SettingsError, "must be (at most|1 to|2 to)"):
        from_dict({**STUDY, **size})


def test_large_honest_studies_are_taken():
    from_dict({**STUDY, "calibration": {"samples": 128_000, "length": 4096}, "sparsity": {"epochs": 100}})
    from_dict({**STUDY, "evaluation": {"preset": "131072", "windows": 10**6}, "modularization": {"steps": 10**5}})
    from_dict({**STUDY, "seed": 3735928559, "contexts": {"tokens": 10**7}})


ADVICE = (
    "The repository /m contains custom code which must be executed to correctly load the model. You can "
    "inspect the repository content at https://hf.co/m. Please pass the argument `trust_remote_code=True` to "
    "allow custom code to be run.",
    "Loading x requires you to execute the configuration file in that repo. Make sure you have read it, then "
    "set the option `trust_remote_code = True` to remove this error.",
    "Weights only load failed. Re-running `torch.load` with `weights_only` set to `False` is likely to do",
    "This file contains pickled data. If you trust it you can load it unsafely using `allow_pickle=`",
)


@pytest.mark.parametrize("advice", ADVICE)
def test_advice_to_load_unsafely_never_reaches_a_person(advice):
    for problem in (advice, ModelError(f"the model cannot be read: {advice}")):
        sentence = safe_parsing.sentence(problem)
        assert len(sentence) <= 300 and "=True" not in sentence and "weights_only" not in sentence
        assert "allow_pickle" not in sentence and ("with your rights" in sentence or "can run code" in sentence)


COMMANDS = {
    "deep study": ["run", "{deep}"],
    "long name": ["run", "x" * 5000],
    "no user": ["run", "~nosuchuser/study.json"],
    "folder": ["run", "{folder}"],
    "device": ["run", "/dev/null"],
    "preset": ["study", "--model", "demo", "--preset", "²"],
    "digits": ["study", "--model", "demo", "--samples", "9" * 5000],
    "infinite": ["study", "--model", "demo", "--retention", "1e400"],
    "set": ["study", "--model", "demo", "--set", "modularization.candidates=[1e400]"],
    "set deep": ["study", "--model", "demo", "--set", "name=" + DEEP[:5000]],
    "unknown": ["study", "--model", "demo", "--set", "y" * 5000 + "=1"],
    "cache": ["runs", "--cache", "x" * 5000],
    "cache of nobody": ["runs", "--cache", "~nosuchuser/cache"],
    "command": ["z" * 5000],
    "pad": ["export", "{folder}", "{folder}/out", "--padded"],
    "gguf": ["gguf", "~nosuchuser/m", "{folder}/out.gguf"],
    "table": ["reproduce", "main", "--model", "~nosuchuser/m", "--dry-run"],
    "scale": ["reproduce", "main", "--model", "demo", "--samples", "1000000000", "--dry-run"],
    "unpack": ["unpack", "x" * 5000],
    "arrays": ["arrays", "{deep}", "{folder}/out.npz"],
    "speed": ["speed", "random:{deep}"],
    "export": ["export", "x" * 5000, "flap", "{folder}/out"],
    "models": ["models", "x" * 5000],
    "models nobody": ["models", "~nosuchuser/m"],
}


@pytest.mark.slow
@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS.keys())
def test_the_command_line_says_one_sentence(tmp_path, capfd, words):
    deep = tmp_path / "deep.json"
    deep.write_text('{"model": ' + DEEP)
    arguments = [word.format(deep=deep, folder=tmp_path) if "{" in word else word for word in words]
    try:
        code = main(arguments)
    except SystemExit as end:
        code = end.code
    error = capfd.readouterr().err
    assert code == 2 and "Traceback" not in error
    assert 20 < len(error.splitlines()[-1]) <= 340
