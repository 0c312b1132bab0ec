"""Conversations: their tokens are those of `apply_chat_template`, and the positions that count are right."""

import json

import numpy as np
import pytest

from gprune.analysis import calibration
from gprune.data import texts
from gprune.data.texts import chat, corpus_relation
from gprune.models.loading import load_tokenizer
from gprune.system.errors import CorpusError, SettingsError

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MARKED = (
    "{{ bos_token }}{% for message in messages %}{% if message.role == 'assistant' %}[A] {% generation %}"
    "{{ message.content | trim }}<|im_end|>{% endgeneration %}\n{% else %}[U] {{ message.content }}\n{% endif %}"
    "{% endfor %}"
)
# thinking is kept in the last answer only, as in Qwen3's template
THINKING = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{% if message.role == 'assistant' %}"
    "{% set parts = message.content.split('</think>') %}"
    "{% if loop.last %}<think>{{ parts[0].split('<think>')[-1] if parts | length > 1 and enable_thinking else '' }}"
    "</think>{% endif %}{{ parts[-1] }}{% else %}{{ message.content }}{% endif %}<|im_end|>\n{% endfor %}"
)
TEMPLATES = {"ChatML": CHATML, "marked": MARKED, "thinking": THINKING}
TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Be brief: 2 + 2?"},
    {"role": "assistant", "content": "<think>easy</think>4"},
    {"role": "user", "content": "And\n3 + 3?"},
    {"role": "assistant", "content": "<think>3 + 3</think>It is 6."},
]


@pytest.fixture(scope="module")
def tokenizer():
    loaded = load_tokenizer("demo")
    loaded.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    return loaded


def named(tokenizer, template):
    tokenizer.chat_template = template
    return tokenizer


def write(folder, *rows, name="chat.jsonl"):
    path = folder / name
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return str(path)


def talks(count):
    return [{"messages": [{"role": "user", "content": f"{i} + {i}?"},
                          {"role": "assistant", "content": f"{2 * i}."}]} for i in range(count)]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "thinking"), [*((name, None) for name in TEMPLATES), ("thinking", True), ("thinking", False)]
)
def test_a_conversation_has_the_tokens_of_the_tokenizers_own_template(tokenizer, name, thinking):
    named(tokenizer, TEMPLATES[name])
    rendering = chat.Rendering(thinking=thinking)
    encoder, document = chat.ChatEncoder(tokenizer, rendering, "text"), chat.write_document({"messages": TALK}, "row 1")
    rendered = encoder.encode_with_roles(document)
    assert (encoder.encode(document) == rendered.ids).all()
    options = {} if thinking is None else {"enable_thinking": thinking}
    expected = tokenizer.apply_chat_template(TALK, tokenize=True, return_dict=False, **options)
    assert rendered.ids.tolist() == list(expected)


def spoken(tokenizer, ids, flags):
    """The runs of tokens whose flag is set, decoded."""
    runs = np.split(np.arange(len(ids)), np.flatnonzero(np.diff(flags.astype(int))) + 1)
    return [tokenizer.decode(ids[run]) for run in runs if flags[run[0]]]


ANSWERS = {
    "ChatML": ["<think>easy</think>4<|im_end|>", "<think>3 + 3</think>It is 6.<|im_end|>"],
    "marked": ["<think>easy</think>4<|im_end|>", "<think>3 + 3</think>It is 6.<|im_end|>"],
    "thinking": ["4<|im_end|>", "3 + 3</think>It is 6.<|im_end|>"],
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_assistants_positions_are_its_answers_and_the_ends_of_its_turns(tokenizer, name):
    named(tokenizer, TEMPLATES[name])
    rendering = chat.Rendering(thinking=True if name == "thinking" else None)
    encoder = chat.ChatEncoder(tokenizer, rendering, "text")
    rendered = encoder.encode_with_roles(chat.write_document({"messages": TALK}, "row 1"))
    said = [part.strip() for part in spoken(tokenizer, rendered.ids, rendered.is_assistant)]
    assert said == ANSWERS[name]
    # what the template adds is no content
    content = "".join(spoken(tokenizer, rendered.ids, rendered.is_content))
    assert "Be brief." in content and "2 + 2?" in content and "<|im_start|>" not in content and "user" not in content


def test_conversations_stay_whole_and_padding_does_not_count(tokenizer, tmp_path):
    named(tokenizer, CHATML)
    path = write(tmp_path, *talks(60))
    alone = texts.draw(f"{path}#sequences=single", tokenizer, 20, 32, seed=3)
    packed = texts.draw(path, tokenizer, 8, 64, seed=3)
    for sample, conversations in ((alone, 1), (packed, 2)):
        for ids, counted in zip(sample.ids, sample.counted, strict=True):
            words = tokenizer.decode(ids[counted])
            assert words.count("<|im_start|>user") >= conversations and words.count("<|im_start|>user") == words.count(
                "<|im_start|>assistant"
            )
            assert words.startswith("<|im_start|>user") and words.rstrip().endswith("<|im_end|>")
            # padding is on the right
            assert not np.diff(counted.astype(int)).clip(0).any()
    assert alone.available == 60 and packed.available < 60
    answers = texts.draw(f"{path}#sequences=single&positions=assistant", tokenizer, 20, 32, seed=3)
    assert (answers.ids == alone.ids).all() and answers.counted.sum() < alone.counted.sum() / 2
    assert len({texts.fingerprint(f"{path}{options}", "calibration") for options in
                ("", "#sequences=single", "#positions=assistant", "#thinking=on")}) == 4  # fmt: skip
    assert answers.fingerprint != alone.fingerprint
    # sequences that follow others of the same seed are other conversations
    later = texts.draw(f"{path}#sequences=single", tokenizer, 20, 32, seed=3, after=20)
    assert not {row.tobytes() for row in later.ids} & {row.tobytes() for row in alone.ids}


def test_other_forms_of_rows_are_the_same_conversation(tokenizer, tmp_path):
    named(tokenizer, CHATML)
    forms = {
        "messages": {"messages": [{"role": "user", "content": [{"type": "text", "text": "Add:\n\n2 + 2"}]},
                                  {"role": "assistant", "content": "four"}]},
        "conversations": {"conversations": [{"from": "human", "value": "Add:\n\n2 + 2"},
                                            {"from": "gpt", "value": "four"}]},
        "instruction": {"instruction": "Add:", "input": "2 + 2", "output": "four"},
        "without input": {"instruction": "Add:\n\n2 + 2", "output": "four"},
    }  # fmt: skip
    streams = {
        name: texts.stream(write(tmp_path, row, row, name=f"{name}.jsonl"), tokenizer) for name, row in forms.items()
    }
    first = streams["messages"]
    assert tokenizer.decode(first).count("<|im_start|>assistant\nfour<|im_end|>") == 2
    assert all((ids == first).all() for ids in streams.values())
    # roles and templates are no characters of the text
    described = texts.describe(write(tmp_path, forms["instruction"], name="one.jsonl"))
    assert f"1 documents, {len('Add:') + 2 + len('2 + 2') + len('four')} characters" in described
    # named fields are plain text
    plain = texts.stream(write(tmp_path, forms["instruction"], name="plain.jsonl") + "#fields=output", tokenizer)
    assert tokenizer.decode(plain, skip_special_tokens=True).strip() == "four"


@pytest.mark.parametrize(
    ("rows", "options", "template", "message"),
    [
        (talks(3), "", None, "has no chat template: use a chat model, or type #fields="),
        (talks(3), "#template=rag", CHATML, "has no chat template 'rag', only default"),
        (talks(3), "#thinking=on", CHATML, "has no switch for thinking: remove thinking="),
        (talks(3), "#join=blank-line", CHATML, "has conversations: remove join="),
        ([{"text": "words"}], "#positions=assistant", CHATML, "no field with conversations, only text"),
        ([{"messages": [{"role": "user"}]}], "", CHATML, "message 1 of row 1 of .* must have a role and a text"),
        ([{"messages": []}], "", CHATML, "row 1 of .* has no messages"),
        (talks(3), "#sequences=single", CHATML, "from 3 conversations, of which 0 are longer"),
        (talks(3), "", "{{ raise_exception('roles alternate') }}", "refuses a conversation .*: roles alternate"),
    ],
)
def test_what_cannot_be_rendered_is_one_sentence(tokenizer, tmp_path, rows, options, template, message):
    named(tokenizer, template)
    with pytest.raises(CorpusError, match=message):
        texts.draw(write(tmp_path, *rows) + options, tokenizer, 8, 32, seed=0)


def test_half_a_character_is_replaced_as_in_plain_text(tokenizer):
    named(tokenizer, CHATML)
    document = chat.write_document({"messages": [{"role": "user", "content": "a \ud800 b"}]}, "row 1")
    assert "a \ufffd b" in tokenizer.decode(chat.ChatEncoder(tokenizer, chat.Rendering(), "text").encode(document))


def test_an_unknown_value_of_an_option_is_refused(tmp_path):
    with pytest.raises(SettingsError, match="sequences=twice .* is unknown: sequences=packed or single"):
        texts.fingerprint(write(tmp_path, *talks(3)) + "#sequences=twice", "calibration")


def test_padding_is_no_token_of_the_text(tokenizer, tmp_path):
    named(tokenizer, CHATML)
    path = write(tmp_path, *talks(60))
    for options in ("#sequences=single", "#sequences=single&positions=assistant"):
        sample = texts.draw(path + options, tokenizer, 20, 32, seed=3)
        ids = sample.unpadded_ids
        for row, line in zip(ids, sample.ids, strict=True):
            width = int((row >= 0).sum())
            # nothing of the conversation is cut off but white space after its last turn
            assert (row[:width] == line[:width]).all() and (row[width:] == -1).all()
            assert tokenizer.decode(line[:width]).rstrip().endswith("<|im_end|>")
            assert tokenizer.decode(line[width:], skip_special_tokens=True).strip() == ""
        counts = calibration.token_counts(ids, 1 + int(ids.max()))
        assert counts.sum() == (ids >= 0).sum() < ids.size
    # the same padding in two texts is no overlap
    other = texts.draw(
        write(tmp_path, *talks(90)[60:], name="other.jsonl") + "#sequences=single", tokenizer, 20, 32, seed=3
    )
    assert corpus_relation.shared_share(ids, other.unpadded_ids, 8) < corpus_relation.shared_share(
        sample.ids, other.ids, 8
    )


def test_conversations_in_memory_are_those_of_a_file(tokenizer, tmp_path):
    named(tokenizer, CHATML)
    rows = talks(40)
    kept, drawn = (
        texts.tokens.calibration(rows, tokenizer, 6, 64, 3),
        texts.draw(write(tmp_path, *rows), tokenizer, 6, 64, 3),
    )
    assert (kept.ids == drawn.ids).all() and (kept.counted == drawn.counted).all()
    stream = texts.stream(write(tmp_path, *rows), tokenizer)
    assert (texts.tokens.text_stream(rows, tokenizer) == stream).all()
    with pytest.raises(CorpusError, match="record 2 has no messages: give strings, or records"):
        texts.tokens.calibration([*rows[:1], "text"], tokenizer, 6, 64, 3)
