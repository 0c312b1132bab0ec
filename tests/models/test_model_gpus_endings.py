"""How processes that compute one model together end where something goes wrong: one sentence, none left."""

import argparse
import errno
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from threads_of_ranks import Meeting, ThreadRanks
from waiting import limit

from gprune.cli import distributed as ranks
from gprune.models import sharding
from gprune.models.distributed.heartbeat import Heartbeat
from gprune.models.distributed.launch import exit_code
from gprune.models.distributed.rpc import Order, made
from gprune.pipeline.stages import distributed
from gprune.study.demo import demo_study
from gprune.system.errors import GpruneError, SettingsError


def following(monkeypatch, error):
    """The second of two processes, whose next work ends with an error."""
    meeting = Meeting(2)
    meeting.orders[1].put(Order("some work", {}, {}))

    def fail(*_):
        raise error

    monkeypatch.setattr(ranks, "_take_part", fail)
    return ThreadRanks(meeting, 1), meeting


def test_memory_that_runs_out_on_another_process_is_told_by_the_first(
    monkeypatch,
):
    error = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
    one, meeting = following(monkeypatch, error)
    assert ranks._follow(one) == ranks.EXIT_FAILED
    told = made(meeting.get("gone/1"))
    assert isinstance(told, SettingsError)
    assert str(told).startswith("memory ran out on process 2 of the 2 that compute this model together (2.00 GiB")


def test_a_command_that_is_gone_is_told_as_what_it_is(monkeypatch):
    peers = Heartbeat(Meeting(1), 0, [os.getpid()])
    assert peers.missing() is None
    monkeypatch.setattr("os.getppid", lambda: -1)
    assert "the command that started the 1 processes of this run has ended" in str(peers.missing())
    peers.over = True
    assert peers.missing() is None


def test_nobody_waits_for_a_farewell_that_never_ends(monkeypatch):
    """As where NCCL waits for a process that is gone."""
    free = threading.Event()
    monkeypatch.setattr("gprune.models.distributed.process_group.dist.destroy_process_group", free.wait)
    monkeypatch.setattr("gprune.models.distributed.process_group.GRACE_SECONDS", 0.01)
    meeting = Meeting(2)
    one = ThreadRanks(meeting, 0)
    assert not one.end()
    assert meeting.get("over") == b"said"
    free.set()


@pytest.mark.parametrize(
    ("codes", "code", "words"),
    [
        ({0: 3}, 3, ""),
        ({1: 1, 0: 2}, 2, ""),
        # rank 0 had ended well
        ({1: 1}, 0, ""),
        ({0: -9}, 2, "process 1 of the 2 that compute this model together has ended"),
        ({1: -9, 0: -15}, 2, "process 2 of the 2 that compute this model together has ended"),
        # it has said all and could not leave
        ({0: -signal.SIGALRM}, 2, ""),
    ],
)
def test_the_exit_code_is_that_of_the_first_process(codes, code, words, capsys):
    assert exit_code(codes, 2) == code
    said = capsys.readouterr().err
    assert words in said and bool(said) == bool(words)


def full(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("what", [(tempfile, "TemporaryDirectory"), (Path, "write_text")])
def test_a_folder_for_temporary_files_that_cannot_be_written_is_told(what, monkeypatch):
    monkeypatch.setattr(*what, full)
    with pytest.raises(
        SettingsError, match=r"temporary file, .* \(No space left on device\): make room, or set TMPDIR"
    ):
        ranks.run(argparse.Namespace(model_gpus=2), demo_study(), lambda _: 0)


def test_the_others_give_their_gpus_back_before_a_model_is_laid_over_them(
    monkeypatch,
):
    told: list[str] = []

    class Others:
        device, count = "cuda:0", 2

        def order(self, name, *_):
            told.append(name)

    monkeypatch.setattr(sharding, "spread", lambda *_: told.append("laid"))
    others: Any = Others()
    distributed.Processes(others, demo_study(), "bfloat16", lambda: None).whole()
    assert told == [distributed.LET_GO, "laid"]


ALONE = """
import os, signal, sys
from gprune.cli.distributed import _keep_output
_keep_output(True)
import gprune.models.distributed.process_group as module
one = module.Ranks.join("cpu")
beginnings = "TORCHELASTIC_", "MASTER_", "LOCAL_", "RANK", "WORLD_"
left = [name for name in os.environ if name.startswith(beginnings)]
os.write(1, b"a library\\n")
print(left, os.environ["ROLE_ARN"], one.count, int(one.gathered(module.torch.tensor([7]))[0]))
sys.stdout.flush()
module._LAST_SECONDS = 1
one.leave()
signal.pause()
"""


@pytest.mark.process
def test_one_that_leaves_early_ends_whatever_holds_it_back():
    """Its output has results alone, and nothing that it starts takes itself for one of several."""
    said = {
        "RANK": "0",
        "WORLD_SIZE": "1",
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": "0",
        "ROLE_ARN": "mine",
    }
    done = subprocess.run(
        [sys.executable, "-c", ALONE],
        env=os.environ | said | {"TORCHELASTIC_RUN_ID": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=limit(60),
        check=False,
    )
    assert done.stdout == "[] mine 1 7\n", done.stderr
    assert "a library\n" in done.stderr and "Traceback" not in done.stderr
    assert done.returncode == -signal.SIGALRM


def test_a_device_that_is_not_there_is_refused_by_the_processes_too(monkeypatch):
    """The driver may see a GPU that this build of torch does not."""
    from gprune.models.distributed.process_group import Ranks

    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr("gprune.models.devices.automatic", lambda: torch.device("cpu"))
    with pytest.raises(GpruneError, match="device is 'cuda', but torch sees no CUDA device here"):
        Ranks.join("cuda")
