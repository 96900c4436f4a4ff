#!/bin/bash
# Makes a tar of what `make install` installs below /usr/local, its checksum, and a list of its parts (CycloneDX).
# usage: scripts/dist.sh DIRECTORY
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=${1:?a directory}
version=$(.build/release/postern --version)
name=postern-$version-linux-$(uname -m)
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
make --no-print-directory install DESTDIR="$work/$name" PREFIX=/usr/local >/dev/null
cp README.md LICENSE CHANGELOG.md "$work/$name"
mkdir -p "$out"
tar --directory "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" --create "$name" |
    gzip -9n >"$out/$name.tar.gz"
scripts/sbom.py .build/release/postern >"$out/$name.cdx.json"
(cd "$out" && sha256sum "$name.tar.gz" "$name.cdx.json" >SHA256SUMS)
echo "$out/$name.tar.gz"
