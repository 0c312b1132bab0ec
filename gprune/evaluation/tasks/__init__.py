"""Tasks of lm-eval, questions of one's own, and the demo's: names, data and fingerprints, without torch.

``language_model`` is imported when a task is measured; lm-eval when it is needed.
"""

from gprune.evaluation.tasks.loading import fingerprint, listed_tasks, needs_index, resolve
from gprune.evaluation.tasks.rows import STANDARD_TASKS, TaskSource, read_documents
