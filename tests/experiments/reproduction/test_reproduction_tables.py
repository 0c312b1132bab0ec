"""The tables hold the paper's rows, and rows of one setting share one study."""

from dataclasses import replace

import pytest
from reproduction.fake_runs import a_scale, a_series, opened

from gprune.data import published
from gprune.data.demo import questions
from gprune.evaluation.tasks import STANDARD_TASKS
from gprune.experiments.reproduction import scale, tables, work
from gprune.experiments.reproduction.grid import Series, shared_study
from gprune.experiments.reproduction.scale import Scale
from gprune.pipeline import stages
from gprune.store import Store
from gprune.system.errors import SettingsError

PERPLEXITY_TABLES = "main ablation calibration-pair multi-dataset fine-grained calibration-samples seeds speed".split()
BASES = ("dense", "llm_pruner", "wanda_sp", "flap", "fang")
HUB = ("meta-llama/Llama-2-7b-hf", "lmsys/vicuna-7b-v1.5", "/models/Llama-2-13b-hf/")


def rows(name, series=None):
    return tables.TABLES[name].rows(series or a_series())


def paper_rows(name, series=None):
    return [row for row in rows(name, series) if not row.extra]


def base_of(row):
    """The paper's method of a row: the scorings of a baseline are methods here and variants there."""
    return next((base for base in BASES if row.method_id.startswith(base)), row.method_id)


@pytest.mark.parametrize("name", PERPLEXITY_TABLES)
def test_rows_are_the_papers_methods_and_retentions_in_its_order(name):
    actual = [(base_of(row), row.target) for row in paper_rows(name)]
    assert actual == [(figure.method, figure.retention) for figure in published.table(name)]


def test_controls_stand_beside_the_papers_rows_and_can_be_left_out():
    full = a_series(controls=True)
    for name in ("main", "ablation"):
        assert rows(name) == paper_rows(name) == paper_rows(name, full) != rows(name, full)
    neighbours = [(row.labels["method"], row.target) for row in rows("main", full) if row.extra]
    words = ["FLAP, one ratio", "Wanda-sp, one ratio"]
    words += ["MSL, one module a layer (FLAP)", "MSL, random modules (FLAP)"]
    assert neighbours == [(f"control: {word}", retained) for retained in (0.8, 0.7, 0.5) for word in words]
    visible = [(row.method, row.labels["MSL"]) for row in rows("ablation", full) if row.extra]
    assert visible == [("flap_uniform", ""), ("msl_layers", "yes"), ("msl_shuffled", "yes")]
    assert Scale("paper").controls


def test_every_published_table_is_reproduced_or_said_to_be_left():
    assert set(published.TABLES) - set(tables.TABLES) == {"cost"}
    actual = {"metric-gap", "gain-by-retention", "study", "repair", "experts"}
    assert set(tables.TABLES) - set(published.TABLES) == actual
    assert "not in the paper" in tables.TABLES["study"].title


def test_the_full_method_is_one_study_in_ten_tables():
    full = shared_study(a_series().study())
    names = [
        name
        for name in tables.TABLES
        if any(shared_study(r.study) == full and r.method == "gprune" and r.reads == "perplexity" for r in rows(name))
    ]
    derived = ["quantile-sweep", "metric-gap", "gain-by-retention", "study"]
    assert names == [*PERPLEXITY_TABLES[:6], *derived]


def test_what_changes_no_number_does_not_tell_studies_apart():
    study = a_series().study()
    same = replace(study, device="cuda:1", name="x", group="", methods=("flap",))
    assert shared_study(same) == shared_study(study)
    # results are the same for still more: what is measured on, in which batches, and a third text
    texts = {"calibration.batch": 3, "evaluation.batch": 5, "evaluation.texts": ["science-docs"]}
    third = replace(study, substitute="python-code")
    for other in (same, same.with_settings(texts), third):
        assert number(other) == number(study)
    assert shared_study(third) != shared_study(study)
    for change in ({"seed": 4}, {"sparsity.batch": 8}, {"evaluation.windows": 7}, {"dtype": "float16"}):
        assert number(study.with_settings(change)) != number(study)
        assert shared_study(study.with_settings(change)) != shared_study(study)


def number(study):
    """The key of GPrune's perplexity on a text that every study here is measured on."""
    return stages.perplexity(opened(Store(), study).graph, "gprune", "science-docs").key


def masks_of(study):
    """The key of GPrune's masks."""
    return stages.masks(opened(Store(), study).graph).key


def test_scales():
    demo, seven, thirteen = a_scale(), scale.choose(HUB[0]), scale.choose(HUB[2])
    assert (demo.name, demo.samples, demo.batch, demo.windows) == ("demo", 96, 16, 48)
    assert demo.texts == ("python-reference", "science-docs", "python-code")
    assert (seven.samples, seven.epochs, seven.windows, seven.texts) == (2048, 2, None, scale.PAPER_TEXTS)
    assert (seven.retentions, thirteen.retentions) == ((0.8, 0.7, 0.5), (0.5, 0.4, 0.3))
    assert thirteen.epochs == 3
    vicuna = Series(HUB[1], scale.choose(HUB[1])).base.reliability
    assert (vicuna.drift_quantile, vicuna.score_quantile) == (0.9, 0.85)


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("NousResearch/Llama-2-7b-hf", "LLaMA2-7B"),
        ("LLaMA2-7B", "LLaMA2-7B"),
        ("vicuna1.5-7b", "Vicuna1.5-7B"),
        ("llama-2-13b", "LLaMA2-13B"),
        ("meta-llama/Llama-2-7b-chat-hf", ""),
        ("codellama/CodeLlama-7b-hf", ""),
        ("vicuna-7b-v1.5-16k", ""),
        ("demo", ""),
    ],
)
def test_only_the_papers_own_models_have_published_figures(name, model):
    assert scale.paper_model(name) == model


def test_fewer_samples_take_the_papers_epochs_and_never_fewer_than_shards():
    def sizes(samples, epochs):
        result = rows("calibration-samples", a_series(samples=samples, epochs=epochs))
        for row in result:
            calibration = row.study.calibration
            assert calibration.samples == row.labels["samples"] >= calibration.shards
            assert row.study.sparsity.epochs == row.labels["epochs"]
        return [(row.labels["samples"], row.labels["epochs"]) for row in result]

    assert sizes(2048, 2) == [(128, 4), (256, 7), (512, 7), (1024, 8), (2048, 2)]
    assert sizes(96, 2) == [(8, 4), (12, 7), (24, 7), (48, 8), (96, 2)]
    assert sizes(16, 1) == [(8, 2), (8, 4), (8, 4), (8, 4), (16, 1)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"primary": "science-docs"}, "three texts that differ"),
        ({"seeds": (1, 1)}, "--seeds must be values that differ"),
        ({"retentions": (1.5,)}, "retention must be more than 0"),
        ({"limit": -1}, r"evaluation\.limit must be at least 1"),
        ({"tasks": ("bolq",)}, "there is no task 'bolq'.*did you mean boolq"),
    ],
)
def test_wrong_changes_of_a_scale_are_refused(changes, message):
    with pytest.raises(SettingsError, match=message):
        series = a_series(**changes)
        rows("main", series)
        work.check_inputs(series)


def test_tables_and_scales_are_known_by_their_names():
    with pytest.raises(SettingsError, match="--scale must be one of paper, demo"):
        scale.choose("demo", "huge")
    with pytest.raises(SettingsError, match="did you mean 'ablation'"):
        tables.choose_tables(["ablaton"])
    assert [table.name for table in tables.choose_tables(["seeds", "main", "seeds"])] == ["main", "seeds"]


def test_demo_measures_tasks_where_the_main_table_is_and_the_paper_everywhere():
    demo, paper = a_series(), Series(HUB[0], scale.choose(HUB[0]))
    in_main = {shared_study(row.study) for row in rows("main", demo)}
    for entry in work.needed_studies(tables.choose_tables(["all"]), demo):
        if entry.timed:
            continue
        expected = (questions.NAMES, 48) if entry.shared in in_main else ((), None)
        assert (entry.study.evaluation.tasks, entry.study.evaluation.limit) == expected
    assert len(in_main) == 9
    for entry in work.needed_studies(tables.choose_tables(["all"]), paper):
        evaluation = entry.study.evaluation
        assert (evaluation.tasks, evaluation.limit) == (() if entry.timed else published.TASKS, None)
    assert scale.choose("/models/other", "demo").tasks == ()


def test_tasks_are_named_one_by_one_or_as_a_suite_and_then_measured_everywhere():
    with_tasks = a_scale(tasks=("demo", "boolq", "demo_order"), limit=0, task_folder="/data")
    assert with_tasks.tasks == (*questions.NAMES, "boolq")
    assert (with_tasks.tasks_in, with_tasks.limit, a_scale().tasks_in, a_scale().limit) == ("all", None, "main", 48)
    assert a_scale(tasks=("paper",)).tasks == published.TASKS == tuple(STANDARD_TASKS)
    assert a_scale(tasks=("none",)).tasks == ()
    (entry, *_) = work.needed_studies([tables.TABLES["quantile-sweep"]], Series("demo", with_tasks))
    assert entry.study.evaluation.task_folder == "/data"


def test_speed_takes_the_masks_of_the_main_studies_with_dense_beside():
    result = work.needed_studies([tables.TABLES["speed"]], a_series())
    main = {masks_of(row.study) for row in rows("main") if row.study.retention == 0.5}
    assert {masks_of(entry.study) for entry in result} == main and len(main) == 3
    assert all(entry.timed for entry in result)
    assert {entry.study.metric: entry.study.methods for entry in result} == {
        "flap": ("dense", "gprune", "llm_pruner", "flap"),
        "wanda_sp": ("dense", "gprune", "wanda_sp"),
        "twflap": ("dense", "gprune", "fang"),
    }
    assert {entry.study.evaluation.speed for entry in result} == {"cpu"}
    paper = work.needed_studies([tables.TABLES["speed"]], Series(HUB[0], scale.choose(HUB[0])))
    assert {entry.study.evaluation.speed for entry in paper} == {"auto"}
