"""A tokenizer is put into llama.cpp's terms, or refused where llama.cpp would split text otherwise."""

import json
from types import SimpleNamespace

import pytest
import torch

from gprune.models.export import gguf
from gprune.models.export.gguf import BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED, vocabulary_of
from gprune.system.errors import CheckpointError

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


class Tokenizer:
    """A stub of a tokenizer: its JSON, its special token ids, and whether a text starts with a token."""

    def __init__(self, values, begins=True):
        self.backend_tokenizer = SimpleNamespace(to_str=lambda: json.dumps(values))
        self.bos_token_id, self.eos_token_id, self.unk_token_id, self.pad_token_id = 1, 2, 0, None
        self.begins = begins

    def __call__(self, text):
        return SimpleNamespace(input_ids=[1, 5] if self.begins else [5])


def added(number, content, special=True):
    return {"id": number, "content": content, "special": special}


def sentence_piece(**changes):
    words = ["<unk>", "<s>", "</s>", "<0x0A>", "a", "b", "▁", "ab", "▁a", "▁ab"]
    merges = [["▁", "a"], ["a", "b"], ["▁", "ab"], ["▁a", "b"]]
    model = {
        "type": "BPE",
        "byte_fallback": True,
        "unk_token": "<unk>",
        "vocab": {word: number for number, word in enumerate(words)},
        "merges": merges,
    }
    steps = [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace"}]
    values = {
        "model": model,
        "added_tokens": [added(0, "<unk>"), added(1, "<s>"), added(2, "</s>"), added(10, "<tool>", False)],
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": None,
    }
    return values | changes


def byte_level(steps, ignore_merges=False):
    model = {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": ["a b"], "ignore_merges": ignore_merges}
    before = steps[0] if len(steps) == 1 else {"type": "Sequence", "pretokenizers": steps}
    return {"model": model, "added_tokens": [], "normalizer": None, "pre_tokenizer": before}


def split(pattern):
    split_step = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return [split_step, {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}]


PLAIN = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}


def test_sentence_piece_gets_scores_in_order_of_its_merges():
    vocabulary = vocabulary_of(Tokenizer(sentence_piece()), 13)
    assert (vocabulary.model, vocabulary.pre_tokenizer, vocabulary.merges) == ("llama", "default", None)
    assert vocabulary.tokens[7:] == ["ab", "▁a", "▁ab", "<tool>", "[PAD11]", "[PAD12]"]
    assert vocabulary.types[:5] == [UNKNOWN, CONTROL, CONTROL, BYTE, NORMAL]
    assert vocabulary.types[9:] == [NORMAL, USER_DEFINED, UNUSED, UNUSED]
    assert vocabulary.scores is not None and vocabulary.scores[7:10] == [-1.0, 0.0, -2.0]
    assert max(vocabulary.scores[:7]) < -1e5
    assert vocabulary.special == {"bos": 1, "eos": 2, "unk": 0}
    assert vocabulary.flags == {"add_bos_token": True, "add_eos_token": False, "add_space_prefix": True}


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ({"type": "Metaspace", "prepend_scheme": "first"}, True),
        ({"type": "Metaspace", "prepend_scheme": "never"}, False),
        (None, False),
    ],
)
def test_the_space_before_a_text_is_known(before, expected):
    values = sentence_piece(normalizer=None, pre_tokenizer=before)
    assert vocabulary_of(Tokenizer(values, begins=False), 11).flags == {
        "add_bos_token": False,
        "add_eos_token": False,
        "add_space_prefix": expected,
    }


def test_a_pair_that_is_no_merge_is_refused():
    values = sentence_piece()
    values["model"]["merges"].remove(["▁a", "b"])
    with pytest.raises(CheckpointError, match="does not merge '▁a' and 'b', .* into its token '▁ab'"):
        vocabulary_of(Tokenizer(values), 11)


@pytest.mark.parametrize(
    ("steps", "ignores", "name"),
    [
        ([PLAIN], False, "gpt-2"),
        ([{"type": "Digits", "individual_digits": True}, PLAIN], False, "smollm"),
        (split(LLAMA3), True, "llama-bpe"),
        (split(LLAMA3), False, "smaug-bpe"),
        (split(LLAMA3.replace("{1,3}", "")), False, "qwen2"),
    ],
)
def test_splittings_that_llama_cpp_has_are_named(steps, ignores, name):
    vocabulary = vocabulary_of(Tokenizer(byte_level(steps, ignores)), 2)
    assert (vocabulary.model, vocabulary.pre_tokenizer) == ("gpt2", name)
    assert (vocabulary.merges, vocabulary.scores) == (["a b"], None)


@pytest.mark.parametrize(
    ("steps", "ignores"),
    [
        (split(r"\w+"), False),
        (split(LLAMA3.replace("{1,3}", "")), True),
        ([PLAIN | {"add_prefix_space": True}], False),
        ([{"type": "Whitespace"}], False),
    ],
)
def test_other_splittings_are_refused(steps, ignores):
    with pytest.raises(CheckpointError, match="in a way that llama.cpp does not support"):
        vocabulary_of(Tokenizer(byte_level(steps, ignores)), 2)


def test_other_tokenizers_are_refused():
    values = byte_level([PLAIN])
    values["model"]["type"] = "Unigram"
    with pytest.raises(CheckpointError, match="of type 'Unigram', but only byte-pair encodings"):
        vocabulary_of(Tokenizer(values), 2)
    with pytest.raises(CheckpointError, match="has 11 tokens, the model 8: token .* has no embedding. Remove it from"):
        vocabulary_of(Tokenizer(sentence_piece()), 8)
    with pytest.raises(CheckpointError, match="SimpleNamespace has no tokenizer.json"):
        vocabulary_of(SimpleNamespace(), 8)


def test_every_chat_template_is_written_the_default_one_where_llama_cpp_looks(tmp_path):
    package = pytest.importorskip("gguf", reason="requirements-gguf.txt is not installed")
    tokenizer = Tokenizer(sentence_piece())
    tokenizer.chat_template = {"default": "{{ a }}", "tool_use": "{{ b }}"}
    vocabulary = vocabulary_of(tokenizer, 13)
    writer = package.GGUFWriter(tmp_path / "file.gguf", "llama")
    vocabulary.add_to(writer)
    fields = {name: field.value for data in writer.kv_data for name, field in data.items()}
    assert fields["tokenizer.chat_template"] == "{{ a }}"
    assert fields["tokenizer.chat_template.tool_use"] == "{{ b }}"
    assert fields["tokenizer.chat_templates"] == ["tool_use"]
    tokenizer.chat_template = "{{ a }}"
    assert vocabulary_of(tokenizer, 13).chat_template == "{{ a }}"


def test_without_the_package_it_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(gguf, "find_spec", lambda name: None)
    with pytest.raises(CheckpointError, match="not installed: run pip install -r requirements-gguf.txt"):
        gguf.save_gguf(tmp_path / "in", tmp_path / "out.gguf")
    assert list(tmp_path.iterdir()) == []


def test_rotated_channels_become_neighbours():
    # two heads of six channels: channel i turns with i + 3, and must stand beside it
    rows = torch.arange(12).float()[:, None]
    expected = [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]
    assert gguf._interleave(rows, 6)[:, 0].tolist() == expected
