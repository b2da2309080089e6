"""Look at every page of the documentation on a screen of 390 pixels, as `mkdocs build` left it.

scripts/phone.py [SITE]      the folder `site` by default; needs chromium, which scripts/browser.sh installs

Prints what sticks out of the screen or is a picture that does not load, then how many pages were looked at. Tables and
code may scroll by themselves. The exit status is 1 if anything was found.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[1]
SCREEN = {"width": 390, "height": 844}
_FLAGS = ["--headless", "--no-sandbox", "--disable-gpu"]
_FAULTS = """() => {
  const width = document.documentElement.clientWidth, found = [];
  const scrolls = one => {
    for (let at = one.parentElement; at && at !== document.body; at = at.parentElement)
      if (getComputedStyle(at).overflowX !== "visible") return true;
    return false;
  };
  for (const one of document.querySelectorAll("main *, body > :not(header) *")) {
    const box = one.getBoundingClientRect();
    if (box.width && box.right > width + 1 && getComputedStyle(one).position !== "fixed" && !scrolls(one))
      found.push(`${Math.round(box.right)} pixels wide: ${one.outerHTML.slice(0, 100)}`);
  }
  for (const picture of document.images) if (!picture.naturalWidth) found.push(`no picture: ${picture.src}`);
  return document.documentElement.scrollWidth > width || found.length ? found.slice(0, 3) : null;
}"""


def faults(site: Path) -> Iterator[tuple[str, list[str] | None]]:
    """Yield every page with what is wrong on it, or None."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=os.environ.get("NOISETTE_BROWSER") or shutil.which("chromium"), args=_FLAGS
        )
        phone = browser.new_page(viewport=SCREEN, device_scale_factor=2, is_mobile=True, has_touch=True)
        for page in sorted(site.rglob("*.html")):
            phone.goto(page.resolve().as_uri())
            phone.wait_for_load_state("load")
            yield str(page.relative_to(site)), phone.evaluate(_FAULTS)


def main() -> int:
    """Look at all pages and say what was seen."""
    site = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "site"
    seen = list(faults(site))
    bad = [(page, found) for page, found in seen if found is not None]
    for page, found in bad:
        print(page, *found, sep="\n  ")
    print(f"{len(seen)} pages at {SCREEN['width']} pixels: {len(bad)} with something beyond the screen")
    return bool(bad) or not seen


if __name__ == "__main__":
    sys.exit(main())
