"""Takes the pictures of the pages that the documentation shows, on a finished run of the bundled demo.

    python scripts/screenshots.py [--cache FOLDER] [--to FOLDER]

Where the cache holds no finished demo run, one is made first, which takes about two minutes.
"""

import argparse
import io
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# the project is not installed: a script finds it beside its own folder
sys.path.insert(0, str(ROOT))

from PIL import Image  # noqa: E402
from served_app import NotHereError, at_rest, browser, opened, served  # noqa: E402

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
    "compare?tab=decide": "decide",
}
"""names of the pictures, by the address of the page and what it holds"""
SIZE = {"width": 1280, "height": 900}
MOST_BYTES = 250_000
PALETTES = (256, 128, 64, 32)
"""numbers of colours, tried until a picture is small enough"""


def main() -> None:
    """Writes the pictures, and says where they are and how large."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cache", type=Path, default=ROOT / "cache" / "screenshots")
    parser.add_argument("--to", type=Path, default=ROOT / "docs" / "screenshots")
    options = parser.parse_args()
    options.to.mkdir(parents=True, exist_ok=True)
    try:
        for path in take(finished(options.cache.resolve()), options.cache.resolve(), options.to):
            print(f"{path}  {path.stat().st_size / 1000:.0f} kB")
    except NotHereError as missing:
        sys.exit(str(missing))


def finished(cache: Path) -> str:
    """Name of the demo's run in a cache; it is made where it is not there.

    Raises:
        NotHereError: the demo failed; the reason stands in its own output.
    """
    name = run_name(demo_study())
    if (runs.read(Store(cache), name) or {}).get("state") != "done":
        command = [sys.executable, "-m", "gprune", "run", "demo"]
        environment = os.environ | {"GPRUNE_CACHE": str(cache)}
        if subprocess.run(command, cwd=ROOT, env=environment).returncode:
            raise NotHereError("the demo did not run to its end, so there is nothing to take pictures of")
    return name


def take(run: str, cache: Path, folder: Path) -> list[Path]:
    """Opens every page on a run and writes its picture.

    Args:
        run: name of the run.
        cache: the cache that holds it.
        folder: where the pictures go.

    Returns:
        Their paths, in the order of PAGES.

    Raises:
        NotHereError: there is no browser here, or a picture is too large in every palette.
    """
    paths = []
    with browser() as chromium, served(cache) as server:
        page = opened(chromium, server, viewport=SIZE, color_scheme="light")
        # the pages have their addresses once the server has had a visitor
        page.goto(server.address)
        at_rest(page)
        for address, name in PAGES.items():
            where, _, held = address.partition("?")
            page.goto(f"{server.address}/{'' if where == 'home' else where}?run={run}&{held}".rstrip("&"))
            at_rest(page)
            path = folder / f"{name}.png"
            path.write_bytes(small(page.screenshot()))
            paths.append(path)
    return paths


def small(png: bytes) -> bytes:
    """The same picture in few enough colours to be at most MOST_BYTES.

    Raises:
        NotHereError: it is larger in every palette.
    """
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    for colors in PALETTES:
        written = io.BytesIO()
        picture.quantize(colors, dither=Image.Dither.NONE).save(written, "PNG", optimize=True)
        if written.tell() <= MOST_BYTES:
            return written.getvalue()
    raise NotHereError(f"a picture has more than {MOST_BYTES / 1000:.0f} kB even in {colors} colours")


if __name__ == "__main__":
    main()
