#!/usr/bin/env bash
# Make sure that there is a chromium for the tests of our web pages, and print where it is.
# Debian's own package: Playwright drives it, and no other browser is downloaded.
set -euo pipefail

say() { printf 'browser: %s\n' "$*" >&2; }

find_browser() {
    local candidate
    for candidate in ${NOISETTE_BROWSER:-} chromium chromium-browser; do
        if command -v "$candidate"; then return; fi
    done
    return 1
}

if find_browser; then exit 0; fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    say "The tests of web pages need chromium and none was found."
    say "Install it (Debian: sudo apt-get install chromium), or name it: export NOISETTE_BROWSER=/path/to/chromium, and run make again."
    say "make check tests the core without it."
    exit 1
fi
say "installing chromium, which the tests of web pages drive"
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null
find_browser
