"""Which jobs run at the same time and where: slots, named GPUs, and clocks that share with nobody."""

import sys
import time
from dataclasses import replace

import pytest
from waiting import wait_for

from gprune.jobs import device_slots, get, jobs, local, log_tail, reconcile, submit
from gprune.jobs.job import measures_speed
from gprune.jobs.state import JobState, read_state, write_state
from gprune.system import machine
from gprune.system.errors import JobError

from .conftest import make_study


@pytest.fixture(autouse=True)
def unset(monkeypatch):
    monkeypatch.delenv("GPRUNE_JOB_DEVICES", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.fixture
def two(monkeypatch):
    """A machine with two GPUs, both named."""
    monkeypatch.setattr(machine, "cards", lambda: ("a card", "a card"))
    monkeypatch.setenv("GPRUNE_JOB_DEVICES", "cuda:0 cuda:1")


@pytest.fixture
def three(monkeypatch):
    """A machine with three GPUs, all of them named."""
    monkeypatch.setattr(machine, "cards", lambda: ("a card",) * 3)
    monkeypatch.setenv("GPRUNE_JOB_DEVICES", "cuda:0 cuda:1 cuda:2")


def timed(number, **changes):
    return replace(make_study(number), **changes).with_settings({"evaluation.speed": "cpu"})


def on(number, device):
    return replace(make_study(number), device=device)


def end(cache, *ended):
    for job in ended:
        write_state(job.folder, replace(read_state(job.folder), state="done", ended=time.time()))
    reconcile(cache)


def now(cache, *asked):
    found = [get(cache, job.id) for job in asked]
    return [(job.state, job.device) for job in found]


def test_each_gpu_has_one_job_and_its_record_says_which(cache, supervisors, two):
    first, second, third = (submit(cache, make_study(seed)) for seed in range(3))
    assert now(cache, first, second, third) == [("running", "cuda:0"), ("running", "cuda:1"), ("queued", "")]
    end(cache, second)
    assert now(cache, second, third) == [("done", "cuda:1"), ("running", "cuda:1")]


def test_who_names_a_device_waits_for_it_and_others_do_not_wait_behind(cache, supervisors, two):
    first, second, free = (submit(cache, study) for study in (on(0, "cuda:1"), on(1, "cuda:1"), make_study(2)))
    assert now(cache, first, second, free) == [("running", "cuda:1"), ("queued", ""), ("running", "cuda:0")]
    # the CPU has a place of its own, for studies that ask for it and for exports
    slow, export = submit(cache, on(3, "cpu")), submit(cache, make_study(4), "", ("export", "in", "out", "--padded"))
    assert now(cache, slow, export) == [("running", "cpu"), ("queued", "")]
    end(cache, first, slow)
    assert now(cache, second, export) == [("running", "cuda:1"), ("running", "cpu")]


def test_without_named_gpus_slots_decide_and_nobody_has_a_device(cache, supervisors, monkeypatch):
    monkeypatch.setenv("GPRUNE_JOB_SLOTS", "2")
    made = [submit(cache, study) for study in (make_study(0), on(1, "cuda:3"), make_study(2))]
    assert now(cache, *made) == [("running", ""), ("running", ""), ("queued", "")]


def test_a_clock_waits_until_nothing_is_at_work_and_nothing_overtakes_it(cache, supervisors, monkeypatch):
    monkeypatch.setenv("GPRUNE_JOB_SLOTS", "3")
    first, clock, last = (submit(cache, study) for study in (make_study(0), timed(1), make_study(2)))
    assert [state for state, _ in now(cache, first, clock, last)] == ["running", "queued", "queued"]
    end(cache, first)
    assert [state for state, _ in now(cache, clock, last)] == ["running", "queued"]
    later = submit(cache, make_study(3))
    assert later.state == "queued"
    end(cache, clock)
    assert [state for state, _ in now(cache, last, later)] == ["running", "running"]


def test_a_clock_has_the_first_gpu_to_itself_and_the_other_goes_on(cache, supervisors, two):
    first, second, clock, other = (
        submit(cache, study) for study in (make_study(0), make_study(1), timed(2), make_study(3))
    )
    end(cache, second)
    assert now(cache, clock, other) == [("queued", ""), ("running", "cuda:1")]
    end(cache, first)
    assert now(cache, clock) == [("running", "cuda:0")]
    waits = submit(cache, make_study(4))
    end(cache, other)
    assert now(cache, clock, waits) == [("running", "cuda:0"), ("running", "cuda:1")]


def test_a_clock_of_the_cpu_shares_the_machine_with_no_gpu(cache, supervisors, two):
    first, clock, last = (submit(cache, study) for study in (make_study(0), timed(1, device="cpu"), make_study(2)))
    assert now(cache, first, clock, last) == [("running", "cuda:0"), ("queued", ""), ("queued", "")]
    end(cache, first)
    assert now(cache, clock, last) == [("running", "cpu"), ("queued", "")]


def test_a_measurement_of_models_by_name_is_a_clock_where_its_command_says(cache, supervisors, two):
    cpu, gpu = ("speed", "a", "b", "--preset", "cpu"), ("speed", "a", "b", "--preset", "gpu")
    first, clock = submit(cache, make_study(0)), submit(cache, make_study(1), "", cpu)
    last = submit(cache, make_study(2), "", ("export", "in", "out", "--padded"))
    assert now(cache, first, clock, last) == [("running", "cuda:0"), ("queued", ""), ("queued", "")]
    end(cache, first)
    assert now(cache, clock, last) == [("running", "cpu"), ("queued", "")]
    end(cache, clock, last)
    # speeds of one machine are all of its first GPU, where a run has the other one meanwhile
    made = [submit(cache, make_study(3), "", gpu), submit(cache, make_study(4), "", (*gpu, "--csv"))]
    assert now(cache, *made, submit(cache, make_study(5))) == [
        ("running", "cuda:0"),
        ("queued", ""),
        ("running", "cuda:1"),
    ]


def test_only_a_run_that_comes_to_its_clock_is_timed(cache, supervisors):
    study = timed(0)
    assert [measures_speed(study, until) for until in ("all", "perplexity", "masks")] == [True, True, False]
    assert not measures_speed(make_study())
    for arguments, expected in (((), True), (("--until", "masks"), False), (("export", "a", "b", "--padded"), False)):
        assert submit(cache, study, "", arguments).timed == expected


@pytest.mark.parametrize("value", ["cuda", "cpu", "cuda:0 cuda:0", "cuda:01", "0,1", "cuda:0,cuda:1"])
def test_devices_must_be_gpus_each_once(cache, supervisors, monkeypatch, value):
    monkeypatch.setenv("GPRUNE_JOB_DEVICES", value)
    with pytest.raises(JobError, match="GPRUNE_JOB_DEVICES must name GPUs, each once, as 'cuda:0 cuda:1'"):
        submit(cache, make_study())
    assert jobs(cache) == []


def test_a_gpu_that_is_not_there_is_refused(cache, supervisors, two, monkeypatch):
    monkeypatch.setattr(machine, "cards", lambda: ("a card",))
    with pytest.raises(JobError, match="names cuda:1, and this machine shows 1 GPUs"):
        submit(cache, make_study())
    monkeypatch.setenv("GPRUNE_JOB_DEVICES", "")
    with pytest.raises(JobError, match="names cuda:7"):
        device_slots.allow(("cuda:7",))


@pytest.mark.process
def test_a_job_sees_the_gpu_that_it_was_given_and_one_that_names_its_own_sees_all(cache, two):
    script = "import os; print('sees', os.environ.get('CUDA_VISIBLE_DEVICES', 'all'))"

    def build(folder, arguments):
        return [sys.executable, "-c", script]

    made = [submit(cache, study, build=build) for study in (on(0, "cuda:0"), make_study(1))]
    wait_for(lambda: not any(get(cache, job.id).active for job in made))
    assert [get(cache, one.id).device for one in made] == ["cuda:0", "cuda:1"]
    assert [log_tail(cache, job.id)[0] for job in made] == ["sees all", "sees 1"]


@pytest.mark.parametrize("changes", [{"device": 3}, {"device": "x" * 30_000}, {"killed": "yes"}])
def test_a_damaged_device_is_told(cache, supervisors, changes):
    job = submit(cache, make_study())
    write_state(job.folder, JobState(**({"state": "running"} | changes)))
    assert get(cache, job.id).state == "failed"


def test_a_gpu_is_counted_among_those_that_are_seen(monkeypatch):
    assert local.environment("cuda:1")["CUDA_VISIBLE_DEVICES"] == "1"
    assert "CUDA_VISIBLE_DEVICES" not in local.environment()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5, 7")
    assert local.environment("cuda:1")["CUDA_VISIBLE_DEVICES"] == "7"
    with pytest.raises(ValueError, match="no cuda:2 among CUDA_VISIBLE_DEVICES=5, 7"):
        local.environment("cuda:2")
