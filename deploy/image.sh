#!/usr/bin/env bash
# Build the image noisette:VERSION with buildah, and start both services from it once. As root on Debian without a registry:
#   apt-get install buildah debootstrap && deploy/image.sh
# BASE names the image to build on. Where it cannot be had, one is made from Debian's packages, which takes some minutes.
# buildah's chroot isolation needs no container runtime and no cgroups; MOUNTS are paths of the host that pip needs.
set -eu
cd "$(dirname "$0")/.."
export STORAGE_DRIVER=${STORAGE_DRIVER:-vfs} BUILDAH_ISOLATION=${BUILDAH_ISOLATION:-chroot}
image=noisette:$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
base=${BASE:-docker.io/library/python:3.11-slim}
work=$(mktemp -d)
running=()
trap 'for one in "${running[@]}"; do kill "$one" 2>/dev/null || true; done; rm -rf "$work"' EXIT

if ! buildah pull -q "$base" >/dev/null 2>&1; then
    base=localhost/noisette-base
    if ! buildah inspect --type image "$base" >/dev/null 2>&1; then
        debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates bookworm "$work/root" >/dev/null
        made=$(buildah from scratch)
        buildah add -q "$made" "$work/root" / >/dev/null
        buildah commit -q --rm "$made" "$base" >/dev/null
    fi
fi
volumes=()
for path in ${MOUNTS:-}; do volumes+=(-v "$path:$path:ro"); done
buildah bud --format docker --network host --build-arg BASE="$base" "${volumes[@]}" -f deploy/Containerfile -t "$image" .

mkdir -m 0700 "$work/etc"
become() { # become ARGS...: this shell turns into the image's own command line, with /etc/noisette
    exec buildah run --network host --user noisette -v "$work/etc:/etc/noisette" "$container" -- /opt/noisette/bin/noisette "$@"
}
inside() { (become "$@"); }
cat >"$work/etc/campaign.yaml" <<'YAML'
{id: trial, title: A trial, epsilon: 2.0, users: 1000, attributes: [{name: minutes, range: [0, 120]}]}
YAML
echo '{"device": ["device-key-of-a-trial"], "analyst": ["analyst-key-of-a-trial"], "auditor": ["auditor-key-of-a-trial"]}' >"$work/etc/keys.yaml"
chmod 0711 "$work"
chown -R 10001 "$work/etc"
container=$(buildah from --pull-never "$image")
inside federate key /etc/noisette/server.pem >/dev/null
inside federate enrol /etc/noisette/clients.json a b c >/dev/null
inside federate enrol /etc/noisette/shufflers.json shuffler >/dev/null
become serve /etc/noisette/campaign.yaml --keys /etc/noisette/keys.yaml --database sqlite:////tmp/reports.db \
    --shufflers /etc/noisette/shufflers.json --server-key /etc/noisette/server.pem --minimum 2 --port 18000 >"$work/one.log" 2>&1 &
running+=($!)
container=$(buildah from --pull-never "$image")
become shuffler run --clients /etc/noisette/clients.json --credentials /etc/noisette/shuffler.json \
    --server http://127.0.0.1:18000 --minimum 2 --store /tmp/shuffler.db --port 18100 >"$work/two.log" 2>&1 &
running+=($!)
for _ in $(seq 60); do
    sleep 1
    if curl -sf http://127.0.0.1:18000/ready && curl -sf http://127.0.0.1:18100/ready; then
        echo
        echo "The image $image is built, and both services started from it."
        exit 0
    fi
done
cat "$work/one.log" "$work/two.log" >&2
exit 1
