"""Which texts of a study have to be built or read before it can run: those whose tokens are not at hand."""

from gprune.data.texts import bundled, is_embedded
from gprune.models import identity
from gprune.pipeline.stages.inputs import ROLES, content_of, is_local, tokens_read
from gprune.study import Study
from gprune.system.errors import GpruneError


def to_build(study: Study) -> list[str]:
    """Texts A, B, C and evaluated ones of which a study reads more than comes with the project.

    What cannot be found is among them; nothing is downloaded.
    """
    used = [(text, role) for role in ROLES if (text := getattr(study, role))]
    used += [(text, "evaluation") for text in study.evaluation.texts]
    # held-out sequences and questions take more of a text
    more = study.chooses or study.evaluation.tasks or not is_local(study.model)
    return [text for text, role in used if more or not _comes_along(study, text, role)]


def _comes_along(study: Study, text: str, role: str) -> bool:
    """Whether what a study reads of a text comes with the project."""
    # the digest of a file would read it whole before a run starts
    if not is_embedded(text):
        return False
    try:
        known = content_of(study, "", "", text, role), identity.tokenizer_fingerprint(study.model)
    except GpruneError:
        return False
    if role == "evaluation":
        return bundled.stream(*known, tokens_read(study, role)) is not None
    calibration = study.calibration
    asked = calibration.samples, calibration.length, study.seed
    return bundled.drawn(text, *known, *asked) is not None
