"""The demo model and its texts, which come with GPrune Studio.

``MODEL_FOLDER`` has a small LLaMA that ``scripts/train_demo.py`` trained from scratch. ``gprune.data.demo.texts`` reads
the texts for its training and evaluation. ``EXPERTS_FOLDER`` has a small mixture of experts, trained by the same script
on the same texts with the same tokenizer. ``tokens.safetensors`` has the tokens that the demo uses, see
``gprune.data.texts.bundled``.
"""

from pathlib import Path

MODEL_FOLDER: Path = Path(__file__).resolve().parent / "model"
EXPERTS_FOLDER: Path = MODEL_FOLDER.with_name("experts")
MODEL_FOLDERS = {"demo": MODEL_FOLDER, "demo-experts": EXPERTS_FOLDER}
"""folders of the bundled models by name"""
