"""The exact command line, and the calls of the Python API, that give what a page shows."""

import json
import os
import shlex
from collections.abc import Iterable, Mapping
from string import Formatter
from typing import Any

from gprune.app.ui.panel import Call
from gprune.app.ui.unit import Selection
from gprune.pipeline.runs.opened import Run
from gprune.study import Study, field_names
from gprune.study.demo import name_of
from gprune.study.fields import OPTIONS

_OPTIONS = {name: f"--{option}" for option, name in OPTIONS.items()}
_ALWAYS = ("model", "primary", "auxiliary", "metric", "retention")
TABLES = {
    "ov_tiles": "run.perplexity",
    "ov_checks": "run.study",
    "rd_top": 'run.drift.nlargest({rows}, "drift")',
    "ma_summary": 'run.agreement.groupby("comparison")[["ari", "overlap"]].agg(["mean", "std"])',
    "rasa_table": "run.adapt({options}).modules",
    "cp_table": 'run.perplexity.pivot(index="method", columns="text", values="perplexity")',
    "cp_given": 'run.perplexity[["method", "retention", "parameters"]].drop_duplicates()',
    "sx_export": 'run.model("gprune")',
    "sx_accuracy": "run.accuracy",
}
"""what cards without a figure show, as the last line of the code"""


def field(study: Study, dotted: str) -> Any:
    """Value of a field given by its dotted name."""
    value: Any = study
    for part in dotted.split("."):
        value = getattr(value, part)
    return value


def words(study: Study) -> list[str]:
    """Arguments of `python -m gprune study` that write this study; defaults are left out."""
    plain = Study(model=study.model, primary=study.primary, auxiliary=study.auxiliary)
    arguments: list[str] = []
    for name in field_names():
        value = field(study, name)
        if value == field(plain, name) and name not in _ALWAYS:
            continue
        if name in ("evaluation.texts", "evaluation.tasks", "methods"):
            arguments += [_OPTIONS[name], *value] if value else ["--set", f"{name}=[]"]
        elif name in _OPTIONS and value is not None:
            arguments += [_OPTIONS[name], str(value)]
        else:
            plain_value = list(value) if isinstance(value, tuple) else value
            arguments += ["--set", f"{name}={json.dumps(plain_value)}"]
    return arguments


def command(study: Study, *others: Study, told: tuple[str, ...] = ()) -> str:
    """Shell commands that run this study, and others that differ from it in their seed alone."""
    seeds = "".join(f" {one.seed}" for one in (study, *others)) if others else ""
    more = (f" --seeds{seeds}" if seeds else "") + "".join(f" {word}" for word in told)
    if bundled := name_of(study):
        return f"python -m gprune run {bundled}{more}"
    return f"{_written(study, 'study.json')}\npython -m gprune run study.json{more}"


def _written(study: Study, file: str) -> str:
    """The command that writes a study to a file."""
    lines, line = [], "python -m gprune study"
    for word in words(study):
        if word.startswith("--") and len(line) > 70:
            lines.append(line)
            line = "   "
        line += " " + shlex.quote(word)
    lines.append(f"{line} > {file}")
    return " \\\n".join(lines)


def python_code(run: Run, card: str, calls: Iterable[Call], options: Mapping[str, Any]) -> str:
    """Code that ends with what a card shows; empty where it shows nothing of a run."""
    if card == "ov_provenance":
        return python_of(run.study)
    lines = [_call(one) for one in calls]
    if not lines and card in TABLES:
        known = {name: _literal(value) for name, value in options.items()}
        listed = ", ".join(f"{name}={value}" for name, value in known.items())
        asked = {name for _, name, _, _ in Formatter().parse(TABLES[card]) if name}
        # a card that could not be drawn has not said what is set beside it
        if asked <= {*known, "options"}:
            lines = [TABLES[card].format(**known, options=listed)]
    # by its name in the cache that is the default everywhere, else by its folder
    place = os.path.join(run.root, "runs", run.name) if os.environ.get("GPRUNE_CACHE") else run.name
    opened = ["import gprune", "", f"run = gprune.open({_literal(place)})"]
    return "\n".join([*opened, *lines]) if lines else ""


def python_of(study: Study, *others: Study, anyway: bool = False) -> str:
    """Code that runs a study, and others that differ from it in their seed alone."""
    plain = Study(model=study.model, primary=study.primary, auxiliary=study.auxiliary)
    changed = {
        name: field(study, name)
        for name in field_names()
        if name in ("model", "primary", "auxiliary") or field(study, name) != field(plain, name)
    }
    own = [f"    {name}={_literal(value)}," for name, value in changed.items() if "." not in name]
    inner = [f"    {_literal(name)}: {_literal(value)}," for name, value in changed.items() if "." in name]
    ending = [").with_settings({", *inner, "})"] if inner else [")"]
    more = ", anyway=True" if anyway else ""
    last = f"run = gprune.run(study{more})"
    if others:
        seeds = _literal(tuple(one.seed for one in (study, *others)))
        seeded = 'study.with_settings({"seed": seed})'
        last = f"runs = [gprune.run({seeded}{more}) for seed in {seeds}]"
    return "\n".join(["import gprune", "", "study = gprune.Study(", *own, *ending, last])


def _call(call: Call) -> str:
    """A call as Python writes it, on a run called `run`."""
    options = "".join(f", {name}={_literal(value)}" for name, value in call.options.items())
    return f"run.figure({_literal(call.name)}{options})"


def _literal(value: Any) -> str:
    """A value as Python writes it, texts in double quotes."""
    if isinstance(value, Selection):
        return _literal((value.layer, value.module, value.neuron))
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, tuple | list):
        inner = ", ".join(map(_literal, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    return repr(value)
