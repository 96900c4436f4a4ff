#!/usr/bin/env bash
# Runs deploy/smoke.sh against a gateway of its own: a free port, an empty store, simulated upstreams.
# usage: scripts/smoke-run.sh BINARY
set -euo pipefail
cd "$(dirname "$0")/.."

binary=$(readlink -f "$1")
directory=$(mktemp -d)
log=$directory/gateway.log
gateway=

finish() {
    code=$?
    if [[ -n $gateway ]]; then
        kill -KILL "$gateway" 2>/dev/null || true
        wait "$gateway" 2>/dev/null || true
    fi
    if ((code != 0)) && [[ -s $log ]]; then
        echo "the gateway's last words:"
        tail -n 40 "$log"
    fi
    rm -rf "$directory"
}
trap finish EXIT

fail() {
    echo "smoke: $1" >&2
    exit 1
}

is_taken() { (: <"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

port=$((20000 + RANDOM % 10000))
while is_taken "$port"; do port=$((port + 1)); done

POSTERN_SERVER_PORT=$port POSTERN_OUTBOX_PATH=$directory/postern.sqlite \
    "$binary" serve --config config.example.json --simulate </dev/null >"$log" 2>&1 &
gateway=$!

for ((tries = 0; ; tries++)); do
    kill -0 "$gateway" 2>/dev/null || fail "the gateway ended while it started"
    "$binary" healthcheck --url "http://127.0.0.1:$port" >/dev/null 2>&1 && break
    ((tries < 300)) || fail "the gateway was not ready after 30 s"
    sleep 0.1
done

deploy/smoke.sh "http://127.0.0.1:$port"

kill -TERM "$gateway"
for ((tries = 0; ; tries++)); do
    kill -0 "$gateway" 2>/dev/null || break
    ((tries < 300)) || fail "the gateway was still there 30 s after SIGTERM"
    sleep 0.1
done
code=0
wait "$gateway" || code=$?
gateway=
((code == 0)) || fail "the gateway ended with $code after SIGTERM"
echo "ok    SIGTERM ends it cleanly"
