"""Keys: a changed plug-in changes what it computes and nothing else; a run opens when its plug-in is gone."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from plugins.packages import BOTH, METHOD, METRIC, adopted, install
from synthetic_run import a_study, read, write_run

from gprune.analysis.whatif import obstacle
from gprune.pipeline import archive, stages
from gprune.pipeline.runs.opened import all_runs
from gprune.pipeline.stages import Graph, Inputs, course
from gprune.pipeline.stages.inputs import plugins_read
from gprune.store import Store
from gprune.study import Study, from_dict, methods
from gprune.study.methods import Method
from gprune.system.errors import SettingsError

WEIGHING = METRIC.replace("groups=groups", "groups=groups, weigh=weigh").replace(
    "size = Metric", "def weigh(weights):\n    return None\n\nsize = Metric"
)


def keys(study: Study, digest: str = "d") -> dict[str, str]:
    inputs = Inputs(
        model="m",
        tokenizer="t",
        precision="float32",
        calibration={"primary": "a", "auxiliary": "b", "substitute": "c"},
        evaluation={text: text for text in study.evaluation.texts},
        plugins={
            plugin.place: plugin.to_plain() | {"digest": digest}
            for plugin in methods.plugins_of(study.metric, study.methods)
        },
    )
    return {stage.name: stage.key for stage in course(Graph(study, inputs), "all", lambda _: False)}


def test_a_changed_plug_in_changes_what_it_computes_and_no_other_key(site, monkeypatch):
    install(site, files={**BOTH, "bring/metric.py": WEIGHING})
    with adopted(monkeypatch):
        study = a_study(methods=("dense", "gprune", "flap", "size", "even"))
        before, after = keys(study, "1"), keys(study, "2")
        changed = {name for name in before if before[name] != after[name]}
        own = {f"perplexity.{name}.{text}" for name in ("size", "even") for text in (0, 1)}
        assert changed == {"weighed_size", "scores_size_primary", "masks_size", "masks_even"} | own
        # without the plug-in's methods, every key is what it is where nothing is installed
        plain = keys(a_study(methods=("dense", "gprune", "flap")))
        assert plain.items() <= before.items()
        # as the study's metric, it decides what follows from scores
        under = replace(study, metric="size", methods=("dense", "gprune", "flap"))
        first, second = keys(under, "1"), keys(under, "2")
        same = {name.split("_")[0].split(".")[0] for name in first if first[name] == second[name]}
        kinds = {"shape", "size", "norms", "tokens", "statistics", "clusters", "overlap"}
        assert {"scores", "masks", "perplexity"} <= same and kinds <= same
        assert (
            "scores_flap_primary" in first and first["scores_flap_primary"] == second["scores_flap_primary"]
        )
        moved = {name for name in first if first[name] != second[name]}
        assert {"drift", "partition", "modules", "adapted", "learning", "checkpoint"} <= moved
        assert "perplexity.flap.0" not in moved and "perplexity.gprune.0" in moved
    assert keys(a_study(methods=("dense", "gprune", "flap"))) == plain


def test_what_a_method_is_given_follows_from_what_it_declares(site, monkeypatch):
    declared = METHOD.replace(
        'label="even cut"', 'label="even cut", needs="both", texts="both", metric="flap"'
    )
    install(site, files={**BOTH, "bring/method.py": declared})
    with adopted(monkeypatch):
        masks = stages.masks(Graph(a_study(methods=("even",))), "even")
        assert {need.name for need in stages.needed(masks)} == {
            "shape",
            "scores_primary",
            "scores_auxiliary",
            "tokens_primary",
            "tokens_auxiliary",
        }


# ---- a plug-in that is gone --------------------------------------------------------------------------------


@pytest.fixture
def orphan(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, str]:
    """A run with a plug-in's metric and methods, in a process that has never heard of it."""
    root = tmp_path / "cache"
    install(site)
    with adopted(monkeypatch):
        name = write_run(root, study=a_study(metric="size", methods=("dense", "gprune", "size", "even")))
    shutil.rmtree(site)
    return root, name


def test_a_run_opens_without_its_plug_in(orphan, monkeypatch):
    root, name = orphan
    with adopted(monkeypatch) as found:
        assert found.installed == () and "even" not in methods.METHODS
        (run,), unreadable = all_runs(str(root))
        assert unreadable == [] and run.name == name and run.outdated == 0
        assert run.masked == ["gprune", "even", "size"]
        assert run.load(stages.scores, "primary").metric == "size"
        assert methods.METHODS["even"].label == "even cut"
        # known, and offered to nobody
        assert "even" not in methods.choices() and "size" not in methods.metric_choices()
        reason = "the metric size of bring 1.0 is not installed here: install bring"
        with pytest.raises(SettingsError, match=reason):
            plugins_read(run.study)
        assert "code of bring, which runs in runs only" in obstacle(run.results, "even", "primary")
    with adopted(monkeypatch), pytest.raises(SettingsError, match="metric must be one of"):
        from_dict(read(root, name)["study"])


def test_a_pack_of_it_is_read_where_its_plug_in_never_was(orphan, monkeypatch, tmp_path):
    root, name = orphan
    with adopted(monkeypatch):
        all_runs(str(root))
        archive.write(Store(root), name, tmp_path / "a.zip")
    with adopted(monkeypatch):
        archive.unpack(tmp_path / "a.zip", Store(tmp_path / "there"))
        (run,), unreadable = all_runs(str(tmp_path / "there"))
        assert unreadable == [] and run.masked == ["gprune", "even", "size"]


HOSTILE = [
    {"name": "flap", "kind": "metric"},
    {"name": "twflap", "kind": "metric"},
    {"name": "fang", "kind": "method"},
    {"name": "../../x"},
    {"label": "<script>"},
    {"kind": "virus"},
    {"label": "x" * 500},
    {"needs": "everything"},
]


@pytest.mark.parametrize("change", HOSTILE, ids=str)
def test_a_record_cannot_change_what_is_there_nor_bring_what_is_no_plug_in(change, monkeypatch):
    with adopted(monkeypatch):
        before: dict[str, Method] = dict(methods.METHODS)
        plain = {"kind": "method", "name": "even", "label": "Even", "distribution": "x", "version": "1"}
        methods.remember({"provenance": {"inputs": {"plugins": {"x": plain | change}}}})
        assert dict(methods.METHODS) == before and len(methods.PLUGINS) == 0
        for told in (None, 3, {"x": 3}, {"x": {"kind": ["metric"]}}):
            methods.remember({"provenance": {"inputs": {"plugins": told}}})
        assert len(methods.PLUGINS) == 0
        methods.remember({"provenance": {"inputs": {"plugins": {"x": plain}}}})
        assert "even" in methods.METHODS
