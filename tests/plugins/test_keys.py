"""Keys: a changed plug-in changes what it computes and nothing else; a run opens when its plug-in is gone."""

import json
import shutil
from dataclasses import replace

import pytest
from app_driver import PAGES, charts, on, opened, words
from plugins.packages import BOTH, METHOD, METRIC, install, new_process
from synthetic_run import a_study, read, write_run

from gprune.analysis.whatif import obstacle
from gprune.pipeline import packs, stages
from gprune.pipeline.runs.opened import all_runs
from gprune.pipeline.stages import Graph, Inputs, execution_plan
from gprune.pipeline.stages.inputs import plugin_records
from gprune.pipeline.stages.scoring import load_code
from gprune.store import Store
from gprune.study import from_dict, methods
from gprune.system.errors import PluginError, SettingsError

WEIGHING = METRIC.replace("groups=groups", "groups=groups, weigh=weigh").replace(
    "size = Metric", "def weigh(weights):\n    return None\n\nsize = Metric"
)


def keys(study, digest="d"):
    used = methods.plugins_of(study.metric, study.methods)
    plugins = {plugin.id: plugin.to_record() | {"digest": digest} for plugin in used}
    graph = Graph(study, replace(Inputs.unknown(study), plugins=plugins))
    return {stage.name: stage.key for stage in execution_plan(graph)}


def test_a_changed_plug_in_changes_what_it_computes_and_no_other_key(site, monkeypatch):
    install(site, files={**BOTH, "bring/metric.py": WEIGHING})
    with new_process():
        study = a_study(methods=("dense", "gprune", "flap", "size", "even"))
        before, after = keys(study, "1"), keys(study, "2")
        changed = {name for name in before if before[name] != after[name]}
        of_plugin = {f"perplexity.{name}.{text}" for name in ("size", "even") for text in (0, 1)}
        assert changed == {"weighed_size", "scores_size_primary", "masks_size", "masks_even"} | of_plugin
        # without the plug-in's methods, every key is what it is where nothing is installed
        plain = keys(a_study(methods=("dense", "gprune", "flap")))
        assert plain.items() <= before.items()
        # as the study's metric, it decides what follows from scores
        under = replace(study, metric="size", methods=("dense", "gprune", "flap"))
        first, second = keys(under, "1"), keys(under, "2")
        same = {name.split("_")[0].split(".")[0] for name in first if first[name] == second[name]}
        kinds = {"shape", "size", "norms", "tokens", "statistics", "clusters", "overlap"}
        assert {"scores", "masks", "perplexity"} <= same and kinds <= same
        assert "scores_flap_primary" in first and first["scores_flap_primary"] == second["scores_flap_primary"]
        moved = {name for name in first if first[name] != second[name]}
        assert {"drift", "partition", "modules", "adapted", "learning", "checkpoint"} <= moved
        assert "perplexity.flap.0" not in moved and "perplexity.gprune.0" in moved
    assert keys(a_study(methods=("dense", "gprune", "flap"))) == plain


def test_what_a_method_is_given_follows_from_what_it_declares(site, monkeypatch):
    declared = METHOD.replace('label="even cut"', 'label="even cut", needs="both", texts="both", metric="flap"')
    install(site, files={**BOTH, "bring/method.py": declared})
    with new_process():
        masks = stages.masks(Graph(a_study(methods=("even",))), "even")
        needs = {stage.name for stage in stages.required_stages(masks)}
        assert needs == {"shape"} | {f"{kind}_{text}" for kind in ("scores", "tokens") for text in stages.PAIR}


# ---- a plug-in that is gone --------------------------------------------------------------------------------


@pytest.fixture
def orphan(site, tmp_path, monkeypatch):
    """A run with a plug-in's metric and methods, in a process that has never heard of it."""
    root = tmp_path / "cache"
    install(site)
    with new_process():
        name = write_run(root, study=a_study(metric="size", methods=("dense", "gprune", "size", "even")))
    shutil.rmtree(site)
    return root, name


def test_a_run_opens_without_its_plug_in(orphan):
    root, name = orphan
    with new_process() as current:
        assert not current.plugins and "even" not in methods.METHODS
        with pytest.raises(SettingsError, match="metric must be one of"):
            from_dict(read(root, name)["study"])
        (run,), unreadable = all_runs(str(root))
        assert unreadable == [] and run.name == name and run.outdated == 0
        assert run.mask_names == ["gprune", "even", "size"]
        assert run.load(stages.scores, "primary").metric == "size"
        # known, and offered to nobody
        assert methods.METHODS["even"].label == "even cut" and methods.METRICS["size"] == "weight size"
        assert "even" not in methods.choices() and "size" not in methods.metric_choices()
        with pytest.raises(SettingsError, match="the metric size of bring 1.0 is not installed here: install bring"):
            plugin_records(run.study)
        assert "code of the plug-in bring, which only a run executes" in obstacle(run.results, "even", "primary")


@pytest.mark.slow
def test_every_page_shows_it_without_its_plug_in(orphan, monkeypatch):
    root, name = orphan
    monkeypatch.setenv("GPRUNE_CACHE", str(root))
    monkeypatch.setenv("GPRUNE_AUTOSTART", "0")
    with new_process():
        app, content = opened(run=name), ""
        for page in (page for page in PAGES if page != "launch"):
            content += words(on(app, page)) + json.dumps(charts(app))
            assert not app.error, (page, [error.value for error in app.error])
        assert "even cut" in content.lower() and "weight size" in content.lower()


def test_a_pack_of_it_is_read_where_its_plug_in_never_was(orphan, monkeypatch, tmp_path):
    root, name = orphan
    with new_process():
        all_runs(str(root))
        packs.write_pack(Store(root), packs.pack_contents(Store(root), name), tmp_path / "a.zip")
    with new_process():
        packs.unpack(tmp_path / "a.zip", Store(tmp_path / "there"))
        (run,), unreadable = all_runs(str(tmp_path / "there"))
        assert unreadable == [] and run.mask_names == ["gprune", "even", "size"]


def test_the_stages_of_a_run_follow_from_its_own_record(orphan):
    root, name = orphan
    # the run again under another name, whose record describes its plug-ins otherwise
    values, changed = read(root, name), "other-0123456789"
    for plugin in values["provenance"]["inputs"]["plugins"].values():
        plugin.update(label="uneven cut", needs="both", digest="bring 2.0")
    (root / "runs" / changed).mkdir()
    (root / "runs" / changed / "run.json").write_text(json.dumps(values | {"run": changed}))
    for order in (1, -1):
        with new_process():
            runs = {run.name: run for run in sorted(all_runs(str(root))[0], key=lambda run: run.name)[::order]}
            first, second = (stages.masks(runs[run].graph, "even") for run in (name, changed))
            assert first.key == read(root, name)["stages"]["masks_even"]["key"] != second.key
            assert (first.title, second.title) == ("masks of even cut", "masks of uneven cut")
            needs = {stage.name for stage in stages.required_stages(second)}
            assert needs == {"shape", "scores_primary", "tokens_primary"}


def digest_now():
    with new_process() as current:
        return current.plugins["metric.size"].digest


def test_an_editable_install_is_hashed_from_its_files(site, tmp_path, monkeypatch):
    project = tmp_path / "work"
    parts = {"bring_parts.py": "POWER = 2\n", "bring_other.py": "POWER = 2\n"}
    install(site, files=BOTH | parts, project=project)
    (site / "bring-1.0.dist-info" / "top_level.txt").write_text("bring\nbring_parts\nno_such_module\n")
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "table.csv").write_text("1")
    (project / "bring" / "far").symlink_to(tmp_path / "far")
    monkeypatch.syspath_prepend(str(project))
    digests = [digest_now()]
    assert digests[0].startswith("bring 1.0 ")
    for path in (project / "bring" / "metric.py", project / "bring_parts.py", tmp_path / "far" / "table.csv"):
        path.write_text(path.read_text() + "# edited\n")
        digests.append(digest_now())
    assert len({*digests}) == 4
    # what Python compiles, and modules that no metadata name, are no part of it
    (project / "bring_other.py").write_text("POWER = 3\n")
    (project / "bring" / "__pycache__").mkdir(exist_ok=True)
    (project / "bring" / "__pycache__" / "other.pyc").write_bytes(b"0")
    assert digest_now() == digests[-1]


def test_code_of_another_version_than_that_of_the_run_is_not_run(site):
    install(site)
    with new_process() as current:
        plugin = current.plugins["metric.size"]
        assert load_code(plugin).label == "weight size"
        with pytest.raises(PluginError, match="the metric size of bring 1.0 is not installed in the version that this"):
            load_code(replace(plugin, digest="bring 0.9"))
