#!/usr/bin/env bash
# Proves that another type of upstream is two folders and a line: adds the toy of Tests/Upstreams/Toy to the tree, with one
# line in the registry, lets the documents follow, builds it, and has it pass the tests that every type passes, take part in
# the simulated world and in the storm, and deliver a message to its simulator.
#
# In a mount namespace, a layer in memory covers the tree: nothing of this stays, and what `make debug` has built is built on.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [ -z "${LAYER:-}" ]; then
    LAYER=$(mktemp -d)
    export LAYER
    trap 'rmdir "$LAYER"' EXIT
    map=()
    [ "$(id -u)" = 0 ] || map=(--map-root-user)
    unshare --mount "${map[@]}" "scripts/$(basename "$0")"
    exit
fi
mount -t tmpfs toy "$LAYER"
mkdir "$LAYER/changes" "$LAYER/work"
mount -t overlay toy -o "userxattr,lowerdir=$PWD,upperdir=$LAYER/changes,workdir=$LAYER/work" "$PWD"
cd "$PWD"
step() { printf '\n--- %s\n' "$*"; }

step "its folders"
git ls-files --error-unmatch Tests/Upstreams/Toy >/dev/null
mkdir -p Sources/Upstreams/Toy/Adapter Sources/Upstreams/Toy/Simulator
mv Tests/Upstreams/Toy/Adapter/ToyUpstream.swift Sources/Upstreams/Toy/Adapter/
mv Tests/Upstreams/Toy/Simulator/ToySimulator.swift Sources/Upstreams/Toy/Simulator/
rm Tests/Upstreams/Toy/Adapter/ToyTests.swift
sed -i '1i import ToyAdapter' Tests/Upstreams/Toy/Adapter/ToyFixture.swift
sed -i '1i @testable import ToySimulator' Tests/Upstreams/Toy/Simulator/ToySimulatorTests.swift
printf '# Toy\n\nTakes notes.\n' >Sources/Upstreams/Toy/toy.md

step "its line"
sed -i '/^let upstreams = \[/,/^\]/s/^\]/    "Toy",\n]/' Package.swift
git diff --quiet Package.swift && exit 1
scripts/write-registry.sh

# Its tests are those of a type now.
sed -i '/^        \.testTarget($/{:a;N;/),$/!ba;/"ToyTests"/d}' Package.swift

step "build"
swift build --build-tests
test() { swift test --skip-build --disable-xctest --filter "$1"; }

step "the documents follow"
UPDATE_REFERENCE=1 test ConfigurationReferenceTests >/dev/null
grep -q '"toy": {' config.example.json
grep -q '| `toy` | Notes' README.md
grep -q '9006' docs/simulators.md

step "conformance, registry, documents"
test 'ToyConformance|UpstreamRegistryTests|OpenAPIRoutesTests|ConfigurationReferenceTests' | tail -n 1

step "worlds with it keep their promises"
results=$LAYER
seq 4 | xargs -P 2 -I{} sh -c ".build/debug/postern-world --seed {} --watch >$results/world-{} || { tail $results/world-{}; exit 1; }"
cat "$results"/world-* | grep '^seed'
grep -q 'POST /v1/toy/note' "$results"/world-*

step "it takes part in the storm"
scripts/storm.py --binary .build/debug/postern --seconds 5 --kills 1 | tee "$results/storm"
grep -q '^  toy  *[1-9]' "$results/storm"

step "a message goes all the way to the simulator"
postern=.build/debug/postern
work=$(mktemp -d)
sed "s|data/postern.sqlite|$work/postern.sqlite|; s|\"port\": 8080|\"port\": 0|; s|\"encryptionKey\": \"\"|\"encryptionKey\": \"$(openssl rand -hex 32)\"|" \
    config.example.json >"$work/postern.json"
"$postern" check --config "$work/postern.json"
"$postern" serve --config "$work/postern.json" --simulate 2>"$work/log" &
gateway=$!
trap 'kill "$gateway" 2>/dev/null; wait "$gateway" 2>/dev/null; rm -rf "$work"' EXIT
for _ in $(seq 100); do
    port=$(sed -n 's/.* started .*port=\([0-9]*\).*/\1/p' "$work/log")
    [ -n "$port" ] && break
    kill -0 "$gateway" || { cat "$work/log"; exit 1; }
    sleep 0.1
done
answer=$(curl -sS -w ' %{http_code}' "http://127.0.0.1:$port/v1/toy/note" -H 'Content-Type: application/json' \
    -H 'Prefer: wait=20' -d '{"text":"hello"}')
echo "$answer"
case $answer in *' 200') ;; *) cat "$work/log"; exit 1 ;; esac
echo "Another type of upstream is two folders and a line."
