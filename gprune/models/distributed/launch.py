"""Answers: how does one command become several processes that compute one model together?

torch's own launcher starts them, on this machine, and passes signals on to them; each leads a session of its
own, and all of them run the same command. The exit code is that of rank 0, whose terminal it is.
"""

import logging
import os
import signal
import sys
from pathlib import Path
from uuid import uuid4

from gprune.system import installation, machine
from gprune.system.errors import SettingsError

EXIT_STOPPED, _EXIT_LOST = 130, 2
_SIGNALS = "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1"


def launch(count: int, arguments: list[str], folder: Path) -> int:
    """Runs a command of this package as several processes, to their end.

    `arguments` are the words after `gprune`; the launcher writes to `folder`. Gives the exit code of rank 0;
    130 where a signal has stopped them, 2 where rank 0 was killed. Raises SettingsError where torch was built
    without what this needs.
    """
    import torch.distributed

    if not torch.distributed.is_available():
        raise SettingsError(
            "--model-gpus needs torch.distributed, which this build of torch lacks: install another "
            "build, or leave the option out"
        )
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    # what goes wrong is said by rank 0, in one sentence
    logging.disable(logging.CRITICAL)
    os.environ |= _environment(count)
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=count,
        run_id=uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="localhost",
        max_restarts=0,
        signals_to_handle=_SIGNALS,
        logs_specs=DefaultLogsSpecs(log_dir=str(folder)),
    )
    program, *words = installation.command("gprune", *arguments)
    try:
        elastic_launch(config, program)(*words)
    except SignalException:
        return EXIT_STOPPED
    except ChildFailedError as error:
        return exit_code({rank: int(one.exitcode) for rank, one in error.failures.items()}, count)
    return 0


def _environment(count: int) -> dict[str, str]:
    """What the processes find: a share of the threads, and a network that does not leave the machine.

    That a process is gone they notice themselves. NCCL, which the launcher would otherwise ask to, ends the
    process with an abort, and neither a record nor a sentence is written.
    """
    threads = machine.threads()
    own = max(int(threads) // count, 1) if threads.isdecimal() else 1
    found = {machine.THREADS_VARIABLE: str(own)}
    usual = {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    usual |= {"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}
    return found | {name: os.environ.get(name, value) for name, value in usual.items()}


def exit_code(codes: dict[int, int], count: int) -> int:
    """The exit code of rank 0; says what has happened where that one could not.

    `codes` are of all that have failed, by rank, in the order in which they ended.
    """
    code = codes.get(0, 0)
    if code >= 0:
        return code
    if code != -signal.SIGALRM:
        # by that signal it ends itself when all is said (gprune.models.distributed.process_group)
        print(
            f"error: process {next(iter(codes)) + 1} of the {count} that compute this model together has "
            "ended (killed, probably out of memory): finished stages are kept, run it again to go on",
            file=sys.stderr,
        )
    return _EXIT_LOST
