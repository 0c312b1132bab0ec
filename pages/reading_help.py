"""Page *Help*: how to read each page, the glossary, the keys, and where every feature is."""

from gprune.app.pages import help as reading
from gprune.app.ui import address

address.show(
    {
        "reading": reading.show_reading,
        "words": reading.show_glossary,
        "keys": reading.show_keys,
        "features": reading.show_features,
    }
)
