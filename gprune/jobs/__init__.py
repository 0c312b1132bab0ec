"""Jobs: work that outlives the page or terminal that started it, as processes with their state on disk."""

from gprune.jobs.folder import LOG
from gprune.jobs.job import Job
from gprune.jobs.local import CommandBuilder, worker_command
from gprune.jobs.queue import cancel, get, jobs, log_tail, progress, reconcile, resume, study_of, submit
from gprune.jobs.reporting import JobReporter
from gprune.jobs.timeline import JobProgress, StageTime
