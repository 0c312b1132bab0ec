"""Digests of a study's inputs: its model, texts and tasks, and the machine whose speed it measures.

The key of a result depends only on these digests and the study. No model is loaded.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from gprune.data import texts as corpora
from gprune.data.demo import MODEL_FOLDERS
from gprune.data.texts.sampled import Role
from gprune.models import families, identity, sources, vocabulary
from gprune.models.expert_families import EXPERT_FAMILIES
from gprune.store import Store
from gprune.study import RepairSettings, Study, methods
from gprune.study.settings import require, with_word
from gprune.system import machine
from gprune.system.errors import CorpusError, SettingsError

ROLES = ("primary", "auxiliary", "substitute")
"""the roles of A, B and C"""
GRADIENT = "gradient"
"""the role of the text that only LLM-Pruner reads, if that is not the primary text"""
SAMPLED = "sampled"
"""the role of the text that the model writes, which only repairs and recovery read"""
FRESH, CHECK = "fresh", "check"
"""roles of the text for choosing: a text that the model writes with another seed, or one that the user names"""


@dataclass(frozen=True, slots=True)
class Inputs:
    """Digests of all inputs of a study."""

    model: str
    """content of the model folder"""
    tokenizer: str
    """content of the tokenizer files"""
    precision: str
    """float32, bfloat16 or float16, as resolved on this machine"""
    calibration: dict[str, str]
    """content of the calibration texts, by role (see `roles`)"""
    evaluation: dict[str, str]
    """content of the evaluation texts, by their name in the study"""
    tasks: dict[str, str] = field(default_factory=dict)
    """content of the zero-shot tasks whose data is available, by their name in the study"""
    scoring: str = ""
    """software that presents and scores the tasks, with its version; empty without tasks"""
    machine: str = ""
    """hardware and libraries of a speed measurement; empty without one"""
    tokenizing: str = ""
    """versions of the tokenizer libraries, and number of the model's embeddings; empty in records of older versions
    that did not store them
    """
    plugins: dict[str, dict[str, str]] = field(default_factory=dict)
    """plug-ins that the study names, by id, with the fields of gprune.plugins.registry.PluginInfo"""

    @classmethod
    def unknown(cls, study: Study) -> Inputs:
        """Return inputs with empty digests for every input of a study."""
        evaluation = study.evaluation
        texts, tasks = dict.fromkeys(evaluation.texts, ""), dict.fromkeys(evaluation.tasks, "")
        return cls("", "", "", dict.fromkeys(roles(study), ""), texts, tasks)


def roles(study: Study) -> dict[str, str]:
    """Return the calibration texts of a study, by role."""
    extra_texts = {GRADIENT: study.baselines.taylor_text} if "llm_pruner" in study.involved else {}
    # roles of the texts that repairs, scales and recovery read
    used = [*study.recovery.roles, *(role for repair in fitted_repairs(study) for role in repair.roles)]
    used += study.scales.roles if study.scales_units else ()
    if SAMPLED in used:
        extra_texts[SAMPLED] = study.repair.sampled
    if study.chooses:
        extra_texts |= {CHECK: study.choice.check_text} if study.choice.check_text else {FRESH: study.choice.fresh}
    return {role: text for role, text in ({r: getattr(study, r) for r in ROLES} | extra_texts).items() if text}


def text_of(study: Study, role: str) -> str:
    """Return the text of a study for a role, even if no stage of the study reads it, because pages may."""
    extra_texts = {SAMPLED: study.repair.sampled, FRESH: study.choice.fresh, CHECK: study.choice.check_text}
    return roles(study).get(role) or extra_texts[role]


def fitted_repairs(study: Study) -> list[RepairSettings]:
    """Return the repairs that are fitted to texts: that of the study, if all methods share one, and candidates."""
    repairs = [] if study.repair.base in ("own", "none", "auto") else [study.repair]
    return repairs + [with_word(study.repair, repair_spec) for repair_spec in study.choice.repairs if study.chooses]


def choice_roles(study: Study) -> tuple[str, ...]:
    """Return the roles of the texts on which candidates are compared: a check text, or else A, B and generated text."""
    return (CHECK,) if study.choice.check_text else (*ROLES[:2], FRESH)


def missing_texts(study: Study, inputs: Inputs) -> set[str]:
    """Return the roles and evaluation texts of a study without a digest in `inputs`."""
    texts = set(study.evaluation.texts)
    return (set(roles(study)) - set(inputs.calibration)) | (texts - set(inputs.evaluation))


def require_usable(study: Study) -> None:
    """Check the model, texts and plug-ins of a study; nothing is downloaded.

    For a model or text on the hub, only the name is checked. Raises ModelError, CorpusError or SettingsError if one of
    them cannot be used here.
    """
    if is_local(study.model):
        folder = require_prunable(study, identity.locate(study.model))
        identity.weight_files(folder)
        identity.require_tokenizer(folder)
        if study.offload:
            identity.require_offloadable(folder)
    describe_texts(study)
    plugin_records(study)


def require_prunable(study: Study, folder: Path) -> Path:
    """Return the folder of a study's model after a check that it can be pruned to the study's retention.

    Raises ModelError if the model family is not supported, SettingsError if heads that cannot be pruned exceed the
    retention.
    """
    from gprune.models.loadable import require_expert_model, require_loadable

    values = identity.configuration(folder)
    if study.prunes_experts:
        require_expert_model(folder)
        families.require_expert_retention(values, study.retention)
        return folder
    if layout_of_experts := EXPERT_FAMILIES.get(str(values.get("model_type"))):
        method = next((name for name in study.methods if name != "dense"), study.methods[0])
        raise SettingsError(
            f"methods has {method!r}, which prunes neurons, but the {layout_of_experts.label} model "
            f"{study.model!r} is a mixture of experts: set methods to dense and methods of experts, such as "
            "experts_reap"
        )
    layout = require_loadable(folder)
    families.require_retention(values, study.retention)
    fits_weights = study.chooses or study.repair.base not in ("own", "none", "bias")
    if fits_weights and layout.normalised and study.repair.target == "residual_stream":
        raise SettingsError(
            f"repair.target is 'residual_stream', but {layout.label} normalises the output of a block before it "
            "is added to the stream: set repair.target=dense_inputs"
        )
    return folder


def is_local(model: str) -> bool:
    """Return True if `model` names a local model, not a model of the hub."""
    is_bundled = model in MODEL_FOLDERS or sources.is_random(model)
    # a name on the hub has exactly one slash: owner/name
    return is_bundled or model[0] in "./~" or model.count("/") != 1 or Path(identity.resolve(model)).exists()


def describe_texts(study: Study) -> None:
    """Check that every text of a study exists, and that a text for choosing is independent; nothing is downloaded.

    Raises CorpusError if a text cannot be used, SettingsError if a text for choosing is also used for fits or
    evaluation.
    """
    _require_independent_choice(study)
    for text in roles(study).values():
        corpora.describe(text, "calibration")
    for text in study.evaluation.texts:
        corpora.describe(text, "evaluation")


def read_inputs(
    study: Study, missing_tasks: dict[str, str] | None = None, *, download: bool = True, store: Store | None = None
) -> Inputs:
    """Return the digests of a study's inputs.

    `missing_tasks` receives the reason for each task that cannot be measured here. Data of the hub is downloaded if
    `download` is True. `store`, by default the default store, has digests of large files and rows of hub texts.

    Raises ModelError if the model folder contains no model, CorpusError if a text cannot be read. Raises SettingsError
    if two calibration texts have equal content, a task is unknown, or a plug-in of the study is not installed.
    """
    # check the model first, because a wrong folder is the most common mistake and the cheapest to detect
    folder = require_prunable(study, identity.locate(study.model, download=download))
    if study.offload:
        identity.require_offloadable(folder)
    texts, digest_folder, text_folder = roles(study), *_cache_folders(store)
    _require_independent_choice(study)
    if download:
        for role, text in texts.items():
            corpora.prepare(text, "calibration", tokens_read(study, role), text_folder)
        for text in study.evaluation.texts:
            corpora.prepare(text, "evaluation", tokens_read(study, "evaluation"), text_folder)
    model = identity.fingerprint(study.model, digest_folder, machine.card(study.device))
    precision = precision_of(study)
    content = partial(content_of, study, model, precision, store=store)
    calibration = {role: content(text, role) for role, text in texts.items()}
    evaluation = {text: content(text, "evaluation") for text in study.evaluation.texts}
    _require_different(texts, calibration, evaluation)
    libraries = [f"{name} {machine.version(name)}" for name in ("transformers", "tokenizers")]
    return Inputs(
        model=model,
        tokenizer=identity.tokenizer_fingerprint(study.model),
        tokenizing=", ".join([*libraries, f"{vocabulary.vocabulary_size(study.model)} embeddings"]),
        precision=precision,
        calibration=calibration,
        evaluation=evaluation,
        tasks=task_digests(study, {} if missing_tasks is None else missing_tasks, download),
        scoring=scoring_of(study),
        machine=machine.describe(study.device) if study.evaluation.speed != "none" else "",
        plugins=plugin_records(study),
    )


def _cache_folders(store: Store | None) -> tuple[Path | None, Path | None]:
    """Return a store's folders of digests and of texts; None for the default ones."""
    return (store.digests, store.texts) if store else (None, None)


def plugin_records(study: Study) -> dict[str, dict[str, str]]:
    """Return the fields to record of a study's plug-ins, by id. Raises SettingsError if one is not installed."""
    return {plugin.id: plugin.to_record() for plugin in methods.plugins_of(study.metric, study.involved)}


def recipe_of(study: Study, text: str, role: Role) -> corpora.Recipe:
    """Return the sampling settings of a text that the model writes: options in its name, and sizes from the study.

    `role` is calibration, evaluation, or held_out for the text for choosing.
    """
    calibration, evaluation = study.calibration, study.evaluation
    if role == "held_out":
        return corpora.recipe(text, role, study.choice.sequences, calibration.length)
    if role == "calibration":
        return corpora.recipe(text, role, calibration.samples, calibration.length)
    return corpora.recipe(text, role, evaluation.windows, evaluation.length)


def tokens_read(study: Study, role: str) -> int | None:
    """Return the number of tokens to read from a hub text; None to read all.

    `role` is the role of a calibration text (see `roles`), or evaluation.
    """
    if role == "evaluation":
        return study.evaluation.tokens
    if role == GRADIENT:
        return corpora.tokens_for_windows(study.baselines.taylor_samples, study.baselines.taylor_length)
    if role == CHECK:
        return corpora.tokens_for_calibration(study.choice.sequences, study.calibration.length)
    return corpora.tokens_for_calibration(study.calibration.samples, study.calibration.length)


def content_of(study: Study, model: str, precision: str, text: str, role: str, *, store: Store | None = None) -> str:
    """Return the digest of a text's content or, if the model writes the text, of the model and sampling settings.

    The study determines the size of a sampled text, and how much of a hub text is read. `model` is the digest of the
    model folder, `precision` the number type, and `role` that of a calibration text, or evaluation; for `store` see
    `read_inputs`. Raises CorpusError if the text cannot be read.
    """
    purpose: Literal["calibration", "evaluation"] = "evaluation" if role == "evaluation" else "calibration"
    digest_folder, text_folder = _cache_folders(store)
    digest = corpora.fingerprint(text, purpose, digest_folder, tokens_read(study, role), text_folder)
    if not corpora.is_sampled(text):
        return digest
    recipe = recipe_of(study, text, "held_out" if role == FRESH else purpose)
    prompts = f" {digest}" if isinstance(recipe, corpora.AnswerRecipe) else ""
    return hashlib.sha256(f"{model} {precision} {recipe}{prompts}".encode()).hexdigest()


def _require_independent_choice(study: Study) -> None:
    """Raise SettingsError if a text for choosing is also used for fits or evaluation; texts are compared by name."""
    choice = study.choice
    if not study.chooses:
        return
    if choice.check_text:
        rule = "a text that the model does not write, and not an evaluation text, because results on the text for "
        rule += "choosing are optimistic"
        is_taken = corpora.is_sampled(choice.check_text) or choice.check_text in study.evaluation.texts
        require(not is_taken, "choice.check_text", choice.check_text, rule)
        return
    fresh_seed, calibration_texts = corpora.seed_of(choice.fresh), roles(study)
    for role, text in calibration_texts.items():
        if role != FRESH and corpora.is_sampled(text) and corpora.seed_of(text) == fresh_seed:
            raise SettingsError(
                f"choice.fresh {choice.fresh!r} has the same seed as {text!r}, to which a repair is fitted: the text "
                "for choosing must be unused elsewhere. Give it another seed, such as self:#seed=1"
            )


def _require_different(texts: dict[str, str], calibration: dict[str, str], evaluation: dict[str, str]) -> None:
    """Raise SettingsError if two calibration texts, or the check text and another text, have equal content.

    `texts` are names by role, `calibration` digests by role, `evaluation` digests by name.
    """
    # the pairs of A, B and C
    for first, second in (ROLES[:2], ROLES[::2], ROLES[1:]):
        if second in calibration and calibration[first] == calibration[second]:
            raise SettingsError(
                f"{first} {texts[first]!r} and {second} {texts[second]!r} are the same text: "
                "rank drift between them would be zero. Choose texts with different content"
            )
    contents = {texts[role]: content for role, content in calibration.items() if role in ROLES[:2]} | evaluation
    for text, content in contents.items():
        if content == calibration.get(CHECK):
            raise SettingsError(
                f"choice.check_text {texts[CHECK]!r} is the same text as {text!r}: choose by a text that "
                "is not used for calibration or evaluation"
            )


def require_tasks(study: Study) -> None:
    """Raise CorpusError if the data of a task is not available here, SettingsError if a task cannot be run.

    Nothing is downloaded and no row is read.
    """
    require_all(_find_unavailable_tasks(study))


def require_all(missing: dict[str, str]) -> None:
    """Raise CorpusError if tasks cannot be measured here; `missing` are the reasons by task."""
    if missing:
        raise CorpusError("; ".join(missing.values()))


def require_task_names(study: Study) -> None:
    """Raise SettingsError if a task is unknown to lm-eval, executes generated code, or its folder is missing."""
    _find_unavailable_tasks(study)


def _find_unavailable_tasks(study: Study) -> dict[str, str]:
    """Return the reason for each task whose data is unavailable. Raises SettingsError if a task cannot be run."""
    from gprune.evaluation import tasks

    reasons = {}
    for task in study.evaluation.tasks:
        try:
            tasks.resolve(task, study.evaluation)
        except CorpusError as error:
            reasons[task] = str(error)
    return reasons


def task_digests(study: Study, missing: dict[str, str], download: bool) -> dict[str, str]:
    """Return the digests of the tasks that have data, by task; add the reasons of all other tasks to `missing`.

    Datasets of the hub are downloaded if `download` is True. Raises SettingsError if a task cannot be run.
    """
    if not study.evaluation.tasks:
        return {}
    from gprune.evaluation import tasks

    settings, digests = study.evaluation, dict[str, str]()
    for task in settings.tasks:
        try:
            digests[task] = tasks.fingerprint(tasks.resolve(task, settings), settings, download=download)
        except CorpusError as error:
            missing[task] = str(error)
    return digests


def scoring_of(study: Study) -> str:
    """Return the software that presents and scores tasks, with its version; empty if the study has no tasks.

    A change of the software or its version can change the accuracy on the same questions.
    """
    if not study.evaluation.tasks:
        return ""
    from gprune.evaluation.tasks.rows import OWN_QUESTIONS

    return f"lm-eval {metadata.version('lm_eval')}, own questions {OWN_QUESTIONS}"


def precision_of(study: Study) -> str:
    """Return the study's number type, resolved for this machine if it is `auto`."""
    if study.dtype != "auto":
        return study.dtype
    if study.device == "cpu" or not machine.has_gpu():
        return "float32"
    return identity.number_type(identity.locate(study.model))


def from_plain(values: Any) -> Inputs | None:
    """Return the digests from `values`, as a run's record stores them, or None if some are missing."""
    try:
        return Inputs(**values)
    except TypeError:
        return None
