"""`models`, `texts`, `tasks`, `plugins` and `runs`: list names, and the runs in the cache."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from gprune.cli import EXIT_UNFILLED, add_cache, add_command, say
from gprune.models.expert_families import EXPERT_FAMILIES
from gprune.models.families import FAMILIES
from gprune.pipeline import runs as run_records
from gprune.store import Store
from gprune.system import safe_parsing
from gprune.system.errors import GpruneError
from gprune.system.units import amount


def add(commands: Any) -> None:
    """Register the five commands."""
    models = add_command(commands, "models", _models)
    models.add_argument("model", nargs="?", metavar="FOLDER", help="model to describe: a folder, a hub name, or `demo`")
    add_command(commands, "texts", _texts)
    tasks = add_command(commands, "tasks", _tasks)
    tasks.add_argument("tasks", nargs="*", metavar="TASK", help="tasks of lm-eval, or files of your own questions")
    tasks.add_argument("--task-folder", default="", metavar="FOLDER", help="folder with local rows of tasks")
    plugins = add_command(commands, "plugins", _plugins)
    plugins.add_argument("--json", action="store_true", help="print the plug-ins as one line of JSON")
    runs = add_command(commands, "runs", _runs)
    add_cache(runs)


def _models(options: argparse.Namespace) -> int:
    """Print all families by model type, or a description of one model."""
    if options.model is not None:
        return _describe_model(options)
    for model_type, layout in FAMILIES.items():
        say(f"{model_type:<18} {layout.label:<16} {layout.pruned_units}")
    for model_type, expert_layout in EXPERT_FAMILIES.items():
        say(f"{model_type:<18} {expert_layout.label:<16} experts, by methods such as experts_reap")
    return 0


def _describe_model(options: argparse.Namespace) -> int:
    from gprune.models import inspection

    model = inspection.inspect(options.model)
    record = model.record
    rows = {
        "folder": model.folder,
        "family": f"{model.family} ({model.model_type})" if model.family else model.model_type,
        "form": model.form,
        "pruned from": f"{record.source} ({record.fingerprint[:12]})" if record and record.source else "",
        "run": record.run if record else "",
        "parameters": f"{model.parameters:,} ({amount(model.bytes)})",
        "layers": model.layers or "unknown",
        "experts": model.experts,
        "FFN neurons": "" if model.experts else inspection.format_widths(model.neurons, model.dense_neurons),
        "key/value groups": "" if model.experts else inspection.format_widths(model.groups, model.dense_groups),
        "can be pruned": model.prunable,
        "loads": model.loads,
        "tokenizer": model.tokenizer,
    }
    for name, value in rows.items():
        if value:
            say(f"{name:<18}{value}")
    return 0


def _texts(_: argparse.Namespace) -> int:
    from gprune.data import texts as corpora

    for name, description in corpora.named_texts().items():
        say(f"{name:<18} {description}")
    return 0


def _tasks(options: argparse.Namespace) -> int:
    """Print the source and size of each task's data; return 3 if some data is not available."""
    from gprune.evaluation import tasks
    from gprune.study import EvaluationSettings

    settings = EvaluationSettings(task_folder=options.task_folder)
    exit_code = 0
    for name in tuple(options.tasks) or tasks.listed_tasks():
        try:
            source = tasks.resolve(name, settings)
            description = "built in" if source.kind == "demo" else "from the hub"
            if source.file is not None:
                description = f"{len(tasks.read_documents(source)):,} rows, {source.file}"
        except GpruneError as error:
            description, exit_code = str(error), EXIT_UNFILLED
        say(f"{name:<18} {safe_parsing.sentence(description)}")
    if not options.tasks:
        say("every other task of lm-eval works too, for example `tasks gsm8k mmlu`", file=sys.stderr)
    return exit_code


def _plugins(options: argparse.Namespace) -> int:
    """Print the plug-ins; return 3 if one cannot be used."""
    from gprune.study.methods import installed_plugins

    plugins, faults = installed_plugins().plugins, installed_plugins().faults
    if options.json:
        say(installed_plugins().to_json())
        return 0
    for plugin in sorted(plugins.values(), key=lambda plugin: (plugin.kind, plugin.name)):
        say(f"{plugin.kind:<7} {plugin.name:<24} {plugin.label:<32} {plugin.digest}")
    for fault in faults:
        say(fault.message, file=sys.stderr)
    if not plugins and not faults:
        say("no installed package provides a metric or a method: see docs/plugins.md", file=sys.stderr)
    return EXIT_UNFILLED if faults else 0


def _runs(options: argparse.Namespace) -> int:
    from gprune.pipeline import cache

    store = Store(options.cache)
    records = dict(run_records.read_all(store))
    for name, record in records.items():
        study = record["study"]
        facts = run_records.current_state(store.root, record), *map(study.get, ("model", "metric", "retention"))
        say(f"{name:<52} {'  '.join(safe_parsing.sentence(fact) for fact in facts)}")
    faults = cache.unreadable_runs(store)
    for fault in faults.values():
        say(fault, file=sys.stderr)
    if faults:
        say(f"{len(faults)} runs cannot be read: {run_records.REMEDY}", file=sys.stderr)
    elif not records:
        say(f"no runs in {store.root}: start one with `run demo`", file=sys.stderr)
    return 0
