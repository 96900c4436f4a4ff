#!/bin/sh
# Installs the Debian packages Postern is built from and runs on; only those that are missing.
# usage: scripts/install-dependencies.sh [--bench] [--package] [--postgres] [--console] [--peers]
#        [--runtime]
#   --bench    also what `make bench`, `make torture` and `make test-soak` need
#   --package  also what man pages, packages, archives and images are made with, and alerts are tried with
#   --postgres also the server that `make test` and `make dialect` start
#   --console  also what `make console-check` opens the console with
#   --peers    also the brokers that `make loss-table` compares with, without starting them as services
#   --runtime  only what a built binary needs (container images)
# The Swift toolchain (6.3) is not installed by this script: see CONTRIBUTING.md.
set -eu

build='g++ make pkg-config binutils libc6-dev libmicrohttpd-dev libcurl4-openssl-dev libsqlite3-dev'
build="$build libpq-dev libsimdjson-dev zlib1g-dev libcrypt-dev curl ca-certificates git tzdata"
build="$build python3 python3-h11 python3-venv"
bench='gcc wrk nghttp2-client python3 procps valgrind openssl'
package='go-md2man man-db dpkg-dev mmdebstrap buildah prometheus openssl'
# Another vendor's package may have brought it.
command -v kubectl >/dev/null || package="$package kubernetes-client"
peers='gcc pkg-config libfuse3-dev fuse3 e2fsprogs nats-server redis-server rabbitmq-server beanstalkd'
runtime='libmicrohttpd12 libcurl4 libsqlite3-0 libpq5 libsimdjson14 zlib1g libcrypt1 libstdc++6 ca-certificates tzdata'

wanted=$build
services=yes
for option; do
    case $option in
        --bench) wanted="$wanted $bench" ;;
        --package) wanted="$wanted $package" ;;
        --postgres) wanted="$wanted postgresql-15" ;;
        --console) wanted="$wanted chromium chromium-driver fonts-dejavu-core" ;;
        --peers)
            wanted="$wanted $peers"
            services=no
            ;;
        --runtime) wanted=$runtime ;;
        *)
            sed -n '2,11s/^# \{0,1\}//p' "$0" >&2
            exit 64
            ;;
    esac
done

fail() {
    echo "install-dependencies: $1" >&2
    exit 1
}

command -v apt-get >/dev/null || fail "this is not a Debian system (no apt-get). Install the equivalents of: $wanted"

missing=
for package in $wanted; do
    state=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$state" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -eq 0 ]; then
    as_root=
elif command -v sudo >/dev/null; then
    as_root=sudo
    # Without a terminal no password can be typed.
    [ -t 0 ] || as_root='sudo -n'
else
    fail "not root and no sudo. Ask an administrator for: apt-get install$missing"
fi

log=$(mktemp)
policy=/usr/sbin/policy-rc.d
trap 'rm -f "$log"; [ -z "${added:-}" ] || $as_root rm -f "$policy"' EXIT
trap 'exit 130' INT TERM
apt() {
    # shellcheck disable=SC2086 # $as_root is empty or a command with its option.
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 "$@" </dev/null >"$log" 2>&1 || {
        cat "$log" >&2
        fail "\`apt-get $*\` failed; its words are above. Missing:$missing"
    }
}

echo "installing:$missing"
apt update
# Debian starts the service of a package when it is installed, unless this file forbids it.
if [ $services = no ] && [ ! -e $policy ]; then
    added=yes
    printf '#!/bin/sh\nexit 101\n' | $as_root tee $policy >/dev/null
    $as_root chmod 755 $policy
fi
# shellcheck disable=SC2086 # A list of packages.
apt install --yes --no-install-recommends $missing
