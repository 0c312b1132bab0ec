"""What the command line shows while it works, and the summary at its end (all on stderr but the summary)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from gprune.evaluation.protocol import MARKS
from gprune.study import short
from gprune.system import safe_parsing
from gprune.system.progress import Notice, Reused
from gprune.system.safe_parsing import printable, printable_values
from gprune.system.units import duration

if TYPE_CHECKING:
    from gprune.experiments.scheduler import ScheduledStudy, Status
    from gprune.jobs import JobReporter

_REDRAW_SECONDS = 10.0


class _Bars:
    """Bars that are drawn on a terminal only. A context manager around the work."""

    def __init__(self, before: str, width: int, after: str) -> None:
        """Prepares bars of a width between two templates of words; nothing is drawn yet."""
        # what is shown holds paths and messages, in which brackets are just brackets
        self.console = Console(stderr=True, markup=False)
        columns = TextColumn(before, markup=False), BarColumn(width), TextColumn(after, markup=False)
        self.bars = Progress(*columns, TimeElapsedColumn(), console=self.console)

    def __enter__(self) -> Self:
        """Starts drawing."""
        if self.console.is_terminal:
            self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stops drawing."""
        if self.console.is_terminal:
            self.bars.stop()


class Reporter(_Bars):
    """Draws one bar a stage on a terminal; elsewhere prints one line a stage."""

    def __init__(self) -> None:
        """Prepares the console; nothing is drawn before the first event."""
        super().__init__("{task.description:<28}", 30, "{task.fields[message]}")
        self.tasks: dict[str, TaskID] = {}
        self.reused: list[str] = []
        self.printed: dict[str, float] = {}

    def __exit__(self, *_: object) -> None:
        """Stops drawing and says what was reused."""
        super().__exit__()
        if self.reused:
            self.console.print(f"reused {len(self.reused)} stages: {', '.join(self.reused)}", soft_wrap=True)

    def __call__(self, stage: str, done: int, total: int, message: str) -> None:
        """Shows one event of a stage."""
        if isinstance(message, Reused):
            if stage not in self.reused:
                self.reused.append(stage)
            return
        words = printable(message)
        if isinstance(message, Notice):
            # what a result was made by stays to be read when the bars have gone on
            _say(self.console, f"{stage}: {words}")
        elif self.console.is_terminal:
            if stage not in self.tasks:
                self.tasks[stage] = self.bars.add_task(stage, total=total, message="")
            self.bars.update(self.tasks[stage], completed=done, total=total, message=words)
        elif done >= total or time.monotonic() - self.printed.get(stage, 0.0) > _REDRAW_SECONDS:
            self.printed[stage] = time.monotonic()
            _say(self.console, f"{stage}: {done}/{total} {words}")


def summary(result: dict[str, Any]) -> None:
    """Prints retention, parameters and what was measured of every method as tables on stdout."""
    # names of texts and reasons may stand in a run that others have made
    result, console = printable_values(result), Console(markup=False)
    if "perplexity" in result:
        console.print(_perplexities(result))
    _recovery(console, result)
    if any(result.get("accuracy", {}).values()):
        console.print(_accuracies(result["accuracy"]))
    for task, reason in result.get("unavailable_tasks", {}).items():
        _say(console, f"{short(task)} not measured: {reason}")
    if "speed" in result:
        console.print(_speeds(result["speed"]))
    _repairs(console, result)
    for method, known in result.get("choice", {}).items():
        console.print(_tried(method, known))
    _protocols(console, [result])
    for known in result.get("texts", {}).values():
        _say(console, f"text: {known['sentence']}")
    for method, reason in result.get("unavailable", {}).items():
        _say(console, f"{method} left out: {reason}")
    folders = {"checkpoint": "pruned model", "recovered_checkpoint": "recovered model"}
    folders |= {"recommended_checkpoint": "pruned model of the recommended recipe"}
    for folder, what in folders.items():
        if folder in result:
            _say(console, f"{what}: {result[folder]}")
    if "diagnostics" in result:
        _diagnostics(console, result["diagnostics"])
    _passes(console, result.get("passes", {}))
    seconds = sum(taken for stage, taken in result["seconds"].items() if stage not in result["reused"])
    computed = len(result["seconds"]) - len(result["reused"])
    _say(
        console,
        f"run {result['run']}: {computed} stages computed, {len(result['reused'])} reused, {seconds:.1f} s",
    )


def _perplexities(result: dict[str, Any]) -> Table:
    evaluation = result["settings"]["evaluation"]
    texts, title = evaluation["texts"], _windows(evaluation)
    table = _table(title, "retention", "parameters", *map(short, texts))
    for method, values in result["perplexity"].items():
        row = [f"{result['retention'][method]:.2%}", f"{result['parameters'][method]:,}"]
        table.add_row(method, *row, *(f"{values[text]:.2f}{_mark(result, method, text)}" for text in texts))
    return table


def _windows(evaluation: dict[str, Any]) -> str:
    return f"Perplexity, windows of {evaluation['preset']} tokens (lower is better)"


def seeds_summary(found: dict[str, Any], results: list[dict[str, Any]]) -> None:
    """Prints mean and deviation over seeds of every method on stdout."""
    found, results, console = printable_values(found), printable_values(results), Console(markup=False)
    seeds = [str(result["settings"]["seed"]) for result in results]
    named = {
        "perplexity": (_windows(results[0]["settings"]["evaluation"]), 1.0),
        "accuracy": ("Zero-shot accuracy in percent (higher is better)", 100.0),
    }
    for kind, (title, scale) in named.items():
        if any(found.get(kind, {}).values()):
            console.print(_over_seeds(found[kind], f"{title}, mean ± s.d. over seeds {' '.join(seeds)}", scale))
    _repairs(console, results[0])
    _protocols(console, results)
    for result, seed in zip(results, seeds, strict=True):
        for method, reason in result.get("unavailable", {}).items():
            _say(console, f"seed {seed}: {method} left out: {reason}")
        computed, reused = len(result["seconds"]) - len(result["reused"]), len(result["reused"])
        _say(console, f"seed {seed}: run {result['run']}, {computed} stages computed, {reused} reused")


def _say(console: Console, line: str) -> None:
    """Prints a line as it is, however long."""
    console.print(line, soft_wrap=True, highlight=False)


def _repairs(console: Console, result: dict[str, Any]) -> None:
    """Prints how the kept weights of methods were repaired, each way once."""
    methods: dict[str, list[str]] = {}
    for method, given in result.get("given", {}).items():
        methods.setdefault(given.get("repair", ""), []).append(method)
    for repair, named in methods.items():
        if repair:
            _say(console, f"repaired by {repair}: {', '.join(named)}")


def _recovery(console: Console, result: dict[str, Any]) -> None:
    """Prints perplexities before and after recovery, in a table of their own."""
    found = result.get("recovery")
    if found is None:
        return
    texts = result["settings"]["evaluation"]["texts"]
    table = Table(title="After recovery, which changes weights by training: no figure of the table above")
    table.add_column("method")
    for text in texts:
        table.add_column(short(text), justify="right")
    for method, after in found["perplexity"].items():
        before = result["perplexity"][method]
        table.add_row(method, *(f"{before[text]:.2f} → {after[text]:.2f}" for text in texts))
    console.print(table)
    _say(console, f"recovered by {found['trained']}")
    for method, reason in found["unavailable"].items():
        _say(console, f"{method} not recovered: {reason}")


def _tried(method: str, known: dict[str, Any]) -> Table:
    """What was tried before a method's repair, or its masks and repair, were chosen: the best first."""
    measures = list(known["weights"])
    title = f"What was tried for {method}, on {known['sequences']} held-out sequences of each text"
    table = _table(title, "repair", "number (lower is better)", *measures, left=2)
    table.columns[0].header = "masks"
    for row in known["tried"]:
        figures = ("-" if row[name] is None else f"{row[name]:.4g}" for name in ("number", *measures))
        mark = " (chosen)" if row["chosen"] else " (reference)" if row["reference"] else ""
        table.add_row(Text(row["masks"]), Text(row["is"] + mark), *figures)
    return table


def _protocols(console: Console, results: list[dict[str, Any]]) -> None:
    """Prints by what protocols figures were measured, each once, and with its mark where one is needed."""
    told = [protocol["line"] for protocol in results[0].get("protocols", ())]
    for number, line in enumerate(told):
        mark = f"{MARKS[min(number, len(MARKS) - 1)]} " if _several(results[0]) else ""
        _say(console, f"protocol: {mark}{line}")
    others = [found["line"] for result in results[1:] for found in result.get("protocols", ())]
    for line in dict.fromkeys(line for line in others if line not in told):
        _say(console, f"protocol of another seed: {line}")


def _several(result: dict[str, Any]) -> bool:
    """Whether the perplexities on one text are of several protocols."""
    each = result.get("protocol of", {}).get("perplexity", {}).values()
    texts = {text for known in each for text in known}
    return any(len({known[text] for known in each if text in known}) > 1 for text in texts)


def _mark(result: dict[str, Any], method: str, text: str) -> str:
    """The mark of a perplexity whose text was measured by several protocols."""
    number = result.get("protocol of", {}).get("perplexity", {}).get(method, {}).get(text)
    return "" if number is None or not _several(result) else MARKS[min(number, len(MARKS) - 1)]


def _table(title: str, *columns: str, left: int = 1) -> Table:
    """An empty table whose first column has the methods; the columns that are no numbers stand left."""
    table = Table(title=title)
    for place, name in enumerate(("method", *columns)):
        table.add_column(Text(name), justify="left" if place < left else "right")
    return table


def _over_seeds(found: dict[str, Any], title: str, scale: float) -> Table:
    """One line a method, one column a text or task; of an accuracy the plain one."""
    subjects = list(dict.fromkeys(subject for values in found.values() for subject in values))
    table = _table(title, *map(short, subjects))
    for method, values in found.items():
        known = [values.get(subject, {}) for subject in subjects]
        cells = [each.get("acc", each) for each in known]
        words = [f"{scale * c['mean']:.2f} ± {scale * c['deviation']:.2f}" if c else "-" for c in cells]
        table.add_row(Text(method), *words)
    return table


def _accuracies(found: dict[str, dict[str, Any]]) -> Table:
    """Tabulate every method on every task: acc, and length-normalised where a task has it, or the task's metric."""
    tasks = list(dict.fromkeys(task for values in found.values() for task in values))
    table = _table("Tasks: accuracy in percent, acc / acc_norm, unless another metric is named", *map(short, tasks))
    for method, values in found.items():
        table.add_row(Text(method), *(Text(_accuracy(values.get(task))) for task in tasks))
    chances = [next(values[task]["chance"] for values in found.values() if task in values) for task in tasks]
    table.add_row("guessing", *("-" if chance is None else f"{100 * chance:.1f}" for chance in chances))
    return table


def _accuracy(found: dict[str, Any] | None) -> str:
    if found is None:
        return "-"
    if "metric" in found:
        return f"{found['metric']} {found['acc']:.4g}"
    shares = [found["acc"], found["acc_norm"]]
    words = " / ".join(f"{100 * share:.1f}" for share in shares if share is not None)
    return f"{words} ± {100 * (found['acc_error'] or 0.0):.1f}"


def _speeds(found: dict[str, Any]) -> Table:
    """Tokens a second of every method, with the ratio to the first, each with its interquartile range."""
    title = f"Tokens a second: {found['setting']}"
    table = _table(title, "phase", "mode", "tokens/s (IQR)", "ratio (IQR)", left=3)
    for row in found["rows"]:
        ratio = f"{row['ratio']:.2f} ({row['ratio_spread']:.2f})"
        speed = f"{row['tokens_per_second']:.1f} ({row['spread']:.1f})"
        table.add_row(row["model"], row["phase"], row["mode"], speed, ratio)
    return table


def _diagnostics(console: Console, found: dict[str, Any]) -> None:
    """Prints what modules, adaptation and learning have done, and a warning where that is next to nothing."""
    explained = found["drift_explained"]
    shares = [f"modules {explained['modules']:.0%}"]
    if explained["initialization"] is not None:
        shares.append(f"their initialization {explained['initialization']:.0%}")
    shares.append(f"random ones of their sizes {explained['random']:.0%}")
    lines = [f"variance of the drift explained: {', '.join(shares)}"]
    parts = ", ".join(f"{part} {share:.1%}" for part, share in found["decisions_changed"].items())
    lines.append(f"neurons decided otherwise without a part: {parts}")
    lines.append(f"neurons kept by layer: {', '.join(f'{share:.0%}' for share in found['layers']['kept'])}")
    for line in (*lines, *(f"warning: {words}" for words in found["warnings"])):
        _say(console, line)


def _passes(console: Console, passes: dict[str, dict[str, float]]) -> None:
    """Prints how often the dense model ran over a calibration set for the results, in whichever run."""
    for way in ("forward", "backward"):
        counted = {stage: count[way] for stage, count in passes.items() if count[way]}
        if counted:
            parts = ", ".join(f"{stage} {count:g}" for stage, count in counted.items())
            _say(console, f"{way} passes over a calibration set: {parts}")


class Shown(_Bars):
    """One line of progress on a terminal; elsewhere one line a study."""

    def __init__(self, job: JobReporter | None = None, stage: str = "") -> None:
        """Prepare the line; a job that the command is gets each status as progress of a stage."""
        self.job, self.stage = job, stage
        super().__init__("{task.completed}/{task.total} studies", 24, "{task.description}")
        self.line = self.bars.add_task("", total=None)

    def watch(self, status: Status) -> None:
        """Shows where the work stands."""
        left = "" if status.remaining is None else f", about {duration(status.remaining, 1)} left"
        words = f"{status.label}: {status.stage}{left}" if status.stage else left.removeprefix(", ")
        self.bars.update(self.line, completed=status.done, total=status.total, description=words)
        if self.job is not None:
            self.job(self.stage, status.done, status.total, words)

    def ended(self, entry: ScheduledStudy, reason: str) -> None:
        """Says that a study has ended, and why it failed if it did."""
        words = f"failed: {safe_parsing.sentence(reason)}" if reason else "done"
        self.console.print(f"{entry.study.name}: {words}", markup=False, highlight=False, soft_wrap=True)
