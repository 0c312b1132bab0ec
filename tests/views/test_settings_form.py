"""The form knows every field of a study and what it means."""

from __future__ import annotations

from gprune.study import Study, field_names
from gprune.views.jobs import settings_form


def test_every_field_has_its_documentation() -> None:
    documented = settings_form.documentation()
    assert all(documented.get(name) for name in field_names())
    assert documented["retention"].startswith("fraction R*")


def test_fields_come_with_their_defaults() -> None:
    study = Study(model="demo", primary="a", auxiliary="b")
    for section in settings_form.SECTIONS:
        for name, (_, default) in settings_form.fields(section).items():
            assert getattr(getattr(study, section), name) == default
