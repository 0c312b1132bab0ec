"""The content of a plug-in: what enters the keys, and that what is imported is what was hashed."""

import sys
from pathlib import Path

import pytest
from plugins.packages import BOTH, METRIC, forget, found, install

from gprune.plugins.loading import load
from gprune.system.errors import PluginError


def digests(site: Path) -> dict[str, str]:
    return {one.plugin.place: one.digest() for one in found().installed}


def one(place: str = "metric.size"):
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


def test_an_edit_of_a_second_package_or_behind_a_link_is_seen_and_a_linked_folder_refused(
    site, tmp_path, monkeypatch
):
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
