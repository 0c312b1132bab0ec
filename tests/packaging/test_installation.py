"""How an installed package differs from a checkout: its cache, its child processes, the state of the code."""

import re
import subprocess
import sys
import tomllib

import pytest
import yaml
from packaging.requirements import Requirement

import gprune
from gprune.store import default_cache, provenance
from gprune.system import installation

FILES = [
    "gprune/pruning/drift.py,sha256=AAAA,120",
    "gprune/_app/app.py,sha256=BBBB,7",
    "gprune_studio-0.1.0.dist-info/RECORD,,",
]


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """This code as a package in a folder; the fixture gives the folder."""
    monkeypatch.setattr(installation, "INSTALLED", True)
    monkeypatch.setattr(installation, "CHILD_FOLDER", None)
    monkeypatch.delenv("GPRUNE_CACHE", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def listed(folder, files):
    """Which state of the code it is where the installer has written down these files."""
    retained = folder / "gprune_studio-0.1.0.dist-info"
    retained.mkdir(exist_ok=True)
    (retained / "METADATA").write_text("Metadata-Version: 2.1\nName: gprune-studio\nVersion: 0.1.0\n")
    (retained / "RECORD").write_text("\n".join(files))
    provenance.code.cache_clear()
    try:
        return provenance.code()
    finally:
        provenance.code.cache_clear()


def test_the_cache_of_a_package_is_the_users_and_never_beside_the_code(installed, monkeypatch):
    monkeypatch.setenv("HOME", str(installed))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert default_cache() == installed / ".cache" / "gprune"
    for folder, cache in ((str(installed / "caches"), "caches"), ("caches", ".cache")):
        monkeypatch.setenv("XDG_CACHE_HOME", folder)
        assert default_cache() == installed / cache / "gprune"
    monkeypatch.setenv("GPRUNE_CACHE", str(installed / "mine"))
    assert default_cache() == installed / "mine"


@pytest.mark.process
def test_a_file_where_the_app_was_started_is_no_module_of_its_processes(installed, project):
    (installed / "psutil.py").write_text("raise SystemExit('a file of the user was imported')")
    command = installation.command("gprune", "--version")
    # an installed package is found without the current folder; here the checkout has to be named
    environment = {"PYTHONPATH": str(project), "PATH": ""}
    done = subprocess.run(command, cwd=installed, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "gprune 0.1.0\n"), done.stderr
    naive = [sys.executable, "-m", "gprune", "--version"]
    done = subprocess.run(naive, cwd=installed, env=environment, capture_output=True, text=True)
    assert "a file of the user was imported" in done.stderr


def test_a_package_is_told_by_what_it_is_made_of(installed):
    created = listed(installed, FILES)
    assert list(created) == ["package"] and len(str(created["package"])) == 12
    elsewhere = ["gprune/__pycache__/drift.cpython-311.pyc,,", "../../../bin/gprune,sha256=C,9"]
    assert listed(installed, [*reversed(FILES), *elsewhere]) == created
    assert listed(installed, [FILES[0].replace("AAAA", "AAAB"), *FILES[1:]]) != created
    assert listed(installed, FILES[2:]) == {}


@pytest.mark.parametrize(
    ("pinned", "extra"), [("", None), ("-dev", "dev"), ("-gguf", "gguf"), ("-recovery", "recovery")]
)
def test_every_pinned_version_lies_in_the_range_of_the_package(project, pinned, extra):
    metadata = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    listed = metadata["optional-dependencies"][extra] if extra else metadata["dependencies"]
    ranges = {item.name: item for item in map(Requirement, listed)}
    lines = (project / f"requirements{pinned}.txt").read_text(encoding="utf-8").splitlines()
    pins = {item.name: item for item in map(Requirement, (line for line in lines if line[:1] not in "#-"))}
    # the tests of the GGUF files run them; who writes them needs no llama.cpp
    assert set(ranges) == set(pins) - {"llama-cpp-python"}
    for name, allowed in ranges.items():
        (pin,) = pins[name].specifier
        # a constraint of pip has no extras
        assert pin.operator == "==" and pin.version in allowed.specifier and not pins[name].extras
        assert any(item.operator == "<" for item in allowed.specifier), f"{name} has no upper bound"


LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)")


def test_every_link_between_documents_leads_to_a_file(project):
    pages = [*project.glob("*.md"), *project.glob("docs/*.md")]
    links = [(page, target) for page in pages for target in LINK.findall(page.read_text(encoding="utf-8"))]
    assert len(links) > 40
    lost = [f"{page.name}: {target}" for page, target in links if not (page.parent / target).exists()]
    assert lost == []


def test_files_that_contributing_follows_are_there_with_what_it_names(project):
    text = (project / "CONTRIBUTING.md").read_text(encoding="utf-8")
    paths = set(re.findall(r"`((?:gprune|tests|pages)/[\w/.]+)`", text))
    assert len(paths) > 10 and [name for name in paths if not (project / name).exists()] == []
    example = {
        "gprune/pruning/drift.py": "def rank_drift(",
        "gprune/records/scores.py": "class RankDrift",
        "gprune/pipeline/stages/graph.py": '"drift": Kind(records.RankDrift)',
        "gprune/pipeline/stages/scoring.py": "def drift(",
        "gprune/analysis/drift.py": "def distributions(",
        "gprune/app/figures/drift.py": "def plot_survival(",
        "gprune/app/pages/drift.py": "card_of(figures.drift, run)",
    }
    for name, words in example.items():
        assert name in paths and words in (project / name).read_text(encoding="utf-8")


def test_the_citation_is_of_this_version_and_of_the_paper(project, request):
    cited = yaml.safe_load((project / "CITATION.cff").read_text(encoding="utf-8"))
    assert (cited["version"], cited["license"]) == (gprune.__version__, "Apache-2.0")
    paper = cited["preferred-citation"]
    source = request.getfixturevalue("shared") / "paper" / "gprune-llm.tex"
    if not source.exists():
        pytest.skip(f"the paper's source is not at {source}")
    text = source.read_text(encoding="utf-8")
    head = text[text.index("\\title{") : text.index("\\begin{document}")]
    assert f"\\title{{{paper['title']}}}" in head
    names = [f"{item['given-names']} {item['family-names']}" for item in paper["authors"]]
    assert names == re.findall(r"^([A-Z]\w+ [A-Z]\w+)\\textsuperscript", head, re.MULTILINE)
