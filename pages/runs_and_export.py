"""Launch and follow runs, and take what they made along."""

from gprune.app.pages.jobs import page as jobs
from gprune.app.pages.speed_export import page as export
from gprune.app.report import page as report
from gprune.app.ui import places

places.show({"launch": jobs.show, "export": export.show_export, "report": report.show})
