"""Takes the pictures of the pages that the documentation shows, on a finished run of the bundled demo.

    python scripts/screenshots.py [--cache FOLDER] [--to FOLDER] [--only NAME ...]

Where the cache holds no finished demo run whose speed was measured, one is made first, which takes about
three minutes.
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
# the project is not installed: a script finds it beside its own folder
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
"""names of the pictures, by the address of the page and what it holds"""
TIMED = {"evaluation.speed": "cpu"}
"""what the study of the pictures has beside that of the demo"""
SIZE = {"width": 1280, "height": 900}
MOST_BYTES = 250_000
PALETTES = (256, 128, 64, 32)
"""numbers of colours, tried until a picture is small enough"""


def main() -> None:
    """Writes the pictures, and says where they are and how large."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=ROOT / "cache" / "screenshots")
    parser.add_argument("--to", type=Path, default=ROOT / "docs" / "screenshots")
    parser.add_argument("--only", nargs="+", choices=sorted(PAGES.values()), help="these pictures and no others")
    options = parser.parse_args()
    options.to.mkdir(parents=True, exist_ok=True)
    cache = options.cache.resolve()
    wanted = {address: name for address, name in PAGES.items() if name in (options.only or PAGES.values())}
    try:
        for path in take(finished(cache, TIMED), cache, options.to, wanted):
            print(f"{path}  {path.stat().st_size / 1000:.0f} kB")
    except NotHereError as missing:
        sys.exit(str(missing))


def finished(cache: Path, settings: Mapping[str, str] | None = None) -> str:
    """Name of the demo's run in a cache; it is made where it is not there.

    Args:
        cache: the cache.
        settings: texts that the study has beside those of the demo, by dotted name.

    Raises:
        NotHereError: the demo failed; the reason stands in its own output.
    """
    settings = settings or {}
    name = run_name(demo_study().with_settings(settings))
    if (runs.read(Store(cache), name) or {}).get("state") != "done":
        changed = [f"--set={field}={json.dumps(value)}" for field, value in settings.items()]
        command = [sys.executable, "-m", "gprune", "run", "demo", *changed]
        environment = os.environ | {"GPRUNE_CACHE": str(cache)}
        if subprocess.run(command, cwd=ROOT, env=environment).returncode:
            raise NotHereError("the demo did not run to its end, so there is nothing to take pictures of")
    return name


def take(run: str, cache: Path, folder: Path, pages: Mapping[str, str]) -> list[Path]:
    """Opens pages on a run and writes their pictures.

    Args:
        run: name of the run.
        cache: the cache that holds it.
        folder: where the pictures go.
        pages: some of PAGES.

    Returns:
        Their paths, in that order.

    Raises:
        NotHereError: there is no browser here, or a picture is too large in every palette.
    """
    paths = []
    with browser() as chromium, served(cache) as server:
        page = opened(chromium, server, viewport=SIZE, color_scheme="light")
        # the pages have their addresses once the server has had a visitor
        page.goto(server.address)
        at_rest(page)
        for address, name in pages.items():
            where, _, held = address.partition("?")
            page.goto(f"{server.address}/{'' if where == 'home' else where}?run={run}&{held}".rstrip("&"))
            at_rest(page)
            draw_whole(page)
            at_rest(page)
            path = folder / f"{name}.png"
            path.write_bytes(small(page.screenshot()))
            paths.append(path)
    return paths


def small(png: bytes) -> bytes:
    """The same picture, in fewer colours where it would be more than MOST_BYTES.

    A palette is chosen by how many dots have a colour, and gives small marks the hue of another method.

    Raises:
        NotHereError: it is larger in every palette.
    """
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    for colors in (0, *PALETTES):
        written = io.BytesIO()
        shown = picture.quantize(colors, dither=Image.Dither.NONE) if colors else picture
        shown.save(written, "PNG", optimize=True)
        if written.tell() <= MOST_BYTES:
            return written.getvalue()
    raise NotHereError(f"a picture has more than {MOST_BYTES / 1000:.0f} kB even in {colors} colours")


if __name__ == "__main__":
    main()
