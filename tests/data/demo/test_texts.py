"""The demo's texts: content, splits, versions and licences."""

import hashlib
import json

import numpy as np
import pytest
from tokenizers import Tokenizer

from gprune.data import texts as corpora
from gprune.data.demo import MODEL_FOLDER, texts
from gprune.models.loading import load_tokenizer

DIGESTS = {
    "python-reference": ("4b5e218c14b5", "8f6f0792ca01e9064c904b639542185536b9814e0088b2227cee6a044be0c85a"),
    "science-docs": ("8dbd25767998", "786b7dcf6e25ae595bd9b04301af41b65bd4e7e609a042d9860f892de24c9afc"),
    "python-code": ("5d7cd5fcf94f", "3e375f730e53be1ae502187f1657acf8dbbe7362bccebfdfe7d53f5b854f36eb"),
    "unicode-table": ("5cdf60036e5e", "0d7ca76a40216468ba650cd9846d0e6c4da7463a3adb1ed145689106d3233883"),
}
"""SHA-256 of the documents under the versions of `texts.VERSIONS`"""


@pytest.mark.parametrize("name", texts.NAMES)
def test_a_version_stands_for_content_whose_splits_share_no_document(name):
    train, test = documents = [texts.documents(name, split) for split in texts.SPLITS]
    digest = hashlib.sha256(json.dumps(documents).encode()).hexdigest()
    assert (texts.VERSIONS[name], digest) == DIGESTS[name]
    assert not set(train) & set(test) and len(set(train)) == len(train)
    # about 8%
    assert 0.04 < len(test) / (len(train) + len(test)) < 0.14


@pytest.mark.long
def test_drawn_tokens_are_permuted_blocks_of_the_documents_tokens():
    tokenizer = Tokenizer.from_file(str(MODEL_FOLDER / "tokenizer.json"))
    documents = texts.documents("python-reference", "train")
    flow = [token for document in documents for token in tokenizer.encode(document).ids]
    blocks = [flow[start : start + 128] for start in range(0, len(flow) - 127, 128)]
    order = np.random.default_rng(7).permutation(len(blocks))
    tokens = corpora.draw("python-reference", load_tokenizer("demo"), 144, 128, 7)
    assert tokens.available == len(blocks)
    np.testing.assert_array_equal(tokens.ids, [blocks[index] for index in order[:144]])


def test_every_source_has_its_licence():
    licences = (MODEL_FOLDER.parent / "LICENCES.txt").read_text(encoding="utf-8")
    for source in ("NumPy", "SciPy", "scikit-learn", "pandas", "Python", "Unicode"):
        assert f"\n{source}\n{'-' * len(source)}\n" in licences
    assert sum(file.stat().st_size for file in texts.FOLDER.iterdir()) < 3_000_000
