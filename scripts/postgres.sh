#!/usr/bin/env bash
# Make sure that there is a PostgreSQL server for the tests of the collector, and print the folder of its programs.
# Debian's own package. The tests start a server of their own in a folder under /tmp; none is left running by this.
set -euo pipefail

say() { printf 'postgres: %s\n' "$*" >&2; }

find_server() {
    local candidate
    for candidate in $(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -Vr); do
        if [ -x "$candidate/initdb" ]; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    return 1
}

if find_server; then exit 0; fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    say "The tests of the collector need PostgreSQL 15 or later and none was found."
    say "Install it (Debian: sudo apt-get install postgresql) and run make again."
    say "make check tests the core without it."
    exit 1
fi
say "installing PostgreSQL, which the tests of the collector start"
apt-get update -qq
# the package would start a server that nobody asked for
mkdir -p /etc/postgresql-common
[ -e /etc/postgresql-common/createcluster.conf ] || echo 'create_main_cluster = false' > /etc/postgresql-common/createcluster.conf
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql >/dev/null
find_server
