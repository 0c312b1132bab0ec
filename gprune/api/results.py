"""Run of the API: its results as data frames, its figures and its models."""

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
from gprune.system import safe_parsing
from gprune.system.errors import CheckpointError
from gprune.system.progress import Progress, silent

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from gprune.api.types import LanguageModel, Tokenizer


class Run:
    """Run returned by `gprune.run` and `gprune.open`.

    Each access builds a new data frame, which you may change. A result that is not computed yet raises StoreError.

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
        """Wrap an opened run; `trusted` allows the Python code in its model's folder."""
        self._loaded, self._trusted = loaded, trusted

    def __repr__(self) -> str:
        """Return name, state, model, metric and texts."""
        study = self.study
        texts = f"{study.primary} | {study.auxiliary}"
        return f"<Run {self.name}: {self.state}, {study.model}, {study.metric}, {texts}>"

    @property
    def name(self) -> str:
        """Name of the run, which `gprune.open` accepts.

        Example:
            >>> import gprune
            >>> run = gprune.run("demo", progress=False)
            >>> gprune.open(run.name).name == run.name
            True
        """
        return self._loaded.name

    @property
    def study(self) -> Study:
        """Settings of the run.

        Example:
            >>> import gprune
            >>> gprune.run("demo", progress=False).study.retention
            0.5
        """
        return self._loaded.study

    @property
    def state(self) -> str:
        """State when the run was opened: running, done, failed, cancelled or interrupted.

        Example:
            >>> import gprune
            >>> gprune.run("demo", progress=False).state
            'done'
        """
        return self._loaded.state

    @property
    def drift(self) -> pd.DataFrame:
        """Rank drift of every neuron (Eq. 1), or of every expert by each criterion, with its resampling controls.

        Example:
            >>> import gprune
            >>> run = gprune.run("demo", until="drift", progress=False)
            >>> bool(run.drift["drift"].between(0, 1).all())
            True
        """
        if self.study.prunes_experts:
            return frames.expert_drift(self._loaded)
        return frames.drift(self._loaded.load(stages.drift))

    @property
    def scores(self) -> pd.DataFrame:
        """Importance of every neuron and key/value group on A, on B and after RASA, if the run has it.

        For experts, there is one row per criterion and expert.

        Example:
            >>> import gprune
            >>> list(gprune.run("demo", progress=False).scores.columns)
            ['layer', 'unit', 'index', 'primary', 'auxiliary', 'adapted']
        """
        if self.study.prunes_experts:
            return frames.expert_scores(self._loaded)
        primary, auxiliary = (self._loaded.load(stages.scores, text) for text in stages.PAIR)
        adapted = self._loaded.find(stages.adapted_scores)
        return frames.scores_frame(primary, auxiliary, None if adapted is None else adapted.scores)

    @property
    def neurons(self) -> pd.DataFrame:
        """Module of every neuron, numbered within its layer.

        Example:
            >>> import gprune
            >>> run = gprune.run("demo", progress=False)
            >>> run.neurons.groupby(["layer", "module"]).size().tolist() == run.modules["size"].tolist()
            True
        """
        return frames.of_neurons({"module": self._loaded.load(stages.partition).labels})

    @property
    def experts(self) -> pd.DataFrame:
        """Sums over the tokens of every expert on A and B, for a run that prunes experts.

        Example:
            >>> import gprune, tempfile
            >>> run = gprune.run("demo-experts", until="drift", cache=tempfile.mkdtemp(), progress=False)
            >>> run.experts.columns[:4].tolist()
            ['text', 'layer', 'expert', 'routed']
        """
        return frames.experts(self._loaded)

    @property
    def modules(self) -> pd.DataFrame:
        """Statistics of every module, and the decision of RASA.

        Example:
            >>> import gprune
            >>> run = gprune.run("demo", progress=False)
            >>> list(run.modules.columns[:5]), list(run.modules.columns[5:])
            (['layer', 'module', 'size', 'drift', 'score'], ['u_primary', 'u_auxiliary', 'adapted', 'source'])
        """
        load = self._loaded.load
        return frames.modules(load(stages.partition), load(stages.modules), load(stages.adapted_scores))

    @property
    def agreement(self) -> pd.DataFrame:
        """Agreement (ARI) of the modules with those of other texts and seeds, by layer (Fig. 1b).

        Example:
            >>> import gprune
            >>> list(gprune.run("demo", progress=False).agreement.columns)
            ['comparison', 'layer', 'ari', 'overlap']
        """
        return frames.agreement(self._loaded.agreement())

    @property
    def masks(self) -> Mapping[str, pd.DataFrame]:
        """Units that each method keeps, by method.

        Example:
            >>> import gprune
            >>> run = gprune.run("demo", progress=False)
            >>> masks = run.masks["flap"]
            >>> bool(masks.groupby(["unit", "layer"])["kept"].any().all())
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
        """Zero-shot accuracy of every method on every task; no rows if the study has no tasks.

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
        """Return the decisions of RASA under other thresholds, and the masks of GPrune that follow.

        The run's learned thresholds are shifted together until they meet the retention; nothing is learned again and
        no model is run. Omitted arguments keep the values of the run.

        Args:
            drift_quantile: quantile of the modules' drift from which a module is sensitive to the text.
            score_quantile: quantile of the modules' mean score up to which a module is weakly supported.
            score_scale: compare mean scores as they are (raw) or standardized within their layer.
            selection: criteria that select the adapted modules.
            retention: fraction of the decoder's linear weights to keep.

        Raises:
            SettingsError: a value is out of range, or the retention cannot be reached.
            StoreError: a result is not computed yet.

        Example:
            >>> import gprune
            >>> run = gprune.run("demo", progress=False)
            >>> run.adapt().modules.equals(run.modules)
            True
            >>> run.adapt(selection="none").adapted
            0
        """
        changes: dict[str, Any] = {"drift_quantile": drift_quantile, "score_quantile": score_quantile}
        changes |= {"score_scale": score_scale, "selection": selection, "retention": retention}
        return preview(self._loaded, {name: value for name, value in changes.items() if value is not None})

    @property
    def tokenizer(self) -> Tokenizer:
        """Tokenizer of the run's model.

        Example:
            >>> import gprune
            >>> tokenizer = gprune.run("demo", progress=False).tokenizer
            >>> tokenizer.decode(tokenizer("neuron", add_special_tokens=False)["input_ids"])
            'neuron'
        """
        from gprune.api.models import tokenizer

        return tokenizer(self._loaded, self._trusted)

    def model(
        self, method: str = "gprune", *, repair: str | Mapping[str, Any] | None = None, recovered: bool = False
    ) -> LanguageModel:
        """Return the pruned model of a method as a causal language model of transformers, in evaluation mode.

        Args:
            method: method of the run; `dense` is the dense model.
            repair: kind of repair, such as `least_squares`, or settings such as `{"kind": "least_squares", "texts":
                "both_and_sampled"}`; by default that of the run. Fitted weights are cached.
            recovered: return the model after the recovery training of the run, merged into its weights.

        Raises:
            SettingsError: the run lacks the method or the recovery, the repair is unknown, or the model needs code
                that is not trusted.
            ModelError: the dense model is not on this machine, or has changed.
            StoreError: the run has no masks of the method.

        Example:
            >>> import gprune
            >>> run = gprune.run("demo", progress=False)
            >>> run.model("gprune").num_parameters() < run.model("dense").num_parameters()
            True
        """
        from gprune.api.models import build_model

        require_choice("method", method, self.study.methods)
        return build_model(self._loaded, method, self._trusted, repair, recovered)

    def export(
        self,
        folder: str | os.PathLike[str],
        method: str = "gprune",
        *,
        repair: str | Mapping[str, Any] | None = None,
        recovered: bool = False,
        on_progress: Progress = silent,
    ) -> Path:
        """Write the pruned model of a method as a folder with model card and pruning.json; return the folder.

        The model is that of `model` for the same arguments. It is read back and compared.

        Args:
            folder: target folder; it must not exist, or be empty.
            method: method of the run, except `dense`.
            repair: see `model`.
            recovered: see `model`.
            on_progress: called with the number of finished steps, the number of all steps, and a message.

        Raises:
            CheckpointError: the folder is not empty, the disk is full, or the model differs when read back.
            GpruneError: see `model`.

        Example:
            >>> import gprune, pathlib, tempfile
            >>> run = gprune.run("demo", progress=False)
            >>> folder = run.export(pathlib.Path(tempfile.mkdtemp()) / "flap", "flap")
            >>> (folder / "pruning.json").is_file(), (folder / "README.md").is_file()
            (True, True)
        """
        from gprune.api.models import export

        require_choice("method", method, self.study.methods)
        with safe_parsing.reraise_as(CheckpointError):
            target = safe_parsing.path(os.fspath(folder), "the folder")
        return export(self._loaded, method, target, self._trusted, repair, recovered, on_progress)

    @property
    def figures(self) -> tuple[str, ...]:
        """Names of the figures that `figure` draws.

        Example:
            >>> import gprune
            >>> "drift" in gprune.run("demo", progress=False).figures
            True
        """
        from gprune.api.figures import names

        return names(self._loaded)

    def figure(self, name: str, **options: Any) -> go.Figure:
        """Return a figure of the app as a Plotly figure.

        Args:
            name: one of `figures`.
            **options: settings of the card; the button *Copy as Python* of the app lists them.

        Raises:
            SettingsError: the figure or option is unknown.
            StoreError: a result is not computed yet.

        Example:
            >>> import gprune
            >>> run = gprune.run("demo", progress=False)
            >>> run.figure("drift", form="histogram", bins=20).data[0].type
            'bar'
        """
        from gprune.api.figures import figure

        return figure(self._loaded, name, options)

    def report(self, file: str | os.PathLike[str], cards: Sequence[str] = ()) -> Path:
        """Write a report of the run as one HTML file that needs no network; return its path.

        Args:
            file: path that ends in `.html`.
            cards: names of `figures`, in order; by default every figure that the run has.

        Raises:
            SettingsError: a figure is unknown, or the file does not end in `.html`.
            StoreError: the file cannot be written.

        Example:
            >>> import gprune, pathlib, tempfile
            >>> run = gprune.run("demo", progress=False)
            >>> file = pathlib.Path(tempfile.mkdtemp()) / "drift.html"
            >>> b"Changing the calibration text" in run.report(file, cards=("drift", "movers")).read_bytes()
            True
        """
        from gprune.api.figures import report

        return report(self._loaded, file, cards)
