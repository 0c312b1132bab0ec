"""The ceilings of size and vocabulary: what is counted, and that an excess fails the check."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.process

MODULE = '''"""A module."""

import os


def folder(path):
    """Return the folder of a path."""
    # why: a comment is no code
    found = os.path.dirname(path)
    return found
'''
SETTINGS = """[tool.gprune.size.code]
models = 4
total = 4
tests = 0

[tool.gprune.size.lines]
documents = 2
web = 1

[tool.gprune.size.names]
filler_percent = 33.33
riddle_percent = 0.0
repeated = 0

[tool.other]
kept = 1
"""


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def checkout(tmp_path):
    write(tmp_path / "pyproject.toml", SETTINGS)
    write(tmp_path / "README.md", "one\ntwo\n")
    write(tmp_path / "gprune/models/paths.py", MODULE)
    write(tmp_path / "gprune/models/page.css", "a {}\n")
    write(tmp_path / "tests/conftest.py", '"""Nothing."""\n')
    return tmp_path


@pytest.fixture
def check(project, checkout):
    command = [sys.executable, str(project / "scripts" / "code_size.py"), "--project", str(checkout)]
    return lambda *arguments: subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)


def test_docstrings_comments_and_blank_lines_are_no_code_and_make_runs_the_check(check, project):
    assert "scripts/code_size.py" in (project / "Makefile").read_text()
    result = check()
    assert result.returncode == 0, result.stderr
    figures = {line.split()[0]: line.split()[1:] for line in result.stdout.splitlines()}
    assert figures["code.models"] == ["4", "4"]
    assert figures["names.filler_percent"] == ["33.33", "33.33"]


@pytest.mark.parametrize(
    ("file", "text", "sentence"),
    [
        ("gprune/models/more.py", "SIZE = 1\n", "code.models is 5, above its ceiling of 4"),
        ("gprune/models/paths.py", MODULE + "\n\ndef kept():\n    pass\n", "names.filler_percent is 50.0, above"),
        ("gprune/models/paths.py", MODULE.replace("Return", "Which is"), "names.riddle_percent is 100.0, above"),
        ("gprune/models/twin.py", MODULE, "names.repeated is 2, above its ceiling of 0"),
        ("gprune/new/room.py", "SIZE = 1\n", "code.new is 1 and has no ceiling"),
        ("tests/test_more.py", "SIZE = 1\n", "code.tests is 1, above its ceiling of 0"),
        ("docs/more.md", "three\n", "lines.documents is 3, above its ceiling of 2"),
        ("gprune/app/page.js", "let a = 1;\n", "lines.web is 2, above its ceiling of 1"),
    ],
)
def test_a_planted_excess_fails_and_is_named(check, checkout, file, text, sentence):
    write(checkout / file, text)
    result = check()
    assert result.returncode == 1 and sentence in result.stderr


def test_ceilings_are_lowered_and_never_raised(check, checkout):
    (checkout / "README.md").write_text("one\n")
    (checkout / "gprune/models/more.py").write_text("SIZE = 1\n")
    assert check("--lower").returncode == 1
    settings = (checkout / "pyproject.toml").read_text()
    assert "documents = 1\n" in settings and "models = 4\n" in settings
    assert settings.endswith("[tool.other]\nkept = 1\n")
