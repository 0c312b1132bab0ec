"""The form knows every field of a study."""

from __future__ import annotations

from gprune.app.pages.jobs import settings_form
from gprune.study import Study


def test_fields_come_with_their_defaults() -> None:
    study = Study(model="demo", primary="a", auxiliary="b")
    for section in settings_form.SECTIONS:
        for name, (_, default) in settings_form.fields(section).items():
            assert getattr(getattr(study, section), name) == default
