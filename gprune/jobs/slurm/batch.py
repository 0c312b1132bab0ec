"""The batch script of an array of jobs, and the arguments of ``sbatch``: text, in which everything is quoted.

The shell stays beside the run, because Slurm sends its warning to the shell alone: it passes USR1 on,
and gives a run that was interrupted by the time limit back to Slurm. That is done by ``scontrol requeue``
and not by a new submission: the job keeps its number, so that whoever cancels or looks finds it, a user's
limit on submitted jobs cannot stand against it, and there is no moment at which two of them run. The shell
does it and not the run, which may be inside a container that has no Slurm.
"""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from gprune.jobs.slurm.settings import SlurmSettings
from gprune.system import installation

WARNING_SECONDS = 120
"""before the time limit, Slurm sends USR1 so long"""
INTERRUPTED = 75
"""exit code of a run that is to be continued"""
UNSEEN = 66
"""exit code of a node that cannot write to the job's folder"""
SIGN = "node.txt"
"""what the batch script writes first: on which node, as which job of Slurm, for which time"""
SCRIPT = "batch.sh"

_BODY = """
folder=${folders[$SLURM_ARRAY_TASK_ID]}
# the first sign of life: what does not get here was never seen by whoever looks at the folder
if ! printf '%s %s_%s %s\\n' "$(hostname)" "$SLURM_ARRAY_JOB_ID" "$SLURM_ARRAY_TASK_ID" \\
        "${SLURM_RESTART_COUNT:-0}" >> "$folder/@SIGN@"; then
    printf 'the node %s cannot write to %s: is the cache on a disk that nodes share, and has it room?\\n' \\
        "$(hostname)" "$folder" >&2
    exit @UNSEEN@
fi
limit=
trap 'limit=1; kill -USR1 "$run" 2>/dev/null' USR1
# TERM reaches every process by itself; the shell waits for them
trap : TERM
@COMMAND@ "$folder" &
run=$!
# a signal ends `wait` before the run has ended
wait "$run"; code=$?
while kill -0 "$run" 2>/dev/null; do wait "$run"; code=$?; done
wait "$run" 2>/dev/null; last=$?
[ "$last" -ne 127 ] && code=$last
if [ "$code" -eq @INTERRUPTED@ ] && [ -n "$limit" ]; then
    scontrol requeue "${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}" ||
        printf 'Slurm did not take the job back: resume it by hand\\n' >&2
fi
exit "$code"
"""


def script(folders: Sequence[Path], settings: SlurmSettings) -> str:
    """The batch script of an array, whose tasks are the folders in their order."""
    lines = ["#!/bin/bash", "# made by gprune; every job of the array runs one of these folders", "folders=("]
    lines += [f"    {shlex.quote(str(folder))}" for folder in folders]
    lines.append(")")
    if settings.modules:
        lines.append(f"module load {shlex.join(settings.modules)} || exit")
    if installation.CHILD_FOLDER is not None:
        lines.append(f"cd {shlex.quote(str(installation.CHILD_FOLDER))} || exit")
    lines.append("export PYTHONUNBUFFERED=1")
    module = installation.command("gprune.jobs.slurm.node")[1:]
    command = shlex.join([*settings.container, python(settings), *module])
    body = _BODY.replace("@SIGN@", SIGN).replace("@UNSEEN@", str(UNSEEN))
    body = body.replace("@INTERRUPTED@", str(INTERRUPTED)).replace("@COMMAND@", command)
    return "\n".join(lines) + body


def python(settings: SlurmSettings) -> str:
    """The Python of the nodes."""
    return settings.python or sys.executable


def arguments(settings: SlurmSettings, name: str, count: int, output: str, *, exclusive: bool = False) -> list[str]:
    """The argument list of ``sbatch``, which reads the script from its standard input.

    `name` is what `squeue` calls the jobs, `count` those in the array, `output` the file for what the script
    itself says, with %a for the job's place; if `exclusive`, no other job may share the node: a clock is
    read.
    """
    at_once = f"%{settings.at_once}" if settings.at_once else ""
    words = [
        "sbatch", "--parsable", "--requeue", f"--signal=B:USR1@{WARNING_SECONDS}",
        f"--array=0-{count - 1}{at_once}", f"--job-name={name}", f"--output={output}", "--open-mode=append",
        "--nodes=1", "--ntasks=1", f"--cpus-per-task={settings.cpus}",
    ]  # fmt: skip
    chosen: dict[str, object] = {"partition": settings.partition, "account": settings.account}
    chosen |= {"time": settings.time, "mem": settings.memory, "gpus": settings.gpus}
    words += [f"--{option}={value}" for option, value in chosen.items() if value not in ("", 0, "0")]
    return [*words, *(["--exclusive"] if exclusive else []), *settings.options]
