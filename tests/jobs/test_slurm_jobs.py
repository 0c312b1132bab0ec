"""Slurm's jobs beside the queue's, with clients of our own that say what a test wrote into a file."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from gprune import jobs
from gprune.__main__ import main
from gprune.jobs.slurm import batch, client, node, settings, watching
from gprune.jobs.slurm.record import read_record, write_record
from gprune.jobs.slurm.settings import SlurmSettings
from gprune.jobs.slurm.submission import StudyJob
from gprune.jobs.state import JobState, read_state, update, write_state
from gprune.system import processes
from gprune.system.errors import JobError, SettingsError

from .conftest import make_study

CLIENT = """#!{python}
import sys
from pathlib import Path
home = Path({home!r})
name = Path(sys.argv[0]).name
with open(home / "asked", "a") as book:
    print(name, *sys.argv[1:], sep=chr(31), file=book)
if name == "sbatch":
    (home / "script").write_text(sys.stdin.read())
told = home / (name + ".says")
sys.stdout.write(told.read_text() if told.exists() else "")
wrong = home / (name + ".fails")
if wrong.exists():
    sys.exit(wrong.read_text())
"""


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """The folder in which the clients find what to say, and write what they were asked."""
    home = tmp_path / "clients"
    home.mkdir()
    for name in ("sbatch", "squeue", "scontrol", "scancel"):
        file = home / name
        file.write_text(CLIENT.format(python=sys.executable, home=str(home)))
        file.chmod(0o755)
    (home / "sbatch.says").write_text("41;cluster\n")
    monkeypatch.setenv("PATH", f"{home}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(watching, "SETTLE_SECONDS", 0.0)
    # a page's look in the background would come in between
    monkeypatch.setattr(watching, "soon", lambda home: None)
    return home


def asked(home, name):
    lines = (line.split(chr(31)) for line in (home / "asked").read_text().splitlines())
    return [words[1:] for words in lines if words[0] == name]


def submit(cache, *seeds, **values):
    entries = [StudyJob(make_study(seed)) for seed in seeds]
    return jobs.submit_slurm(cache, entries, SlurmSettings(**values))  # type: ignore[arg-type]


def look(cache, slurm, *lines):
    (slurm / "squeue.says").write_text("\n".join(lines))
    jobs.ask_slurm(cache)


def test_several_studies_are_one_array_and_no_queue_touches_them(cache, slurm, supervisors):
    found = submit(cache, 1, 2, gpus="a100:2", partition="big", time="1-12:00", memory="64G", at_once=1)
    (words,) = asked(slurm, "sbatch")
    for word in ("--parsable", "--requeue", "--signal=B:USR1@120", "--array=0-1%1", "--gpus=a100:2"):
        assert word in words
    assert {"--partition=big", "--time=1-12:00", "--mem=64G", "--cpus-per-task=1"} <= set(words)
    assert [read_record(job.folder).name for job in found] == ["41_0", "41_1"]
    jobs.reconcile(cache)
    assert supervisors == [] and [job.position for job in jobs.jobs(cache)] == [None, None]
    # they take no slot either
    assert jobs.submit(cache, make_study(3)).state == "running"
    # the same study once more is the job that is there
    assert submit(cache, 2)[0].id == found[1].id and len(asked(slurm, "sbatch")) == 1


def test_nothing_in_the_script_is_read_by_the_shell(tmp_path):
    evil = tmp_path / "it's $(touch owned) `touch owned` \"; touch owned; #"
    evil.mkdir()
    python = f"{sys.executable}"
    text = batch.script([evil], SlurmSettings(container=("env", "A=$(touch owned)"), python=python))
    (tmp_path / "run.sh").write_text(text.replace("gprune.jobs.slurm.node", "this"))
    environment = {**os.environ, "SLURM_ARRAY_TASK_ID": "0", "SLURM_ARRAY_JOB_ID": "7"}
    done = subprocess.run(["bash", tmp_path / "run.sh"], cwd=tmp_path, env=environment, capture_output=True)
    # it got as far as starting `python -m this FOLDER`
    assert done.returncode == 0 and b"Zen of Python" in done.stdout
    assert (evil / batch.SIGN).read_text().split()[1:] == ["7_0", "0"]
    assert not list(tmp_path.rglob("owned")) and not (Path.cwd() / "owned").exists()


def test_a_node_that_does_not_see_the_folder_says_so(tmp_path):
    text = batch.script([tmp_path / "not here"], SlurmSettings())
    environment = {**os.environ, "SLURM_ARRAY_TASK_ID": "0", "SLURM_ARRAY_JOB_ID": "7"}
    done = subprocess.run(["bash", "-c", text], env=environment, capture_output=True, text=True)
    assert done.returncode == batch.UNSEEN
    assert "is the cache on a disk that nodes share, and has it room?" in done.stderr


@pytest.mark.parametrize(
    ("values", "wrong"),
    [
        ({"partition": "a b"}, "partition"),
        ({"time": "soon"}, "time"),
        ({"memory": "64 GB"}, "memory"),
        ({"gpus": -1}, "gpus"),
        ({"cpus": True}, "cpus"),
        ({"options": ["--wrap=rm"]}, "options.* must be none that is set here"),
        ({"options": ["-p x"]}, "options of sbatch as --name"),
        ({"modules": ["--help"]}, "modules"),
        ({"nodes": 2}, "has no field .nodes"),
    ],
)
def test_wrong_settings_are_told_by_name(values, wrong):
    with pytest.raises(SettingsError, match=wrong):
        settings.from_dict(values)


def test_settings_come_from_the_cache_or_a_file_and_a_template_is_valid(cache, slurm, capsys, tmp_path):
    assert main(["submit", "--slurm-template"]) == 0
    text = capsys.readouterr().out
    assert settings.from_dict(json.loads(text)) == SlurmSettings()
    words = ["submit", "demo", "--engine", "slurm", "--cache", str(cache)]
    assert main(words) == 2
    assert "--slurm-template" in capsys.readouterr().err
    cache.mkdir()
    (cache / settings.FILE).write_text('{"account": "mine"}')
    assert main(words) == 0
    assert "Slurm's 41_0" in capsys.readouterr().out and "--account=mine" in asked(slurm, "sbatch")[0]
    assert main(["submit", "demo", "--slurm", "x.json", "--cache", str(cache)]) == 2
    assert "--engine slurm" in capsys.readouterr().err


def test_devices_of_this_machine_and_slurm_are_not_asked_for_at_once(cache, slurm, capsys, project):
    cache.mkdir()
    (cache / settings.FILE).write_text('{"account": "mine"}')
    more = ["--engine", "slurm", "--devices", "cuda:0", "cuda:1", "--cache", str(cache)]
    sweep = str(project / "examples" / "sweep.json")
    for words in (["sweep", sweep], ["reproduce", "main", "--model", "demo", "--scale", "demo"]):
        assert main([*words, *more]) == 2
        said = capsys.readouterr().err
        assert "--devices must be left out with --engine slurm" in said and "cuda:0 cuda:1" in said
        assert said.count("\n") == 1 and not (slurm / "asked").exists()


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("sbatch: error: invalid partition specified: x", "there is no such partition"),
        ("sbatch: error: AssocMaxSubmitJobLimit\nJob violates accounting/QOS policy", "a limit on your jobs"),
        ("sbatch: error: Invalid generic resource (gres) specification", "no node of the partition has"),
        ("sbatch: error: Unable to contact slurm controller (connect failure)", "cannot be reached"),
        ("sbatch: error: something new", "it said: something new"),
    ],
)
def test_what_sbatch_refuses_is_one_sentence_and_leaves_no_job(cache, slurm, said, told):
    (slurm / "sbatch.fails").write_text(said)
    with pytest.raises(JobError, match=told):
        submit(cache, 1)
    assert jobs.jobs(cache) == []


def test_without_a_client_nothing_is_submitted(cache, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JobError, match="no Slurm client"):
        submit(cache, 1)
    assert jobs.jobs(cache) == []


def test_a_waiting_job_says_why_and_is_cancelled_in_slurm(cache, slurm):
    (job,) = submit(cache, 1)
    look(cache, slurm, "odd line", "41|0|PENDING|QOSMaxJobsPerUserLimit")
    assert "as many of your jobs run as may" in jobs.get(cache, job.id).note
    assert jobs.cancel(cache, job.id).state == "cancelled"
    assert asked(slurm, "scancel") == [["41_0"]]
    # should it start all the same, it does nothing
    assert node.begin(job.folder, {}) is False and read_state(job.folder).state == "cancelled"


def test_a_job_that_slurm_took_back_goes_on_by_itself_and_is_not_deleted(cache, slurm):
    (job,) = submit(cache, 1)
    before = time.time() - 60
    write_state(job.folder, JobState("running", 5, 1.0, host="node7", started=before, beat=before))
    look(cache, slurm, "41|0|PENDING|BeginTime")
    between = jobs.get(cache, job.id)
    assert (between.state, between.returns, between.active) == ("interrupted", True, True)
    assert node.begin(job.folder, {"SLURM_ARRAY_JOB_ID": "41", "SLURM_ARRAY_TASK_ID": "0"})
    assert (read_state(job.folder).state, read_state(job.folder).host) == ("running", processes.host())


def test_a_run_that_slurm_was_told_to_stop_is_cancelled_and_one_whose_time_is_over_is_not(cache, slurm):
    first, second = submit(cache, 1, 2)
    for job in (first, second):
        # what the signal of either makes of a run
        write_state(job.folder, JobState("interrupted", 5, 1.0, host="node7", ended=time.time()))
    look(cache, slurm, "41|0|CANCELLED|None", "41|1|TIMEOUT|TimeLimit")
    found = [jobs.get(cache, job.id) for job in (first, second)]
    assert [job.state for job in found] == ["cancelled", "interrupted"] and not any(job.active for job in found)


@pytest.mark.parametrize(
    ("line", "state", "words"),
    [
        ("41|0|TIMEOUT|TimeLimit", "interrupted", "the time limit was reached"),
        ("41|0|NODE_FAIL|NodeDown", "interrupted", "its node failed"),
        ("41|0|OUT_OF_MEMORY|None", "failed", "set a larger `memory`"),
        ("41|0|CANCELLED|None", "cancelled", ""),
        ("41|0|FAILED|JobLaunchFailure", "failed", "cannot see this folder"),
        ("", "failed", "lost: Slurm does not know 41_0 any more, and it never began"),
    ],
)
def test_what_slurm_calls_ended_is_told(cache, slurm, line, state, words):
    (job,) = submit(cache, 1)
    look(cache, slurm, line)
    look(cache, slurm, line)
    found = jobs.get(cache, job.id)
    assert found.state == state and words in found.error and not found.active


def test_a_run_that_writes_its_beat_is_at_work_until_it_is_silent(cache, slurm):
    (job,) = submit(cache, 1)
    now = time.time()
    write_state(job.folder, JobState("running", 5, 1.0, host="node7", started=now - 2000, beat=now))
    look(cache, slurm, "")
    assert jobs.get(cache, job.id).state == "running"
    update(job.folder, lambda state: replace(state, beat=now - 2000))
    look(cache, slurm, "")
    found = jobs.get(cache, job.id)
    assert found.state == "failed" and "lost: " in found.error and "silent for 15 minutes" in found.error


def test_a_job_that_never_got_into_slurm_is_given_up(cache, slurm):
    (job,) = submit(cache, 1)
    write_record(job.folder, replace(read_record(job.folder), array="", made=time.time() - 1000))
    jobs.ask_slurm(cache)
    assert "never got into Slurm" in jobs.get(cache, job.id).error
    # resumed it goes where it was, with the same settings
    assert jobs.resume(cache, job.id).engine == "slurm"


def test_a_slurm_that_does_not_answer_decides_nothing_and_scontrol_is_read_entry_by_entry(cache, slurm):
    (job,) = submit(cache, 1)
    (slurm / "squeue.fails").write_text("Unable to contact slurm controller")
    jobs.ask_slurm(cache)
    found = jobs.get(cache, job.id)
    assert found.state == "queued" and "Unable to contact slurm controller" in found.note
    text = "JobId=2 JobState=FAILED ExitCode=0:53 Reason=with words here NodeList=n[1-2] Socks/Node=*"
    found = client.read_details("noise\n" + text)
    assert (found["ExitCode"], found["Reason"], found["NodeList"]) == ("0:53", "with words here", "n[1-2]")
    assert client.read_details("nothing of the kind") == {}
