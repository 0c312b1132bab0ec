"""Jobs: work that outlives the page that started it, as child processes with their truth on disk.

Pages call the functions below; the run itself reports through ``JobReporter``.
"""

from gprune.jobs.folder import LOG
from gprune.jobs.job import Job
from gprune.jobs.local import CommandBuilder, worker_command
from gprune.jobs.queue import (
    cancel,
    get,
    jobs,
    log_tail,
    progress,
    reconcile,
    resume,
    study_of,
    submit,
)
from gprune.jobs.reporting import JobReporter
from gprune.jobs.timeline import JobProgress, StageTime
