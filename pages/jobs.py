"""Launch and follow runs."""

from gprune.views import jobs

jobs.show()
