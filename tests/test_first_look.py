"""What the README says beside its picture is what the recorded comparison says."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def outcome(study, claim):
    """Cases of a claim that are better, within noise and worse."""
    row = next(line for line in study.splitlines() if line.startswith(f"| {claim} |"))
    return [int(number) for number in re.findall(r"(\d+) (?:better|within noise|worse)", row)]


def test_the_sentence_beside_the_first_picture_is_that_of_the_study():
    study = (ROOT / "docs" / "fair_study.md").read_text("utf-8")
    readme = " ".join((ROOT / "README.md").read_text("utf-8").split())
    neighbours = readme.partition("overview.png)")[2][:2000]
    modules = outcome(study, "behavior-consistent modules are better than random modules")
    assert "({} better, {} within noise, {} worse)".format(*modules) in neighbours and modules[0] <= modules[2]
    base = outcome(study, "GPrune is better than its base metric FLAP")
    assert f"in {base[0]} of {sum(base)} cases and loses in {base[2]}" in neighbours
    effects = study.partition("## What the parts change")[2]
    # model, retention, drift explained, and the share that changes without BCM, RASA and MSL
    rows = [line.strip("| ").split(" | ") for line in effects.splitlines() if line.startswith("| ") and "% |" in line]
    shares = sorted(float(row[4].removesuffix("%")) for row in rows)
    assert f"RASA changes {shares[0]} to {shares[-1]}% of the neuron decisions" in neighbours
    learned = outcome(study, "one learned threshold per layer is better than the same ratio in every layer")
    assert learned[2] == 0 and "learned thresholds" in neighbours.lower()
    assert "docs/fair_study.md" in neighbours
