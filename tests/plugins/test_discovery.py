"""Which plug-ins are there, in commands and in the app; and why one is not."""

import re
import shutil
import subprocess
import sys

import pytest
from plugins.packages import BOTH, METHOD, METRIC, forget, install, new_process

from gprune.plugins.registry import IN_APP, PluginInfo
from gprune.study import Study, methods
from gprune.system.errors import SettingsError


def discovered():
    with new_process() as current:
        return current


def test_a_metric_and_a_method_are_described_and_a_study_can_name_them(site):
    install(site)
    with new_process() as catalogue:
        assert catalogue.faults == () and catalogue.code["metric.size"].label == "weight size"
        metric, method = catalogue.plugins.values()
        assert (metric.id, metric.label, metric.weighs) == ("metric.size", "weight size", False)
        assert (method.id, method.label, method.needs, method.metric) == ("method.even", "even cut", "scores", "")
        origins = {(plugin.distribution, plugin.version, plugin.digest) for plugin in (method, metric)}
        assert origins == {("bring", "1.0", "bring 1.0")}
        study = Study("m", "a", "b", metric="size", methods=("flap", "size", "even"))
        assert methods.choices()[-2:] == ("even", "size") and methods.metric_choices()[-1] == "size"
        size = methods.METHODS["size"]
        assert (size.label, size.decision, size.metric, size.plugin_metric) == ("weight size", "flap", "size", "size")
        assert size.baseline and methods.plugins_of(study.metric, study.methods) == (metric, method)
    shutil.rmtree(site)
    with new_process():
        with pytest.raises(SettingsError, match="metric must be one of flap, .*got 'size'.*install that package"):
            Study("m", "a", "b", metric="size")
        with pytest.raises(SettingsError, match="methods must be one of dense, .*'even'"):
            Study("m", "a", "b", methods=("even",))


def replaced(path, old, new):
    assert old in BOTH[path]
    return {**BOTH, path: BOTH[path].replace(old, new)}


SIZE = {"size": "bring.metric:size"}
WRONG = {
    "no label": (replaced("bring/metric.py", 'label="weight size", ', ""), SIZE, "importing it failed .TypeError"),
    "a label with markup": (
        replaced("bring/metric.py", '"weight size"', '"<b>"'),
        SIZE,
        "label must be letters, digits",
    ),
    "another object": (
        replaced("bring/metric.py", "size = Metric(", "size = dict("),
        SIZE,
        "bring.metric:size is .*not a gprune.plugins.Metric",
    ),
    "no Python": ({**BOTH, "bring/metric.py": "size = ("}, SIZE, "importing it failed .SyntaxError"),
    "an unknown word": (
        replaced("bring/metric.py", "groups=groups", 'groups=groups, allocation="best"'),
        SIZE,
        "allocation must be one of flap, uniform .*'best'",
    ),
    "no such module": (BOTH, {"size": "bring.other:size"}, "No module named 'bring.other'"),
    "no such name": (BOTH, {"size": "bring.metric:other"}, "has no attribute 'other'"),
    "a built-in name": (BOTH, {"flap": "bring.metric:size"}, "a built-in metric or method has this name"),
    "no name": (BOTH, {"../size": "bring.metric:size"}, "name must be lower-case letters"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_plug_in_with_a_fault_is_left_out_and_the_others_stay(site, case):
    files, metrics, reason = WRONG[case]
    install(site, files=files, metrics=metrics)
    with new_process() as catalogue:
        (fault,) = catalogue.faults
        assert re.match(f"the metric {fault.name} of bring is left out: .*{reason}", fault.message)
        assert [plugin.name for plugin in catalogue.plugins.values()] == ["even"]
        # before anything is computed, a study that names it gets the reason
        if "size" in metrics:
            with pytest.raises(SettingsError, match="metric names 'size', but the metric size of bring is left out"):
                Study("m", "a", "b", metric="size")


def test_of_two_packages_with_one_name_one_is_left_out(site):
    install(site)
    files = {"other/__init__.py": METRIC}
    install(site, "other", files, {"size": "other:size"}, {})
    catalogue = discovered()
    brings = catalogue.plugins["metric.size"].distribution
    (other,) = {"bring", "other"} - {brings}
    assert [fault.message for fault in catalogue.faults] == [
        f"the metric size of {other} is left out: {brings} has a metric of this name too: uninstall one of them"
    ]


def test_a_method_needs_its_metric(site):
    source = METHOD.replace('label="even cut"', 'label="even cut", metric="size"')
    install(site, files={**BOTH, "bring/method.py": source})
    assert len(discovered().plugins) == 2
    install(site, files={**BOTH, "bring/method.py": source}, metrics={})
    (fault,) = discovered().faults
    assert "it needs the metric 'size', which is neither built in nor installed" in fault.message


def test_damaged_metadata_are_told_and_end_nothing(site):
    install(site)
    install(site, "well", {"well.py": METRIC}, {"other_size": "well:size"}, {})
    (site / "bring-1.0.dist-info" / "direct_url.json").write_text("{" * 50)
    catalogue = discovered()
    assert list(catalogue.plugins) == ["metric.other_size"]
    assert [fault.message.partition(" is left out")[0] for fault in catalogue.faults] == [
        "the metric size of bring",
        "the method even of bring",
    ]


@pytest.mark.process
def test_the_process_of_the_app_lists_them_by_a_child_process_and_imports_none(site):
    install(site, files={**BOTH, "bring/__init__.py": "import os; os.write(1, b'\\xff imported\\n')"})
    install(site, "full", {"full_disk.py": "raise OSError('no disk')"}, {}, {"odd": "full_disk:odd"})
    with new_process() as imported:
        pass
    with new_process():
        forget()
        IN_APP.set()
        listed = methods.installed_plugins()
        assert listed.plugins == imported.plugins and listed.faults == imported.faults and listed.code == {}
        assert len(listed.plugins) == 2 and "no disk" in listed.faults[0].message
        assert methods.METHODS["even"].label == "even cut"
        assert not {"bring", "full_disk"} & set(sys.modules)


@pytest.mark.process
def test_no_package_is_looked_through_before_a_name_is_used_that_is_not_built_in():
    code = """
from gprune.plugins import registry
searched = []
registry.entry_points = lambda **_: searched.append(1) or []
from gprune.study import Study
from gprune.study.methods import METHODS, METRICS, choices
Study("m", "a", "b")
assert METHODS["flap"].label == "FLAP" and "wanda_sp" in METRICS and not searched
assert "flap" in choices() and "flap" in choices() and searched == [1, 1]
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


PLAIN = {"kind": "method", "name": "even", "label": "Even", "distribution": "x", "version": "1"}
INVALID = [{"name": "fang"}, {"label": "<script>"}, {"kind": "unknown"}, {"metric": "of_no_record"}]


def record_of(plugins):
    return {"provenance": {"inputs": {"plugins": plugins}}}


@pytest.mark.parametrize("change", INVALID, ids=str)
def test_a_record_registers_no_invalid_plug_in(change):
    with new_process():
        for plugins in (None, 3, {"x": 3}, {"x": {"kind": ["metric"]}}, {"x": PLAIN | change}):
            methods.register_recorded(record_of(plugins))
            assert not methods.PLUGINS
        methods.register_recorded(record_of({"x": PLAIN}))
        assert methods.METHODS["even"].label == "Even" and methods.METHODS["fang"].label == "FANG"
        # it is known, and offered for no new study
        assert "even" not in methods.choices()


def test_what_is_installed_stands_before_what_a_record_says(site):
    install(site)
    with new_process():
        assert methods.METHODS["even"].label == "even cut"
        methods.register_recorded(record_of({"x": PLAIN}))
        assert methods.METHODS["even"].label == "even cut"
        methods.installed_plugins.cache_clear()
        methods.PLUGINS.clear()
        methods._PLUGIN_METHODS.clear()
        methods.register_recorded(record_of({"x": PLAIN}))
        assert methods.METHODS["even"].label == "Even"
        assert methods.plugins_of("flap", ("even",))[0].label == methods.METHODS["even"].label == "even cut"


def test_a_description_is_read_as_it_was_written():
    for plugin in (
        PluginInfo("method", "even", "Even", "x", "1", "x 1", needs="both", metric="size", compensated=True),
        PluginInfo("metric", "size", "Size", "x", "1", "x 1", weighs=True, allocation="uniform"),
    ):
        assert PluginInfo.from_record(plugin.to_record()) == plugin
        assert all(isinstance(value, str) for value in plugin.to_record().values())
