"""lm-eval's own results on tasks whose rows are in local files, by its command and by its functions."""

import copy
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from evaluation.task_files import SPLITS

from gprune.models.decoder import Decoder

_NO_SPLITS = dict.fromkeys(("training_split", "validation_split", "test_split", "fewshot_split"))


def write_definitions(data: Path, folder: Path) -> list[str]:
    """Write the packaged definitions over local files, as lm-eval's documentation has it: by including them."""
    import lm_eval

    from gprune.evaluation.tasks import STANDARD_TASKS

    folder.mkdir()
    packaged = Path(lm_eval.__file__).parent / "tasks"
    for task, split in SPLITS.items():
        parent = packaged / STANDARD_TASKS[task].folder
        definitions = (file for file in parent.glob("*.yaml") if f"\ntask: {task}\n" in "\n" + file.read_text())
        write_definition(folder, f"{task}_plain", next(definitions), data / f"{task}.jsonl", {f"{split}_split": split})
    return [f"{task}_plain" for task in SPLITS]


def write_definition(folder: Path, name: str, included: Path | None, file: Path, settings: dict[str, Any]) -> None:
    """Write a definition of rows in a file; `settings` name the split and whatever else it has."""
    split = next(value for key, value in settings.items() if key.endswith("_split"))
    files = {"data_files": {split: str(file)}, "cache_dir": str(folder / "cache")}
    definition = {"task": name, "dataset_path": "json", "dataset_name": None, "dataset_kwargs": files}
    saved = ({"include": str(included)} if included else {}) | definition | _NO_SPLITS | settings
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(saved), encoding="utf-8")


def by_lm_eval_alone(decoder: Decoder, data: Path, folder: Path) -> dict[str, dict]:
    """Measure the seven tasks by lm-eval's own function."""
    import lm_eval
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    names = write_definitions(data, folder)
    model = HFLM(pretrained=decoder.model, tokenizer=copy.deepcopy(decoder.tokenizer), batch_size=4)
    manager = TaskManager(include_path=str(folder), include_defaults=False)
    results = lm_eval.simple_evaluate(
        model=model, tasks=names, task_manager=manager, num_fewshot=0, log_samples=False, bootstrap_iters=1
    )
    return {task: results["results"][f"{task}_plain"] for task in SPLITS}


def by_command(model: Path, definitions: Path, tasks: list[str]) -> dict[str, dict]:
    """Measure tasks by lm-eval's command on a folder of a model."""
    output = definitions.parent / "out"
    command = [sys.executable, "-c", "import gprune, lm_eval.__main__ as m; m.cli_evaluate()"]
    arguments = f"pretrained={model},dtype=float32,softmax_dtype=float32,trust_remote_code=True"
    command += ["--model", "hf", "--model_args", arguments, "--tasks", ",".join(tasks), "--device", "cpu"]
    command += ["--include_path", str(definitions), "--batch_size", "4", "--output_path", str(output)]
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    process = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert process.returncode == 0, process.stderr[-3000:]
    (file,) = output.rglob("results_*.json")
    return json.loads(file.read_text())["results"]
