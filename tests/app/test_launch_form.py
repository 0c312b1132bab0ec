"""What the two forms ask, what they start, and the command that makes the very study on the page."""

import json
import shlex
import subprocess
import sys
from dataclasses import replace
from unittest.mock import Mock

import pytest
from app_driver import on, open_page, plain_words, words
from synthetic_run import a_study, write_run

from gprune.__main__ import main
from gprune.app.pages import launch
from gprune.app.ui.commands import command
from gprune.app.ui.commands import study_arguments as shell_words
from gprune.evaluation.tasks import listed_tasks
from gprune.plugins import registry
from gprune.study import Study, from_dict, methods, profiles
from gprune.study.demo import demo_study, experts_demo
from gprune.study.methods import CONTROLS, with_controls
from gprune.study.profiles import Profile
from gprune.study.settings import ChoiceSettings, EvaluationSettings, ReliabilitySettings, RepairSettings
from gprune.system import installation
from gprune.system.errors import CorpusError, UnreadableError

GOOD = b'{"question": "2 + 2 is", "choices": ["4", "5"], "answer": 0}\n'


def start(app, started):
    """Press the button and return the study of the last job."""
    app.button(key="launch_start").click().run()
    return started[-1][0]


def commands(app):
    return "\n".join(code.value for code in app.code if code.language != "python")


def test_the_form_starts_what_its_command_says(cache, started):
    app = open_page("launch")
    app.multiselect(key="launch_tasks").set_value(["demo_order", "demo_cloze"]).run()
    app.number_input(key="launch_demo_evaluation.limit").set_value(20).run()
    app.selectbox(key="launch_demo_evaluation.speed").set_value("cpu").run()
    visible = commands(app)
    assert "--tasks demo_order demo_cloze" in visible
    assert "--limit 20" in visible and 'evaluation.speed="cpu"' in visible
    study = start(app, started)
    assert study.evaluation.tasks == ("demo_order", "demo_cloze")
    assert (study.evaluation.limit, study.evaluation.speed) == (20, "cpu")


def test_a_third_text_can_be_emptied_and_comes_back_as_the_forms_own(cache, started):
    app = open_page("launch")
    third = app.selectbox(key="launch_substitute")
    # a browser offers to empty a field that has no default of its own, as the required ones have
    assert third.value == demo_study().substitute != "" and not third.proto.HasField("default")
    assert app.selectbox(key="launch_primary").proto.HasField("default")
    third.set_value(None).run()
    assert start(app, started).substitute == "" and app.selectbox(key="launch_substitute").value is None
    assert open_page("launch").selectbox(key="launch_substitute").value == demo_study().substitute


def test_measuring_a_run_on_tasks_keeps_the_rest_of_its_study(started, name):
    app = open_page("launch")
    assert "already measured with these settings" in words(app)
    app.multiselect(key=f"measure_{name}_tasks").set_value(["demo_order"]).run()
    app.multiselect(key=f"measure_{name}_evaluate").set_value(["wikitext2"]).run()
    app.number_input(key=f"measure_{name}_evaluation.limit").set_value(5).run()
    app.button(key="measure_start").click().run()
    measured = {"tasks": ["demo_order"], "texts": ["wikitext2"], "limit": 5}
    expected = a_study().with_settings({f"evaluation.{name}": value for name, value in measured.items()})
    assert started == [(expected, ())]


def test_another_run_brings_its_own_values(cache):
    evaluation = EvaluationSettings(texts=("c4",), preset="64", windows=7, tasks=("demo_order",), limit=9, speed="cpu")
    first = write_run(cache)
    second = write_run(cache, study=a_study(evaluation=evaluation, name="Second"))
    app = open_page("launch", run=first)
    assert app.number_input(key=f"measure_{first}_evaluation.windows").value == 96
    app.selectbox(key="frame_run").set_value(second).run()
    key = f"measure_{second}"
    assert app.multiselect(key=f"{key}_evaluate").value == ["c4"]
    assert app.selectbox(key=f"{key}_evaluation.preset").value == "64"
    assert app.multiselect(key=f"{key}_tasks").value == ["demo_order"]
    numbers = [app.number_input(key=f"{key}_evaluation.{field}").value for field in ("windows", "limit")]
    assert numbers == [7, 9] and app.selectbox(key=f"{key}_evaluation.speed").value == "cpu"
    assert "already measured with these settings" in words(app) and not app.error


def test_tasks_say_what_they_need_and_no_network_is_touched(cache, monkeypatch):
    monkeypatch.setattr(
        "gprune.evaluation.tasks.loading.uncached_datasets", lambda *_: pytest.fail("lm-eval was asked")
    )
    app = open_page("launch")
    app.multiselect(key="launch_tasks").set_value(["demo_order", "boolq"]).run()
    assert r"From the hub: boolq\. " in words(app).replace(": boolq. ", r": boolq\. ")
    message = {
        "demo_order": "demo_order (built in)",
        "boolq": "boolq (needs data)",
        "gsm8k": "gsm8k (needs data)",
        "/far/mine.jsonl": "mine.jsonl",
    }
    assert {task: launch.describe_task(task) for task in message} == message
    assert {launch.describe_task(task).rpartition("(")[2] for task in listed_tasks()} == {"built in)", "needs data)"}


def test_a_folder_of_tasks_is_looked_into(cache, tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "boolq.jsonl").write_text('{"passage": "It rains.", "question": "is it wet", "label": true}')
    app = open_page("launch")
    app.multiselect(key="launch_tasks").set_value(["boolq", "piqa"]).run()
    app.text_input(key="launch_demo_evaluation.task_folder").set_value(str(folder)).run()
    assert len(app.warning) == 1 and app.warning[0].value.startswith("the task 'piqa' has no data in")
    (folder / "boolq.jsonl").write_text('{"question": "is it wet"}')
    assert len(app.run().warning) == 2


@pytest.mark.parametrize(
    ("tasks", "folder", "sentence"),
    [
        (("demo_order", "boolq"), "", ""),
        (("/nowhere/mine.jsonl",), "", "there is no file '/nowhere/mine.jsonl'"),
        (("x" * 3000 + ".jsonl",), "", "too long"),
    ],
)
def test_what_cannot_be_measured_is_said_before_the_start(tasks, folder, sentence):
    result = launch.input_problem(a_study(evaluation=EvaluationSettings(tasks=tasks, task_folder=folder)))
    assert sentence in result and bool(result) == bool(sentence)


def test_other_names_are_left_to_the_run(cache, started, monkeypatch):
    # the test driver types the label of a new option
    monkeypatch.setattr(launch, "describe_task", str)
    monkeypatch.setattr("gprune.evaluation.tasks.loading.task_manager", lambda *_: pytest.fail("lm-eval was asked"))
    app = open_page("launch")
    app.multiselect(key="launch_tasks").set_value(["boolq", "boolqq"]).run()
    assert "The run looks up these tasks in lm-eval: boolqq" in words(app)
    assert start(app, started).evaluation.tasks == ("boolq", "boolqq")


@pytest.mark.process
@pytest.mark.long
def test_the_form_checks_a_study_without_lm_eval_in_its_process():
    code = (
        "import sys; from gprune.app.pages import launch; from gprune.study.demo import demo_study; "
        "study = demo_study().with_settings({'evaluation.tasks': ['demo_order', 'boolq', 'humaneval']}); "
        "print(launch.input_problem(study) or 'fine'); assert 'lm_eval' not in sys.modules"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "fine"


def test_plug_ins_whose_listing_failed_are_listed_on_the_next_visit(cache, monkeypatch):
    answers = Mock(side_effect=[UnreadableError("`gprune plugins` failed (killed)"), {"plugins": [], "faults": []}])
    monkeypatch.setattr(registry, "entry_points", lambda **_: [object()])
    monkeypatch.setattr(installation, "ask_command", answers)
    methods.installed_plugins.cache_clear()
    try:
        app = open_page("launch")
        assert "every plug-in is left out: `gprune plugins` failed" in plain_words(app)
        assert "every plug-in is left out" not in words(app.run()) and answers.call_count == 2
    finally:
        methods.installed_plugins.cache_clear()


def test_dropped_questions_are_kept_and_chosen(cache, started):
    app = open_page("launch")
    assert not (cache / "tasks").exists()
    app.file_uploader(key="launch_questions").upload("../My Questions (2).JSONL", GOOD * 1).run()
    (file,) = (cache / "tasks" / "user").iterdir()
    assert file.name.startswith("my-questions-2-") and file.suffix == ".jsonl" and file.read_bytes() == GOOD
    assert app.multiselect(key="launch_tasks").value == [str(file)] and "1 question, saved as" in words(app)
    assert start(app, started).evaluation.tasks == (str(file),)
    app.multiselect(key="launch_tasks").set_value([]).run()
    assert app.multiselect(key="launch_tasks").value == [], "what was taken away stays away"


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        (
            GOOD + b'{"question": "x", "choices": ["a", "b"], "answer": 2}',
            "line 2 of 'mine.jsonl' holds 2 in the column 'answer'",
        ),
        ('{"question": "für"}'.encode("latin-1"), "is not UTF-8"),
        (b" " * (5 * 2**20 + 1), "'mine.jsonl' has 5.0 MB, more than 5 MB"),
    ],
)  # fmt: skip
def test_a_wrong_file_names_its_row_and_nothing_is_kept(cache, raw, sentence):
    app = open_page("launch")
    app.file_uploader(key="launch_questions").upload("mine.jsonl", raw).run()
    (error,) = app.error
    assert sentence in error.value.replace("\\", "") and "/tmp" not in error.value
    assert not (cache / "tasks").exists() and app.multiselect(key="launch_tasks").value == []


def test_every_question_is_counted_and_checked():
    assert launch.check_questions("mine.jsonl", GOOD * 3) == 3
    assert launch.check_questions("mine.jsonl", launch.EXAMPLE.encode()) == 1
    rows = [json.loads(GOOD), {"question": "", "choices": ["a", "b"], "answer": "b"}]
    assert launch.check_questions("mine.jsonl", "\n".join(map(json.dumps, rows)).encode()) == 2
    with pytest.raises(CorpusError, match=r"line 2 of 'mine.jsonl'.*'choices'"):
        launch.check_questions("mine.jsonl", GOOD + b'{"question": "x", "choices": "ab", "answer": 0}')


def test_one_switch_adds_the_controls_and_nothing_else(cache, started):
    app = open_page("launch")
    before = demo_study().methods
    app.toggle(key="launch_controls").set_value(True).run()
    assert "--methods " + " ".join(with_controls(before)) in " ".join(commands(app).split())
    study = start(app, started)
    assert study == replace(demo_study(), name="", methods=(*before, *CONTROLS))


def test_every_seed_is_a_job_of_its_own(cache, started):
    app = open_page("launch")
    app.text_input(key="launch_seeds").set_value("2, 5 2").run()
    assert commands(app).endswith("\npython -m gprune run study.json --seeds 0 2 5")
    app.button(key="launch_start").click().run()
    assert [study.seed for study, _ in started] == [0, 2, 5]
    assert {replace(study, seed=0) for study, _ in started} == {demo_study().renamed("")}


@pytest.mark.parametrize("typed", ["one", " ".join(map(str, range(1, 30)))])
def test_seeds_that_are_none_are_refused_at_the_top(cache, typed):
    app = open_page("launch")
    app.text_input(key="launch_seeds").set_value(typed).run()
    assert not app.exception
    (error,) = app.error
    assert "additional seeds" in error.value
    if typed == "one":
        assert any("st-key-launch_seeds" in html.value for html in app.get("html"))


def test_a_profile_is_in_the_command_and_in_the_study(cache, started, monkeypatch):
    won = (("sparsity.epochs", 3), ("sparsity.learning_rate", 0.1), ("modularization.temperature", 0.3))
    known = {"paper": Profile((), "As stated.")}
    known |= {"recommended": Profile(won, "It won.")}
    monkeypatch.setattr(profiles, "profile", known.__getitem__)
    app = open_page("launch")
    assert app.radio(key="launch_profile").value == profiles.PROPOSED == "paper"
    plain = commands(app)
    assert profiles.PROPOSAL in words(app) and "As stated." in words(app)
    app.radio(key="launch_profile").set_value("recommended").run()
    epochs = app.number_input(key="launch_demo_recommended_sparsity.epochs")
    assert "It won." in words(app) and epochs.value == 3
    assert start(app, started) == demo_study().with_settings(dict(won)).renamed("")
    # back from the jobs, where the start has led
    del app.session_state["jobs_wanted"]
    app.query_params["jobs_tab"] = "start"
    app.radio(key="launch_profile").set_value("paper").run()
    assert commands(app) == plain


def test_a_text_that_the_model_writes_is_offered_and_its_options_are_checked(cache, started):
    app = open_page("launch")
    for key in ("launch_primary", "launch_auxiliary", "launch_substitute"):
        assert "self:" in app.selectbox(key=key).options
    assert "self:" in app.multiselect(key="launch_evaluate").options
    app.selectbox(key="launch_auxiliary").set_value("self:").run()
    assert "--auxiliary self:" in commands(app)
    app.button(key="launch_start").click().run()
    assert [study.auxiliary for study, _ in started] == ["self:"]
    wrong = replace(started[0][0], auxiliary="self:#temperature=20")
    assert "temperature='20' of the text 'self:#temperature=20' must be" in launch.input_problem(wrong)


CHANGES = [
    {},
    {"metric": "wanda_sp", "retention": 0.3333333333333333, "seed": 7, "substitute": "c4", "name": "it's"},
    {"primary": "/a path/with spaces.txt#split=train", "trust_remote_code": True, "device": "cuda"},
    {"evaluation": {"texts": ["wikitext2", "ptb"], "preset": "2048", "windows": 12, "batch": 3}},
    {"calibration": {"samples": 64, "shards": 4, "flap_variant": "released", "square_head_score": False}},
    {"modularization": {"candidates": [4, 8], "temperature": 0.1}, "reliability": {"selection": "none"}},
    {"sparsity": {"epochs": 0, "learning_rate": 1e-07}, "dtype": "bfloat16"},
]


@pytest.mark.parametrize("changes", CHANGES, ids=range(len(CHANGES)))
def test_the_command_writes_the_study(changes, capsys, monkeypatch):
    # words are compared, whatever texts are here
    monkeypatch.setattr("gprune.pipeline.stages.inputs.require_usable", lambda _: None)
    study = from_dict({"model": "demo", "primary": "wikitext2", "auxiliary": "ptb"} | changes)
    assert main(["study", *shell_words(study)]) == 0
    assert from_dict(json.loads(capsys.readouterr().out)) == study


def test_the_shell_reads_the_command_as_the_same_words():
    study = Study(model="a folder/model", primary="x y", auxiliary="ptb", name="$HOME `id`; rm -rf *")
    first = command(study).splitlines()
    joined = " ".join(line.rstrip("\\") for line in first[:-1]).rsplit(">", 1)[0]
    assert shlex.split(joined) == ["python", "-m", "gprune", "study", *shell_words(study)]
    assert first[-1] == "python -m gprune run study.json"
    assert command(demo_study()) == "python -m gprune run demo"


def test_the_repair_says_what_it_does(cache, started):
    app = open_page("launch")
    assert app.selectbox(key="launch_demo_repair.kind").value == "own" and "FLAP moves the mean output" in words(app)
    plain = commands(app)
    app.selectbox(key="launch_demo_repair.kind").set_value("least_squares_bias").run()
    app.selectbox(key="launch_demo_repair.texts").set_value("primary").run()
    assert "and a bias are fitted to replace the removed output, layer by layer" in words(app)
    assert "--repair least_squares_bias" in commands(app) or "repair.kind" in commands(app)
    repair = start(app, started).repair
    assert (repair.kind, repair.texts, repair.target) == ("least_squares_bias", "primary", "residual_stream")
    assert app.selectbox(key="launch_demo_scales.texts").value == "both_and_sampled"
    # back from the jobs, where the start has led
    del app.session_state["jobs_wanted"]
    app.query_params["jobs_tab"] = "start"
    app.selectbox(key="launch_demo_repair.texts").set_value("both").run()
    app.selectbox(key="launch_demo_repair.kind").set_value("own").run()
    assert commands(app) == plain


@pytest.mark.parametrize(("neurons", "proposed"), [(768, True), (704, False)])
def test_equal_widths_come_with_a_proposed_alignment_where_the_width_allows_it(
    tmp_path, neurons, proposed, monkeypatch
):
    values = {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 256, "intermediate_size": neurons}
    values |= {"num_attention_heads": 8, "num_key_value_heads": 8}
    (tmp_path / "config.json").write_text(json.dumps(values))
    monkeypatch.setattr(launch, "_list_models", lambda: [str(tmp_path)])
    app = open_page("launch")
    said = "Proposed: alignment 128. Every layer then keeps 384 of 768 neurons and 4 of 8 key/value"
    assert said not in words(app)
    app.selectbox(key="launch_sparsity.widths").set_value("equal").run()
    assert (said in words(app)) is proposed
    app.number_input(key="launch_sparsity.alignment").set_value(64).run()
    assert said not in words(app)


def test_the_settings_of_a_run_that_failed_are_edited_in_the_form(cache, started):
    rule = ReliabilitySettings(drift_quantile=0.7, selection="drift")
    evaluation = EvaluationSettings(texts=("c4",), preset="64", windows=7, tasks=("demo_order",), speed="cpu")
    study = a_study(
        evaluation=evaluation, reliability=rule, substitute="", seed=3, methods=(*CONTROLS, "flap"),
        choice=ChoiceSettings(sequences=9), repair=RepairSettings("bias", "primary"),
    )  # fmt: skip
    app = open_page("home", run=write_run(cache, study=study, state="failed"))
    assert app.button(key="frame_continue")
    app.button(key="frame_edit").click().run()
    assert "The settings of “Synthetic” are in the form below" in app.success[0].value
    assert not app.exception and not app.error and not app.warning
    app = on(app, "launch")
    app.number_input(key="launch_retention").set_value(0.6).run()
    app.button(key="launch_start").click().run()
    assert started == [(replace(study, retention=0.6), ())]


def test_further_settings_that_nobody_opened_are_those_that_they_begin_with(cache, started):
    for rendered in (True, False):
        app = open_page("launch")
        app.session_state[launch.MORE] = rendered
        app.run()
        assert bool([item for item in app.selectbox if item.key == "launch_device"]) is rendered
        app.button(key="launch_start").click().run()
    (visible, _), (closed, _) = started
    assert closed == visible


@pytest.mark.parametrize(
    ("primary", "auxiliary", "texts"),
    [
        ("python-reference", "science-docs", ("python-reference", "science-docs", "python-code")),
        ("python-code", "unicode-table", ("python-code", "unicode-table", "python-reference")),
        ("wikitext2", "ptb#split=train", ("wikitext2", "ptb", "c4")),
        # a file has no held-out part, and may be on a machine without a network
        ("/data/notes.txt", "c4", ("", "c4", "wikitext2")),
        ("/data/notes.txt", "/data/mail.txt", ("", "", "python-reference")),
    ],
)
def test_held_out_parts_and_an_unseen_text_are_proposed(primary, auxiliary, texts):
    assert launch.propose_texts(primary, auxiliary) == texts


def test_proposed_texts_follow_a_and_b_and_chosen_ones_stay(cache, started):
    app = open_page("launch")
    app.multiselect(key="launch_evaluate").set_value(["python-reference", "python-code", "c4"]).run()
    app.selectbox(key="launch_primary").set_value("python-code").run()
    # the unseen text was A of before, whose place it takes; B was taken out by hand
    assert app.multiselect(key="launch_evaluate").value == ["python-code", "python-reference", "c4"]
    assert app.selectbox(key="launch_substitute").value == "python-reference"
    app.selectbox(key="launch_substitute").set_value("ptb").run()
    app.selectbox(key="launch_auxiliary").set_value("wikitext2").run()
    assert app.selectbox(key="launch_substitute").value == "ptb", "what was chosen by hand stays"
    study = start(app, started)
    assert (study.primary, study.auxiliary, study.substitute) == ("python-code", "wikitext2", "ptb")
    # of hub texts the unseen one is from the hub as well
    assert study.evaluation.texts == ("python-code", "ptb", "c4")


def test_a_text_has_its_name_in_its_field(cache, started, monkeypatch):
    study_sent = replace(demo_study(), primary="snippets=python-code", substitute="")
    monkeypatch.setattr(launch.address, "sent_to_launch", lambda: (study_sent, "The study"))
    app = open_page("launch")
    assert app.selectbox(key="launch_primary").value == "snippets=python-code"
    study = start(app, started)
    assert study.primary == "python-code" and study.text_names == ("snippets=python-code",)


def test_three_steps_have_few_controls_and_enter_adds_one_method(cache):
    app = open_page("launch")
    app.session_state[launch.MORE] = False
    app.run()
    kinds = ("selectbox", "multiselect", "number_input", "text_input", "toggle", "checkbox", "radio", "button")
    controls = [item for kind in kinds for item in app.main.get(kind)] + list(app.get("bottom"))
    assert len(controls) <= 25 and not any(item.key == "launch_device" for item in controls)
    # a first entry "Select 6 matches" is what Enter would take
    assert all(field.proto.select_all == 0 for field in app.multiselect if field.key.startswith("launch_"))


def test_a_mixture_of_experts_has_methods_and_repairs_of_its_own(cache, started):
    app = open_page("launch")
    app.button(key="launch_fill_demo-experts").click().run()
    assert "Pruned: experts." in words(app) and "neurons and key/value groups" not in words(app)
    assert len(app.selectbox(key="launch_repair.kind").options) == 3
    # with a model of another kind, methods and repair follow
    app.selectbox(key="launch_model").set_value("demo").run()
    assert app.multiselect(key="launch_methods").value == list(demo_study().methods)
    assert len(app.selectbox(key="launch_demo_repair.kind").options) > 3
    app.button(key="launch_fill_demo-experts").click().run()
    assert start(app, started) == experts_demo()
