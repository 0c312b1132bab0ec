"""GPrune Studio: why a pruning decision is fragile, and what to do about it.

Importing this package imports nothing heavy; ``python -m gprune --help`` lists the commands. From then on
``AutoModelForCausalLM.from_pretrained`` loads pruned checkpoints without remote code.
"""

from gprune.registration import register as register
from gprune.registration import register_when_loaded

__version__ = "0.1.0"

register_when_loaded()
