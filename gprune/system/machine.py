"""This machine, as far as it can be told without torch: importing that takes seconds."""

import ctypes
import os
import platform
import resource
from functools import cache
from pathlib import Path
from typing import Any

import psutil

THREADS_VARIABLE = "OMP_NUM_THREADS"
_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""where a container says how much memory it may have, in the two forms of Linux"""


def has_gpu() -> bool:
    """Whether torch will find a CUDA device: asked of the driver, since importing torch takes seconds."""
    return "+cpu" not in version("torch") and bool(cards())


@cache
def cards() -> tuple[str, ...]:
    """Names of the CUDA devices in the order in which torch numbers them; none without a driver."""
    driver = _driver()
    count, device, name = ctypes.c_int(0), ctypes.c_int(0), ctypes.create_string_buffer(256)
    if driver is None or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return ()
    found = []
    for index in range(count.value):
        known = driver.cuDeviceGet(ctypes.byref(device), index) == 0
        known = known and driver.cuDeviceGetName(name, len(name), device) == 0
        found.append(name.value.decode(errors="replace") if known else "GPU")
    return tuple(found)


@cache
def card_memory(index: int = 0) -> int:
    """Bytes of a CUDA device's memory, whoever uses them; 0 where the driver does not tell."""
    driver, device, size = _driver(), ctypes.c_int(0), ctypes.c_size_t(0)
    known = driver is not None and driver.cuDeviceGet(ctypes.byref(device), index) == 0
    known = known and driver.cuDeviceTotalMem_v2(ctypes.byref(size), device) == 0
    return size.value if known else 0


def _driver() -> Any:
    """The driver of CUDA, ready to be asked; None where there is none."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    return driver if driver.cuInit(0) == 0 else None


def memory() -> tuple[int, int]:
    """Bytes of this machine's memory that are free, and in all; of a container what it may have."""
    found = psutil.virtual_memory()
    whole = min([int(found.total), *(limit for limit in map(_limit, _LIMITS) if limit)])
    return min(int(found.available), whole), whole


def _limit(file: Path) -> int:
    """The number in a file; 0 where there is none."""
    try:
        words = file.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return 0
    return int(words) if words.isdecimal() else 0


def trim() -> None:
    """Gives the system back what malloc holds between blocks that are in use, where the C library can."""
    give = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if give is not None:
        give(0)


def peak_memory() -> int:
    """Bytes that this process has held at most.

    The usage of resources says more where the process came from a larger one, with whose size it begins.
    """
    for told in _values(Path("/proc/self/status"), "VmHWM"):
        return 1024 * int(told.removesuffix("kB"))
    unit = 1 if platform.system() == "Darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def address_space() -> int:
    """Bytes of addresses that a process may have (`ulimit -v`); 0 where they are not limited."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return 0 if limit == resource.RLIM_INFINITY else int(limit)


def addresses_left() -> int | None:
    """Bytes of addresses that this process may still take; None where they are not limited."""
    limit = address_space()
    return max(limit - int(psutil.Process().memory_info().vms), 0) if limit else None


def version(package: str) -> str:
    """Installed version of a package."""
    # it takes as long as all else that a command imports before it is asked anything
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def describe(device: str) -> str:
    """What a speed depends on besides the models: devices, threads, libraries. Device as in a study."""
    libraries = f"torch {version('torch')}, transformers {version('transformers')}"
    # the card decides, by whatever name it was asked for
    name = card(device)
    count = threads()
    computes = f"{processor()}, {count} thread{'' if count == '1' else 's'}"
    return f"{name or computes}, {libraries}"


def card(device: str) -> str:
    """Name of the GPU that a study with auto, cpu or cuda computes on; empty where that is the CPU."""
    if device == "cpu" or not has_gpu():
        return ""
    number = device.partition(":")[2]
    index = int(number) if number.isdecimal() else 0
    return cards()[index] if index < len(cards()) else device


def threads() -> str:
    """Threads of whatever computes here, as `OMP_NUM_THREADS` says or would have to.

    One core is left to the app where there are more than two: the app idles most of the time, and on a small
    machine half of the cores is too high a price. A variable that is set is respected.
    """
    count = cores()
    return os.environ.get(THREADS_VARIABLE) or str(count - 1 if count > 2 else count)


def cores() -> int:
    """Cores that this process may use, which in a container can be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def processor() -> str:
    """Name of the processor."""
    return next(iter(_values(Path("/proc/cpuinfo"), "model name")), platform.processor() or platform.machine())


def _values(path: Path, name: str) -> list[str]:
    """What a file of `name: value` lines says under a name."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    return [line.partition(":")[2].strip() for line in lines if line.startswith(name)]


def spare() -> int:
    """Bytes that may be kept only to spare work: half of what is free, so that a second run has room too."""
    return memory()[0] // 2
