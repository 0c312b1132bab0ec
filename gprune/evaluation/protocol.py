"""Describe the protocol of perplexities and accuracies, and the relation of evaluation texts to calibration texts.

A stamp lists everything that a perplexity or an accuracy depends on besides the model: windows, stream, limit, scoring
rule, number type and versions, all read from the records of the run. In a table, values whose stamp differs from the
most common stamp get a mark and a footnote.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from gprune.data.texts import catalogue, naming
from gprune.data.texts.corpus_relation import SAME, Kinship, corpus, kinship
from gprune.data.texts.holdout import LETTERS, HoldoutStatus, unseen
from gprune.records import Accuracy, Perplexity, TextOverlap
from gprune.study import Study

MARKS = "ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐⁿᵒᵖ"
"""marks of footnotes, in the order in which they are assigned; all further footnotes share the last mark"""
PUBLISHED = (
    "windows of 128 tokens, all of them; accuracies zero-shot, of whole tasks; number type and versions not given"
)
"""protocol of the paper's values, as far as the paper states it"""
_PACKAGES = ("gprune", "torch", "transformers")
"""packages whose versions are part of every stamp"""


@dataclass(frozen=True, slots=True)
class Stamp:
    """Everything that a value depends on besides the model."""

    measure: str
    """quantity and sample size, such as `perplexity over 80 windows of 128 tokens`"""
    stream: str
    """how the text is divided into windows, or the documents into questions"""
    rule: str
    """how the value is computed from the model's output"""
    precision: str
    """number type of the model; empty if not recorded"""
    versions: tuple[tuple[str, str], ...]
    """names and versions of the packages that measured the value; empty if not recorded"""
    limit: str = field(default="", compare=False)
    """requested maximum of the sample size; not compared, because values with equal sample size are comparable"""

    @property
    def line(self) -> str:
        """Return the stamp in one line."""
        limited = f" ({self.limit})" if self.limit else ""
        versions = ", ".join(f"{name} {version}" for name, version in self.versions)
        fields = (f"{self.measure}{limited}", self.stream, self.rule, self.precision)
        return "; ".join(part for part in (*fields, versions or "versions not recorded") if part)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        values = asdict(self) | {"versions": dict(self.versions)}
        return {"what": values.pop("measure"), **values}


def of_perplexity(
    perplexity: Perplexity, versions: Mapping[str, Any], precision: str = "", limit: int | None = None
) -> Stamp:
    """Return the stamp of a perplexity, with the package versions that are stored with it.

    `precision` is the model's number type, `limit` the requested maximum of windows; None for all.
    """
    return Stamp(
        measure=f"perplexity over {perplexity.windows} windows of {perplexity.length} tokens",
        stream=f"{_stream(perplexity.text)}, consecutive windows, incomplete last window dropped",
        rule=f"perplexity = exp(mean loss over {perplexity.length - 1} predictions per window)",
        precision=precision,
        versions=_versions(versions, _PACKAGES),
        limit=_limit(limit),
    )


def of_accuracy(accuracy: Accuracy, versions: Mapping[str, Any], rule: str = "", precision: str = "") -> Stamp:
    """Return the stamp of an accuracy, with the package versions that are stored with it.

    `rule` selects the reported accuracy, max or fixed; empty if both are reported. `precision` is the model's number
    type.
    """
    task = f"task version {accuracy.version}" if accuracy.version else ""
    shots, template = f"{accuracy.few_shot}-shot" if accuracy.few_shot else "zero-shot", "chat template"
    metric = accuracy.metric if accuracy.metric != "acc" else f"rule {rule}" if rule else "acc and acc_norm"
    return Stamp(
        measure=f"accuracy on {accuracy.samples} documents",
        stream=", ".join(filter(None, (shots, template * accuracy.chat_template, task))),
        rule=", ".join(filter(None, (metric, accuracy.decoding))),
        precision=precision,
        versions=_versions(versions, (*_PACKAGES, "lm_eval")),
        limit=_limit(accuracy.limit or None),
    )


def _stream(text: str) -> str:
    """Describe how the documents of a text form a stream."""
    name = naming.parse(text)
    listed = catalogue.HUB_TEXTS.get(name.base)
    is_joined = listed.joined if listed is not None else name.joined
    joined_text = "one stream, documents joined by blank lines, a BOS, if any, at its start only"
    return joined_text if is_joined else "one stream, a BOS, if any, at the start of each document only"


def _versions(versions: Mapping[str, Any], packages: Iterable[str]) -> tuple[tuple[str, str], ...]:
    return tuple((name.replace("_", "-"), str(versions[name])) for name in packages if versions.get(name))


def _limit(limit: int | None) -> str:
    return "all" if limit is None else f"at most {limit}"


class Marks:
    """Footnote marks of the values in a table; in each column, only the most common stamp has no mark."""

    def __init__(self, columns: Mapping[str, Iterable[Stamp | None]]) -> None:
        """Assign marks to the stamps in each column; a stamp is None if the protocol is not known."""
        self._marks: dict[tuple[str, Stamp], str] = {}
        """mark by column and stamp"""
        self._mark_of: dict[str, str] = {}
        """mark by footnote"""
        self.usual: dict[str, Stamp] = {}
        """the most common stamp, which has no mark, by column"""
        for name, stamps in columns.items():
            ordered = [stamp for stamp, _ in Counter(filter(None, stamps)).most_common()]
            if ordered:
                self.usual[name] = ordered[0]
            for stamp in ordered[1:]:
                footnote, next_index = difference(stamp, ordered[0]), min(len(self._mark_of), len(MARKS) - 1)
                self._marks[name, stamp] = self._mark_of.setdefault(footnote, MARKS[next_index])

    def of(self, column: str, *stamps: Stamp | None) -> str:
        """Return the marks of a value in a column; empty for the most common stamp."""
        marks = (self._marks.get((column, stamp), "") for stamp in stamps if stamp is not None)
        return "".join(dict.fromkeys(marks))

    @property
    def footnotes(self) -> list[str]:
        """Return a footnote for each mark: the difference of its stamp from the most common stamp."""
        return [f"{mark} {footnote}" for footnote, mark in self._mark_of.items()]


def difference(stamp: Stamp, usual: Stamp) -> str:
    """Describe the fields in which `stamp` differs from `usual`."""
    pairs = [(getattr(stamp, name), getattr(usual, name)) for name in ("measure", "stream", "rule", "precision")]
    usual_versions = dict(usual.versions)
    pairs += [
        (f"{name} {version}", f"{name} {usual_versions.get(name, 'unknown')}") for name, version in stamp.versions
    ]
    differences = [
        f"{value or 'not recorded'} instead of {usual_value or 'not recorded'}"
        for value, usual_value in pairs
        if value != usual_value
    ]
    return "; ".join(differences) or "versions not recorded"


def lines(stamps: Iterable[Stamp | None]) -> list[str]:
    """Return one line per stamp, without duplicates, in order of first appearance."""
    return list(dict.fromkeys(stamp.line for stamp in stamps if stamp is not None))


def holdout_statuses(
    study: Study, calibration: Mapping[str, str], evaluation: Mapping[str, str], overlaps: Mapping[str, TextOverlap]
) -> dict[str, HoldoutStatus]:
    """Return the relation of every evaluation text of a study to its calibration texts.

    `calibration` has content digests by role, `evaluation` by text, and `overlaps` the measured overlap by text.
    """
    texts = {"primary": study.primary, "auxiliary": study.auxiliary}
    if study.chooses and study.choice.check_text:
        texts["check"] = study.choice.check_text
    if study.baselines.taylor_text and "llm_pruner" in study.involved:
        texts["gradient"] = study.baselines.taylor_text
    corpora = {role: corpus(text, "calibration") for role, text in texts.items()}
    statuses = {}
    for text in study.evaluation.texts:
        text_corpus, content = corpus(text, "evaluation"), evaluation.get(text)
        kin: dict[str, Kinship] = {}
        for role, calibration_corpus in corpora.items():
            same = bool(content) and content == calibration.get(role)
            kin[LETTERS[role]] = SAME if same else kinship(text_corpus, calibration_corpus)
        statuses[text] = HoldoutStatus(text, kin, overlaps.get(text), study.text_name(text))
    return statuses


def leading_text(statuses: Mapping[str, HoldoutStatus], study: Study) -> str:
    """Return the text on which findings are stated: unseen, else of another corpus, else A, else any, else ""."""
    other_corpus = [text for text, status in statuses.items() if status.is_other_corpus]
    return next(iter(unseen(statuses) + other_corpus + [study.primary] * (study.primary in statuses) + [*statuses]), "")
