"""Tasks of lm-eval, questions of one's own, and the demo's: names, data and fingerprints, without torch.

``language_model`` and ``answers`` are imported when a task is measured; lm-eval when it is needed.
"""

from gprune.evaluation.tasks.loading import fingerprint
from gprune.evaluation.tasks.rows import STANDARD_TASKS
from gprune.evaluation.tasks.source import TaskSource, available, known, needs_index, read_documents, resolve
