#!/usr/bin/env bash
# Make sure that there is an nginx for the tests of our deployment, and print where it is.
# Debian's own package. The tests start one of their own with our configuration; none is left running by this.
set -euo pipefail

say() { printf 'proxy: %s\n' "$*" >&2; }

if command -v nginx; then exit 0; fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    say "Two tests of the deployment need nginx and are skipped. To run them: sudo apt-get install nginx-light"
    exit 0
fi
say "installing nginx, which the tests of the deployment start"
apt-get update -qq
# the package would start a server that nobody asked for
RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends nginx-light >/dev/null
command -v nginx
