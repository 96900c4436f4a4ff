#!/bin/bash
# Fills a directory with what a container of the gateway contains: its programs, Debian's libraries, certificates, time zones, and a user.
# There is no shell and no package manager in it. `deploy/image.sh` and `deploy/Dockerfile` both make their image from it.
# usage: deploy/rootfs.sh BINARIES DIRECTORY
#   BINARIES   has postern and postern-simulate; they are stripped on the way
#   DIRECTORY  is created; it must not exist
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[ $# -eq 2 ] || { sed -n '4,6p' "$0" >&2; exit 64; }
binaries=$1
root=$2
packages=$(sed -n "s/^runtime='\(.*\)'$/\1/p" scripts/install-dependencies.sh)
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}

[ ! -e "$root" ] || { echo "rootfs: $root exists" >&2; exit 73; }
# `extract` unpacks the packages and what they depend on, without running their scripts.
mmdebstrap --quiet --mode=root --skip=chroot/mount --variant=extract --components=main \
    --aptopt='APT::Install-Recommends "false"' --include="base-files ${packages}" bookworm "$root" \
    "deb $mirror bookworm main" "deb $mirror bookworm-updates main" "deb ${mirror}-security bookworm-security main"

mkdir -p "$root/etc/ssl/certs" "$root/etc/postern" "$root/usr/local/bin"
cat "$root"/usr/share/ca-certificates/mozilla/*.crt >"$root/etc/ssl/certs/ca-certificates.crt"
# What the libraries do not read.
rm -rf "$root"/usr/share/{bug,ca-certificates,debconf,doc,doc-base,info,lintian,locale,man,menu,perl5,pixmaps} \
    "$root"/usr/{games,include,sbin/*,bin/*} "$root"/usr/lib/*-linux-*/{gconv,perl,perl-base} \
    "$root"/etc/{apt,cron.daily,debconf.conf,default,hostname,kernel,logrotate.d,resolv.conf,update-motd.d} \
    "$root"/var/{cache,lib/apt,lib/dpkg,log}/*

for program in postern postern-simulate; do
    install --strip -m 755 "$binaries/$program" "$root/usr/local/bin/$program"
done
install -m 644 config.example.json "$root/etc/postern/postern.json"
printf '%s\n' 'root:x:0:0:root:/root:/usr/sbin/nologin' 'postern:x:10001:10001:Postern gateway:/data:/usr/sbin/nologin' \
    >"$root/etc/passwd"
printf '%s\n' 'root:x:0:' 'postern:x:10001:' >"$root/etc/group"
install -d -o 10001 -g 10001 -m 700 "$root/data"
find "$root" -newermt "@$SOURCE_DATE_EPOCH" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
