"""Show progress on stderr while a command runs, and print the tables of a finished run on stdout."""

from __future__ import annotations

import contextlib
import itertools
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from gprune.cli import say
from gprune.cli.jobs import job_reporter
from gprune.study import short
from gprune.system import progress as events
from gprune.system.progress import Notice, Reused
from gprune.system.safe_parsing import sentence

if TYPE_CHECKING:
    from gprune.experiments.scheduler import ScheduledStudy, Status
    from gprune.jobs import JobReporter

_LINE_SECONDS = 10.0
"""least seconds between two lines of a stage, if the output is not a terminal"""
_FOLDERS = {
    "checkpoint": "pruned model",
    "recovered_checkpoint": "recovered model",
    "recommended_checkpoint": "pruned model of the recommended recipe",
}
"""entries of a result with the folder of a model, and their titles"""
_EXPERT_DRIFT = {
    "drift": "A to B",
    "half": "half of A to half of B",
    "resample_primary": "halves of A",
    "resample_auxiliary": "halves of B",
    "cold": "cold experts",
}
"""columns of the table of expert drift by their key in the result"""


class _Bars:
    """Context manager with progress bars that are displayed only on a terminal."""

    def __init__(self, left_text: str, width: int, right_text: str) -> None:
        # brackets in paths and messages are not markup
        self.console = Console(stderr=True, markup=False)
        columns = TextColumn(left_text, markup=False), BarColumn(width), TextColumn(right_text, markup=False)
        times = TimeElapsedColumn(), TimeRemainingColumn()
        self.bars = Progress(*columns, *times, console=self.console, disable=not self.console.is_terminal)

    def __enter__(self) -> Self:
        self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bars.stop()

    def print_line(self, line: str) -> None:
        """Print a line above the bars."""
        self.console.print(line, soft_wrap=True, highlight=False)


class Reporter(_Bars):
    """Display one bar per stage on a terminal; otherwise print one line per stage."""

    def __init__(self) -> None:
        """Create the bars; nothing is displayed before the first event."""
        super().__init__("{task.description:<28}", 30, "{task.fields[message]}")
        self.tasks: dict[str, TaskID] = {}
        self.reused: dict[str, None] = {}
        self.printed: dict[str, float] = {}

    def __exit__(self, *_: object) -> None:
        """Stop the bars and list the reused stages."""
        super().__exit__()
        if self.reused:
            self.print_line(f"reused {len(self.reused)} stages: {', '.join(self.reused)}")

    def __call__(self, stage: str, done: int, total: int, message: str) -> None:
        """Show one event of a stage."""
        if isinstance(message, Reused):
            self.reused[stage] = None
        elif isinstance(message, Notice):
            # printed above the bars, so that it is not overwritten
            self.print_line(f"{stage}: {message}")
        elif self.console.is_terminal:
            if stage not in self.tasks:
                self.tasks[stage] = self.bars.add_task(stage, total=total, message="")
            self.bars.update(self.tasks[stage], completed=done, total=total, message=message)
        elif done >= total or time.monotonic() - self.printed.get(stage, 0.0) > _LINE_SECONDS:
            self.printed[stage] = time.monotonic()
            self.print_line(f"{stage}: {done}/{total} {message}")


class StudiesProgress(_Bars):
    """Display one bar for all studies of a command on a terminal; in any case print one line per finished study."""

    def __init__(self, job: JobReporter | None = None, stage: str = "") -> None:
        """Create the bar. With `job`, each status is also reported to the job as the progress of `stage`."""
        self.job, self.stage = job, stage
        super().__init__("{task.completed}/{task.total} studies", 24, "{task.description}")
        self.line = self.bars.add_task("", total=None)

    def update(self, status: Status) -> None:
        """Show the number of finished studies and the running stage."""
        description = f"{status.label}: {status.stage}" if status.stage else ""
        self.bars.update(self.line, completed=status.done, total=status.total, description=description)
        if self.job is not None:
            self.job(self.stage, status.done, status.total, description)

    def print_end(self, entry: ScheduledStudy, reason: str) -> None:
        """Print that a study has ended, with the reason if it failed."""
        self.print_line(f"{entry.study.name}: {f'failed: {sentence(reason)}' if reason else 'done'}")


@contextlib.contextmanager
def show_stages(job: JobReporter | None = None) -> Iterator[Callable[[str, int, int, str], None]]:
    """Show progress of stages on stderr and in a job, and redirect the stdout of libraries to stderr."""
    with Reporter() as display, contextlib.redirect_stdout(sys.stderr):

        def show(stage: str, done: int, total: int, message: str) -> None:
            if job is not None:
                job(stage, done, total, message)
            display(stage, done, total, message)

        yield show


@contextlib.contextmanager
def show_progress(stage: str, job: Path | None = None) -> Iterator[events.Progress]:
    """Show the progress of one stage on stderr and in the folder of a job."""
    with job_reporter(job) as reporter, show_stages(reporter) as show:
        yield partial(show, stage)


def print_summary(result: dict[str, Any]) -> None:
    """Print the tables and lines of a finished run."""
    for line in (*itertools.chain(*_tables(result)), *_lines(result)):
        say(line)
    seconds = sum(duration for stage, duration in result["seconds"].items() if stage not in result["reused"])
    reused = len(result["reused"])
    say(f"run {result['run']}: {len(result['seconds']) - reused} stages computed, {reused} reused, {seconds:.1f} s")


def _tables(result: dict[str, Any]) -> Iterator[list[str]]:
    """Yield the tables of a finished run, each as lines of text: perplexities, recovery, tasks and speed."""
    texts, accuracy = result["settings"]["evaluation"]["texts"], result.get("accuracy", {})
    if "perplexity" in result:
        rows = [
            (name, f"{result['retention'][name]:.2%}", f"{result['parameters'][name]:,}")
            + tuple(f"{values[text]:.2f}" for text in texts)
            for name, values in result["perplexity"].items()
        ]
        yield _table(_perplexity_title(result), ("retention", "parameters", *map(short, texts)), rows)
    if "recovery" in result:
        rows = [
            (name, *(f"{result['perplexity'][name][text]:.2f} → {after[text]:.2f}" for text in texts))
            for name, after in result["recovery"]["perplexity"].items()
        ]
        yield _table(
            "After recovery, which trains weights: not comparable with the table above", tuple(map(short, texts)), rows
        )
    if "expert_drift" in result:
        rows = [
            (name, *("-" if values[key] is None else f"{values[key]:.3g}" for key in _EXPERT_DRIFT))
            for name, values in result["expert_drift"].items()
        ]
        yield _table("Rank drift of experts, mean over all layers", tuple(_EXPERT_DRIFT.values()), rows)
    if any(accuracy.values()):
        tasks = {task: values[task]["chance"] for values in accuracy.values() for task in values}
        rows = [(name, *(_format_accuracy(values.get(task)) for task in tasks)) for name, values in accuracy.items()]
        rows.append(("guessing", *("-" if chance is None else f"{100 * chance:.1f}" for chance in tasks.values())))
        title = "Tasks: accuracy in percent, acc / acc_norm, unless another metric is named"
        yield _table(title, tuple(map(short, tasks)), rows)
    if "speed" in result:
        yield [f"Speed: {result['speed']['setting']}", *speed_lines(result["speed"]["rows"]), ""]


def speed_lines(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the rows of a ``Throughput`` as lines of aligned text."""
    from gprune.analysis.table import Table

    columns = ("model", "parameters", "phase", "mode", "tokens/s", "IQR", "ratio", "IQR", "peak memory")
    cells = [
        (
            *(row["model"], f"{row['parameters']:,}", row["phase"], row["mode"]),
            *(f"{row['tokens_per_second']:,.1f}", f"{row['spread']:,.1f}"),
            *(f"{row['ratio']:.2f}x", f"{row['ratio_spread']:.2f}"),
            f"{row['peak_bytes'] / 2**20:,.1f} MiB {row['memory']}",
        )
        for row in rows
    ]
    return Table.of(columns, cells).text(left=(0, 2, 3))


def _lines(result: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a finished run after its tables."""
    if "recovery" in result:
        yield f"recovered by {result['recovery']['trained']}"
        yield from (f"{name} not recovered: {reason}" for name, reason in result["recovery"]["unavailable"].items())
    for task, reason in result.get("unavailable_tasks", {}).items():
        yield f"{short(task)} not measured: {reason}"
    for method, choice in result.get("choice", {}).items():
        chosen = next(row for row in choice["tried"] if row["chosen"])
        retry = "" if choice["complete"] else "; the next run tries the failed candidates again"
        yield f"{method}: {chosen['is']}, masks of {chosen['masks']}, of {len(choice['tried'])} candidates{retry}"
    yield from _repair_lines(result)
    yield from (f"protocol: {protocol['line']}" for protocol in result.get("protocols", ()))
    yield from (f"text: {text['sentence']}" for text in result.get("texts", {}).values())
    yield from (f"{method} left out: {reason}" for method, reason in result.get("unavailable", {}).items())
    yield from (f"{title}: {result[name]}" for name, title in _FOLDERS.items() if name in result)


def _repair_lines(result: dict[str, Any]) -> Iterator[str]:
    methods: dict[str, list[str]] = {}
    for method, details in result.get("given", {}).items():
        methods.setdefault(details.get("repair", ""), []).append(method)
    yield from (f"repaired by {repair}: {', '.join(names)}" for repair, names in methods.items() if repair)


def print_spread(spread: dict[str, Any], results: list[dict[str, Any]]) -> None:
    """Print mean and standard deviation over seeds of every method; `spread` is from `summarize_seeds`."""
    seeds = " ".join(str(result["settings"]["seed"]) for result in results)
    titles = {
        "perplexity": (_perplexity_title(results[0]), 1.0),
        "accuracy": ("Zero-shot accuracy in percent (higher is better)", 100.0),
    }
    for kind, (title, scale) in titles.items():
        if any(spread.get(kind, {}).values()):
            say("\n".join(_seed_table(spread[kind], f"{title}, mean ± s.d. over seeds {seeds}", scale)))


def _seed_table(spread: dict[str, Any], title: str, scale: float) -> list[str]:
    """Return the lines of a table with mean and standard deviation by method; numbers are multiplied by `scale`."""
    subjects = list(dict.fromkeys(subject for values in spread.values() for subject in values))
    rows = []
    for method, values in spread.items():
        cells = [values.get(subject, {}) for subject in subjects]
        numbers = [cell.get("acc", cell) for cell in cells]
        texts = [f"{scale * n['mean']:.2f} ± {scale * n['deviation']:.2f}" if n else "-" for n in numbers]
        rows.append((method, *texts))
    return _table(title, tuple(map(short, subjects)), rows)


def _format_accuracy(accuracy: dict[str, Any] | None) -> str:
    """Format the accuracy of a task: its own metric, or acc / acc_norm in percent with the standard error."""
    if accuracy is None:
        return "-"
    if "metric" in accuracy:
        return f"{accuracy['metric']} {accuracy['acc']:.4g}"
    shares = [f"{100 * accuracy[name]:.1f}" for name in ("acc", "acc_norm") if accuracy[name] is not None]
    return f"{' / '.join(shares)} ± {100 * (accuracy['acc_error'] or 0.0):.1f}"


def _perplexity_title(result: dict[str, Any]) -> str:
    return f"Perplexity, windows of {result['settings']['evaluation']['preset']} tokens (lower is better)"


def _table(title: str, columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Return the lines of a table with one row per method, followed by an empty line."""
    from gprune.analysis.table import Table

    return [title, *Table.of(("method", *columns), rows).text(), ""]
