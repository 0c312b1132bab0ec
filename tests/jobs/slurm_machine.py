"""A real Slurm on this machine alone, with two slots: its own key, ports and folder, nothing left."""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
from waiting import wait_for

PROGRAMS = ("munged", "mungekey", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "scancel")
CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={first}
SlurmdPort={second}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/controller
SlurmdSpoolDir={folder}/node
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
KillWait=10
MinJobAge=30
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def why_not() -> str:
    """Why no Slurm can be started here; empty if one can."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    missing = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    if missing:
        return f"Slurm is not installed (no {missing[0]}): apt-get install slurm-wlm munge"
    if os.geteuid() != 0:
        return "a Slurm of one's own is started by root alone"
    with contextlib.suppress(KeyError):
        pwd.getpwnam("munge")
        return ""
    return "there is no user munge"


@contextlib.contextmanager
def running() -> Iterator[dict[str, str]]:
    """A Slurm while the context lasts; gives the environment of its clients."""
    folder = Path(tempfile.mkdtemp(prefix="gprune-slurm-"))
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    environment = {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": path}
    started: list[subprocess.Popen[bytes]] = []
    all_values = {**os.environ, **environment}
    try:
        _prepare(folder)
        started.append(_munge(folder, all_values))
        wait_for((folder / "munge.socket").exists)
        for command in (["slurmctld", "-D"], ["slurmd", "-D"]):
            started.append(_start(command, all_values))
        wait_for(lambda: "idle" in _nodes(all_values), 60)
        yield environment
    finally:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run(["scancel", "--user=root"], env=all_values, timeout=20, capture_output=True)
            # what a step has left to report it reports to the daemons
            deadline = time.monotonic() + 30
            while _left(all_values) and time.monotonic() < deadline:
                time.sleep(0.2)
        for process in reversed(started):
            _stop(process)
        _stop_steps(folder)
        shutil.rmtree(folder, ignore_errors=True)


def _prepare(folder: Path) -> None:
    folder.chmod(0o755)
    for name in ("controller", "node", "munge"):
        (folder / name).mkdir()
    with socket.socket() as item, socket.socket() as other:
        item.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        first, second = item.getsockname()[1], other.getsockname()[1]
    host = socket.gethostname().split(".")[0]
    text = CONFIGURATION.format(host=host, first=first, second=second, folder=folder)
    (folder / "slurm.conf").write_text(text)


def _munge(folder: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    home, key = folder / "munge", folder / "munge" / "key"
    subprocess.run(["mungekey", "-c", "-k", str(key)], check=True, env=environment)
    for location in (home, key):
        shutil.chown(location, "munge", "munge")
    home.chmod(0o700)
    # the socket lies where its user may make it, and everybody may reach it
    shutil.chown(folder, "munge", "munge")
    command = ["munged", "-F", f"--key-file={key}", f"--socket={folder}/munge.socket"]
    command += [f"--{name}-file={home}/{name}" for name in ("pid", "log", "seed")]
    return _start(command, environment, user="munge", group="munge")


def _start(command: list[str], environment: dict[str, str], **account: str) -> subprocess.Popen[bytes]:
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(command, env=environment, start_new_session=True, **silent, **account)


def _nodes(environment: dict[str, str]) -> str:
    return subprocess.run(["sinfo", "-h", "-o", "%T"], env=environment, capture_output=True, text=True).stdout


def _left(environment: dict[str, str]) -> str:
    """Jobs that run or are being ended."""
    command = ["squeue", "-h", "--states=RUNNING,COMPLETING"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=20).stdout


def _stop_steps(folder: Path) -> None:
    """Ends what watches over steps and has outlived the daemons that started it."""
    for process in psutil.process_iter(["name"]):
        with contextlib.suppress(psutil.Error):
            if process.info["name"] == "slurmstepd" and str(folder) in process.environ().get("SLURM_CONF", ""):
                process.kill()


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
