"""Submit studies to Slurm by one generated script: first their shared stages, then an array with one study per task.

The script is submitted twice: as one job that computes the shared stages, and as an array that starts after it
(``--dependency=afterok``). Each part runs ``gprune run``, so its runs appear in the cache like all others. A job that
is requeued, by Slurm or because its time limit is near, continues from the results and checkpoints in the cache.
"""

import shlex
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gprune.study import Study
from gprune.system import installation, safe_parsing
from gprune.system.errors import JobError
from gprune.system.files import make_folder, write_text

FOLDER, SCRIPT = "slurm", "batch.sh"
WARNING_SECONDS = 120
"""Seconds before the time limit at which Slurm sends USR1."""

_BODY = """
job=$SLURM_JOB_ID
[ -n "$SLURM_ARRAY_TASK_ID" ] && job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID
# USR1 comes before the time limit, to this shell alone; TERM comes to every process, and the shell waits for them
trap 'limit=1; kill -USR1 "$run"' USR1
trap : TERM

compute() {
    @PYTHON@ run "$1" --until "$2" --cache @CACHE@ &
    run=$!
    # a signal interrupts `wait` before the run has ended
    wait "$run"; code=$?
    while kill -0 "$run" 2>/dev/null; do wait "$run"; code=$?; done
    if [ "$code" -ne 0 ] && [ -n "$limit" ]; then
        scontrol requeue "$job"
    fi
    # 3: done except for a task that could not be measured
    [ "$code" -eq 0 ] || [ "$code" -eq 3 ] || exit "$code"
}
"""


@dataclass(frozen=True, slots=True)
class Submission:
    """A submitted script, or with `dry_run` one that was only built."""

    script: str
    folder: Path
    """Folder of the script, the study files and the logs."""
    job_ids: tuple[str, ...]
    """Ids of the Slurm jobs: the job of the shared stages if there are any, then the array; empty with `dry_run`."""


def submit_array(
    cache: Path,
    studies: Sequence[Study],
    until: str,
    shared: Sequence[tuple[int, str]] = (),
    options: str = "",
    *,
    dry_run: bool = False,
) -> Submission:
    """Write the studies and the script below the cache, and submit both parts.

    Args:
        cache: Folder of results on a file system that the nodes share.
        studies: The studies, each a task of the array.
        until: The end of every study's run, one of ``gprune.pipeline.stages.UNTIL``.
        shared: Runs of the job before the array, each as the index of a study and the end of its run; empty for none.
        options: Additional options of ``sbatch`` in shell syntax.
        dry_run: Only build the script; write and submit nothing.

    Raises:
        JobError: No Slurm client is installed, or Slurm refuses the job.
    """
    folder = cache.resolve() / FOLDER / f"{time.strftime('%Y%m%d-%H%M%S')}-{time.time_ns() % 10**9:09}"
    script = build_script(folder, cache, len(studies), until, shared, _split_options(options))
    if dry_run:
        return Submission(script, folder, ())
    try:
        make_folder(folder)
        for index, study in enumerate(studies):
            write_text(_study_path(folder, index), study.to_json())
        write_text(folder / SCRIPT, script)
    except OSError as error:
        raise JobError(f"{folder} cannot be written ({error.strerror or error})") from error
    job_ids = [_submit_script([], folder)] if shared else []
    dependency = [f"--dependency=afterok:{job_ids[0]}", "--kill-on-invalid-dep=yes"] if shared else []
    try:
        job_ids.append(_submit_script([f"--array=0-{len(studies) - 1}", *dependency], folder))
    except JobError:
        for job_id in job_ids:
            subprocess.run(["scancel", job_id], check=False)
        raise
    return Submission(script, folder, tuple(job_ids))


def build_script(
    folder: Path, cache: Path, count: int, until: str, shared: Sequence[tuple[int, str]], options: Sequence[str]
) -> str:
    """Return the batch script for `count` studies, with every path quoted; see `submit_array` for the other arguments.

    `options` are the additional options of sbatch, one item each.
    """
    # sbatch reads % in the name of a file as the start of a placeholder
    log = str(folder).replace("%", "%%") + "/log-%j.txt"
    lines = ["#!/bin/bash", "#SBATCH --job-name=gprune --requeue --open-mode=append"]
    lines += [f"#SBATCH --signal=B:USR1@{WARNING_SECONDS}", f"#SBATCH --output={shlex.quote(log)}"]
    lines += [f"#SBATCH {shlex.quote(option)}" for option in options]
    lines.append(f"# {count} studies; without an array: the stages that they share")
    if installation.CHILD_FOLDER is not None:
        lines.append(f"cd {shlex.quote(str(installation.CHILD_FOLDER))} || exit")
    lines.append("export PYTHONUNBUFFERED=1")
    command = shlex.join(installation.command("gprune"))
    body = _BODY.replace("@PYTHON@", command).replace("@CACHE@", shlex.quote(str(cache.resolve())))
    lines += [body.rstrip(), "", 'if [ -n "$SLURM_ARRAY_TASK_ID" ]; then']
    lines.append(f'    compute {shlex.quote(str(folder))}/study-"$SLURM_ARRAY_TASK_ID".json {shlex.quote(until)}')
    lines += ["    exit", "fi"]
    for index, end in shared:
        lines.append(f"compute {shlex.quote(str(_study_path(folder, index)))} {shlex.quote(end)}")
    return "\n".join(lines) + "\n"


def _study_path(folder: Path, index: int) -> Path:
    return folder / f"study-{index}.json"


def _split_options(options: str) -> list[str]:
    """Return the options of sbatch in a string. Raises JobError if it holds anything but --name=value."""
    try:
        words = shlex.split(options)
    except ValueError as error:
        raise JobError(f"--sbatch {safe_parsing.quote(options)} cannot be read ({error})") from error
    wrong = next((word for word in words if not word.startswith("-") or "\n" in word), None)
    if wrong is not None:
        raise JobError(f"--sbatch takes options as --name=value, without a space before the value (got {wrong!r})")
    return words


def _submit_script(arguments: Sequence[str], folder: Path) -> str:
    """Submit the script in a folder with additional arguments of sbatch, and return the id of the Slurm job."""
    if shutil.which("sbatch") is None:
        raise JobError("this machine has no Slurm client (no sbatch on PATH): submit from a login node")
    command = ["sbatch", "--parsable", *arguments, str(folder / SCRIPT)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise JobError(f"Slurm refused the job: {safe_parsing.sentence(answer.stderr.replace('sbatch: error: ', ''))}")
    return answer.stdout.strip().partition(";")[0]
