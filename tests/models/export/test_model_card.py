"""The model card of an exported folder tells base, licence, widths, figures and how to load it."""

import pytest
from huggingface_hub import ModelCard
from pruned_folder import byte_tokenizer, masks_of, small_decoder

from gprune.models.export import checkpoint, model_card, padded
from gprune.models.export.model_card import Figure
from gprune.pruning.surgery import cut

FIGURES = (
    Figure("wikitext2", 12.345678, 0.5, 10.0, "perplexity over 6 windows of 16 tokens; all"),
    Figure("/home/me/secret/own.txt", 7.0, 0.25, None, "perplexity over 6 windows of 16 tokens; all"),
)
HEAD = "---\nlicense: llama2\nlicense_name: a licence of its own\nlicense_link: https://x.y\n---\nA base.\n"


def of_base(folder, head=HEAD, family="llama", **options):
    """A pruned folder whose base lies beside it, with a card and a licence file."""
    base, decoder = folder / "base", small_decoder(family)
    decoder.model.save_pretrained(base)
    byte_tokenizer().save_pretrained(base)
    (base / "README.md").write_text(head)
    (base / "LICENSE.txt").write_text("You may.")
    (base / "preprocessor_config.json").write_text('{"size": 3}')
    masks = masks_of(decoder, [1, 2, 3], [2, 13, 6])
    names = {"source": str(base), "fingerprint": "f00d", "study": {"primary": "/home/me/a.txt", "seed": 3}}
    return checkpoint.save(cut(decoder, masks), byte_tokenizer(), folder / "out", masks, **names | options)


def test_the_card_tells_base_licence_widths_figures_with_protocol_and_loading(tmp_path):
    folder = of_base(tmp_path, figures=FIGURES)
    card = ModelCard.load(folder / "README.md")
    assert (card.data.license, card.data.license_name) == ("llama2", "a licence of its own")
    assert card.data.library_name == "transformers" and "structured-pruning" in card.data.tags
    assert (folder / "LICENSE.txt").read_text() == "You may."
    # what prepares images for a model that takes them
    assert (folder / "preprocessor_config.json").read_text() == '{"size": 3}'
    results = {eval_result.dataset_name: eval_result for eval_result in card.data.eval_results}
    # folders of this machine are nobody's business
    assert set(results) == {"wikitext2", "own.txt"} and "/home/me" not in str(card)
    assert results["wikitext2"].metric_value == 12.3457 and results["wikitext2"].metric_type == "perplexity"
    assert results["wikitext2"].metric_args["protocol"] == FIGURES[0].protocol
    for words in (
        "| wikitext2 | 12.35 ± 0.50 | 10.00 |",
        "| FFN neurons per layer | 2, 13, 6 of 13 |",
        "| key/value groups per layer | 1, 2, 3 of 3 |",
        "trust_remote_code=True",
        "`pruning.json` lists the kept units of every layer",
        "The licence of base applies: a licence of its own.",
    ):
        assert words in card.text, words
    assert [eval_result.perplexity for eval_result in model_card.figures_of(folder)] == [12.3457, 7.0]


def test_a_base_of_the_hub_is_named_and_one_without_a_licence_is_told(tmp_path):
    folder = of_base(tmp_path, source="someone/base")
    card = ModelCard.load(folder / "README.md")
    assert card.data.base_model == "someone/base" and card.data.license is None
    assert "It is not recorded here" in card.text
    assert "No perplexity of this model was recorded" in card.text and not (folder / "LICENSE.txt").exists()


@pytest.mark.parametrize("head", ["", "---\n", "---\n[\n---\n", "---\nlicense: [a]\n---\n", "\x00", "---\n1\n---\n"])
def test_a_damaged_card_of_the_base_hinders_nothing(tmp_path, head):
    folder = of_base(tmp_path, head)
    assert ModelCard.load(folder / "README.md").data.license is None


@pytest.mark.parametrize(("family", "is_named"), [("stablelm", True), ("llama", False)])
def test_a_family_that_an_older_transformers_cannot_run_is_named(tmp_path, family, is_named):
    card = ModelCard.load(of_base(tmp_path, family=family) / "README.md").text
    assert ("needs transformers 5: version 4.57 cannot run a pruned StableLM" in card) == is_named


def test_a_padded_folder_has_a_card_too(tmp_path):
    folder = of_base(tmp_path, figures=FIGURES)
    ordinary = padded.save_padded(folder, tmp_path / "padded")
    card = ModelCard.load(ordinary / "README.md")
    assert "trust_remote_code=True" not in card.text and "padded with zeros" in card.text
    assert [eval_result.metric_value for eval_result in card.data.eval_results] == [12.3457, 7.0]
