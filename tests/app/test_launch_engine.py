"""Where a run of the launch form runs: this machine, or Slurm where it is set up; with clients of our own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from app_driver import on, opened, words
from streamlit.testing.v1 import AppTest

from gprune import jobs
from gprune.jobs.slurm import settings, watching

CLIENT = """#!{python}
import sys
from pathlib import Path
home = Path({home!r})
(home / "asked").write_text("\\n".join(sys.argv[1:]))
wrong = home / "wrong"
if wrong.exists():
    sys.exit(wrong.read_text())
print(41)
"""


@pytest.fixture
def clients(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the only Slurm client of this machine."""
    home = tmp_path_factory.mktemp("clients")
    (home / "sbatch").write_text(CLIENT.format(python=sys.executable, home=str(home)))
    (home / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", str(home))
    monkeypatch.setattr(watching, "soon", lambda home: None)
    return home


def form() -> AppTest:
    return on(opened(), "jobs")


def test_without_a_client_or_settings_the_choice_is_closed_and_says_why(
    cache: Path, clients: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = form()
    assert app.radio(key="launch_engine").disabled
    assert "slurm-settings.json' do not exist" in words(app).replace("\\", "")
    settings.default_file(cache).write_text('{"nodes": 2}')
    assert "have no 'nodes'" in words(app.run()).replace("\\", "")
    monkeypatch.setenv("PATH", str(cache))
    assert "this machine has no Slurm client" in words(app.run()) and app.radio(key="launch_engine").disabled
    assert not app.button(key="launch_start").disabled


def test_a_start_in_slurm_is_one_array_of_all_its_seeds(cache: Path, clients: Path) -> None:
    settings.default_file(cache).write_text('{"partition": "big", "gpus": "a100:1"}')
    app = form()
    app.radio(key="launch_engine").set_value("Slurm").run()
    assert "partition big, GPUs a100:1, cores 1" in words(app).replace("\\", "")
    shown = next(code.value for code in app.code if "submit" in code.value)
    assert shown.endswith(" > study.json\npython -m gprune submit study.json --engine slurm")
    app.text_input(key="launch_seeds").set_value("3 4").run()
    shown = next(code.value for code in app.code if "submit" in code.value)
    assert shown.endswith("python -m gprune submit study-0.json study-3.json study-4.json --engine slurm")
    app.button(key="launch_start").click().run()
    assert not app.exception and not app.error
    found = jobs.jobs(cache)
    assert [job.engine for job in found] == ["slurm"] * 3
    assert {"--array=0-2", "--partition=big"} <= set((clients / "asked").read_text().split("\n"))
    assert sorted(jobs.study_of(cache, job.id).seed for job in found) == [0, 3, 4]


def test_what_slurm_refuses_stands_on_the_page_and_leaves_no_job(cache: Path, clients: Path) -> None:
    settings.default_file(cache).write_text('{"partition": "nope"}')
    (clients / "wrong").write_text("sbatch: error: invalid partition specified: nope")
    app = form()
    app.radio(key="launch_engine").set_value("Slurm").run()
    app.button(key="launch_start").click().run()
    assert "there is no such partition" in " ".join(one.value for one in app.error)
    assert jobs.jobs(cache) == []
