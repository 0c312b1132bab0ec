"""A run as the API gives it: its results as data frames, its figures, its models."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd

from gprune.api import frames
from gprune.api.preview import Preview, preview
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run as Loaded
from gprune.study import Study
from gprune.study.settings import require_choice
from gprune.system import html_tables, safe_parsing
from gprune.system.errors import CheckpointError
from gprune.system.progress import Progress, silent

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from gprune.api.types import LanguageModel, Tokenizer


class Run:
    """A run, as `gprune.run` and `gprune.open` give it.

    Frames are made anew at each access from results that are kept; changing one changes nothing else. What
    the run has not come to yet raises StoreError, with a sentence that names it.

    Example:
        >>> import gprune
        >>> run = gprune.run("demo", progress=False)
        >>> run.state
        'done'
        >>> list(run.drift.columns[:4])
        ['layer', 'neuron', 'drift', 'signed_drift']
        >>> bool((run.perplexity["perplexity"] > 1).all())
        True
    """

    def __init__(self, loaded: Loaded, trusted: bool = False) -> None:
        """Binds the run as it is in the cache; trusted where code that comes with its model may be run."""
        self._loaded, self._trusted = loaded, trusted

    def __repr__(self) -> str:
        """Name, state, and what was compared."""
        study = self.study
        texts = f"{study.primary} | {study.auxiliary}"
        return f"<Run {self.name}: {self.state}, {study.model}, {study.metric}, {texts}>"

    def _repr_html_(self) -> str:
        return html_tables.table(f"Run {self.name}: {self.state}", self.study.summary())

    @property
    def name(self) -> str:
        """Name of the run, as `gprune.open` takes it.

        Example:
            >>> import gprune
            >>> run = gprune.run("demo", progress=False)
            >>> gprune.open(run.name).name == run.name
            True
        """
        return self._loaded.name

    @property
    def study(self) -> Study:
        """Every setting of the run.

        Example:
            >>> import gprune
            >>> gprune.run("demo", progress=False).study.retention
            0.5
        """
        return self._loaded.study

    @property
    def state(self) -> str:
        """The state when it was opened: running, done, failed, cancelled or interrupted.

        Example:
            >>> import gprune
            >>> gprune.run("demo", progress=False).state
            'done'
        """
        return self._loaded.state

    @property
    def drift(self) -> pd.DataFrame:
        """Rank drift of every neuron (Eq. 1), with its re-sampling control.

        Example:
            >>> import gprune
            >>> run = gprune.run("demo", until="drift", progress=False)
            >>> bool(run.drift["drift"].between(0, 1).all())
            True
        """
        return frames.drift(self._loaded.load(stages.drift))

    @property
    def scores(self) -> pd.DataFrame:
        """Importance of every neuron and key/value group on A, on B, and after RASA where that was run.

        Example:
            >>> import gprune
            >>> list(gprune.run("demo", progress=False).scores.columns)
            ['layer', 'unit', 'index', 'primary', 'auxiliary', 'adapted']
        """
        primary, auxiliary = (self._loaded.load(stages.scores, text) for text in stages.PAIR)
        adapted = self._loaded.find(stages.adapted)
        return frames.scores(primary, auxiliary, None if adapted is None else adapted.scores)

    @property
    def neurons(self) -> pd.DataFrame:
        """The module of every neuron, numbered within its layer.

        Example:
            >>> import gprune
            >>> run = gprune.run("demo", progress=False)
            >>> run.neurons.groupby(["layer", "module"]).size().tolist() == run.modules["size"].tolist()
            True
        """
        return frames.of_neurons({"module": self._loaded.load(stages.partition).labels})

    @property
    def modules(self) -> pd.DataFrame:
        """What RASA decides on and what it decides, for every module of every layer.

        Example:
            >>> import gprune
            >>> run = gprune.run("demo", progress=False)
            >>> list(run.modules.columns[:5]), list(run.modules.columns[5:])
            (['layer', 'module', 'size', 'drift', 'score'], ['u_primary', 'u_auxiliary', 'adapted', 'source'])
        """
        load = self._loaded.load
        return frames.modules(load(stages.partition), load(stages.modules), load(stages.adapted))

    @property
    def agreement(self) -> pd.DataFrame:
        """How far the modules agree with those of other texts and seeds, in every layer (Fig. 1b).

        Example:
            >>> import gprune
            >>> list(gprune.run("demo", progress=False).agreement.columns)
            ['comparison', 'layer', 'ari', 'overlap']
        """
        return frames.agreement(self._loaded.agreement())

    @property
    def masks(self) -> Mapping[str, pd.DataFrame]:
        """Which units each method keeps, by method.

        Example:
            >>> import gprune
            >>> run = gprune.run("demo", progress=False)
            >>> kept = run.masks["flap"]
            >>> bool(kept.groupby(["unit", "layer"])["kept"].any().all())
            True
        """
        return frames.Masks(self._loaded)

    @property
    def perplexity(self) -> pd.DataFrame:
        """Perplexity of every method on every evaluation text; lower is better.

        Example:
            >>> import gprune
            >>> run = gprune.run("demo", progress=False)
            >>> table = run.perplexity.pivot(index="method", columns="text", values="perplexity")
            >>> sorted(table.index) == sorted(run.study.methods)
            True
        """
        return frames.measured_perplexities(self._loaded)

    @property
    def accuracy(self) -> pd.DataFrame:
        """Zero-shot accuracy of every method on every task; no rows where the study has no tasks.

        Example:
            >>> import gprune
            >>> gprune.run("demo", progress=False).accuracy.columns[:4].tolist()
            ['method', 'task', 'acc', 'acc_norm']
        """
        return frames.measured_accuracies(self._loaded)

    def adapt(
        self,
        *,
        drift_quantile: float | None = None,
        score_quantile: float | None = None,
        score_scale: Literal["raw", "standardized"] | None = None,
        selection: Literal["drift_and_score", "drift", "none", "random"] | None = None,
        retention: float | None = None,
    ) -> Preview:
        """What RASA would decide under other thresholds, and what GPrune would then keep.

        The run's learned thresholds are shifted together until they meet the retention again: nothing is
        learned anew, and no model is run. What is left out is as in the run.

        Args:
            drift_quantile: of the modules' drift, at and above which a module is sensitive to the text.
            score_quantile: of the modules' mean score, at and below which it is weakly supported.
            score_scale: whether mean scores are compared as they are, or within their layer.
            selection: by which of the two a module is adapted.
            retention: fraction of the decoder's linear weights to keep.

        Raises SettingsError where a value is out of range, or the retention cannot be reached, StoreError
        where the run has not come that far.

        Example:
            >>> import gprune
            >>> run = gprune.run("demo", progress=False)
            >>> run.adapt().modules.equals(run.modules)
            True
            >>> run.adapt(selection="none").adapted
            0
        """
        given: dict[str, Any] = {"drift_quantile": drift_quantile, "score_quantile": score_quantile}
        given |= {"score_scale": score_scale, "selection": selection, "retention": retention}
        return preview(self._loaded, {name: value for name, value in given.items() if value is not None})

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the run's model.

        Example:
            >>> import gprune
            >>> tokenizer = gprune.run("demo", progress=False).tokenizer
            >>> tokenizer.decode(tokenizer("neuron", add_special_tokens=False)["input_ids"])
            'neuron'
        """
        from gprune.api.models import tokenizer

        return tokenizer(self._loaded, self._trusted)

    def model(
        self,
        method: str = "gprune",
        *,
        repair: str | Mapping[str, Any] | None = None,
        recovered: bool = False,
    ) -> LanguageModel:
        """The causal language model that a method leaves, as transformers has it, in evaluation mode.

        It is cut anew from the dense model, with the repair of the run, or with another one: `repair` is a
        kind, as `least_squares`, or settings of that section, as `{"kind": "least_squares", "texts":
        "both_and_sampled"}`; what is fitted is kept in the cache. `recovered` is the model after the
        training that the run has given every method, merged into the weights. `dense` is the dense model
        itself. Raises SettingsError where the run does not have the method, there is no such repair, nothing
        is recovered in the run, or its model has code that was not allowed, ModelError where the dense model
        is not on this machine, or is another one now, StoreError where the run has no masks of the method.

        Example:
            >>> import gprune
            >>> run = gprune.run("demo", progress=False)
            >>> run.model("gprune").num_parameters() < run.model("dense").num_parameters()
            True
        """
        from gprune.api.models import cut

        require_choice("method", method, self.study.methods)
        return cut(self._loaded, method, self._trusted, repair, recovered)

    def export(
        self,
        folder: str | os.PathLike[str],
        method: str = "gprune",
        *,
        repair: str | Mapping[str, Any] | None = None,
        recovered: bool = False,
        on_progress: Progress = silent,
    ) -> Path:
        """Writes the model that a method leaves as a folder, with model card and pruning.json, and gives it back.

        `folder` must not exist, or be empty. The model is that of `model` for the same arguments, of any
        method but `dense`; it is read back and compared. `on_progress` is told of each step. For errors see
        `model`; CheckpointError where the folder is taken, the disk is full, or the model does not read back.

        Example:
            >>> import gprune, pathlib, tempfile
            >>> run = gprune.run("demo", progress=False)
            >>> folder = run.export(pathlib.Path(tempfile.mkdtemp()) / "flap", "flap")
            >>> (folder / "pruning.json").is_file(), (folder / "README.md").is_file()
            (True, True)
        """
        from gprune.api.models import export

        require_choice("method", method, self.study.methods)
        with safe_parsing.refused_as(CheckpointError):
            place = safe_parsing.path(os.fspath(folder), "the folder")
        return export(self._loaded, method, place, self._trusted, repair, recovered, on_progress)

    @property
    def figures(self) -> tuple[str, ...]:
        """The names that `figure` takes.

        Example:
            >>> import gprune
            >>> "drift" in gprune.run("demo", progress=False).figures
            True
        """
        from gprune.api.figures import names

        return names()

    def figure(self, name: str, **options: Any) -> go.Figure:
        """A figure of the app, one of `figures`, drawn by Plotly through the same code as its card.

        `options` are what can be set beside the card; its "copy as Python" says them. Raises SettingsError
        where there is no such figure or option, StoreError where the run has not come that far.

        Example:
            >>> import gprune
            >>> run = gprune.run("demo", progress=False)
            >>> run.figure("drift", form="histogram", bins=20).data[0].type
            'bar'
        """
        from gprune.api.figures import figure

        return figure(self._loaded, name, options)

    def report(self, file: str | os.PathLike[str], cards: Sequence[str] = ()) -> Path:
        """Writes figures of the run as one HTML file that needs no network and nothing beside it.

        `file`, which is given back, ends in `.html`; `cards` are names of `figures` in their order, all that
        the run has where left out. Raises SettingsError where there is no such figure, or the file's name
        ends otherwise, StoreError where the file cannot be written.

        Example:
            >>> import gprune, pathlib, tempfile
            >>> run = gprune.run("demo", progress=False)
            >>> file = pathlib.Path(tempfile.mkdtemp()) / "drift.html"
            >>> b"Changing the calibration text" in run.report(file, cards=("drift", "layers")).read_bytes()
            True
        """
        from gprune.api.figures import report

        return report(self._loaded, file, cards)
