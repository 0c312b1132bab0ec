"""Files and words from outside: they stay below the cache, and are text and nothing else."""

import pytest

from gprune.app.pages import launch
from gprune.app.ui import text
from gprune.system.errors import StoreError

NAMES = ["../../etc/passwd", "/etc/x", "a/b\\c", "..", "", "x" * 300 + ".txt", "ünïcode ☃.txt", "a#b&c.txt"]


@pytest.mark.parametrize("name", NAMES)
def test_a_file_from_outside_stays_below_the_cache(tmp_path, name):
    folder = launch.uploaded_path(str(tmp_path), "texts", name, ".txt", b"words")
    assert folder.parent == tmp_path / "texts" / "user" and folder.resolve() == folder
    assert folder.name.isascii() and len(folder.name) < 64 and folder.suffix == ".txt"
    assert launch.uploaded_path(str(tmp_path), "texts", name, ".txt", b"other words") != folder


def test_the_same_content_has_the_same_place_and_is_written_once_in_one_step(tmp_path):
    first, second = (launch.uploaded_path(str(tmp_path), "texts", name, ".txt", b"x") for name in ("a.txt", "A"))
    assert first == second and first.stem.startswith("a-")
    folder = launch.uploaded_path(str(tmp_path), "tasks", "mine", ".jsonl", b"good")
    launch.save_upload(folder, b"good")
    saved = folder.stat().st_mtime_ns
    launch.save_upload(folder, b"good")
    assert folder.stat().st_mtime_ns == saved and list(folder.parent.iterdir()) == [folder]
    folder.write_bytes(b"damaged")
    launch.save_upload(folder, b"good")
    assert folder.read_bytes() == b"good"
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="GPRUNE_CACHE|cannot be used"):
        launch.save_upload(tmp_path / "file" / "x.jsonl", b"good")


def test_words_from_outside_are_no_mark_up_and_names_are_cut_for_narrow_labels():
    assert text.escape("[x](http://y) :red[z] *b*") == "\\[x\\]\\(http\\:\u2060//y\\) \\:red\\[z\\] \\*b\\*"
    assert text.escape("two\nlines") == "two lines"
    assert text.escape("HTTPS://a WWW.b") == "HTTPS\\:\u2060//a WWW\u2060\\.b"
    assert text.escape("/www/a@v1/http") == "/www/a@v1/http"
    # a command in a message is code, and whatever else stands there is nothing
    assert text.escape_error("run `make gguf` (once)") == "run `make gguf` \\(once\\)"
    assert text.escape_error("no `[x](http://y)` *b*") == "no `[x](http://y)` \\*b\\*"
    assert text.escape_error("a ` alone") == "a \\` alone"
    assert text.strip_markdown(text.escape_error("run `make gguf` (once)")) == "run make gguf (once)"
    assert text.in_figure("<a href='x'>&") == "&lt;a href='x'&gt;&amp;"
    short = {"/a/c4.jsonl#documents=0:9": "c4.jsonl", "x" * 23: "x" * 21 + "…", "x" * 22: "x" * 22, "/": "/"}
    assert {name: text.short(name) for name in short} == short
