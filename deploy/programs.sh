#!/usr/bin/env bash
# Install what compose.yaml starts beside our own services, PostgreSQL and nginx, from Debian's packages, without starting
# either. As root. tests/test_deploy.py then starts everything that compose.yaml does, without containers.
set -eu
if [ "$(id -u)" != 0 ]; then echo "programs.sh: run it as root" >&2; exit 1; fi
if ! command -v apt-get >/dev/null; then
    echo "programs.sh: no apt-get here. Install nginx and PostgreSQL by this system's own packages." >&2
    exit 1
fi
stay=/usr/sbin/policy-rc.d # packages start their services unless this says no
if [ ! -e "$stay" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$stay"
    chmod +x "$stay"
    trap 'rm -f "$stay"' EXIT
fi
DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends nginx-light postgresql util-linux
nginx -v
ls -d /usr/lib/postgresql/*/bin
