"""A token that has no embedding is refused by name at every entrance, before anything is computed."""

from pathlib import Path

import numpy as np
import pytest
import tiny_study
import transformers
from lm_eval.api.instance import Instance

import gprune
from gprune import pipeline
from gprune.__main__ import main
from gprune.api import measure
from gprune.data.texts import require_embedded
from gprune.evaluation.accuracy import InMemoryModel
from gprune.models.inspection import inspect
from gprune.store import Store
from gprune.study import from_dict
from gprune.system.errors import CorpusError, TaskError

SENTENCE = r"the tokenizer has 322 tokens, the model 320: token <\|im_(start|end)\|> of .* has no embedding\. Remove it"

NOTICE = "the tokenizer has 322 tokens and the model 320 embeddings: texts with a token that has no"


@pytest.fixture(scope="module")
def chat(tmp_path_factory):
    """A model whose tokenizer has two tokens more than the model, and a text that holds them."""
    workshop = tiny_study.workshop(tmp_path_factory.mktemp("chat"))
    folder, path = Path(workshop["model"]), workshop["folder"] / "chat.txt"
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    tokenizer.save_pretrained(folder)
    lines = Path(workshop["texts"][0]).read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join(f"<|im_start|>user\n{line}<|im_end|>" for line in lines), encoding="utf-8")
    return workshop | {"chat": str(path), "tokenizer": tokenizer}


def settings_of(chat, **changes):
    return tiny_study.settings(chat["model"], chat["texts"], methods=["dense", "flap"], **changes)


def test_tokens_of_a_model_with_more_embeddings_are_not_taken_over(chat, tmp_path):
    """The two models have the same tokenizer: the cache gave one the tokens of the other."""
    larger = tmp_path / "larger"
    model = transformers.AutoModelForCausalLM.from_pretrained(chat["model"])
    model.resize_token_embeddings(322)
    model.save_pretrained(larger)
    chat["tokenizer"].save_pretrained(larger)
    changes = {"primary": chat["chat"], "evaluation": {"texts": [chat["texts"][2]], "preset": "16", "windows": 6}}
    pipeline.run(from_dict(settings_of(chat | {"model": str(larger)}, **changes)), Store(tmp_path), tiny_study.silent)
    with pytest.raises(CorpusError, match=SENTENCE):
        pipeline.run(from_dict(settings_of(chat, **changes)), Store(tmp_path), tiny_study.silent)


@pytest.mark.parametrize("role", ["primary", "auxiliary", "substitute", "evaluation"])
def test_a_text_is_refused_before_a_forward_pass(chat, tmp_path, role):
    evaluation = {"texts": [chat["texts"][2], chat["chat"]], "preset": "16", "windows": 6}
    study = from_dict(settings_of(chat, **{role: evaluation if role == "evaluation" else chat["chat"]}))
    with pytest.raises(CorpusError, match=SENTENCE):
        pipeline.run(study, Store(tmp_path), tiny_study.silent)
    assert not list(tmp_path.glob("statistics/*"))


def test_texts_without_these_tokens_run_with_a_notice(chat, tmp_path):
    notices = []
    result = pipeline.run(from_dict(settings_of(chat)), Store(tmp_path), lambda *event: notices.append(event[3]))
    assert all(value > 1 for value in result["perplexity"]["flap"].values())
    assert any(NOTICE in notice for notice in notices)


def test_the_tokens_without_embeddings_are_counted_before_a_run(chat, tmp_path, capsys):
    arguments = ["study", "--model", chat["model"], "--primary", chat["texts"][0], "--auxiliary", chat["texts"][1]]
    assert main(arguments) == 0
    saved = capsys.readouterr()
    assert NOTICE in saved.err
    study = tmp_path / "study.json"
    study.write_text(saved.out, encoding="utf-8")
    assert main(["run", str(study), "--dry-run", "--cache", str(tmp_path / "cache")]) == 0
    assert NOTICE in capsys.readouterr().err
    assert NOTICE in inspect(chat["model"]).tokenizer


def test_the_text_of_llm_pruner_is_refused_by_its_setting(chat, tmp_path):
    baselines = {"taylor_text": chat["chat"], "taylor_samples": 1, "taylor_length": 64}
    study = from_dict(settings_of(chat, baselines=baselines) | {"methods": ["dense", "llm_pruner"]})
    result = pipeline.run(study, Store(tmp_path), tiny_study.silent)
    assert "baselines.taylor_text: the tokenizer has 322 tokens" in result["unavailable"]["llm_pruner"]


def test_a_question_of_a_task_is_refused(chat):
    model = transformers.AutoModelForCausalLM.from_pretrained(chat["model"])
    answering = InMemoryModel(model, chat["tokenizer"], 2, tiny_study.silent)
    with pytest.raises((CorpusError, TaskError), match=SENTENCE.replace("of .* has", "of 'q <.*> a' has")):
        answering.loglikelihood([Instance("loglikelihood", {}, ("q <|im_start|>", " a"), 0)])


def test_documents_that_are_given_to_the_api_are_refused(chat):
    model = transformers.AutoModelForCausalLM.from_pretrained(chat["model"])
    documents = Path(chat["chat"]).read_text(encoding="utf-8").splitlines()
    with pytest.raises(CorpusError, match=SENTENCE):
        measure.perplexity(model, chat["tokenizer"], documents, length=8)
    with pytest.raises(CorpusError, match=SENTENCE):
        gprune.scores(model, documents, tokenizer=chat["tokenizer"], samples=4, length=8)


def test_ids_without_their_tokenizer_are_named_by_number():
    require_embedded(np.array([[0, 319]]), "text", 320)
    require_embedded(np.array([], dtype=np.int32), "text", 320)
    with pytest.raises(CorpusError, match="holds token ids from 1 to 320, but the model knows 0 to 319"):
        require_embedded(np.array([1, 320]), "text", 320)
