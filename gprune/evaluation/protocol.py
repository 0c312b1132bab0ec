"""The protocols by which figures of quality were measured, and how their texts relate to those of the calibration.

A stamp says what a figure depends on besides the model: windows, stream, limit, scoring rule, number type and
versions, all read from the records of the run. Figures of different stamps get a mark and a footnote.

The only definition of *unseen* is here: a text of a different corpus than A, B, the check text of a choice and
LLM-Pruner's own text, with next to no verbatim overlap with the sequences that were drawn from them. The declared
relation (corpus and split by name, equal content) and the measured overlap are both reported; neither alone suffices.
The third text C prunes nothing and does not count. A text that the model has written itself is never unseen.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from gprune.data.texts import catalogue, is_sampled, naming
from gprune.data.texts.corpus_relation import PART, SAME, Kinship, corpus, kinship
from gprune.records import Accuracy, Perplexity, TextOverlap
from gprune.study import Study

MARKS = "ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐⁿᵒᵖ"
"""in the order in which they are given; those beyond the last share it"""
PUBLISHED = (
    "windows of 128 tokens, all of them; accuracies zero-shot, of whole tasks; number type and versions not given"
)
"""the stamp of the paper's own figures, as far as the paper gives it"""
_PACKAGES = ("gprune", "torch", "transformers")
LETTERS = {"primary": "A", "auxiliary": "B", "check": "the check text", "gradient": "LLM-Pruner’s own text"}
"""names of the texts that decide the pruning, by role, and of the text by which a repair or a recipe is chosen"""
MOST_SHARED = 0.01
"""share of an evaluated text's runs that may occur in a calibration set by chance or quotation"""
_OF_A_COPY = 4
"""a copy overlaps by the share of the text that was drawn; one part in this number is too much already"""
UNSEEN = "unseen"


@dataclass(frozen=True, slots=True)
class Stamp:
    """Everything that a figure depends on besides the model."""

    measure: str
    """figure and size: `perplexity over 80 windows of 128 tokens`"""
    stream: str
    """how the text became windows, or the documents questions"""
    rule: str
    """how the figure follows from the model's output"""
    precision: str
    """number type of the model; empty if not recorded"""
    versions: tuple[tuple[str, str], ...]
    """of the programs that measured; empty if not recorded"""
    limit: str = field(default="", compare=False)
    """largest size that was requested; figures of equal size are comparable whatever their limits"""

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

    `precision` is the model's number type, `limit` the windows asked for at most; None for all.
    """
    return Stamp(
        measure=f"perplexity over {perplexity.windows} windows of {perplexity.length} tokens",
        stream=f"{_stream(perplexity.text)}, consecutive windows, tail dropped",
        rule=f"exp of the mean loss of {perplexity.length - 1} predictions a window",
        precision=precision,
        versions=_versions(versions, _PACKAGES),
        limit=_limit(limit),
    )


def of_accuracy(accuracy: Accuracy, versions: Mapping[str, Any], rule: str = "", precision: str = "") -> Stamp:
    """Return the stamp of an accuracy, with the package versions that are stored with it.

    `rule` is the figure that counts, max or fixed; empty if both are reported. `precision` is the
    model's number type.
    """
    task = f"task version {accuracy.version}" if accuracy.version else ""
    return Stamp(
        measure=f"accuracy on {accuracy.samples} documents",
        stream=", ".join(filter(None, (f"{accuracy.few_shot}-shot" if accuracy.few_shot else "zero-shot", task))),
        rule=accuracy.metric if accuracy.metric != "acc" else f"rule {rule}" if rule else "acc and acc_norm",
        precision=precision,
        versions=_versions(versions, (*_PACKAGES, "lm_eval")),
        limit=_limit(accuracy.limit or None),
    )


def _stream(text: str) -> str:
    """Return the order of the documents of a text in words."""
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
    """The marks of a table: in every column the commonest stamp has none, and each other one its own."""

    def __init__(self, columns: Mapping[str, Iterable[Stamp | None]]) -> None:
        """Compare the stamps of each column's figures, or None if the protocol is not known."""
        self._marks: dict[tuple[str, Stamp], str] = {}
        self._meaning: dict[str, str] = {}
        self.usual: dict[str, Stamp] = {}
        """the stamp of the figures without a mark, by column"""
        for name, stamps in columns.items():
            ordered = [stamp for stamp, _ in Counter(filter(None, stamps)).most_common()]
            if ordered:
                self.usual[name] = ordered[0]
            for stamp in ordered[1:]:
                meaning, following = difference(stamp, ordered[0]), min(len(self._meaning), len(MARKS) - 1)
                self._marks[name, stamp] = self._meaning.setdefault(meaning, MARKS[following])

    def of(self, column: str, *stamps: Stamp | None) -> str:
        """Return the mark of a figure in a column; empty under the usual stamp."""
        marks = (self._marks.get((column, stamp), "") for stamp in stamps if stamp is not None)
        return "".join(dict.fromkeys(marks))

    @property
    def footnotes(self) -> list[str]:
        """Return the meaning of each mark: the difference of its stamp from the usual one."""
        return [f"{mark} {meaning}" for meaning, mark in self._meaning.items()]


def difference(stamp: Stamp, usual: Stamp) -> str:
    """Return the parts in which a stamp differs from another."""
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
    """Return some stamps in one line each, without duplicates, in order of first appearance."""
    return list(dict.fromkeys(stamp.line for stamp in stamps if stamp is not None))


@dataclass(frozen=True, slots=True)
class HoldoutStatus:
    """Relation of an evaluated text to the calibration texts of a run."""

    text: str
    """the evaluation text, as typed"""
    kin: Mapping[str, Kinship]
    """declared relation to each calibration text, by its name"""
    overlap: TextOverlap | None
    """measured overlap, or None before it is measured"""
    name: str = ""
    """name that the study gives the text"""

    @property
    def related(self) -> dict[Kinship, str]:
        """Return the letters of related calibration texts, by kind of relation."""
        letters = {kind: [letter for letter, kin in self.kin.items() if kin == kind] for kind in (SAME, PART)}
        return {kind: " and ".join(names) for kind, names in letters.items() if names}

    @property
    def copied(self) -> str:
        """Return the letters of the calibration sets that contain too much of it; empty if none does."""
        if self.overlap is None:
            return ""
        limits = np.minimum(MOST_SHARED, self.overlap.drawn / _OF_A_COPY)
        return " and ".join(
            letter for letter, exceeds in zip(self._letters, self.overlap.share > limits, strict=True) if exceeds
        )

    @property
    def other(self) -> bool:
        """Return True if it is declared as another corpus and no measured overlap contradicts that."""
        return not (is_sampled(self.text) or self.related or self.copied)

    @property
    def unseen(self) -> bool:
        """Return True if it may be called unseen."""
        return self.other and self.overlap is not None

    @property
    def brief(self) -> str:
        """Return the relation in a few words."""
        return self._words[0]

    @property
    def _words(self) -> tuple[str, str]:
        """Return the relation in a few words, and the reason for it."""
        if is_sampled(self.text):
            return "written by the model", "written by the model itself, so it is not unseen"
        if SAME in self.related:
            return f"same text as {self.related[SAME]}", f"the same text as {self.related[SAME]}"
        if PART in self.related:
            letters = self.related[PART]
            return f"other split of {letters}", f"another split of the corpus of {letters}, not unseen"
        if self.copied:
            reason = f"a different name, but its content occurs in {self.copied}, so it is not unseen"
            return f"overlaps {self.copied}", reason
        if self.unseen:
            return UNSEEN, "unseen, a different corpus than A and B"
        return "other corpus, overlap unknown", "a different corpus than A and B by name"

    @property
    def _letters(self) -> list[str]:
        # LLM-Pruner's own text is left out, because it may be missing and the overlap concerns all methods
        return [letter for letter in self.kin if letter != LETTERS["gradient"]]

    @property
    def measured(self) -> str:
        """Return the overlap in words; empty if it was not measured."""
        if self.overlap is None:
            return ""
        run, shares = self.overlap.run, self.overlap.share
        if not shares.any():
            return f"no {run}-token verbatim overlap with {' or '.join(self._letters)}"
        clauses = [f"{_percent(share)} in {letter}" for letter, share in zip(self._letters, shares, strict=True)]
        clauses[0] = clauses[0].replace(" in ", f" of its {run}-token runs occur verbatim in ")
        return ", ".join(clauses)

    @property
    def sentence(self) -> str:
        """Return the relation, the reason for it, and the measured overlap."""
        overlap_in_words = f"; {self.measured}" if self.measured else "; its overlap with A and B is not measured"
        return f"{self.name or self.text}: {self._words[1]}{overlap_in_words}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        values = {"unseen": self.unseen, "is": self.brief, "sentence": self.sentence, "declared": dict(self.kin)}
        if self.overlap is not None:
            shares = dict(zip(self._letters, map(float, self.overlap.share), strict=True))
            values |= {"overlap": shares, "tokens of a run": self.overlap.run}
        return values


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


def unseen(statuses: Mapping[str, HoldoutStatus]) -> list[str]:
    """Return the texts that may be called unseen."""
    return [text for text, status in statuses.items() if status.unseen]


def leading_text(statuses: Mapping[str, HoldoutStatus], study: Study) -> str:
    """Return the text that findings are about: unseen, else of another corpus, else A, else any; may be empty."""
    foreign = [text for text, status in statuses.items() if status.other]
    return next(iter(unseen(statuses) + foreign + [study.primary] * (study.primary in statuses) + [*statuses]), "")


def _percent(share: float) -> str:
    """Format a share with as many decimals as it needs; only 0 itself is "none"."""
    if not share:
        return "none"
    return "< 0.01%" if share < 1e-4 else f"{100 * share:.{0 if share >= 0.1 else 2}f}%"
