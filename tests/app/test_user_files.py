"""Files from outside stay below the cache, whatever they are called, and are written whole."""

from pathlib import Path

import pytest

from gprune.app.ui import user_files
from gprune.system.errors import StoreError

NAMES = ["../../etc/passwd", "/etc/x", "a/b\\c", "..", "", "x" * 300 + ".txt", "ünïcode ☃.txt", "a#b&c.txt"]


@pytest.mark.parametrize("name", NAMES)
def test_a_file_from_outside_stays_below_the_cache(tmp_path: Path, name: str) -> None:
    place = user_files.place(str(tmp_path), "texts", name, ".txt", b"words")
    assert place.parent == tmp_path / "texts" / "user" and place.resolve() == place
    assert place.name.isascii() and len(place.name) < 64 and place.suffix == ".txt"
    assert user_files.place(str(tmp_path), "texts", name, ".txt", b"other words") != place


def test_the_same_content_has_the_same_place(tmp_path: Path) -> None:
    first, second = (user_files.place(str(tmp_path), "texts", name, ".txt", b"x") for name in ("a.txt", "A"))
    assert first == second and first.stem.startswith("a-")


def test_a_file_is_written_in_one_step_and_once(tmp_path: Path) -> None:
    place = user_files.place(str(tmp_path), "tasks", "mine", ".jsonl", b"good")
    user_files.save(place, b"good")
    written = place.stat().st_mtime_ns
    user_files.save(place, b"good")
    assert place.stat().st_mtime_ns == written and list(place.parent.iterdir()) == [place]
    place.write_bytes(b"damaged")
    user_files.save(place, b"good")
    assert place.read_bytes() == b"good"
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="GPRUNE_CACHE|cannot be used"):
        user_files.save(tmp_path / "file" / "x.jsonl", b"good")
