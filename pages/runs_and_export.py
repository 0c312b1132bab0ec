"""Page *Runs & export*: launch and follow runs, export pruned models, and save reports."""

from gprune.app.pages import export, jobs, report
from gprune.app.ui import address

address.show({"launch": jobs.show, "export": export.show, "report": report.show})
