"""Jobs: work that continues after its page or terminal is closed, as processes with their state on disk."""

from gprune.jobs.folder import LOG, CommandBuilder, Job, worker_command
from gprune.jobs.queue import cancel, get, jobs, log_tail, progress, reconcile, resume, study_of, submit
from gprune.jobs.reporting import JobProgress, JobReporter, StageTime
