"""How often each result of a cache was begun to be computed, as the events of its jobs say."""

import json
from collections import Counter
from pathlib import Path

from gprune import jobs
from gprune.pipeline import opened
from gprune.pipeline.stages import stages_by_name
from gprune.store import Store


def begun(cache: Path) -> Counter[str]:
    """Of every result, by its place below the cache, in how many jobs its computing was begun."""
    counts: Counter[str] = Counter()
    for job in jobs.jobs(cache):
        counts.update(_of_job(cache, job.id).values())
    return counts


def _of_job(cache: Path, job_id: str) -> dict[str, str]:
    """What a job has begun to compute, by the names of the stages, the last one last."""
    stages = stages_by_name(opened(jobs.study_of(cache, job_id), Store(cache)).graph)
    values: dict[str, str] = {}
    for event in events(cache, job_id):
        name, message = event["stage"], event["message"]
        # what is reused is told once, and what another run computes is waited for
        if name in stages and message != "reused" and not message.startswith("waiting for "):
            values[name] = f"{stages[name].kind}/{stages[name].key}"
    return values


def events(cache: Path, job_id: str) -> list[dict[str, str]]:
    """The events of a job; one that a kill has torn is left out."""
    path = cache / "jobs" / job_id / "events.jsonl"
    lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines if line.strip()]
