"""Generated answers: as lm-eval's, with a checked answer, cut off, looping, empty; and questions asked openly."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from evaluation.lm_eval_alone import write_definition
from evaluation.task_files import OWN, TEMPLATE, write_rows
from pruned_folder import byte_tokenizer, masks_of, save, small_decoder

from gprune.analysis import changed_answers
from gprune.evaluation import accuracy as measuring
from gprune.evaluation.accuracy import ask_openly, is_open, is_periodic, is_right, measure_tasks
from gprune.evaluation.protocol import of_accuracy
from gprune.evaluation.tasks import fingerprint, resolve
from gprune.models.decoder import Decoder
from gprune.pipeline.stages import Graph, Inputs, execution_plan, stages_by_name
from gprune.records import PruningMasks
from gprune.study import EvaluationSettings
from gprune.study.demo import demo_study
from gprune.system.errors import CorpusError, SettingsError
from gprune.system.progress import Notice

SUMS = [{"question": f"{a}+{b}", "answer": f"{a} and {b}.\n#### {a + b}"} for a in range(5) for b in range(0, 10, 3)]


def small_model() -> Decoder:
    sizes = {"layers": 2, "hidden": 64, "neurons": 96, "heads": 4, "kv_heads": 2, "head_width": 16}
    decoder = small_decoder(**sizes, max_position_embeddings=512, bos_token_id=0, eos_token_id=1)
    return Decoder.from_model(decoder.model, byte_tokenizer())


@pytest.fixture
def untrained():
    """A small model with a tokenizer."""
    return small_model()


@pytest.fixture(scope="module")
def calculator():
    """A small model that has learned a part of the sums of two digits, and to stop."""
    decoder = small_model()
    tokenizer = decoder.tokenizer
    decoder.model.requires_grad_(True)
    texts = [f"Question: {a}+{b}\nAnswer: #### {a + b}" for a in range(10) for b in range(10) if (a + b) % 4]
    ids = [[*tokenizer(text)["input_ids"], tokenizer.eos_token_id] for text in texts]
    length = max(map(len, ids))
    batch = torch.tensor([row + [tokenizer.eos_token_id] * (length - len(row)) for row in ids])
    labels = torch.tensor([row + [-100] * (length - len(row)) for row in ids])
    optimizer = torch.optim.AdamW(decoder.model.parameters(), lr=4e-3)
    decoder.model.train()
    for _ in range(250):
        optimizer.zero_grad()
        decoder.model(input_ids=batch, labels=labels).loss.backward()
        optimizer.step()
    decoder.model.eval().requires_grad_(False)
    return decoder


def by_lm_eval(folder: Path, definitions: Path, few_shot: int, chat_template: bool):
    """lm-eval's own figures and texts, with the arguments of its command."""
    import lm_eval
    from lm_eval.tasks import TaskManager

    arguments = {"pretrained": str(folder), "dtype": "float32", "trust_remote_code": True}
    chat = {"apply_chat_template": chat_template, "fewshot_as_multiturn": chat_template}
    manager = TaskManager(include_path=str(definitions), include_defaults=False)
    options = {"tasks": ["sums"], "task_manager": manager, "num_fewshot": few_shot, "bootstrap_iters": 1}
    results = lm_eval.simple_evaluate("hf", arguments, batch_size=4, device="cpu", **options, **chat)
    texts = {sample["doc_id"]: sample["resps"][0][0] for sample in results["samples"]["sums"]}
    return results["results"]["sums"], [texts[number] for number in sorted(texts)]


@pytest.mark.long
@pytest.mark.parametrize(("few_shot", "chat_template"), [(0, False), (2, True)])
def test_figures_and_texts_are_those_of_lm_eval_on_the_exported_folder(
    calculator, tmp_path, monkeypatch, few_shot, chat_template
):
    import lm_eval

    monkeypatch.setattr(calculator.tokenizer, "chat_template", TEMPLATE)
    rows = write_rows(tmp_path / "data" / "gsm8k.jsonl", SUMS)
    packaged = Path(lm_eval.__file__).parent / "tasks" / "gsm8k" / "gsm8k.yaml"
    (tmp_path / "definitions").mkdir()
    write_definition(tmp_path / "definitions", "sums", packaged, rows, {"test_split": "test", "fewshot_split": "test"})
    settings = EvaluationSettings(task_folder=str(rows.parent), few_shot=few_shot, chat_template=chat_template, batch=4)
    scores = []
    everything = PruningMasks("dense", np.ones((2, 96), bool), np.ones((2, 2), bool), 1.0, 1.0)
    for masks in (everything, masks_of(calculator, [1, 2], [80, 96])):
        folder = tmp_path / str(len(scores))
        live = save(calculator, folder, masks=masks, tokenizer=calculator.tokenizer)
        result = measure_tasks(live, calculator.tokenizer, "gsm8k", settings)
        figures, texts = by_lm_eval(folder, tmp_path / "definitions", few_shot, chat_template)
        assert result.accuracy.metrics == {name: figures[name] for name in result.accuracy.metrics}
        assert len(result.accuracy.metrics) == 2 and len(set(texts)) > 1
        assert [result.generated.answer_to(number) for number in range(len(SUMS))] == texts
        scores.append(result.accuracy.acc)
    assert "<assistant>" in result.questions.question_at(0)[0] or not chat_template
    line = of_accuracy(result.accuracy, {}).line
    assert "greedy, at most 256 tokens" in line and ("chat template" in line) == chat_template
    if not chat_template:
        assert 0.1 <= scores[0] <= 0.9 and scores[1] < scores[0]


def own(folder, *rows, columns=("prompt", "answer", "check")):
    return str(write_rows(folder / "own.jsonl", [dict(zip(columns, row, strict=True)) for row in rows]))


def test_own_prompts_are_checked_as_they_say(untrained, tmp_path, monkeypatch):
    said = ["1,234 is it", "It is 7, or 1,200.", " Paris ", "Paris, France", "no number", "x = 12"]
    monkeypatch.setattr(
        measuring.InMemoryModel, "generate_until", lambda self, requests: [said[r.doc_id] for r in requests]
    )
    checks = [("a", 1234, "number"), ("b", "1200", "number"), ("c", "Paris", "exact"), ("d", "Paris", "exact")]
    task = own(tmp_path, *checks, ("e", 3, "number"), ("f", r"x = \d+$", "regex"))
    result = measure_tasks(untrained.model, untrained.tokenizer, task, EvaluationSettings())
    assert result.answers.likelihoods.tolist() == [1, 1, 1, 0, 0, 1] and result.accuracy.acc == pytest.approx(4 / 6)
    assert result.accuracy.acc_error > 0 and result.questions.question_at(1) == ("b", ["1200"])


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("a", "b", "like"), "'like' in the column 'check', which must be one of exact, contains, number, regex"),
        (("", "b", "exact"), "'' in the column 'prompt', which must be a text that is not empty"),
        (("a", "b", "number"), "'b' in the column 'answer', which must be a number"),
        (("a", ["b"], "exact"), "in the column 'answer', which must be a text or a number"),
        (("a", "(b", "regex"), "which must be a regular expression .missing \\), unterminated"),
        (("a", "(b+)+c", "regex"), "which must be a regular expression .repetition of a repetition"),
        (("a", None, "exact"), "lacks the column 'answer'"),
    ],
)
def test_a_wrong_field_of_a_prompt_is_named_with_its_line(row, message, tmp_path):
    task = own(tmp_path, ("a", "b", "contains"), row)
    with pytest.raises(CorpusError, match=f"line 2 of .*{message}"):
        fingerprint(resolve(task, EvaluationSettings()))


def test_loops_cut_offs_and_empty_answers_are_recorded_and_a_long_prompt_is_reported(untrained, tmp_path, monkeypatch):
    notices = []
    task = own(tmp_path, ("Question: 1+1\nAnswer:", 2, "number"), ("zzzz" * 150, 3, "number"), ("!", 3, "number"))
    arguments = (untrained.model, untrained.tokenizer, task, EvaluationSettings(generated_tokens=40, batch=1))

    def generate(input_ids, **_):
        tokens = {ord("!"): [[untrained.tokenizer.eos_token_id]], ord("z"): [[5, 6, 7] * 13 + [5]]}
        last = untrained.tokenizer.decode(input_ids[0, -1])
        spelled = untrained.tokenizer(" 2", add_special_tokens=False)["input_ids"]
        tail = tokens.get(ord(last[-1]), [[*spelled, untrained.tokenizer.eos_token_id]])
        return torch.cat([input_ids, torch.tensor(tail)], dim=1)

    monkeypatch.setattr(untrained.model, "generate", generate)
    result = measure_tasks(*arguments, lambda done, total, message: notices.append(message))
    generated = result.generated
    assert generated.answer_to(2) == "" and generated.tokens.tolist()[2] == 0
    assert generated.is_cut.tolist() == [False, True, False] == generated.is_loop.tolist()
    assert generated.tokens[1] == 40 and result.accuracy.cut_share == pytest.approx(1 / 3)
    assert result.accuracy.mean_tokens == pytest.approx(generated.tokens.mean())
    (notice,) = [message for message in notices if isinstance(message, Notice)]
    assert "tokens and the model reads 512: the beginnings of such prompts are cut off, as in lm-eval" in notice
    with pytest.raises(CorpusError, match="reads at most 512: leave it out, or lower evaluation.generated_tokens"):
        measure_tasks(*arguments[:3], EvaluationSettings(generated_tokens=600))
    with pytest.raises(SettingsError, match="the tokenizer has no chat template: use a chat model, or set evaluation"):
        measure_tasks(*arguments[:3], EvaluationSettings(chat_template=True))


def test_a_loop_repeats_three_times_and_fills_the_last_quarter():
    noise = list(range(100, 136))
    assert is_periodic([*noise, *[1, 2, 3, 4] * 3]) and is_periodic([7] * 24)
    assert not is_periodic([*noise, *[1, 2, 3, 4, 5] * 2, 1, 2]) and not is_periodic([7] * 23)
    assert is_periodic([*noise, *[1, 2, 3, 4, 5] * 3]) and not is_periodic([*noise, *[7] * 10])
    assert not is_periodic([*[1, 2] * 30, 5]) and not is_periodic([])


def test_an_open_answer_has_the_right_option_and_no_wrong_one():
    options = ["the cold water", "water", "a stone"]
    assert is_right("It's COLD water!", options, 0) and not is_right("cold water", options, 1)
    assert is_right("Water.", options, 1) and not is_right("a stone in cold water", options, 0)
    assert not is_right("waters", options, 1) and not is_right("", options, 1)
    assert is_open("?", options) and is_open("2 + 2 is", ["4", "5"]) and not is_open("?", ["an owl", "owl"])
    assert not is_open("Cold water, water or stone?", options) and not is_open("A. x B. y", ["A", "B"])


def test_multiple_choice_is_asked_openly_without_its_options(untrained, tmp_path, monkeypatch):
    prompts = []

    def generate(self, requests):
        prompts.extend(request.args[0] for request in requests)
        for request in requests:
            self.generations[repr(request.args)] = 2, False, False
        return ["It is cold.", "Four, not five."]

    monkeypatch.setattr(measuring.InMemoryModel, "generate_until", generate)
    arguments = (untrained.model, untrained.tokenizer)
    # one prompt is a number, the last one is empty
    task = str(write_rows(tmp_path / "own.jsonl", [*OWN[:2], OWN[3]]))
    record = ask_openly(*arguments, task, EvaluationSettings())
    assert prompts == [row["question"] for row in OWN[:2]] and record.numbers.tolist() == [0, 1]
    assert record.is_right.tolist() == [True, False] and record.answer_to(0) == "It is cold."
    prompts_file = own(tmp_path / "prompts", ("a", "b", "exact"))
    monkeypatch.setattr(measuring.InMemoryModel, "generate_until", lambda self, requests: [])
    assert not len(ask_openly(*arguments, prompts_file, EvaluationSettings()).numbers)


def test_title_says_whether_multiple_choice_overrates():
    right, half = np.ones(40, bool), np.arange(40) % 2 == 0
    assert changed_answers.describe_overrating((right, half), (right, right), "FLAP").startswith(
        "Multiple choice overrates FLAP: against dense, accuracy changes by +0.0 points with options and −50.0 points"
    )
    assert "does not clearly overrate" in changed_answers.describe_overrating((half, half), (right, right), "FLAP")
    counts = changed_answers.count_hits(right, half)
    assert (counts.both, counts.lost, counts.gained, counts.neither) == (20, 20, 0, 0) and counts.p_value < 1e-4


def test_keys_of_older_studies_stay_and_new_settings_are_in_those_of_their_stages(tmp_path):
    task = own(tmp_path, ("a", "b", "exact"))
    study = replace(demo_study(), methods=("dense",)).with_settings({"evaluation.tasks": [task, "demo_order", "gsm8k"]})
    digests = {task: fingerprint(resolve(task, study.evaluation)), "demo_order": "1", "gsm8k": "2"}
    inputs = replace(Inputs.unknown(study), tasks=digests)
    before = stages_by_name(Graph(study, inputs))
    assert {name for name in before if name.startswith("generated")} == {
        "generated_answers.dense.0",
        "generated_answers.dense.2",
    }
    after = stages_by_name(Graph(study.with_settings({"evaluation.generated_tokens": 9}), inputs))
    changed = {name for name in before if before[name].key != after[name].key}
    assert changed == {"accuracy.dense.0", "answers.dense.0", "generated_answers.dense.0", "questions.0"}
    openly = study.with_settings({"evaluation.open_questions": True})
    keys = [
        {stage.name: stage.key for stage in execution_plan(Graph(each, inputs)) if stage.kind == "open_answers"}
        for each in (openly, openly.with_settings({"evaluation.generated_tokens": 9}))
    ]
    assert keys[0].keys() == {"open_answers.dense.1", "open_answers.dense.2"}
    assert not set(keys[0].values()) & set(keys[1].values())
