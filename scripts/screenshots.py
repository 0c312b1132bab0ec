"""Take the screenshots of the documentation on a finished run of the bundled demo.

    python scripts/screenshots.py [--cache FOLDER] [--to FOLDER] [--only NAME ...]

If the cache has no finished demo run with measured speed, the script runs it first, which takes about three minutes.
"""

import argparse
import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# the project is not installed
sys.path.insert(0, str(ROOT))

from PIL import Image  # noqa: E402
from served_app import NotHereError, at_rest, browser, draw_whole, opened, served  # noqa: E402

from gprune.pipeline import runs  # noqa: E402
from gprune.store import Store  # noqa: E402
from gprune.study import run_name  # noqa: E402
from gprune.study.demo import demo_study  # noqa: E402

PAGES = {
    "home": "overview",
    "drift": "rank_drift",
    "tune": "rasa_thresholds",
    "masks": "pruning_decisions",
    "compare": "compare",
    "runs": "launch",
    "neurons?layer=1&neuron=277": "inspector",
    "compare?tab=speed": "speed",
    "runs?tab=export": "export",
}
"""names of the pictures by the address and query of the page"""
SETTINGS = {"evaluation.speed": "cpu"}
"""settings in which the study of the pictures differs from the demo"""
SIZE = {"width": 1280, "height": 900}
MAX_BYTES = 250_000
PALETTES = (256, 128, 64, 32)
"""numbers of colors, tried until a picture is small enough"""


def main() -> None:
    """Write the pictures and print their paths and sizes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=ROOT / "cache" / "screenshots")
    parser.add_argument("--to", type=Path, default=ROOT / "docs" / "screenshots")
    parser.add_argument("--only", nargs="+", choices=sorted(PAGES.values()), help="take only these pictures")
    options = parser.parse_args()
    options.to.mkdir(parents=True, exist_ok=True)
    cache = options.cache.resolve()
    pages = {address: name for address, name in PAGES.items() if name in (options.only or PAGES.values())}
    try:
        for path in take_pictures(finish_demo(cache, SETTINGS), cache, options.to, pages):
            print(f"{path}  {path.stat().st_size / 1000:.0f} kB")
    except NotHereError as error:
        sys.exit(str(error))


def finish_demo(cache: Path, settings: Mapping[str, str] | None = None) -> str:
    """Run the demo in a cache unless it is done; return the name of its run.

    Args:
        cache: the cache folder.
        settings: changed settings of the demo's study, by dotted name.

    Raises:
        NotHereError: the demo failed; its own output has the reason.
    """
    settings = settings or {}
    name = run_name(demo_study().with_settings(settings))
    if (runs.read(Store(cache), name) or {}).get("state") != "done":
        changed = [f"--set={field}={json.dumps(value)}" for field, value in settings.items()]
        command = [sys.executable, "-m", "gprune", "run", "demo", *changed]
        environment = os.environ | {"GPRUNE_CACHE": str(cache)}
        if subprocess.run(command, cwd=ROOT, env=environment).returncode:
            raise NotHereError("The demo failed, so there is nothing to open. Its output is above.")
    return name


def take_pictures(run: str, cache: Path, folder: Path, pages: Mapping[str, str]) -> list[Path]:
    """Open pages on a run and write their pictures; return the paths in the order of the pages.

    Args:
        run: name of the run.
        cache: the cache folder.
        folder: gets the pictures.
        pages: some of PAGES.

    Raises:
        NotHereError: the browser or the app does not start, or a picture is too large in every palette.
    """
    paths = []
    with browser() as chromium, served(cache) as server:
        page = opened(chromium, server, viewport=SIZE, color_scheme="light")
        # the server knows the addresses of its pages after the first visit
        page.goto(server.address)
        at_rest(page)
        for address, name in pages.items():
            url, _, query = address.partition("?")
            page.goto(f"{server.address}/{'' if url == 'home' else url}?run={run}&{query}".rstrip("&"))
            at_rest(page)
            draw_whole(page)
            at_rest(page)
            path = folder / f"{name}.png"
            path.write_bytes(compress_png(page.screenshot()))
            paths.append(path)
    return paths


def compress_png(png: bytes) -> bytes:
    """Return a picture of at most MAX_BYTES, with as many colors as that allows.

    Palettes are the last resort: they favor frequent colors, so that small marks may get another method's color.

    Raises:
        NotHereError: the picture is too large in every palette.
    """
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    for colors in (0, *PALETTES):
        buffer = io.BytesIO()
        reduced = picture.quantize(colors, dither=Image.Dither.NONE) if colors else picture
        reduced.save(buffer, "PNG", optimize=True)
        if buffer.tell() <= MAX_BYTES:
            return buffer.getvalue()
    raise NotHereError(f"A picture has more than {MAX_BYTES / 1000:.0f} kB even with {colors} colors.")


if __name__ == "__main__":
    main()
