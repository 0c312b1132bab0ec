"""Cases for readers: valid documents with odd values in them, damaged bytes, and what is no document."""

import copy
import json
from typing import Any

from hypothesis import strategies as st

# json.dumps writes none of these; they stand in for it until the text is made
RAW = {
    "@digits@": "9" * 5000,
    "@overflow@": "1e400",
    "@nan@": "NaN",
    "@infinity@": "-Infinity",
    "@deep@": "[" * 200 + "]" * 200,
    "@deeper@": '{"a":' * 5000 + "1" + "}" * 5000,
    "@surrogate@": '"\\ud800"',
    "@nul@": '"a\\u0000b"',
}
WORDS = (
    "", " ", "²", "٣", "~nosuchuser", "~nosuchuser/model", "a\0b", "x" * 5000, "..", "../../etc/passwd",
    "/etc/passwd", "/dev/null", "a#b=c", "#", "###&&==", "nan", "1e400", "=1+1", "null", "[", "{", "<b>",
    "\u202e", "é" * 300, "-1", "demo", "hub:", "hub:../..", "hub:" + "a" * 5000,
    "x#documents=0:99999999999999999999", "a/" * 3000, "**/*", "[!", "\n",
)  # fmt: skip
NUMBERS = (0, 1, -1, 2, 0.5, -0.0, 1e308, 1e17, 2**31, 2**53 + 1, 2**63 - 1, -(2**63), 10**18, 99999)

words = st.sampled_from(WORDS) | st.text(max_size=12)
scalars = (
    st.none()
    | st.booleans()
    | st.sampled_from(NUMBERS)
    | st.integers(-100, 100)
    | st.floats(allow_nan=False, allow_infinity=False)
    | words
    | st.sampled_from(sorted(RAW))
)
values = (
    scalars
    | st.lists(scalars, max_size=3)
    | st.dictionaries(words, scalars, max_size=2)
    | st.sampled_from(("[]", "{}", "[[]]", "[{}]", '{"a": {}}', "[[[[1]]]]", '{"a": [{"b": null}]}')).map(json.loads)
)


def written(value: Any) -> str:
    """A value as JSON, with what json.dumps cannot write."""
    text = json.dumps(value, ensure_ascii=True)
    for mark, raw in RAW.items():
        text = text.replace(f'"{mark}"', raw).replace(mark, "x")
    return text


def places(document: Any, before: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value of a document."""
    found = [before]
    items: Any = ()
    if isinstance(document, dict):
        items = document.items()
    elif isinstance(document, list):
        items = enumerate(document)
    for name, inner in items:
        found += places(inner, (*before, name))
    return found


@st.composite
def changed(draw: Any, document: Any) -> Any:
    """A valid document of which some values are others, missing or more."""
    found = copy.deepcopy(document)
    for _ in range(draw(st.integers(0, 3))):
        way = draw(st.sampled_from(places(found)))
        if not way:
            if draw(st.integers(0, 9)) == 0:
                found = draw(values)
            continue
        home = found
        for step in way[:-1]:
            home = home[step]
        action = draw(st.sampled_from(("replace", "replace", "replace", "delete", "add", "swap")))
        if action == "delete":
            del home[way[-1]]
        elif action == "add" and isinstance(home, dict):
            home[draw(words)] = draw(values)
        elif action == "swap":
            home[way[-1]] = [home[way[-1]]] if draw(st.booleans()) else {"a": home[way[-1]]}
        else:
            home[way[-1]] = draw(values)
    return found


@st.composite
def damaged(draw: Any, data: bytes) -> bytes:
    """Bytes that are cut, doubled, overwritten, or as they were."""
    action = draw(st.sampled_from(("keep", "keep", "keep", "keep", "cut", "overwrite", "insert", "mark", "other")))
    place = draw(st.integers(0, max(0, len(data) - 1)))
    if action == "cut":
        return data[:place]
    if action == "overwrite":
        noise = draw(st.binary(min_size=1, max_size=4))
        return data[:place] + noise + data[place + len(noise) :]
    if action == "insert":
        return (
            data[:place]
            + draw(st.sampled_from([b"\0", b"[" * 2000, b"\xff\xfe", b'"', b"\n", b",", b"{"]))
            + data[place:]
        )
    if action == "mark":
        return b"\xef\xbb\xbf" + data
    return draw(st.binary(max_size=64)) if action == "other" else data


@st.composite
def files(draw: Any, document: Any) -> bytes:
    """The bytes of a JSON file that once was a valid document."""
    return draw(damaged(written(draw(changed(document))).encode()))
