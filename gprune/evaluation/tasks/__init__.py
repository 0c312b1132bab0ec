"""Tasks of lm-eval, a user's own questions, and the demo's questions: names, data and fingerprints, without torch.

lm-eval is imported only when it is needed.
"""

from gprune.evaluation.tasks.loading import PROMPTS, fingerprint, listed_tasks, needs_index, resolve
from gprune.evaluation.tasks.rows import STANDARD_TASKS, TaskSource, read_documents
