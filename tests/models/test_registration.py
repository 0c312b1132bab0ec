"""Pruned checkpoints load by plain `from_pretrained` once `gprune` is imported, in any order."""

import subprocess
import sys

import pytest

from gprune.models.families import FAMILIES

pytestmark = pytest.mark.process

BEFORE = "import gprune, sys; assert 'transformers' not in sys.modules and 'torch' not in sys.modules"
AFTER = "from transformers import AutoModelForCausalLM; import gprune"
CHECK = """
import sys
from transformers import AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING
from gprune.models.export.modeling_gprune import classes_of
from gprune.models.families import FAMILIES
for model_class in map(classes_of, FAMILIES):
    assert MODEL_FOR_CAUSAL_LM_MAPPING[model_class.config_class] is model_class
print(len(FAMILIES), sum(type(f).__module__ == "gprune.models" for f in sys.meta_path))
"""


ALONE = """import gprune, sys
sys.meta_path[:] = [f for f in sys.meta_path if type(f).__module__ != "gprune.models"]
"""
EXPLICIT = f"{ALONE}gprune.register(); gprune.register()"
AFTER_MODELLING = f"{ALONE}import gprune.models.export.modeling_gprune; gprune.register()"


ENTRANCES = ("gprune.models.export.modeling_gprune", "transformers.models.auto.modeling_auto")


@pytest.mark.long
@pytest.mark.parametrize(
    "first",
    [
        pytest.param(BEFORE, id="before transformers"),
        pytest.param(AFTER, id="after transformers"),
        pytest.param(EXPLICIT, id="by its own call"),
        pytest.param(AFTER_MODELLING, id="by its own call, after the modelling file"),
        # any entrance to transformers can be the first
        *(pytest.param(f"import gprune\nimport {name}", id=name) for name in ENTRANCES),
    ],
)
def test_importing_gprune_makes_our_model_types_known(project, first):
    script = f"{first}\n{CHECK}"
    done = subprocess.run([sys.executable, "-c", script], cwd=project, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    # every family, and no finder left in the way
    assert done.stdout.split() == [str(len(FAMILIES)), "0"]
