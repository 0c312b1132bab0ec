"""Which plug-ins are there, known without running any of their code; and why one is not."""

import subprocess
import sys

import pytest
from plugins.packages import BOTH, METHOD, METRIC, adopted, found, install

from gprune.study import Study, methods
from gprune.system.errors import PluginError, SettingsError

EXPLODING = {path: source + "\nraise RuntimeError('imported')\n" for path, source in BOTH.items()}


def test_a_metric_and_a_method_are_known_and_nothing_is_imported(site):
    install(site, files=EXPLODING)
    now = found()
    assert now.faults == ()
    method, metric = (one.plugin for one in now.installed)
    assert (metric.place, metric.label, metric.weighs) == ("metric.size", "weight size", False)
    assert (method.place, method.label, method.needs, method.metric) == (
        "method.even",
        "even cut",
        "scores",
        "",
    )
    assert {(one.distribution, one.version) for one in (method, metric)} == {("bring", "1.0")}
    assert not {"bring", "bring.metric", "bring.method"} & set(sys.modules)


def test_they_stand_in_the_tables_of_methods_and_a_study_can_name_them(site, monkeypatch):
    install(site)
    with adopted(monkeypatch):
        study = Study("m", "a", "b", metric="size", methods=("flap", "size", "even"))
        assert methods.choices()[-2:] == ("even", "size") and methods.metric_choices()[-1] == "size"
        own = methods.METHODS["size"]
        assert (own.label, own.decision, own.metric, own.brings, own.baseline) == (
            "weight size",
            "flap",
            "size",
            "size",
            True,
        )
        assert [one.place for one in methods.plugins_of(study.metric, study.methods)] == [
            "metric.size",
            "method.even",
        ]
    with pytest.raises(SettingsError, match="metric must be one of flap, .*got 'size'.*install that package"):
        Study("m", "a", "b", metric="size")
    with pytest.raises(SettingsError, match="methods must be one of dense, .*'even'"):
        Study("m", "a", "b", methods=("even",))


def replaced(path, old, new):
    assert old in BOTH[path]
    return {**BOTH, path: BOTH[path].replace(old, new)}


WRONG = {
    "no label": (replaced("bring/metric.py", 'label="weight size", ', ""), {}, "has no label"),
    "a label that is computed": (
        replaced("bring/metric.py", '"weight size"', '"weight " + "size"'),
        {},
        "label in metric.py is .*write its value out",
    ),
    "a label with markup": (
        replaced("bring/metric.py", '"weight size"', '"<b>size</b>"'),
        {},
        "its label must be at most 60 letters",
    ),
    "a label with the name of a symbol": (
        replaced("bring/metric.py", '"weight size"', '"size :material/delete:"'),
        {},
        "its label must be at most 60 letters",
    ),
    "a label with an address": (
        replaced("bring/metric.py", '"weight size"', '"see www.example.org"'),
        {},
        "and no address",
    ),
    "a made object": (
        replaced("bring/metric.py", "size = Metric(", "size = make("),
        {},
        r"does not assign size = Metric\(\.\.\.\)",
    ),
    "arguments without names": (
        replaced("bring/metric.py", 'label="weight size"', '"weight size"'),
        {},
        "all its fields by name",
    ),
    "arguments in a dictionary": (
        replaced("bring/metric.py", 'label="weight size"', '**{"label": "weight size"}'),
        {},
        "all its fields by name",
    ),
    "no Python": ({**BOTH, "bring/metric.py": "size = ("}, {}, "metric.py cannot be read"),
    "an unknown word": (
        replaced("bring/metric.py", "groups=groups", 'groups=groups, allocation="best"'),
        {},
        "allocation must be one of flap, uniform .*'best'",
    ),
    "no such module": (BOTH, {"size": "bring.other:size"}, "no module bring.other"),
    "no such name": (BOTH, {"size": "bring.metric:other"}, "does not assign other = Metric"),
    "no reference": (BOTH, {"size": "bring.metric"}, "must be written as package.module:NAME"),
    "a built-in name": (BOTH, {"flap": "bring.metric:size"}, "a built-in metric or method has this name"),
    "the name of a built-in method": (BOTH, {"fang": "bring.metric:size"}, "built-in metric or method"),
    "no name": (BOTH, {"../size": "bring.metric:size"}, "cannot be used: choose small letters"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_with_one_is_said_of_it_and_the_other_stays(site, case):
    files, metrics, reason = WRONG[case]
    install(site, files=files, metrics=metrics or {"size": "bring.metric:size"})
    now = found()
    (fault,) = now.faults
    assert fault.kind == "metric" and fault.distribution == "bring" and "metric" in fault.words
    with pytest.raises(PluginError, match=reason):
        raise PluginError(fault.words)
    assert [one.plugin.name for one in now.installed] == ["even"]


def test_two_packages_of_one_name_are_both_left_out_and_named(site):
    install(site)
    files = {"other/__init__.py": METRIC}
    install(site, "other", files, {"size": "other:size"}, {})
    now = found()
    assert {fault.words for fault in now.faults} == {
        f"the metric size of {one} is left out: {two} brings a metric of this name too: uninstall one of them"
        for one, two in (("bring", "other"), ("other", "bring"))
    }
    assert [one.plugin.name for one in now.installed] == ["even"]


def test_a_method_needs_its_metric(site):
    named = METHOD.replace('label="even cut"', 'label="even cut", metric="size"')
    install(site, files={**BOTH, "bring/method.py": named})
    assert len(found().installed) == 2
    install(site, files={**BOTH, "bring/method.py": named}, metrics={})
    (fault,) = found().faults
    assert "it needs the metric 'size', which is neither built in nor installed" in fault.words


DAMAGED = {
    "RECORD": (
        "bring/metric.py,sha256=x,1,2,3\n",
        "the metric size of bring is left out: its metadata cannot",
    ),
    "entry_points.txt": ("[gprune.metrics]\nsize\n", "is left out: its"),
    "direct_url.json": ("{" * 50, "the metric size of bring is left out: its metadata cannot be read"),
    "METADATA": ("", "a package without a name"),
}


@pytest.mark.parametrize("file", DAMAGED)
def test_damaged_metadata_are_told_and_end_nothing(site, file):
    install(site)
    install(site, "well", {"well.py": METRIC}, {"other_size": "well:size"}, {})
    text, sentence = DAMAGED[file]
    (site / "bring-1.0.dist-info" / file).write_text(text)
    now = found()
    assert "other_size" in {one.plugin.name for one in now.installed}
    said = [fault.words for fault in now.faults] + [one.plugin.words for one in now.installed]
    assert any(sentence in words for words in said), said


def test_a_metric_that_is_no_name_is_refused_before_a_record_holds_it(site):
    for given in ("None", "0", "b'flap'"):
        named = METHOD.replace('label="even cut"', f'label="even cut", metric={given}')
        install(site, files={**BOTH, "bring/method.py": named})
        (fault,) = found().faults
        assert "its field metric must be the name of a metric" in fault.words and fault.name == "even"


@pytest.mark.process
def test_packages_are_looked_through_once_a_name_is_asked_for_that_is_not_built_in():
    code = """
import importlib.metadata
looked = []
importlib.metadata.distributions = lambda **_: looked.append(1) or []
from gprune.study.methods import METHODS, METRICS
assert METHODS["flap"].label == "FLAP" and "wanda_sp" in METRICS and not looked
assert "other" not in METHODS and len(METHODS) and list(METRICS) and looked == [1]
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_they_are_found_where_the_working_directory_was_deleted(site, tmp_path, monkeypatch):
    install(site)
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert [one.plugin.name for one in found().installed] == ["even", "size"]
