"""What a user of the package does, from the package index alone: install, run, look, and take it off again.

Everything is installed anew, dependencies too, by the command of the README. torch is what pip takes for the
pin in requirements.txt, as for `make app`.
"""

import json
import re
import shutil

import browser
import pytest
from fresh_environment import made
from waiting import limit

from gprune.study.demo import demo_study
from scripts.served_app import listening

pytestmark = [
    pytest.mark.long,
    pytest.mark.longest,
    pytest.mark.process,
    pytest.mark.browser,
    pytest.mark.timeout(limit(360)),
]
CACHE = "~/.cache/gprune"
"""as the README and docs/study.md name it"""
JOB = """
import time
from gprune.jobs import get, reconcile, submit
from gprune.store import default_cache
from gprune.study import from_file

job = submit(default_cache(), from_file("demo"))
while get(default_cache(), job.id).active:
    time.sleep(0.1)
    reconcile(default_cache())
print(get(default_cache(), job.id).state)
"""
"""what the launch form does: a run as a process of its own"""
SMALLER = {
    "methods": ("dense", "gprune"),
    "calibration.samples": 32,
    "contexts.tokens": 1024,
    "sparsity.epochs": 1,
    "evaluation.windows": 8,
}
"""less of the demo's texts, and two methods"""


@pytest.fixture
def fresh(tmp_path, project):
    """The package in an environment of its own."""
    environment = made(tmp_path)
    constraints = str(project / "requirements.txt")
    # bytecode is written of what is imported, not of all files of all dependencies
    environment.pip("install", "--no-compile", "-c", constraints, str(project))
    return environment


@pytest.fixture
def chromium():
    """A browser without a window; asked for first, since where there is none nothing need be installed."""
    with browser.chromium() as started:
        yield started


NOTEBOOK = """
import json, sys
import nbclient, nbformat

notebook = nbformat.read(sys.argv[1], as_version=4)
nbclient.NotebookClient(notebook, timeout=1200).execute()
print(json.dumps([output for cell in notebook.cells for output in cell.get("outputs", [])]))
"""
NOTEBOOK_NEEDS = ("nbclient", "nbformat", "ipykernel")


def examples(fresh, project):
    """The notebook runs, and the plug-in is found, of copies: a build writes where its source is."""
    copy = shutil.copytree(project / "examples", fresh.folder / "examples")
    constraints = str(project / "requirements.txt")
    fresh.pip("install", "--no-compile", "-c", constraints, str(copy / "plugin"), *NOTEBOOK_NEEDS)
    message = fresh.said("gprune", "plugins", seconds=30)
    plugins = [["method", "magnitude_ranking"], ["metric", "magnitude"]]
    assert [line.split()[:2] for line in message.splitlines()] == plugins
    outputs = json.loads(fresh.said("python", "-c", NOTEBOOK, str(copy / "quickstart.ipynb"), seconds=300))
    printed = "".join(output["text"] for output in outputs if output.get("name") == "stdout")
    levels = {name: float(level.split()[0]) for name, level in re.findall(r"(.+): (.+) ± ", printed)}
    assert set(levels) == {"dense", "GPrune", "GPrune, other thresholds"}
    assert levels["dense"] < levels["GPrune"] < 2 * levels["dense"]
    assert any("application/vnd.plotly.v1+json" in output.get("data", {}) for output in outputs)
    fresh.pip("uninstall", "--yes", "gprune-magnitude")


def open_app(fresh, chromium):
    """Opens the app as `gprune app` serves it, and looks at the demo on two pages."""
    command = [fresh.program("gprune"), "app", "--no-browser", "--port", "0"]
    with listening(command, fresh.work, fresh.environment) as server:
        context = chromium.new_context(viewport={"width": 1280, "height": 1200})
        server.let_in(context)
        page = context.new_page()
        page.set_default_timeout(browser.PATIENCE)
        noted = [browser.outside(page), browser.complaints(page)]
        page.goto(f"{server.address}/")
        page.locator(browser.PLOT).nth(2).wait_for()
        heading = page.get_by_role("heading", level=1).first
        # a setting of .streamlit/config.toml
        assert heading.evaluate("one => getComputedStyle(one).fontSize") == "30.4px"
        page.goto(f"{server.address}/compare?tab=studies&cp_view=fair")
        page.get_by_role("heading", name="A fair comparison", exact=True).wait_for()
        assert noted == [[], []]


def test_it_installs_runs_the_demo_shows_it_and_leaves_nothing_but_the_cache(chromium, fresh, project):
    version = fresh.said("python", "-m", "gprune", "--version", seconds=10)
    assert fresh.said("gprune", "--version", seconds=10) == version
    planned = fresh.said("gprune", "run", "demo", "--dry-run", seconds=30)
    assert {line.split()[2] for line in planned.splitlines()} == {"missing"}
    # a file that is called like the bundled study takes its place, also in the notebook
    small = fresh.work / "demo"
    small.write_text(demo_study().with_settings(SMALLER).to_json(), encoding="utf-8")
    message = json.loads(fresh.said("gprune", "run", "demo", "--json", seconds=300))
    assert message["perplexity"]["gprune"]["science-docs"] > message["perplexity"]["dense"]["science-docs"]
    cache = fresh.home / ".cache" / "gprune"
    (record,) = [json.loads(path.read_text()) for path in cache.glob("runs/*/run.json")]
    # the environment lies in no checkout, and is not of the commit of one that it may lie in
    assert re.fullmatch("[0-9a-f]{12}", record["provenance"]["package"])
    assert "commit" not in record["provenance"]
    assert fresh.said("python", "-c", JOB, seconds=60) == "done\n"
    examples(fresh, project)
    open_app(fresh, chromium)

    fresh.pip("uninstall", "--yes", "gprune-studio")
    small.unlink()
    assert fresh.left() == ["home/.cache/gprune"]
    for page in ("README.md", "docs/study.md"):
        assert CACHE in (project / page).read_text(encoding="utf-8")
