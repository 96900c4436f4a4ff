#!/bin/bash
# Makes a container image from Debian's packages and the release build, without a registry and without a daemon.
# usage: deploy/image.sh DIRECTORY
#   DIRECTORY gets postern-VERSION-ARCH.docker.tar, for `docker load` and `podman load`, and .oci.tar, for anything else. The
#   health check is part of the first one only: OCI images have none (see docs/deploying.md).
# The same commit, toolchain and Debian packages give the same digest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=${1:?a directory}
version=$(.build/release/postern --version)
name=postern-$version-$(dpkg --print-architecture)
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# A storage of its own: nothing is left behind, and no kernel module is needed.
buildah() { command buildah --root "$work/storage" --runroot "$work/run" --storage-driver vfs "$@"; }

deploy/rootfs.sh .build/release "$work/rootfs" >&2
sed -n '/ AS image$/,$p' deploy/Dockerfile >"$work/Dockerfile"
buildah build --quiet --isolation chroot --format docker --timestamp "$SOURCE_DATE_EPOCH" \
    --label "org.opencontainers.image.version=$version" --build-context "rootfs=$work/rootfs" \
    --file "$work/Dockerfile" --tag "localhost/postern:$version" "$work/rootfs" >/dev/null
mkdir -p "$out"
buildah push --quiet "localhost/postern:$version" "docker-archive:$work/image.tar:postern:$version"
buildah push --quiet --format oci "localhost/postern:$version" "oci-archive:$work/oci.tar:postern:$version"

# In docker's format, buildah records the id of the container that it worked in, a new one each time.
python3 - "$work" "$out/$name.docker.tar" <<'PYTHON'
import hashlib, io, json, sys, tarfile

work, target = sys.argv[1:]
with tarfile.open(f"{work}/image.tar") as source:
    manifest = json.load(source.extractfile("manifest.json"))
    config = json.load(source.extractfile(manifest[0]["Config"]))
    config.pop("container", None)
    for part in ("config", "container_config"):
        config.get(part, {}).pop("Hostname", None)
    text = json.dumps(config, sort_keys=True, separators=(",", ":")).encode()
    digest = hashlib.sha256(text).hexdigest()
    manifest[0]["Config"] = digest + ".json"
    with tarfile.open(target, "w") as archive:
        for name, content in (("manifest.json", json.dumps(manifest).encode()), (digest + ".json", text)):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
        for layer in manifest[0]["Layers"]:
            entry = tarfile.TarInfo(layer)
            entry.size = source.getmember(layer).size
            archive.addfile(entry, source.extractfile(layer))
print(f"{target} sha256:{digest}")
PYTHON

# The same for the blobs of an OCI image, whose archive has the times of its making.
mkdir "$work/oci"
tar --extract --file "$work/oci.tar" --directory "$work/oci"
tar --directory "$work/oci" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" \
    --create --file "$out/$name.oci.tar" .
echo "$out/$name.oci.tar $(sed 's/.*"digest":"\([^"]*\)".*/\1/' "$work/oci/index.json")"
