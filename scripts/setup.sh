#!/usr/bin/env bash
# Build a virtual environment if it is missing, then install into it, showing how far it is:
#   scripts/setup.sh DIRECTORY CONSTRAINTS PIP-ARGUMENT...
# Works from a bare Debian with Python 3.11: installs python3-venv when it is missing and we may.
set -euo pipefail

directory=$1 constraints=$2
shift 2

say() { printf 'setup: %s\n' "$*" >&2; }

# Run a command as root if we are, else say what to run.
as_root() {
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then return 1; fi
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >&2
}

find_python() {
    local candidate
    for candidate in ${PYTHON:-} python3 python3.11 python3.12 python3.13 python3.14; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    say "Noisette needs Python 3.11 or later and none was found${PYTHON:+ (PYTHON=$PYTHON is none)}."
    say "Install it (Debian: sudo apt-get install python3 python3-venv), or name it: make PYTHON=/path/to/python3 ..."
    return 1
}

said=
build() { said=$("$1" -m venv "$directory" 2>&1) && "$directory/bin/python" -m pip --version >/dev/null 2>&1; }

place=$directory
[ -e "$place" ] || place=$(dirname "$directory")
if ! [ -w "$place" ]; then
    say "you may not write in $(cd "$place" && pwd): it is somebody else's, or read-only."
    say "Run make in a clone of your own, or in a copy: cp -r $(pwd) ~/noisette && rm -rf ~/noisette/.venv"
    exit 1
fi

if ! "$directory/bin/python" -m pip --version >/dev/null 2>&1; then
    python=$(find_python)
    say "building $directory with $python"
    if ! build "$python"; then
        rm -rf "$directory"
        package=python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv
        say "$python cannot build virtual environments: it lacks $package"
        if ! as_root "$package"; then
            printf '%s\n' "$said" >&2
            say "Install it (Debian: sudo apt-get install $package) and run make again, or name another Python: make PYTHON=/path/to/python3 ..."
            exit 1
        fi
        "$python" -m venv "$directory"
    fi
fi

# One line of progress on a terminal, one line for each stage elsewhere. What pip says in full is in a file, which is
# shown where it fails. Bytecode is written when a module is first imported: most never are.
log=$directory/pip.log
say "installing $* (the first time takes a minute or two; details in $log)"
follow() {
    awk -v terminal="$([ -t 2 ] && echo 1 || echo 0)" -v began="$(date +%s)" '
        function show(what) {
            if (terminal) { printf "\r\033[K  %s", substr(what, 1, 76) > "/dev/stderr"; shown = 1 }
            else if (what != last && ++lines % 10 == 1) { print "  " what > "/dev/stderr" }
            last = what; fflush("/dev/stderr")
        }
        /^Collecting/ { show(++found " packages: found " $2) }
        /^ *(Downloading|Using cached)/ { file = $0; sub(/.*(Downloading|cached) */, "", file); sub(/.*\//, "", file); show(found " packages: fetching " file) }
        /^(Installing collected packages)/ { lines = 0; show("unpacking " found " packages, the last step") }
        END { if (shown) printf "\r\033[K" > "/dev/stderr" }'
}
if ! "$directory/bin/python" -m pip install --disable-pip-version-check --no-input --root-user-action=ignore \
        --progress-bar off --no-compile -c "$constraints" "$@" 2>&1 | tee "$log" | follow; then
    say "pip failed; the end of $log:"
    grep -v '^ *\(Collecting\|Downloading\|Using cached\|Requirement already\)' "$log" | tail -n 15 >&2
    say "Is there a way to the index (https://pypi.org, or the one in PIP_INDEX_URL)? Then run make again."
    exit 1
fi
say "done"
