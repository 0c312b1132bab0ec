"""Answers: what of a model's folder would go to the hub, and what should a person know before it does?

Nothing is sent before somebody asks for it by name. Needs no torch.
"""

import glob
import re
from dataclasses import dataclass
from pathlib import Path

from gprune.models import identity
from gprune.models.export.model_card import CARD_FILE, header
from gprune.models.export.plan_file import PLAN_FILE
from gprune.models.library_errors import one_line
from gprune.system import safe_parsing
from gprune.system.errors import CheckpointError

_PICKLED = (".bin", ".pt", ".pth", ".pkl", ".ckpt", ".pickle")
_PLACE = re.compile(r'"((?:/|~/|[A-Za-z]:\\\\)[^"\n]{2,200})"')
_MOST_PLACES = 3


@dataclass(frozen=True, slots=True)
class Upload:
    """What would go up."""

    folder: Path
    """where it lies"""
    files: tuple[tuple[str, int], ...]
    """path inside the folder and bytes of every file"""
    card: dict[str, object]
    """the fields at the head of its model card"""
    doubts: tuple[str, ...]
    """what a person may want to change before, a sentence each"""

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(size for _, size in self.files)


def of(folder: Path, repository: str) -> Upload:
    """What of a folder would go up under the name owner/name; sends nothing.

    Raises CheckpointError where the name is none, or the folder is no model, has no card, or holds pickled
    files, ModelError where its configuration or weights are missing.
    """
    if not re.fullmatch(r"[\w][\w.-]*/[\w][\w.-]*", repository, re.ASCII) or len(repository) > 96:
        raise CheckpointError(f"the repository must be owner/name (got {safe_parsing.quoted(repository)})")
    if not folder.is_dir():
        raise CheckpointError(f"there is no folder {str(folder)!r}: give that of a model")
    identity.configuration(folder)
    identity.weight_files(folder)
    files = tuple((name, (folder / name).stat().st_size) for name in _names(folder))
    pickled = next((name for name, _ in files if name.endswith(_PICKLED)), None)
    if pickled is not None:
        raise CheckpointError(f"{pickled!r} may be pickled, which can run code when it is read: take it out")
    if not (folder / CARD_FILE).is_file():
        raise CheckpointError(
            f"the folder {str(folder)!r} has no model card {CARD_FILE}: `python -m gprune export` writes one"
        )
    card = header(folder)
    return Upload(folder, files, card, _doubts(folder, card))


def _names(folder: Path) -> list[str]:
    """Files that go up, below the folder: none that is hidden."""
    found = (file.relative_to(folder) for file in folder.rglob("*") if file.is_file())
    names = sorted(str(name) for name in found if not any(part.startswith(".") for part in name.parts))
    with safe_parsing.refused_as(CheckpointError):
        for name in names:
            safe_parsing.inside(folder, name, "the folder")
    return names


def _doubts(folder: Path, card: dict[str, object]) -> tuple[str, ...]:
    found = []
    for field, what in (("base_model", "base model"), ("license", "licence")):
        if not card.get(field):
            found.append(f"{CARD_FILE} names no {what}: write {field} at its head")
    if not card.get("model-index"):
        # the folder that a run keeps is written before anything is measured on it
        found.append(
            f"{CARD_FILE} tells no perplexity: `python -m gprune export RUN METHOD OUT` writes the model "
            "with what its run has measured"
        )
    plan = folder / PLAN_FILE
    text = safe_parsing.contents(plan, PLAN_FILE).decode("utf-8", "replace") if plan.is_file() else ""
    places = list(dict.fromkeys(_PLACE.findall(text)))
    if places:
        shown = ", ".join(safe_parsing.quoted(place) for place in places[:_MOST_PLACES])
        more = f" and {len(places) - _MOST_PLACES} more" if len(places) > _MOST_PLACES else ""
        found.append(f"{PLAN_FILE} names places of this machine: {shown}{more}")
    return tuple(found)


def send(upload: Upload, repository: str, *, private: bool, message: str) -> str:
    """Makes the repository where it is not there, sends the files in one commit, and gives its address.

    Raises CheckpointError, with the hub's reason, where it refuses or cannot be reached.
    """
    from huggingface_hub import HfApi, constants

    hub = HfApi(endpoint=constants.ENDPOINT)
    try:
        hub.create_repo(repository, private=private or None, exist_ok=True)
        hub.upload_folder(
            repo_id=repository,
            folder_path=upload.folder,
            commit_message=message,
            allow_patterns=[glob.escape(name) for name, _ in upload.files],
        )
    except Exception as error:  # the client's transport errors have other classes in each of its versions
        status = getattr(getattr(error, "response", None), "status_code", None)
        remedy = "log in with `hf auth login` (or set HF_TOKEN) as somebody who may write there"
        said = f"it answers {status}: {remedy}" if status in (401, 403, 404) else one_line(error)
        raise CheckpointError(f"{repository} cannot be written at {constants.ENDPOINT} ({said})") from error
    return f"{constants.ENDPOINT}/{repository}"
