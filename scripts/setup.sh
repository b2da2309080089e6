#!/usr/bin/env bash
# Build a virtual environment if it is missing, then install into it:
#   scripts/setup.sh DIRECTORY CONSTRAINTS PIP-ARGUMENT...
# Works from a bare Debian with Python 3.11: installs python3-venv when it is missing and we may.
set -euo pipefail

directory=$1 constraints=$2
shift 2

say() { printf 'setup: %s\n' "$*" >&2; }

find_python() {
    local candidate
    for candidate in ${PYTHON:-} python3 python3.11 python3.12 python3.13 python3.14; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    say "Noisette needs Python 3.11 or later and none was found. Install it (Debian: apt-get install python3 python3-venv), or name it: make PYTHON=/path/to/python3 ..."
    return 1
}

build() { "$1" -m venv "$directory" >/dev/null 2>&1 && "$directory/bin/python" -m pip --version >/dev/null 2>&1; }

if ! "$directory/bin/python" -m pip --version >/dev/null 2>&1; then
    python=$(find_python)
    say "building $directory with $python"
    if ! build "$python"; then
        rm -rf "$directory"
        package=python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv
        if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
            say "$python cannot build virtual environments. Install its venv module (Debian: sudo apt-get install $package) and run make again."
            exit 1
        fi
        say "installing $package, which $python needs to build virtual environments"
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >&2
        "$python" -m venv "$directory"
    fi
fi

say "installing: $*"
"$directory/bin/python" -m pip install --quiet --disable-pip-version-check --no-input -c "$constraints" "$@"
