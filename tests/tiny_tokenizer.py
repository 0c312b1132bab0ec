"""A small tokenizer of the kind that most models have."""

from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers


def byte_level(lines: Iterable[str], vocabulary: int, *special: str, begins: bool = False) -> Tokenizer:
    """Byte-level BPE trained on lines; if it begins texts, with the first special token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    options = {"special_tokens": [*special], "initial_alphabet": pre_tokenizers.ByteLevel.alphabet()}
    tokenizer.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=vocabulary, show_progress=False, **options))
    if begins:
        first = f"{special[0]} $A"
        tokenizer.post_processor = processors.TemplateProcessing(single=first, special_tokens=[(special[0], 0)])
    return tokenizer
