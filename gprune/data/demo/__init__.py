"""The demo model and its texts, which come with GPrune Studio.

``MODEL_FOLDER`` holds a small LLaMA that ``scripts/train_demo.py`` trained from scratch;
``gprune.data.demo.texts`` reads the three texts it was trained and is measured on. ``tokens.safetensors``
holds the tokens that the demo reads of these, see ``gprune.data.texts.bundled``.
"""

from pathlib import Path

MODEL_FOLDER: Path = Path(__file__).resolve().parent / "model"
