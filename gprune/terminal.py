"""What the command line shows while it works, and the summary at its end (all on stderr but the summary)."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

_REDRAW_SECONDS = 10.0


class Reporter:
    """Draws one bar a stage on a terminal; elsewhere prints one line a stage."""

    def __init__(self) -> None:
        """Prepares the console; nothing is drawn before the first event."""
        self.console = Console(stderr=True)
        self.bars = Progress(
            TextColumn("{task.description:<28}"),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[message]}"),
            TimeElapsedColumn(),
            console=self.console,
        )
        self.tasks: dict[str, TaskID] = {}
        self.reused: list[str] = []
        self.printed: dict[str, float] = {}

    def __enter__(self) -> Reporter:
        """Starts drawing."""
        if self.console.is_terminal:
            self.bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stops drawing and says what was reused."""
        if self.console.is_terminal:
            self.bars.stop()
        if self.reused:
            self.console.print(f"reused {len(self.reused)} stages: {', '.join(self.reused)}", soft_wrap=True)

    def __call__(self, stage: str, done: int, total: int, message: str) -> None:
        """Shows one event of a stage."""
        if message == "reused":
            if stage not in self.reused:
                self.reused.append(stage)
            return
        if self.console.is_terminal:
            self._draw(stage, done, total, message)
        elif done >= total or time.monotonic() - self.printed.get(stage, 0.0) > _REDRAW_SECONDS:
            self.printed[stage] = time.monotonic()
            self.console.print(f"{stage}: {done}/{total} {message}", soft_wrap=True, highlight=False)

    def _draw(self, stage: str, done: int, total: int, message: str) -> None:
        if stage not in self.tasks:
            self.tasks[stage] = self.bars.add_task(stage, total=total, message="")
        self.bars.update(self.tasks[stage], completed=done, total=total, message=message)


def summary(result: dict[str, Any]) -> None:
    """Prints retention, parameters and perplexity of every method as a table on stdout."""
    console = Console()
    if "perplexity" in result:
        texts = list(result["settings"]["evaluation"]["texts"])
        preset = result["settings"]["evaluation"]["preset"]
        table = Table(title=f"Perplexity, windows of {preset} tokens (lower is better)")
        for title in ("method", "retained", "parameters", *map(_short, texts)):
            table.add_column(title, justify="left" if title == "method" else "right")
        for method, values in result["perplexity"].items():
            row = [f"{result['retention'][method]:.2%}", f"{result['parameters'][method]:,}"]
            table.add_row(method, *row, *(f"{values[text]:.2f}" for text in texts))
        console.print(table)
    for method, reason in result.get("unavailable", {}).items():
        console.print(f"{method} left out: {reason}", soft_wrap=True, highlight=False)
    if "checkpoint" in result:
        console.print(f"pruned model: {result['checkpoint']}", soft_wrap=True, highlight=False)
    _passes(console, result.get("passes", {}))
    seconds = sum(result["seconds"].values())
    computed = len(result["seconds"]) - len(result["reused"])
    console.print(
        f"run {result['run']}: {computed} stages computed, {len(result['reused'])} reused, {seconds:.1f} s",
        soft_wrap=True,
        highlight=False,
    )


def _passes(console: Console, passes: dict[str, dict[str, float]]) -> None:
    """Prints how often the dense model ran over a calibration set in this run, and for what."""
    for way in ("forward", "backward"):
        counted = {stage: count[way] for stage, count in passes.items() if count[way]}
        if counted:
            parts = ", ".join(f"{stage} {count:g}" for stage, count in counted.items())
            console.print(f"{way} passes over a calibration set: {parts}", soft_wrap=True, highlight=False)


def _short(text: str) -> str:
    """A text's file name without its folders; options stay."""
    place, sign, options = text.partition("#")
    return place.rstrip("/").rpartition("/")[2] + sign + options
