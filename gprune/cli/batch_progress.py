"""What commands that run many studies show while they do: how many have ended, how long the rest takes."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from gprune.experiments.scheduler import ScheduledStudy, Status
from gprune.system import safe_parsing
from gprune.system.units import duration


class Shown:
    """One line of progress on a terminal; elsewhere one line a study. A context manager around the work."""

    def __init__(self) -> None:
        """Prepares the line; nothing is drawn yet."""
        self.console = Console(stderr=True)
        self.bar: Progress = Progress(
            TextColumn("{task.completed}/{task.total} studies"),
            BarColumn(bar_width=24),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
            console=self.console,
        )
        self.line = self.bar.add_task("", total=None)

    def __enter__(self) -> Shown:
        """Starts drawing."""
        if self.console.is_terminal:
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stops drawing."""
        if self.console.is_terminal:
            self.bar.stop()

    def watch(self, status: Status) -> None:
        """Shows where the work stands."""
        left = "" if status.remaining is None else f", about {duration(status.remaining, 1)} left"
        words = f"{status.label}: {status.stage}{left}" if status.stage else left.removeprefix(", ")
        self.bar.update(self.line, completed=status.done, total=status.total, description=words)

    def ended(self, entry: ScheduledStudy, reason: str) -> None:
        """Says that a study has ended, and why it failed if it did."""
        words = f"failed: {safe_parsing.sentence(reason)}" if reason else "done"
        self.console.print(f"{entry.study.name}: {words}", markup=False, highlight=False, soft_wrap=True)
