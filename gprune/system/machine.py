"""This machine's devices, memory and processor, without torch, whose import takes seconds."""

import ctypes
import os
import platform
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import psutil

WEIGHTS_OF_A_GPU = 0.8
"""maximum share of a GPU's memory for weights, because passes need memory too; larger models use several GPUs"""
THREADS_VARIABLE = "OMP_NUM_THREADS"
_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""files with the memory limit of a container, for both versions of Linux control groups"""
_deferred: list[list[BaseException]] = []
"""pending errors of signals, one list for each open `defer_interrupts`"""


def has_gpu() -> bool:
    """Return True if torch is not a CPU build and the driver reports a CUDA device."""
    return "+cpu" not in version("torch") and bool(cards())


@cache
def cards() -> tuple[str, ...]:
    """Return the names of the CUDA devices in the order in which torch numbers them; none without a driver."""
    driver = _load_driver()
    count, device, name = ctypes.c_int(0), ctypes.c_int(0), ctypes.create_string_buffer(256)
    if driver is None or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return ()
    names = []
    for index in range(count.value):
        fault = driver.cuDeviceGet(ctypes.byref(device), index) or driver.cuDeviceGetName(name, len(name), device)
        names.append("GPU" if fault else name.value.decode(errors="replace"))
    return tuple(names)


@cache
def card_memory(index: int = 0) -> int:
    """Return the bytes of a CUDA device's memory; 0 if the driver does not report it."""
    driver, device, size = _load_driver(), ctypes.c_int(0), ctypes.c_size_t(0)
    if driver is None or driver.cuDeviceGet(ctypes.byref(device), index):
        return 0
    return 0 if driver.cuDeviceTotalMem_v2(ctypes.byref(size), device) else size.value


def _load_driver() -> Any:
    """Return the initialized CUDA driver, or None if there is none."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    return driver if driver.cuInit(0) == 0 else None


def memory() -> tuple[int, int]:
    """Return the free and total bytes of memory of this machine or container."""
    usage = psutil.virtual_memory()
    total = min([int(usage.total), *(limit for limit in map(_read_limit, _LIMITS) if limit)])
    return min(int(usage.available), total), total


def _read_limit(file: Path) -> int:
    """Return the number in a file; 0 if the file is missing or has no number, as for no limit."""
    try:
        content = file.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return 0
    return int(content) if content.isdecimal() else 0


def release_free_memory() -> None:
    """Return free memory of malloc to the operating system, if the C library supports it."""
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)


def peak_memory() -> int:
    """Return the largest number of bytes that this process has held.

    VmHWM of Linux counts this program only; `getrusage` also includes the process that it was forked from.
    """
    for size in _read_values(Path("/proc/self/status"), "VmHWM"):
        return 1024 * int(size.removesuffix("kB"))
    # bytes on macOS, KiB elsewhere
    unit = 1 if platform.system() == "Darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def version(package: str) -> str:
    """Return the installed version of a package."""
    # its import takes as long as all other imports of a command together
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def describe(device: str) -> str:
    """Return a description of device, threads and libraries, which determine a speed; `device` as in a study."""
    libraries = f"torch {version('torch')}, transformers {version('transformers')}"
    count = threads()
    cpu = f"{processor()}, {count} thread{'' if count == '1' else 's'}"
    # name the GPU itself, whatever the study calls it
    return f"{card(device) or cpu}, {libraries}"


def card(device: str) -> str:
    """Return the name of the GPU for a study's device (auto, cpu or cuda); empty if that is the CPU."""
    if device == "cpu" or not has_gpu():
        return ""
    number = device.partition(":")[2]
    index = int(number) if number.isdecimal() else 0
    return cards()[index] if index < len(cards()) else device


def threads() -> str:
    """Return the number of threads for computing: `OMP_NUM_THREADS` if it is set, else the number of cores.

    With more than two cores, one is left to the app. With two, half of the speed would be too high a price, because the
    app is idle most of the time.
    """
    count = cores()
    return os.environ.get(THREADS_VARIABLE) or str(count - 1 if count > 2 else count)


def cores() -> int:
    """Return the number of cores that this process may use, which may be fewer in a container than in the machine."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def processor() -> str:
    """Return the name of the processor."""
    return next(iter(_read_values(Path("/proc/cpuinfo"), "model name")), platform.processor() or platform.machine())


def _read_values(path: Path, name: str) -> list[str]:
    """Return the values under a name in a file of `name: value` lines."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    return [line.partition(":")[2].strip() for line in lines if line.startswith(name)]


def cache_budget() -> int:
    """Return the bytes that caches may use: half of the free memory, so that a second run fits."""
    return memory()[0] // 2


def interrupt(error: BaseException) -> None:
    """Raise the error of a signal: at once, or at the end of the innermost open `defer_interrupts`."""
    if not _deferred:
        raise error
    _deferred[-1].append(error)


@contextmanager
def defer_interrupts() -> Iterator[None]:
    """Delay `interrupt` until this context ends, so that a signal does not leave the work in it half done."""
    pending: list[BaseException] = []
    _deferred.append(pending)
    try:
        yield
    finally:
        _deferred.pop()
    if pending:
        raise pending[0]
