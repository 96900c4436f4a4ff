#!/bin/bash
# Makes a Debian package of what `make install` installs.
# usage: scripts/package-deb.sh DIRECTORY [VERSION]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=${1:?a directory}
version=${2:-$(.build/release/postern --version)}
architecture=$(dpkg --print-architecture)
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
make --no-print-directory install DESTDIR="$root" PREFIX=/usr >/dev/null
gzip -9n "$root"/usr/share/man/man?/*
mkdir -p "$root/usr/share/zsh/vendor-completions" "$root/usr/share/doc/postern" "$root/etc/postern"
mv "$root/usr/share/zsh/site-functions/_postern" "$root/usr/share/zsh/vendor-completions/_postern"
rmdir "$root/usr/share/zsh/site-functions"
cp config.example.json "$root/etc/postern/postern.json"
cp LICENSE "$root/usr/share/doc/postern/copyright"

# dpkg-shlibdeps finds the packages of the libraries, and the versions that have the symbols in use.
mkdir -p "$work/debian" "$root/DEBIAN"
printf 'Source: postern\n\nPackage: postern\nArchitecture: any\n' >"$work/debian/control"
libraries=$(cd "$work" && dpkg-shlibdeps -O root/usr/bin/postern root/usr/bin/postern-simulate | sed 's/^shlibs:Depends=//')

cat >"$root/DEBIAN/control" <<CONTROL
Package: postern
Version: $version
Architecture: $architecture
Maintainer: The Postern authors <postern@localhost>
Installed-Size: $(du -sk --apparent-size --exclude=DEBIAN "$root" | cut -f1)
Depends: $libraries, ca-certificates, tzdata, systemd | systemd-standalone-sysusers, systemd | systemd-standalone-tmpfiles
Section: net
Priority: optional
Description: store-and-forward HTTP gateway in one process
 A backend posts a payload once and gets 202 when it is safely on disk. Postern delivers it to the upstream service in batches, in
 order where order matters, with retries and dead letters, however long the upstream is down.
CONTROL
echo /etc/postern/postern.json >"$root/DEBIAN/conffiles"
for script in postinst prerm postrm; do install -m 755 "deploy/debian/$script" "$root/DEBIAN/$script"; done

mkdir -p "$out"
find "$root" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
package=$out/postern_${version}_$architecture.deb
dpkg-deb --root-owner-group --build "$root" "$package" >/dev/null
echo "$package"
