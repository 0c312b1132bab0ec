"""Answers: which tasks is zero-shot accuracy measured on, and where do their documents come from?

The seven tasks of section 4, files of one's own, and questions made from the demo's texts. Nothing here needs
torch or lm-eval, except ``harness``, which hands the documents to lm-eval.
"""

from gprune.evaluation.tasks.reading import TaskSource, documents, doubt, fingerprint
from gprune.evaluation.tasks.source import available, known, resolve
from gprune.evaluation.tasks.standard import STANDARD_TASKS, StandardTask
