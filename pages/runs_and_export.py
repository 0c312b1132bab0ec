"""Launch and follow runs, and take what they made along."""

from gprune.app.pages import export, jobs, report
from gprune.app.ui import address

address.show({"launch": jobs.show, "export": export.show, "report": report.show})
