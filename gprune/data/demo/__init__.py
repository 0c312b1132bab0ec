"""The demo model and its texts, which come with GPrune Studio.

``MODEL_FOLDER`` has a small LLaMA that ``scripts/train_demo.py`` trained from scratch. ``gprune.data.demo.texts`` reads
the texts for its training and evaluation. ``tokens.safetensors`` has the tokens that the demo uses, see
``gprune.data.texts.bundled``.
"""

from pathlib import Path

MODEL_FOLDER: Path = Path(__file__).resolve().parent / "model"
