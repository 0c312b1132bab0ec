"""The notebook of the examples: short, without outputs, and it runs from its first cell to its last."""

import json
from pathlib import Path

import pytest

NOTEBOOK = "examples/quickstart.ipynb"


def cells(project: Path) -> list[dict]:
    found: list[dict] = json.loads((project / NOTEBOOK).read_text(encoding="utf-8"))["cells"]
    return found


def test_it_is_short_and_is_kept_without_outputs(project):
    code = [cell for cell in cells(project) if cell["cell_type"] == "code"]
    assert len(cells(project)) < 10
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


@pytest.mark.long
@pytest.mark.process
@pytest.mark.timeout(1800)
def test_it_runs_on_the_demo(project, tmp_path, monkeypatch):
    nbclient = pytest.importorskip("nbclient", reason="needs requirements-dev.txt: nbclient and ipykernel")
    nbformat = pytest.importorskip("nbformat", reason="needs requirements-dev.txt: nbclient and ipykernel")
    pytest.importorskip("ipykernel", reason="needs requirements-dev.txt: nbclient and ipykernel")
    monkeypatch.setenv("GPRUNE_CACHE", str(tmp_path))
    notebook = nbformat.read(project / NOTEBOOK, as_version=4)
    nbclient.NotebookClient(notebook, timeout=1200, resources={"metadata": {"path": str(project)}}).execute()
    printed = "".join(
        output.get("text", "")
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if output.get("name") == "stdout"
    )
    said = (line.split(": ") for line in printed.splitlines() if "±" in line)
    levels = {name: float(words.split()[0]) for name, words in said}
    assert set(levels) == {"dense", "GPrune", "GPrune, other thresholds"}
    assert levels["dense"] < levels["GPrune"] < 2 * levels["dense"]
    shown = [
        data for cell in notebook.cells for out in cell.get("outputs", []) for data in out.get("data", {})
    ]
    assert "application/vnd.plotly.v1+json" in shown
    assert not [
        one for cell in notebook.cells for one in cell.get("outputs", []) if one["output_type"] == "error"
    ]
