"""The one command for whoever has a GPU: what it runs, what it writes down, and what it says without one."""

import argparse
from pathlib import Path
from urllib.parse import parse_qsl

import pytest

from gprune.app.ui.page_names import PAGES
from gprune.cli import run as run_command
from gprune.cli import speed as speed_command
from scripts import gpu_check


def test_without_a_gpu_it_says_so_and_runs_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gpu_check.machine, "has_gpu", lambda: False)
    assert gpu_check.main(["--to", str(tmp_path / "out.md")]) == 2
    assert "torch finds no GPU" in capsys.readouterr().err and not list(tmp_path.iterdir())


@pytest.mark.process
def test_what_every_step_says_is_kept_and_a_failure_counts(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gpu_check.machine, "has_gpu", lambda: True)
    expected = (
        gpu_check.Step("First", ("-c", "print('all of it')")),
        gpu_check.Step("Second", ("-c", "import sys; print('~~~', 'why', file=sys.stderr); sys.exit(3)")),
        gpu_check.Step("Third", ("-c", "print('goes on')")),
    )
    monkeypatch.setattr(gpu_check, "steps", lambda model, cache: expected)
    file = tmp_path / "out.md"
    assert gpu_check.main(["--to", str(file)]) == 3
    saved = file.read_text()
    assert "## First: ended well" in saved and "## Second: failed with exit code 3" in saved
    places = [saved.index(said) for said in ("\nall of it\n", "\n~~~ why\n", "\ngoes on\n")]
    assert places == sorted(places) and "torch 2." in saved
    assert str(file) in capsys.readouterr().out


def test_its_commands_are_those_of_this_project(project, tmp_path):
    tests, demo, stages, speed = (step.command for step in gpu_check.steps("random:llama2-13b", tmp_path))
    assert tests[:2] == ("-m", "pytest") and tests[tests.index("-m", 2) + 1] == "gpu"
    assert (project / stages[0]).is_file() and stages[1] == "random:llama2-13b"
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers()
    speed_command.add(commands)
    run_command.add(commands)
    chosen = parser.parse_args(demo[2:])
    assert chosen.device == "cuda" and Path(chosen.cache) == tmp_path
    assert {"gates", "osscar", "slimllm", "gprune"} <= set(chosen.methods)
    options = parser.parse_args(speed[2:])
    models = ["random:llama2-13b", "random:llama2-13b@0.5"]
    assert options.preset == "gpu" and options.modes == ["graph", "compiled"] and options.models == models


def test_pages_that_exist_are_shown(project, monkeypatch):
    monkeypatch.syspath_prepend(str(project / "scripts"))
    import screenshots

    reference = {page.url: page.places for page in PAGES}
    for address in screenshots.PAGES:
        url, _, query = address.partition("?")
        assert dict(parse_qsl(query)).get("tab", next(iter(reference[url]))) in reference[url]
    assert len(set(screenshots.PAGES.values())) == len(screenshots.PAGES) == 9
    assert {"speed", "export"} <= set(screenshots.PAGES.values())
