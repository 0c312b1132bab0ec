"""What is said of this machine without torch, with a driver that is made up."""

import ctypes
import subprocess
import sys

import pytest

from gprune.system import machine
from gprune.system.units import amount, duration


class Driver:
    """CUDA's driver with two cards."""

    NAMES = (b"NVIDIA H100", b"NVIDIA A10")

    def __init__(self, status=0):
        self.status = status

    def cuInit(self, _):  # noqa: N802
        return self.status

    def cuDeviceGetCount(self, count):  # noqa: N802
        count._obj.value = len(self.NAMES)
        return 0

    def cuDeviceGet(self, device, index):  # noqa: N802
        device._obj.value = index
        return 0

    def cuDeviceGetName(self, name, length, device):  # noqa: N802
        assert length == len(name)
        name.value = self.NAMES[device.value]
        return 0


@pytest.fixture
def driver(monkeypatch):
    def use(library, torch="2.13.0"):
        machine.cards.cache_clear()
        monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
        monkeypatch.setattr(machine, "version", lambda package: torch if package == "torch" else "5")

    yield use
    machine.cards.cache_clear()


def test_a_card_is_known_by_its_name_whatever_it_was_asked_for_as(driver):
    driver(Driver())
    assert machine.has_gpu() and machine.cards() == ("NVIDIA H100", "NVIDIA A10")
    assert machine.describe("auto") == machine.describe("cuda") == machine.describe("cuda:0")
    assert machine.describe("cuda:1").startswith("NVIDIA A10, torch 2.13.0")
    assert " thread" in machine.describe("cpu")


@pytest.mark.parametrize(("library", "torch"), [(Driver(status=100), "2.13.0"), (Driver(), "2.13.0+cpu")])
def test_without_a_working_driver_or_with_torch_for_the_cpu_there_is_no_card(driver, library, torch):
    driver(library, torch)
    assert not machine.has_gpu() and " thread" in machine.describe("auto")


def test_threads_are_those_that_are_set_or_leave_a_core_to_the_app(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    for cores, threads in ((1, "1"), (2, "2"), (8, "7")):
        monkeypatch.setattr(machine, "cores", lambda cores=cores: cores)
        assert machine.threads() == threads
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert machine.threads() == "3"


@pytest.mark.parametrize(
    ("seconds", "words", "about"),
    [
        (None, "–", "–"),
        (float("nan"), "–", "–"),
        (0.4, "0 s", "0 s"),
        (89.4, "89 s", "89 s"),
        (90, "1 min 30 s", "2 min"),
        (7265, "2 h 01 min", "2.0 h"),
        (-3, "0 s", "0 s"),
    ],
)
def test_durations(seconds, words, about):
    assert (duration(seconds), duration(seconds, 1)) == (words, about)


def test_sizes():
    assert [amount(size) for size in (512, 3 * 2**20, 2.5 * 2**30)] == ["0.5 KiB", "3.0 MiB", "2.5 GiB"]


@pytest.mark.process
def test_the_peak_of_a_child_is_its_own():
    large = bytearray(b"x") * 300 * 2**20
    program = "from gprune.system import machine; print(machine.peak_memory())"
    peak = int(subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout)
    assert machine.peak_memory() > len(large) > 2 * peak > 2**24
