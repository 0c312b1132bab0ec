"""The bundled demo study: a real shift between two texts that every installation carries.

The algorithm is the paper's, whole; the sample counts are scaled down so that it ends within two minutes
on two CPU cores: 144 sequences of 128 tokens a text instead of 2048, and 80 windows a text for the
perplexity instead of all; steps of 16 sequences instead of 32, so that fewer sequences still make 36 of them;
contexts from 4096 tokens instead of 16384.
Every other value is the paper's or this project's default.
"""

from gprune.study import CalibrationSettings, ContextSettings, EvaluationSettings, SparsitySettings, Study

TEXTS = ("python-reference", "science-docs", "python-code")


def demo_study() -> Study:
    """The demo: reference prose against science documentation, with code as the third text."""
    primary, auxiliary, substitute = TEXTS
    return Study(
        name="Bundled demo",
        model="demo",
        primary=primary,
        auxiliary=auxiliary,
        substitute=substitute,
        methods=("dense", "gprune", "llm_pruner", "wanda_sp", "flap", "flap_no_bias", "fang"),
        calibration=CalibrationSettings(samples=144),
        contexts=ContextSettings(tokens=4096),
        sparsity=SparsitySettings(epochs=2, batch=16),
        evaluation=EvaluationSettings(texts=TEXTS, windows=80),
    )
