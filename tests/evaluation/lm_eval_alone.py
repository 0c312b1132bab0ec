"""What lm-eval says of the seven tasks by itself, from the same rows in local files."""

import copy
from pathlib import Path

import yaml
from evaluation.task_files import SPLITS

from gprune.models.decoder import Decoder


def by_lm_eval_alone(decoder: Decoder, data: Path, place: Path) -> dict[str, dict]:
    """The packaged definitions over local files, as lm-eval's documentation has it: by including them."""
    import lm_eval
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    from gprune.evaluation.tasks import STANDARD_TASKS

    place.mkdir()
    nothing = dict.fromkeys(("training_split", "validation_split", "test_split"))
    for task, split in SPLITS.items():
        included = Path(lm_eval.__file__).parent / "tasks" / STANDARD_TASKS[task].definition
        files = {"data_files": {split: str(data / f"{task}.jsonl")}, "cache_dir": str(place / "cache")}
        override = {"include": str(included), "task": f"{task}_plain", "dataset_path": "json"}
        override |= {"dataset_name": None, "dataset_kwargs": files, **nothing, f"{split}_split": split}
        (place / f"{task}.yaml").write_text(yaml.safe_dump(override), encoding="utf-8")
    names = [f"{task}_plain" for task in SPLITS]
    model = HFLM(pretrained=decoder.model, tokenizer=copy.deepcopy(decoder.tokenizer), batch_size=4)
    manager = TaskManager(include_path=str(place), include_defaults=False)
    found = lm_eval.simple_evaluate(
        model=model, tasks=names, task_manager=manager, num_fewshot=0, log_samples=False, bootstrap_iters=1
    )
    return {task: found["results"][f"{task}_plain"] for task in SPLITS}
