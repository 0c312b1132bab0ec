"""Command lines and Python code that reproduce what a page shows."""

import json
import os
import shlex
from collections.abc import Iterable
from typing import Any

from gprune.app.ui.panel import Call, Selection
from gprune.pipeline.runs.opened import Run
from gprune.pipeline.stages import exported_methods
from gprune.study import Study, field_names
from gprune.study.demo import name_of
from gprune.study.fields import OPTIONS

_OPTIONS = {name: f"--{option}" for option, name in OPTIONS.items()}
"""options of the command line by the field of the study that they set"""
_ALWAYS = ("model", "primary", "auxiliary", "metric", "retention")
"""fields that a command sets even to their defaults"""
TABLES = {
    "ov_checks": "run.study",
    "rd_top": 'run.drift.nlargest(50, "drift")',
    "cp_table": 'run.perplexity.pivot(index="method", columns="text", values="perplexity")',
    "cp_given": 'run.perplexity[["method", "retention", "parameters"]].drop_duplicates()',
    "sx_export": 'run.model("gprune")',
    "fq_accuracy": "run.accuracy",
}
"""last line of the Python code of a card without a figure, by the card's key"""


def field(study: Study, dotted: str) -> Any:
    """Return the value of a field by its dotted name."""
    value: Any = study
    for part in dotted.split("."):
        value = getattr(value, part)
    return value


def study_arguments(study: Study) -> list[str]:
    """Return the arguments of `python -m gprune study` that write this study, without defaults."""
    default = Study(model=study.model, primary=study.primary, auxiliary=study.auxiliary)
    arguments: list[str] = []
    for name in field_names():
        value = field(study, name)
        if value == field(default, name) and name not in _ALWAYS:
            continue
        if name in ("evaluation.texts", "evaluation.tasks", "methods"):
            arguments += [_OPTIONS[name], *value] if value else ["--set", f"{name}=[]"]
        elif name in _OPTIONS and value is not None:
            arguments += [_OPTIONS[name], str(value)]
        else:
            json_value = list(value) if isinstance(value, tuple) else value
            arguments += ["--set", f"{name}={json.dumps(json_value)}"]
    return arguments


def command(study: Study, *variants: Study, arguments: tuple[str, ...] = ()) -> str:
    """Return the shell commands that run a study, and optionally variants that differ only in their seed.

    `arguments` are appended to the command.
    """
    seeds = "".join(f" {variant.seed}" for variant in (study, *variants)) if variants else ""
    options = (f" --seeds{seeds}" if seeds else "") + "".join(f" {argument}" for argument in arguments)
    if bundled := name_of(study):
        return f"python -m gprune run {bundled}{options}"
    return f"{_write_command(study, 'study.json')}\npython -m gprune run study.json{options}"


def _write_command(study: Study, file: str) -> str:
    """Return the command that writes a study to a file."""
    lines, line = [], "python -m gprune study"
    for word in study_arguments(study):
        if word.startswith("--") and len(line) > 70:
            lines.append(line)
            line = "   "
        line += " " + shlex.quote(word)
    lines.append(f"{line} > {file}")
    return " \\\n".join(lines)


def python_code(run: Run, card: str, calls: Iterable[Call]) -> str:
    """Return Python code for what a card shows; empty if the card has no figure or table of a run."""
    lines = [_figure_call(call) for call in calls]
    if not lines and card in TABLES:
        lines = [TABLES[card]]
        if run.study.prunes_experts:
            lines = [line.replace("gprune", exported_methods(run.study)[0]) for line in lines]
    # the name of a run is enough in the default cache; another cache needs the folder
    reference = os.path.join(run.root, "runs", run.name) if os.environ.get("GPRUNE_CACHE") else run.name
    opening = ["import gprune", "", f"run = gprune.open({_literal(reference)})"]
    return "\n".join([*opening, *lines]) if lines else ""


def python_of(study: Study, *variants: Study, anyway: bool = False) -> str:
    """Return Python code that runs a study, and optionally variants that differ only in their seed.

    With `anyway`, the code starts the run even if the estimated memory does not fit.
    """
    default = Study(model=study.model, primary=study.primary, auxiliary=study.auxiliary)
    changed = {
        name: field(study, name)
        for name in field_names()
        if name in ("model", "primary", "auxiliary") or field(study, name) != field(default, name)
    }
    top_fields = [f"    {name}={_literal(value)}," for name, value in changed.items() if "." not in name]
    settings = [f"    {_literal(name)}: {_literal(value)}," for name, value in changed.items() if "." in name]
    ending = [").with_settings({", *settings, "})"] if settings else [")"]
    options = ", anyway=True" if anyway else ""
    last = f"run = gprune.run(study{options})"
    if variants:
        seeds = _literal(tuple(variant.seed for variant in (study, *variants)))
        seeded = 'study.with_settings({"seed": seed})'
        last = f"runs = [gprune.run({seeded}{options}) for seed in {seeds}]"
    return "\n".join(["import gprune", "", "study = gprune.Study(", *top_fields, *ending, last])


def _figure_call(call: Call) -> str:
    """Return the Python call that plots a figure of the variable `run`."""
    options = "".join(f", {name}={_literal(value)}" for name, value in call.options.items())
    return f"run.figure({_literal(call.name)}{options})"


def _literal(value: Any) -> str:
    """Return a value as a Python literal, with strings in double quotes."""
    if isinstance(value, Selection):
        return _literal((value.layer, value.module, value.neuron))
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, tuple | list):
        inner = ", ".join(map(_literal, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    return repr(value)
