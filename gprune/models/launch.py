"""Answers: how does one command become several processes that compute one model together?

torch's own launcher starts them, on this machine, and passes signals on to them; each leads a session of its
own, and all of them run the same command. The exit code is that of rank 0, whose terminal it is.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from uuid import uuid4

from gprune import installation, machine
from gprune.errors import SettingsError

EXIT_STOPPED, _EXIT_LOST = 130, 2
_SIGNALS = "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1"


def launch(count: int, arguments: list[str]) -> int:
    """Runs a command of this package as several processes, to their end.

    Args:
        count: processes.
        arguments: the words after `gprune`.

    Returns:
        The exit code of rank 0; 130 where a signal has stopped them, 2 where rank 0 was killed.

    Raises:
        SettingsError: torch was built without what this needs.
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
    with tempfile.TemporaryDirectory(prefix="gprune-ranks-") as folder:
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
            logs_specs=DefaultLogsSpecs(log_dir=folder),
        )
        program, *words = installation.command("gprune", *arguments)
        try:
            elastic_launch(config, program)(*words)
        except SignalException:
            return EXIT_STOPPED
        except ChildFailedError as error:
            return _code({rank: int(one.exitcode) for rank, one in error.failures.items()})
    return 0


def _environment(count: int) -> dict[str, str]:
    """What the processes find: a share of the threads, and a network that does not leave the machine."""
    threads = machine.threads()
    own = max(int(threads) // count, 1) if threads.isdecimal() else 1
    found = {machine.THREADS_VARIABLE: str(own)}
    loopback = {"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}
    return found | {name: os.environ.get(name, value) for name, value in loopback.items()}


def _code(codes: dict[int, int]) -> int:
    """The exit code of rank 0, given those of all that have failed."""
    code = codes.get(0, _EXIT_LOST)
    if code >= 0:
        return code
    if len(codes) == 1:
        # of any other one that is killed rank 0 says so
        print(
            "error: process 1 of those that compute this model together has ended (killed, often for lack of "
            "memory): finished stages are kept, run it again to go on",
            file=sys.stderr,
        )
    return _EXIT_LOST
