"""Keys: a changed plug-in changes what it computes and nothing else; a run opens when its plug-in is gone."""

import json
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from app_driver import PAGES, charts, on, open_page, opened, words
from plugins.packages import BOTH, METHOD, METRIC, adopted, forget, found, install
from synthetic_run import a_study, read, write_run

import gprune
from gprune.analysis.whatif import obstacle
from gprune.app.pages.comparison.lines import composed, measured_rows
from gprune.app.pages.pruning_decisions import panels as decisions
from gprune.pipeline import archive, stages
from gprune.pipeline.runs.opened import all_runs
from gprune.pipeline.stages import Graph, Inputs, course
from gprune.pipeline.stages.inputs import plugins_read
from gprune.plugins.loading import load
from gprune.store import Store
from gprune.study import from_dict, methods
from gprune.system.errors import PluginError, SettingsError

WEIGHING = METRIC.replace("groups=groups", "groups=groups, weigh=weigh").replace(
    "size = Metric", "def weigh(weights):\n    return None\n\nsize = Metric"
)


def keys(study, digest="d"):
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
        assert "scores_flap_primary" in first and first["scores_flap_primary"] == second["scores_flap_primary"]
        moved = {name for name in first if first[name] != second[name]}
        assert {"drift", "partition", "modules", "adapted", "learning", "checkpoint"} <= moved
        assert "perplexity.flap.0" not in moved and "perplexity.gprune.0" in moved
    assert keys(a_study(methods=("dense", "gprune", "flap"))) == plain


def test_what_a_method_is_given_follows_from_what_it_declares(site, monkeypatch):
    declared = METHOD.replace('label="even cut"', 'label="even cut", needs="both", texts="both", metric="flap"')
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
def orphan(site, tmp_path, monkeypatch):
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
        assert "even" not in methods.METHODS
        with methods.knowing(run.told):
            # known, and offered to nobody
            assert methods.METHODS["even"].label == "even cut" and methods.METRICS["size"] == "weight size"
            assert "even" not in methods.choices() and "size" not in methods.metric_choices()
        reason = "the metric size of bring 1.0 is not installed here: install bring"
        with methods.knowing(run.told):
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


PLAIN = {"kind": "method", "name": "even", "label": "Even", "distribution": "x", "version": "1"}


def record_of(told):
    return {"provenance": {"inputs": {"plugins": told}}}


@pytest.mark.parametrize("change", HOSTILE, ids=str)
def test_a_record_cannot_take_a_name_nor_bring_what_is_no_plug_in(change, monkeypatch):
    with adopted(monkeypatch):
        assert methods.told_by(record_of({"x": PLAIN | change})) == methods.Told()
        for told in (None, 3, {"x": 3}, {"x": {"kind": ["metric"]}}):
            assert methods.told_by(record_of(told)) == methods.Told()
        known = methods.told_by(record_of({"x": PLAIN}))
        assert known.methods["even"].label == "Even" and "even" not in methods.METHODS


def relabelled(root, name, label, other):
    """The run again under another name, its record saying another label of its plug-ins."""
    values = read(root, name)
    for told in values["provenance"]["inputs"]["plugins"].values():
        told["label"] = label
    place = root / "runs" / other / "run.json"
    place.parent.mkdir()
    place.write_text(json.dumps(values | {"run": other}))


def test_runs_that_call_a_plug_in_otherwise_each_show_their_own_and_change_no_table(orphan, monkeypatch):
    root, name = orphan
    relabelled(root, name, "uneven cut", "other-0123456789")
    with adopted(monkeypatch):
        before = dict(methods.METHODS), dict(methods.METRICS), dict(methods.PLUGINS)
        runs = {run.name: run for run in all_runs(str(root))[0]}
        assert [run.masked for run in runs.values()] == [["gprune", "even", "size"]] * 2
        for which, own in ((name, "even cut"), ("other-0123456789", "uneven cut")):
            kept = stages.masks(runs[which].graph, "even")
            assert kept.title == f"masks of {own}" and kept.key == runs[name].key(stages.masks, "even")
            drawn = {trace.name for trace in decisions.neurons_kept(runs[which]).figure.data}
            assert own[0].upper() + own[1:] in drawn and not drawn & {"even", "Even split"}
            opened = gprune.open(which, cache=root)
            assert opened.masks["even"]["kept"].any()
            assert opened.figure("neurons_kept").data[-1].name in {own.capitalize(), "Weight size", own}
        plain = write_run(root, study=a_study(methods=("dense", "gprune", "flap")))
        beside = gprune.open(plain, cache=root).figure("perplexity", runs=(plain, name))
        assert any("even cut" in str(words).lower() for trace in beside.data for words in trace.y)
        # side by side, each is called as its own run calls it
        names = set(composed(list(runs.values()), measured_rows(list(runs.values()))).names.values())
        assert {one.partition(" · ")[0] for one in names} >= {"Even cut", "Uneven cut"}
        assert before == (dict(methods.METHODS), dict(methods.METRICS), dict(methods.PLUGINS))


@pytest.mark.slow
def test_every_page_of_a_run_calls_a_plug_in_as_that_run_does(orphan, monkeypatch):
    root, name = orphan
    relabelled(root, name, "other label", "other-0123456789")
    monkeypatch.setenv("GPRUNE_CACHE", str(root))
    monkeypatch.setenv("GPRUNE_AUTOSTART", "0")
    labels = {name: "even cut", "other-0123456789": "other label"}
    with adopted(monkeypatch):
        for which, own in labels.items():
            app, said = opened(run=which), ""
            for page in (page for page in PAGES if page not in ("jobs", "comparison", "decision")):
                # lists of runs in the frame name the other run as well
                said += words(on(app, page)) + json.dumps(charts(app))
                assert not app.error, (page, [one.value for one in app.error])
            (foreign,) = set(labels.values()) - {own}
            assert own in said.lower() and foreign not in said.lower()
        # side by side, each is called as its own run calls it
        shown = json.dumps(charts(open_page("comparison", cp_runs=list(labels)))).lower()
        assert all(label in shown for label in labels.values())
        assert "even" not in methods.METHODS


def test_what_a_run_tells_stands_before_what_is_installed_in_its_block_and_thread_alone(site, monkeypatch):
    install(site)
    with adopted(monkeypatch):
        known = methods.told_by(record_of({"x": PLAIN}))
        with methods.knowing(known), ThreadPoolExecutor(1) as pool:
            assert methods.METHODS["even"].label == "Even" and list(methods.METHODS).count("even") == 1
            assert pool.submit(lambda: methods.METHODS["even"].label).result() == "even cut"
            # a run without plug-ins inside of it hides nothing
            with methods.knowing(methods.Told()):
                assert methods.METHODS["even"].label == "Even"
        assert methods.METHODS["even"].label == "even cut"
        second, third = (PLAIN | {"name": "odd", "label": label} for label in ("Odd", "Later"))
        other = known | methods.told_by(record_of({"x": second, "y": PLAIN | {"label": "Later"}}))
        both = other | methods.told_by(record_of({"x": third}))
        assert {name: one.label for name, one in both.methods.items()} == {"even": "Even", "odd": "Odd"}
        assert list(both.absent.methods) == ["odd"]


def digests(site):
    return {one.plugin.place: one.digest() for one in found().installed}


def one(place="metric.size"):
    return next(one for one in found().installed if one.plugin.place == place)


def test_an_ordinary_install_is_hashed_from_its_record(site):
    install(site)
    before = digests(site)
    assert set(before.values()) == {before["metric.size"]} and before["metric.size"].startswith("bring 1.0 ")
    # nothing but the record is read
    (site / "bring" / "metric.py").write_text(METRIC + "# other\n")
    assert digests(site) == before
    install(site, files={**BOTH, "bring/metric.py": METRIC + "# other\n"})
    assert digests(site)["metric.size"] != before["metric.size"]


def test_a_file_that_was_changed_after_it_was_installed_is_not_run(site):
    install(site)
    (site / "bring" / "metric.py").write_text(METRIC.replace("np.sqrt", "np.cbrt"))
    with pytest.raises(PluginError, match=r"its file bring/metric.py was changed after it was installed"):
        load(one(), one().digest())
    assert "bring.metric" not in sys.modules


def test_an_editable_install_is_hashed_from_its_files(site, tmp_path):
    project = tmp_path / "work"
    install(site, project=project)
    sys.path.append(str(project))
    try:
        before = digests(site)["metric.size"]
        (project / "bring" / "__pycache__").mkdir()
        (project / "bring" / "__pycache__" / "metric.pyc").write_bytes(b"0")
        assert digests(site)["metric.size"] == before
        (project / "bring" / "table.csv").write_text("1")
        changed = digests(site)["metric.size"]
        assert changed != before
        assert load(one(), changed).label == "weight size"
        (project / "bring" / "metric.py").write_text(METRIC + "# edited\n")
        with pytest.raises(PluginError, match="changed while the run was going on: start the run again"):
            load(one(), changed)
        with pytest.raises(PluginError, match="changed after this process had imported it"):
            load(one(), one().digest())
    finally:
        sys.path.remove(str(project))


def test_what_stands_before_it_on_the_path_is_not_imported(site, tmp_path, monkeypatch):
    install(site)
    (tmp_path / "here" / "bring").mkdir(parents=True)
    (tmp_path / "here" / "bring" / "__init__.py").write_text("raise SystemExit('another package')")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.syspath_prepend(str(tmp_path / "here"))
    with pytest.raises(PluginError, match=r"would be imported from .*here.*remove what stands before it"):
        load(one(), one().digest())
    assert "bring" not in sys.modules


RAISING = {
    "raise ImportError('no such library')": "failed in importing it .ImportError: no such library",
    "raise SystemExit(3)": "failed in importing it .SystemExit: 3",
    "size = 3": "bring.metric:size is 3, not a gprune.plugins.Metric",
    "from dataclasses import replace; size = replace(size, label='other')": "its source says label='weight",
}


@pytest.mark.parametrize("line", RAISING)
def test_one_that_cannot_be_imported_is_named_with_its_reason(site, line):
    place = METRIC + f"\n{line}\n"
    if line.startswith("size"):
        # the last assignment counts, so what its source says is hidden in a block
        place = METRIC + "\nif True:\n    size = 3\n"
    elif "replace" in line:
        place = METRIC + f"\nif True:\n    {line}\n"
    install(site, files={**BOTH, "bring/metric.py": place})
    with pytest.raises(PluginError, match=f"the metric size of bring 1.0.*{RAISING[line]}"):
        load(one(), one().digest())
    forget()
    assert load(one("method.even"), one("method.even").digest()).label == "even cut"


def test_an_edit_of_a_second_package_or_behind_a_link_is_seen_and_a_linked_folder_refused(site, tmp_path, monkeypatch):
    project = tmp_path / "work"
    install(site, files={**BOTH, "bring_parts.py": "POWER = 2\n"}, project=project)
    (site / "bring-1.0.dist-info" / "top_level.txt").write_text("bring\nbring_parts\nno_such_module\n")
    (tmp_path / "behind.py").write_text("ROOT = 2\n")
    (project / "bring" / "behind.py").symlink_to(tmp_path / "behind.py")
    monkeypatch.syspath_prepend(str(project))
    before = digests(site)["metric.size"]
    (project / "bring_parts.py").write_text("POWER = 3\n")
    second = digests(site)["metric.size"]
    (tmp_path / "behind.py").write_text("ROOT = 3\n")
    assert len({before, second, digests(site)["metric.size"]}) == 3
    (tmp_path / "far").mkdir()
    (project / "bring" / "far").symlink_to(tmp_path / "far")
    with pytest.raises(PluginError, match="its folder 'far' is a link to another place"):
        one().digest()


def test_an_edit_of_what_its_source_imports_is_seen_where_no_builder_lists_it(site, tmp_path, monkeypatch):
    project = tmp_path / "work"
    source = {
        **BOTH,
        "bring/metric.py": f"import numpy\nfrom bring_parts import deep\n{BOTH['bring/metric.py']}",
    }
    more = {"bring_parts/__init__.py": "", "bring_parts/deep.py": "def power():\n    import bring_more\n"}
    beside = {"bring_more.py": "POWER = 2\n", "bring_other.py": "POWER = 2\n"}
    install(site, files=source | more | beside, project=project)
    # an environment within the project is none of its source
    library = project / ".venv" / "lib" / "site-packages" / "library"
    library.mkdir(parents=True)
    (library / "__init__.py").write_text("LARGE = 1\n")
    (project / "bring_parts" / "__init__.py").write_text("import library\n")
    for place in (project, library.parent):
        monkeypatch.syspath_prepend(str(place))
    seen = [digests(site)["metric.size"]]
    for file in ("bring_parts/deep.py", "bring_more.py"):
        (project / file).write_text((project / file).read_text() + "# edited\n")
        seen.append(digests(site)["metric.size"])
    assert len(set(seen)) == 3
    (project / "bring_other.py").write_text("POWER = 3\n")
    (library / "__init__.py").write_text("LARGE = 2\n")
    assert digests(site)["metric.size"] == seen[-1]
    assert not {"bring", "bring_parts", "bring_more", "library"} & set(sys.modules)


def test_a_folder_that_shares_its_package_does_not_hide_it(site, tmp_path, monkeypatch):
    # without an __init__.py both folders make one package, and the first on the path has the module
    install(site, files={path: source for path, source in BOTH.items() if "__init__" not in path})
    assert load(one("method.even"), one("method.even").digest()).label == "even cut"
    forget()
    (tmp_path / "here" / "bring").mkdir(parents=True)
    (tmp_path / "here" / "bring" / "metric.py").write_text("raise SystemExit('another module')")
    monkeypatch.syspath_prepend(str(tmp_path / "here"))
    with pytest.raises(PluginError, match=r"bring.metric would be imported from .*here.*remove what stands"):
        load(one(), one().digest())
    assert "bring.metric" not in sys.modules
