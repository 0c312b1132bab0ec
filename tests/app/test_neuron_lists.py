"""Lists of neurons: kept under any name, taken along as JSON, refused in one sentence."""

import json
from pathlib import Path

import pytest

from gprune.app.pages.inspector import lists
from gprune.app.pages.inspector.lists import NeuronList
from gprune.system.errors import SettingsError


def test_a_list_comes_back_as_it_was_saved_whatever_it_is_called(tmp_path: Path) -> None:
    root = str(tmp_path)
    for name in ("../../etc/passwd", "quotes ☃", "zz"):
        lists.LISTS.save(root, NeuronList(name, ((3, 1), (0, 2), (3, 1))))
    found, faults = lists.LISTS.kept(root)
    assert [one.name for one in found] == ["../../etc/passwd", "quotes ☃", "zz"] and not faults
    assert found[0].neurons == ((3, 1), (0, 2))
    assert {path.parent for path in tmp_path.rglob("*.json")} == {tmp_path / "neurons"}
    assert lists.LISTS.read(lists.LISTS.export(found)) == found
    lists.LISTS.save(root, NeuronList(" zz ", ((9, 9),)))
    lists.LISTS.delete(root, NeuronList("quotes ☃", ()))
    assert [one.neurons for one in lists.LISTS.kept(root)[0]][1:] == [((9, 9),)]
    (tmp_path / "neurons" / "odd.json").write_text("{")
    assert (
        len(lists.LISTS.kept(root)[0]) == 2
        and "odd.json: the file is not JSON" in lists.LISTS.kept(root)[1][0]
    )


def written(**changes: object) -> bytes:
    entry = {"name": "mine", "neurons": [[0, 1]]} | changes
    return json.dumps({"format": lists.LISTS.form, "version": 1, "lists": [entry]}).encode()


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        (b"\x00", "is not JSON"),
        (b"[]", "`format` is not 'gprune-neurons'"),
        (written().replace(b'"version": 1', b'"version": 7'), "version 7 and 1 is read here"),
        (written().replace(b"lists", b"list"), "lacks lists"),
        (written(neurons=3), r"lists\[0\].neurons must be a list"),
        (written(neurons=[[0, 1.5]]), r"pair of layer and neuron, from 0 on \(got \[0, 1.5\]\)"),
        (written(neurons=[[0, -1]]), "pair of layer and neuron"),
        (written(neurons=[[0, True]]), "pair of layer and neuron"),
        (written(neurons=[[0, 2**60]]), "pair of layer and neuron"),
        (written(name=" "), r"lists\[0\].name: a list needs a name of 1 to 60 letters"),
        (written(name="a\u202eb"), "a list needs a name"),
    ],
)
def test_a_file_that_is_no_list_is_refused_in_a_sentence(raw: bytes, sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        lists.LISTS.read(raw)
