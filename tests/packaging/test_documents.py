"""What the documents say of each other, and of the package, is so."""

import re

import pytest
import yaml

import gprune

LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)")


def test_every_link_between_documents_leads_to_a_file(project):
    pages = [*project.glob("*.md"), *project.glob("docs/*.md")]
    links = [(page, target) for page in pages for target in LINK.findall(page.read_text(encoding="utf-8"))]
    assert len(links) > 40
    lost = [f"{page.name}: {target}" for page, target in links if not (page.parent / target).exists()]
    assert lost == []


def test_files_that_contributing_follows_are_there_with_what_it_names(project):
    told = (project / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:gprune|tests|pages)/[\w/.]+)`", told))
    assert len(named) > 10 and [name for name in named if not (project / name).exists()] == []
    example = {
        "gprune/pruning/drift.py": "def rank_drift(",
        "gprune/records/scores.py": "class RankDrift",
        "gprune/pipeline/stages/graph.py": '"drift": Kind(records.RankDrift)',
        "gprune/pipeline/stages/scoring.py": "def drift(",
        "gprune/analysis/drift.py": "def distributions(",
        "gprune/app/pages/rank_drift/charts.py": "def survival(",
        "gprune/app/pages/rank_drift/page.py": "card_of(panels.drift, run)",
    }
    for name, words in example.items():
        assert name in named and words in (project / name).read_text(encoding="utf-8")


def test_the_citation_is_of_this_version_and_of_the_paper(project, request):
    cited = yaml.safe_load((project / "CITATION.cff").read_text(encoding="utf-8"))
    assert (cited["version"], cited["license"]) == (gprune.__version__, "Apache-2.0")
    paper = cited["preferred-citation"]
    source = request.getfixturevalue("shared") / "paper" / "gprune-llm.tex"
    if not source.exists():
        pytest.skip(f"the paper's source is not at {source}")
    text = source.read_text(encoding="utf-8")
    head = text[text.index("\\title{") : text.index("\\begin{document}")]
    assert f"\\title{{{paper['title']}}}" in head
    names = [f"{one['given-names']} {one['family-names']}" for one in paper["authors"]]
    assert names == re.findall(r"^([A-Z]\w+ [A-Z]\w+)\\textsuperscript", head, re.MULTILINE)
