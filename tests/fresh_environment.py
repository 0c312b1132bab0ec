"""A virtual environment and a home of its own, in which nothing is known of this checkout."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from waiting import limit

# what would lead a program of the new environment back to this one, or change what a new user has
_OURS = ("PYTHON", "GPRUNE_", "XDG_", "HF_", "VIRTUAL_ENV", "OMP_", "STREAMLIT_")
_NOTEBOOKS = ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")


@dataclass(frozen=True, slots=True)
class Fresh:
    """One such environment below a folder."""

    folder: Path

    @property
    def home(self) -> Path:
        """The home folder of its user."""
        return self.folder / "home"

    @property
    def work(self) -> Path:
        """Where its user starts programs."""
        return self.folder / "work"

    @property
    def environment(self) -> dict[str, str]:
        """Variables of a user who has just logged in and activated it."""
        retained = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
        programs = f"{self.folder / 'venv' / 'bin'}:{os.environ['PATH']}"
        # what a notebook's kernel writes is not of ours
        aside = {name: str(self.folder / "jupyter") for name in _NOTEBOOKS}
        return retained | aside | {"HOME": str(self.home), "PATH": programs}

    def program(self, name: str) -> str:
        """Where one of its programs is."""
        return str(self.folder / "venv" / "bin" / name)

    def pip(self, *arguments: str) -> None:
        """Installs or removes; with the settings and the cache of the user who runs the tests.

        pip asks a Rust that is installed for its version, which then writes into the home folder.
        """
        environment = self.environment | {"HOME": str(Path.home())}
        self._run(environment, 180, "pip", *arguments, "--quiet", "--disable-pip-version-check")

    def said(self, name: str, *arguments: str, seconds: float) -> str:
        """What a program prints; fails with the end of its errors.

        Args:
            name: of the program.
            arguments: what follows it.
            seconds: what a quiet machine needs at the very most.
        """
        return self._run(self.environment, seconds, name, *arguments)

    def _run(self, environment: dict[str, str], seconds: float, name: str, *arguments: str) -> str:
        command, options = [self.program(name), *arguments], {"cwd": self.work, "env": environment}
        done = subprocess.run(command, **options, capture_output=True, text=True, timeout=limit(seconds))
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    def left(self) -> list[str]:
        """What of us is in the environment, and every folder that has something in its user's home."""
        actual = [path for path in (self.folder / "venv").rglob("*") if "gprune" in path.name]
        files = (path for folder in (self.home, self.work) for path in folder.rglob("*") if path.is_file())
        places = {Path(*path.relative_to(self.folder).parts[:3]) for path in files}
        return sorted(str(path) for path in [*actual, *places])


def made(folder: Path) -> Fresh:
    """An empty virtual environment of this Python, with an empty home."""
    fresh = Fresh(folder)
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True, timeout=limit(60))
    fresh.home.mkdir()
    fresh.work.mkdir()
    return fresh
