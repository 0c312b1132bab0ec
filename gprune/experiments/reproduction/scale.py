"""The sizes of a reproduction: those of the paper, or smaller ones that two cores finish in minutes.

Section 4 and the appendix on detailed settings state 2048 samples, 2 epochs, and retentions and RASA quantiles per
model. `demo` runs the same tables on fewer sequences without any change of a formula. `study` is `demo` with more
sequences and windows, enough to compare two small models. `experts` is `demo` at the retentions of mixtures.
"""

import re
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from gprune.data import published
from gprune.data.demo import questions
from gprune.pipeline.stages.inputs import ROLES
from gprune.study.demo import TEXTS
from gprune.study.methods import require_known
from gprune.study.settings import require, require_choice

SCALES = ("paper", "demo", "study", "experts")
SUITES = {"paper": published.TASKS, "demo": questions.NAMES, "none": ()}
"""names of sets of tasks"""
PAPER_TEXTS = ("wikitext2", "ptb", "c4")
PAPER_EPOCHS = 2
RETENTIONS = (0.8, 0.7, 0.5)
LARGE = "LLaMA2-13B"
_LARGE_RETENTIONS = (0.5, 0.4, 0.3)
_PAPER_MODELS = {
    published.MODELS[0]: r"(llama27b|llama2v?7b)(hf)?",
    published.MODELS[1]: r"vicuna(v?157b|7bv15)",
    LARGE: r"llama2v?13b(hf)?",
}
"""pattern of the last part of a folder or hub name, in lower case without punctuation, by model of the paper"""


@dataclass(frozen=True, slots=True)
class Scale:
    """The settings that all studies of a reproduction share."""

    name: str
    """one of SCALES"""
    primary: str = PAPER_TEXTS[0]
    """calibration text A"""
    auxiliary: str = PAPER_TEXTS[1]
    """calibration text B"""
    substitute: str = PAPER_TEXTS[2]
    """third text C, which replaces A or B"""
    texts: tuple[str, ...] = PAPER_TEXTS
    """texts whose perplexity is measured"""
    samples: int = 2048
    """sequences of each calibration text"""
    epochs: int = PAPER_EPOCHS
    """epochs of modular sparsity learning"""
    batch: int = 32
    """sequences of each step of MSL"""
    windows: int | None = None
    """maximum number of perplexity windows; None measures all"""
    retentions: tuple[float, ...] = RETENTIONS
    """retentions of the main table, highest first"""
    seeds: tuple[int, ...] = (0, 1, 2)
    """seeds of the seed table; all other tables use the first"""
    tasks: tuple[str, ...] = published.TASKS
    """zero-shot tasks; without tasks there are no accuracy columns"""
    tasks_in: Literal["all", "main"] = "all"
    """studies that measure these tasks: all, or only those of the main table"""
    limit: int | None = None
    """maximum number of documents per task; None measures all"""
    task_folder: str = ""
    """folder with local files of the seven tasks; empty reads them from the hub"""
    speed: Literal["auto", "cpu", "gpu"] = "auto"
    """setting of the speed tables"""
    methods: tuple[str, ...] = ()
    """methods of the main table that replace the paper's rows and the controls; empty for the default rows"""
    controls: bool = True
    """True if the main table and the ablation have additional rows of controls"""
    settings: tuple[tuple[str, Any], ...] = ()
    """additional fields of every study, such as ("reliability.score_quantile", 0.85)"""

    def __post_init__(self) -> None:
        """Raise SettingsError for invalid values that the studies themselves do not check."""
        for name, values in (("--retentions", self.retentions), ("--seeds", self.seeds)):
            require(len(set(values)) == len(values), name, values, "values that differ from each other")
        for method in self.methods:
            require_known("--methods", method)
        three = (self.primary, self.auxiliary, self.substitute)
        rule = "three texts that differ from each other: A, B and C"
        require(all(three) and len(set(three)) == 3, "--primary, --auxiliary and --substitute", three, rule)

    @property
    def retention(self) -> float:
        """Return the retention of all tables except the main one: 0.5 if the main table has it, else the lowest."""
        return 0.5 if 0.5 in self.retentions else min(self.retentions)

    @property
    def seed(self) -> int:
        """Return the seed of every table except the table of seeds."""
        return self.seeds[0]

    def to_dict(self) -> dict[str, Any]:
        """Return every field as plain JSON values."""
        values = asdict(self)
        # the field is omitted if empty, because earlier reproductions did not have it
        return values if self.methods else {name: values[name] for name in values if name != "methods"}


def paper_model(model: str) -> str:
    """Return the paper's name of a model, recognized by the last part of its folder or hub name; else empty."""
    letters_and_digits = re.sub(r"[^a-z0-9]", "", model.rstrip("/").split("/")[-1].lower())
    return next((name for name, pattern in _PAPER_MODELS.items() if re.fullmatch(pattern, letters_and_digits)), "")


def choose(model: str, name: str | None = None, changes: dict[str, Any] | None = None) -> Scale:
    """Return the scale of a reproduction of a folder, a hub name, or `demo`.

    `name` is one of SCALES, by default demo for the bundled model and paper for every other. `changes` are fields of
    Scale to replace, without None values. Tasks may be names of sets (paper, demo, none), which every study then
    measures; a limit of 0 measures all documents. Raises SettingsError if the name or a field is not valid.
    """
    name = name or ("demo" if model == "demo" else "paper")
    require_choice("--scale", name, SCALES)
    builders = {"paper": _paper_scale, "demo": _demo_scale, "study": _study_scale, "experts": _experts_scale}
    scale = builders[name](model)
    fields = {field: value for field, value in (changes or {}).items() if value is not None}
    if "texts" not in fields and any(role in fields for role in ROLES):
        fields["texts"] = tuple(fields.get(role, getattr(scale, role)) for role in ROLES)
    fields["settings"] = scale.settings + tuple(fields.get("settings", ()))
    if "methods" in fields:
        fields["methods"] = tuple(dict.fromkeys(fields["methods"]))
    if "tasks" in fields:
        # replace names of sets by their tasks
        tasks = (task for task_or_suite in fields["tasks"] for task in SUITES.get(task_or_suite, (task_or_suite,)))
        fields |= {"tasks": tuple(dict.fromkeys(tasks)), "tasks_in": "all"}
    if fields.get("limit") == 0:
        fields["limit"] = None
    return replace(scale, **fields)


def _paper_scale(model: str) -> Scale:
    paper_name = paper_model(model)
    # in the paper, Vicuna has another score quantile, and the large model one more epoch
    quantile = (("reliability.score_quantile", 0.85),) if paper_name.startswith("Vicuna") else ()
    if paper_name == LARGE:
        return Scale("paper", retentions=_LARGE_RETENTIONS, epochs=PAPER_EPOCHS + 1)
    return Scale("paper", settings=quantile)


def _demo_scale(model: str) -> Scale:
    texts = {"demo": TEXTS, "demo-experts": (*TEXTS[1:], TEXTS[0])}.get(model, PAPER_TEXTS)
    roles: dict[str, Any] = dict(zip(ROLES, texts, strict=True))
    return replace(
        _paper_scale(model),
        **roles,
        name="demo",
        texts=texts,
        samples=96,
        epochs=PAPER_EPOCHS,
        batch=16,
        windows=48,
        tasks=questions.NAMES if model == "demo" else (),
        tasks_in="main",
        limit=48,
        speed="cpu",
    )


def _experts_scale(model: str) -> Scale:
    return replace(_demo_scale(model), name="experts", tasks=(), retentions=(0.75, 0.5))


def _study_scale(model: str) -> Scale:
    return replace(_demo_scale(model), name="study", tasks=(), samples=128, windows=96, retentions=(0.5, 0.3))
