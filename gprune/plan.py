"""Which results depend on which: the content key of every stage of a study.

A key is the SHA-256 of the stage's name and version, the slice of settings it uses, and the keys of the
results it is made from. A changed RASA quantile therefore changes the keys of RASA and of what follows,
and of nothing before it. Settings that change speed but no result (batch sizes) are in no key.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, fields
from typing import Any

from gprune.study import Study

# raise a stage's version when its formula changes: old results are then left alone and computed anew
VERSIONS = {
    "tokens": 1,
    "norms": 1,
    "statistics": 1,
    "scores": 1,
    "drift": 1,
    "partition": 1,
    "agreement": 1,
    "modules": 1,
    "adapted": 1,
    "masks": 1,
    "history": 1,
    "checkpoint": 1,
    "perplexity": 1,
}

UNTIL = ("drift", "adapted", "masks", "perplexity")
"""what a run may stop after"""


def content_key(stage: str, settings: dict[str, Any], needs: dict[str, str]) -> str:
    """Key of one result.

    Args:
        stage: name of the stage, in VERSIONS.
        settings: the settings it uses, as plain values.
        needs: keys or fingerprints of what it is made from, by name.

    Returns:
        32 hexadecimal digits.
    """
    content = {"stage": stage, "version": VERSIONS[stage], "settings": settings, "needs": needs}
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Inputs:
    """Fingerprints of everything a study reads from outside."""

    model: str
    """content of the model folder"""
    tokenizer: str
    """content of the tokenizer files"""
    precision: str
    """float32, bfloat16 or float16, as resolved on this machine"""
    calibration: dict[str, str]
    """content of the calibration texts, by role: primary, auxiliary, substitute"""
    evaluation: dict[str, str]
    """content of the evaluation texts, by the name they were given under"""


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

    def scores(self, role: str, metric: str | None = None, *, heads: bool = True) -> str:
        """Key of the importance scores of a calibration set.

        Args:
            role: primary, auxiliary or substitute.
            metric: the study's by default.
            heads: False leaves out what changes the scores of attention only.
        """
        calibration, metric = self.study.calibration, metric or self.study.metric
        settings: dict[str, Any] = {"metric": metric}
        if metric == "flap":
            settings["variant"] = calibration.flap_variant
            if heads:
                settings["square"] = calibration.square_head_score
        # the moments are the same whether or not the released recursion is kept beside them
        released = metric == "flap" and calibration.flap_variant == "released"
        needs = {"statistics": self._statistics(role, released), "norms": self.norms()}
        return content_key("scores", settings, needs)

    def drift(self, first: str = "primary", second: str = "auxiliary") -> str:
        """Key of the rank drift between two roles."""
        needs = {"first": self.scores(first, heads=False), "second": self.scores(second, heads=False)}
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
        settings = _slice(self.study.modularization)
        settings["kind"] = kind or settings["kind"]
        settings["direction"] = direction or settings["direction"]
        settings["seed"] = self.study.seed if seed is None else seed
        return content_key("partition", settings, self._model() | {"drift": self.drift(first, second)})

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

    def masks(self, method: str) -> str:
        """Key of the masks of a method: gprune, flap or wanda_sp."""
        settings: dict[str, Any] = {"method": method, "retention": self.study.retention}
        if method == "flap":
            return content_key("masks", settings, {"scores": self.scores("primary", "flap")})
        needs = self._model() | {"primary": self.tokens("primary")}
        if method == "gprune":
            settings |= _slice(self.study.sparsity, ("bias_compensation",)) | {"seed": self.study.seed}
            needs |= {"auxiliary": self.tokens("auxiliary"), "adapted": self.adapted()}
            needs["heads"] = self.scores("primary")
        return content_key("masks", settings, needs)

    def history(self) -> str:
        """Key of the learning history that belongs to the masks of gprune."""
        return content_key("history", {}, {"masks": self.masks("gprune")})

    def pruned(self, method: str, compensated: bool) -> dict[str, str]:
        """What identifies a pruned model: its masks and, with bias compensation, the statistics behind it."""
        if method == "dense":
            return self._model()
        needs = self._model() | {"masks": self.masks(method)}
        return needs | ({"statistics": self.statistics("primary")} if compensated else {})

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


def run_name(study: Study) -> str:
    """Name of a study's run: a readable stem and a hash of every setting but the display name."""
    values = {k: v for k, v in study.to_dict().items() if k not in ("name", "group")}
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:10]
    stem = re.sub(r"[^a-z0-9]+", "-", (study.name or study.model.rstrip("/").split("/")[-1]).lower()).strip(
        "-"
    )
    return f"{stem[:40] or 'study'}-{digest}"
