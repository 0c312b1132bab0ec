"""Every reader answers as the hand-written ones did whose answers were kept before they went."""

import json
import re
from pathlib import Path

import pytest
from system import form_cases

KEPT = json.loads(Path(__file__).with_name("form_answers.json").read_text(encoding="utf-8"))


def differs(place: str, before: str, now: str) -> bool:
    """Whether a reader takes another value than before, or refuses otherwise."""
    kind, told, words = before.partition(": ")
    if before.startswith("crash"):
        # it was never meant to: a refusal takes its place
        return not re.match(r"[A-Z]\w+Error: ", now)
    if not told:
        return now != before
    field = next((part for part in reversed(place.split(" ")[0].split(".")) if not part.isdecimal()), "")
    named = [word for word in (field, "<got>") if word and word in words]
    if re.sub(r"\.(\d+)", r"[\1]", place) + "." in now:
        # it names what lies below by its place
        named = [field]
    return not now.startswith(f"{kind}: ") or any(word not in now for word in named)


@pytest.mark.parametrize(
    "reader",
    # that of studies answers most, and takes as long as all others
    [pytest.param(name, marks=[pytest.mark.long] * (name == "study")) for name in form_cases.READERS],
)
def test_answers_stay(reader, tmp_path):
    found = form_cases.answers(tmp_path, reader)[reader]
    kept = {
        place: [KEPT["answers"][number] for number in numbers] for place, numbers in KEPT["readers"][reader].items()
    }
    assert list(found) == list(kept)
    odd = [
        (place, number, before, now)
        for place in kept
        for number, (before, now) in enumerate(zip(kept[place], found[place], strict=True))
        if differs(place, before, now)
    ]
    assert not odd, "\n".join(map(str, odd))
