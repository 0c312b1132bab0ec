"""Which results depend on which: the content key of every stage of a study.

A key is the SHA-256 of the stage's name and version, the slice of settings it uses, and the keys of the
results it is made from. A changed RASA quantile therefore changes the keys of RASA and of what follows,
and of nothing before it. Settings that change speed but no result (batch sizes) are in no key.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import fields
from typing import Any

from gprune.errors import SettingsError
from gprune.fingerprints import VERSIONS, Inputs, content_key
from gprune.methods import METHODS, SCORINGS, Method
from gprune.study import Study

UNTIL = ("drift", "adapted", "agreement", "masks", "perplexity", "all")
"""what a run may stop after: agreement needs no masks, perplexity writes no model folder, all does"""

__all__ = ["PAIR", "UNTIL", "VERSIONS", "Inputs", "Plan", "content_key", "first_kind", "run_name"]

PAIR = ("primary", "auxiliary")
"""the roles of A and B"""


def _slice(section: object, leave_out: tuple[str, ...] = ("batch",)) -> dict[str, Any]:
    return {f.name: getattr(section, f.name) for f in fields(section) if f.name not in leave_out}  # type: ignore[arg-type]


class Plan:
    """The keys of every result of one study."""

    def __init__(self, study: Study, inputs: Inputs) -> None:
        """Binds a study to what it reads.

        Args:
            study: the study.
            inputs: fingerprints of its model and texts.
        """
        self.study = study
        self.inputs = inputs

    def _model(self) -> dict[str, str]:
        return {"model": self.inputs.model, "precision": self.inputs.precision}

    def norms(self) -> str:
        """Key of the weight norms."""
        return content_key("norms", {}, self._model())

    def tokens(self, role: str) -> str:
        """Key of a calibration set; role is primary, auxiliary or substitute."""
        calibration = self.study.calibration
        settings = {"samples": calibration.samples, "length": calibration.length, "seed": self.study.seed}
        needs = {"text": self.inputs.calibration[role], "tokenizer": self.inputs.tokenizer}
        return content_key("tokens", settings, needs)

    def statistics(self, role: str) -> str:
        """Key of the activation statistics of a calibration set."""
        return self._statistics(role, self.study.calibration.flap_variant == "released")

    def _statistics(self, role: str, released: bool) -> str:
        settings = {"shards": self.study.calibration.shards, "released": released}
        return content_key("statistics", settings, self._model() | {"tokens": self.tokens(role)})

    def contexts(self, role: str, seed: int | None = None) -> str:
        """Key of the context clusters made from a calibration set; the seed is the study's by default."""
        settings = _slice(self.study.contexts, ("temperature", "module_profile"))
        settings["seed"] = self.study.seed if seed is None else seed
        return content_key("contexts", settings, self._model() | {"tokens": self.tokens(role)})

    def context_statistics(self, role: str, contexts: str, *, gradient: bool, seed: int | None = None) -> str:
        """Key of a calibration set's statistics by context.

        Args:
            role: the text measured.
            contexts: the role whose contexts they are.
            gradient: whether the affinity of neurons and contexts is measured as well.
            seed: of the contexts; the study's by default.
        """
        settings = {"shards": self.study.calibration.shards, "gradient": gradient}
        needs = {"tokens": self.tokens(role), "contexts": self.contexts(contexts, seed)}
        return content_key("context_statistics", settings, self._model() | needs)

    def groups(self, role: str, seed: int | None = None) -> str:
        """Key of FANG's functional groups of one text; the seed is that of its contexts."""
        needs = {"statistics": self.context_statistics(role, role, gradient=True, seed=seed)}
        return content_key("groups", {"grouping": self.study.baselines.fang_grouping}, needs)

    def scores(
        self,
        role: str,
        metric: str | None = None,
        *,
        heads: bool = True,
        pair: tuple[str, str] = PAIR,
    ) -> str:
        """Key of the importance scores of a calibration set.

        Args:
            role: primary, auxiliary or substitute.
            metric: the study's by default.
            heads: False leaves out what changes the scores of attention only.
            pair: the pair of texts behind the modules, on which the scores of twFLAP depend.
        """
        metric = metric or self.study.metric
        if metric == "twflap":
            return self._coupled(role, pair, self.partition(*pair), heads=heads)
        settings: dict[str, Any] = {"metric": metric}
        if metric == "flap":
            settings |= self._flap_settings(heads)
        # the moments are the same whether or not the released recursion is kept beside them
        released = metric == "flap" and self.study.calibration.flap_variant == "released"
        needs = {"statistics": self._statistics(role, released), "norms": self.norms()}
        return content_key("scores", settings, needs)

    def _flap_settings(self, heads: bool) -> dict[str, Any]:
        calibration = self.study.calibration
        settings: dict[str, Any] = {"variant": calibration.flap_variant}
        return settings | ({"square": calibration.square_head_score} if heads else {})

    def _coupled(self, role: str, pair: tuple[str, str], partition: str, *, heads: bool) -> str:
        """Key of the token-weighted scores under some modules of a pair of texts."""
        contexts = self.study.contexts
        settings: dict[str, Any] = {"metric": "twflap", "temperature": contexts.temperature}
        settings["profile"] = contexts.module_profile
        needs = {
            "statistics": self.context_statistics(role, pair[0], gradient=False),
            "affinity": self.context_statistics(pair[0], pair[0], gradient=True),
            "norms": self.norms(),
            "partition": partition,
        }
        if heads:
            needs["heads"] = self.scores(role, "flap")
        return content_key("scores", settings, needs)

    def taylor(self) -> str:
        """Key of LLM-Pruner's scores on the primary text."""
        settings = _slice(self.study.baselines, ("fang_grouping",)) | {"metric": "llm_pruner"}
        return content_key("scores", settings, self._model() | {"tokens": self.tokens("primary")})

    def clusters(self, seed: int | None = None) -> str:
        """Key of the clusters of the parameters, which no calibration text takes part in."""
        modularization = self.study.modularization
        settings = {"candidates": modularization.candidates, "restarts": modularization.restarts}
        settings["seed"] = self.study.seed if seed is None else seed
        return content_key("clusters", settings, self._model())

    def first_partition(self, first: str, second: str, *, kind: str, seed: int | None) -> str:
        """Key of the modules that twFLAP starts from: FLAP's ranks, not refined."""
        drift = self.drift(first, second, metric="flap")
        return self._partition(drift, {"kind": kind, "direction": "magnitude"}, seed)

    def first_scores(self, role: str, pair: tuple[str, str], partition: str) -> str:
        """Key of the token-weighted scores under the modules that twFLAP starts from."""
        return self._coupled(role, pair, partition, heads=True)

    def first_drift(self, first: str, second: str, partition: str) -> str:
        """Key of the rank drift of those scores."""
        pair = (first, second)
        needs = {
            role: self._coupled(name, pair, partition, heads=False)
            for role, name in zip(("first", "second"), pair, strict=True)
        }
        return content_key("drift", {}, needs)

    def drift(self, first: str = "primary", second: str = "auxiliary", metric: str | None = None) -> str:
        """Key of the rank drift between two roles."""
        pair = (first, second)
        needs = {
            role: self.scores(name, metric, heads=False, pair=pair)
            for role, name in zip(("first", "second"), pair, strict=True)
        }
        return content_key("drift", {}, needs)

    def partition(
        self,
        first: str = "primary",
        second: str = "auxiliary",
        *,
        kind: str | None = None,
        seed: int | None = None,
        direction: str | None = None,
    ) -> str:
        """Key of the modules made from a pair of texts; keyword arguments override the study's settings."""
        changes = {"kind": kind, "direction": direction}
        if self.study.metric != "twflap":
            return self._partition(self.drift(first, second), changes, seed)
        chosen = kind or self.study.modularization.kind
        start = self.first_partition(first, second, kind=first_kind(chosen), seed=seed)
        return self._partition(self.first_drift(first, second, start), changes, seed, start)

    def _partition(
        self, drift: str, changes: dict[str, str | None], seed: int | None, start: str | None = None
    ) -> str:
        settings = _slice(self.study.modularization)
        settings |= {name: value for name, value in changes.items() if value}
        settings["seed"] = self.study.seed if seed is None else seed
        needs = self._model() | {"drift": drift} | ({"start": start} if start else {})
        return content_key("partition", settings, needs)

    def agreement(self, partitions: list[str]) -> str:
        """Key of the agreement of partitions, given by their keys."""
        return content_key("agreement", {}, {str(i): key for i, key in enumerate(partitions)})

    def modules(self) -> str:
        """Key of the module statistics of RASA (thresholds not applied)."""
        settings = {"score_scale": self.study.reliability.score_scale}
        needs = {"partition": self.partition(), "drift": self.drift()}
        return content_key("modules", settings, needs)

    def adapted(self) -> str:
        """Key of the adapted scores."""
        settings = _slice(self.study.reliability) | {"seed": self.study.seed}
        return content_key("adapted", settings, {"modules": self.modules()})

    def masks(self, name: str) -> str:
        """Key of some masks, by the name under which methods use them."""
        method = next((m for m in METHODS.values() if m.masks == name), None)
        if method is None:
            raise SettingsError(f"no method has masks called {name!r}")
        settings: dict[str, Any] = {"method": name, "retention": self.study.retention}
        if method.decision == "learned":
            return content_key("masks", settings | self._learning(), self._learned())
        if self.study.sparsity.alignment > 1:
            settings["alignment"] = self.study.sparsity.alignment
        return content_key("masks", settings | self._deciding(method), self._decided(method))

    def _learning(self) -> dict[str, Any]:
        leave_out = ("bias_compensation",) + (("alignment",) if self.study.sparsity.alignment == 1 else ())
        return _slice(self.study.sparsity, leave_out) | {"seed": self.study.seed}

    def _learned(self) -> dict[str, str]:
        """What MSL learns from."""
        needs = self._model() | {role: self.tokens(role) for role in PAIR}
        return needs | {"adapted": self.adapted(), "heads": self.scores("primary")}

    def _deciding(self, method: Method) -> dict[str, Any]:
        return {"temperature": self.study.contexts.temperature} if method.decision == "fang" else {}

    def _decided(self, method: Method) -> dict[str, str]:
        """What a baseline decides from."""
        roles = PAIR[:1] if method.scoring == "single" else PAIR
        if method.decision == "sequential":
            return self._model() | {"primary": self.tokens("primary")}
        if method.decision == "llm_pruner":
            return {"scores": self.taylor()}
        if method.decision == "fang":
            pooled = method.scoring == "pooled"
            needs = {
                role: self.context_statistics(role, "primary", gradient=pooled or role == PAIR[0])
                for role in roles
            }
            heads = {f"{role}_heads": self.scores(role, "flap") for role in roles}
            return needs | heads | {"groups": self.groups("primary")}
        return {role: self.scores(role, method.metric) for role in roles}

    def history(self) -> str:
        """Key of the learning history that belongs to the masks of gprune."""
        return content_key("history", {}, {"masks": self.masks("gprune")})

    def pruned(self, method: str, compensated: bool) -> dict[str, str]:
        """What identifies a pruned model: its masks and, with bias compensation, the statistics behind it.

        Args:
            method: the name of the masks, or dense.
            compensated: whether the removed units' mean goes into the biases.
        """
        if method == "dense":
            return self._model()
        needs = self._model() | {"masks": self.masks(method)}
        # a baseline that is scored on both texts takes its means from both
        roles = PAIR if method.endswith(tuple(SCORINGS)[1:]) else PAIR[:1]
        means = {"statistics": self.statistics("primary")}
        means |= {f"{role}_statistics": self.statistics(role) for role in roles[1:]}
        return needs | (means if compensated else {})

    def checkpoint(self) -> str:
        """Key of the pruned model's folder."""
        needs = self.pruned("gprune", self.study.sparsity.bias_compensation)
        return content_key("checkpoint", {}, needs | {"tokenizer": self.inputs.tokenizer})

    def perplexity(self, method: str, compensated: bool, text: str) -> str:
        """Key of one perplexity."""
        evaluation = self.study.evaluation
        settings = {"preset": evaluation.preset, "windows": evaluation.windows}
        needs = self.pruned(method, compensated) | {
            "text": self.inputs.evaluation[text],
            "tokenizer": self.inputs.tokenizer,
        }
        return content_key("perplexity", settings, needs)

    def accuracy(self, method: str, compensated: bool, task: str) -> str:
        """Key of one zero-shot accuracy."""
        needs = self.pruned(method, compensated)
        needs |= {"task": self.inputs.tasks[task], "tokenizer": self.inputs.tokenizer}
        settings = {"limit": self.study.evaluation.limit, "scoring": self.inputs.scoring}
        return content_key("accuracy", settings, needs)

    def speed(self, models: dict[str, dict[str, str]], machine: str) -> str:
        """Key of a speed measurement.

        Args:
            models: what identifies each model (`pruned`), by method.
            machine: where it is measured.
        """
        needs = {f"{name}.{part}": key for name, parts in models.items() for part, key in parts.items()}
        settings = {"preset": self.study.evaluation.speed, "machine": machine, "order": list(models)}
        return content_key("speed", settings, needs)


def first_kind(kind: str) -> str:
    """Kind of the modules that twFLAP starts from: random stays random, all else starts from the clusters."""
    return "random" if kind == "random" else "initialization"


def run_name(study: Study) -> str:
    """Name of a study's run: a readable stem and a hash of every setting but the display name."""
    values = {k: v for k, v in study.to_dict().items() if k not in ("name", "group")}
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:10]
    stem = re.sub(r"[^a-z0-9]+", "-", (study.name or study.model.rstrip("/").split("/")[-1]).lower()).strip(
        "-"
    )
    return f"{stem[:40] or 'study'}-{digest}"
