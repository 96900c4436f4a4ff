#!/usr/bin/env bash
# Proves that another type of upstream is two folders and a line: adds the toy of Tests/Upstreams/Toy to a copy of the tree,
# with one line in the registry, lets the documents follow, builds it, and has it pass the tests that every type passes,
# take part in the simulated world and in the storm, and deliver a message to its simulator.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source=$PWD
tree=$source/.build/toy/tree
scratch=$source/.build/toy/build
step() { printf '\n--- %s\n' "$*"; }

step "a copy of the tree"
rm -rf "$tree"
mkdir -p "$tree"
git ls-files -z --cached --others --exclude-standard | tar -c --null --files-from=- | tar -x -C "$tree"
cd "$tree"

step "its folders"
git -C "$source" ls-files --error-unmatch Tests/Upstreams/Toy >/dev/null
mkdir -p Sources/Upstreams/Toy/Adapter Sources/Upstreams/Toy/Simulator
mv Tests/Upstreams/Toy/Adapter/ToyUpstream.swift Sources/Upstreams/Toy/Adapter/
mv Tests/Upstreams/Toy/Simulator/ToySimulator.swift Sources/Upstreams/Toy/Simulator/
rm Tests/Upstreams/Toy/Adapter/ToyTests.swift
sed -i '1i import ToyAdapter' Tests/Upstreams/Toy/Adapter/ToyFixture.swift
sed -i '1i @testable import ToySimulator' Tests/Upstreams/Toy/Simulator/ToySimulatorTests.swift
printf '# Toy\n\nTakes notes.\n' >Sources/Upstreams/Toy/toy.md

step "its line"
sed -i '/^let upstreams = \[/,/^\]/s/^\]/    "Toy",\n]/' Package.swift
diff "$source/Package.swift" Package.swift && exit 1
scripts/write-registry.sh

# The other test targets know nothing of types; leaving them out saves most of the build.
python3 - <<'PYTHON'
import re
text = open("Package.swift").read()
for target in ["Core", "Upstream", "Events", "Threads", "Compression", "Metrics", "Store", "HTTP", "Transport", "Delivery", "API", "Commands",
               "FaultServer", "SimulatorKit"]:
    text, found = re.subn(r'        tests\(\s*of: "Postern%s"(?:[^()]|\([^()]*\))*\),\n' % target, "", text)
    assert found == 1, target
for target in ["EndToEndTests", "ToyTests"]:
    text, found = re.subn(r'        \.testTarget\(\s*name: "%s"(?:[^()]|\([^()]*\))*\),\n' % target, "", text)
    assert found == 1, target
text, found = re.subn(r'upstreams\.flatMap\(upstream\)', 'upstreams.flatMap { upstream($0).filter { $0.type != .test || $0.name.hasPrefix("Toy") } }', text)
assert found == 1
open("Package.swift", "w").write(text)
PYTHON

step "build"
# Nothing debugs it, and nothing looks names up in it.
swift build --build-tests --scratch-path "$scratch" --disable-index-store -debug-info-format none
test() { swift test --skip-build --disable-xctest --scratch-path "$scratch" --filter "$1"; }

step "the documents follow"
UPDATE_REFERENCE=1 test ConfigurationReferenceTests >/dev/null
grep -q '"toy": {' config.example.json
grep -q '| `toy` | Notes' README.md
grep -q '9006' docs/simulators.md

step "conformance, registry, documents"
test 'ToyConformance|UpstreamRegistryTests|OpenAPIRoutesTests|ConfigurationReferenceTests' | tail -n 1

step "worlds with it keep their promises"
seq 4 | xargs -P 2 -I{} sh -c "'$scratch/debug/postern-world' --seed {} --watch >'$scratch/world-{}' || { tail '$scratch/world-{}'; exit 1; }"
cat "$scratch"/world-* | grep '^seed'
grep -q 'POST /v1/toy/note' "$scratch"/world-*

step "it takes part in the storm"
scripts/storm.py --binary "$scratch/debug/postern" --seconds 5 --kills 1 | tee "$scratch/storm"
grep -q '^  toy  *[1-9]' "$scratch/storm"

step "a message goes all the way to the simulator"
postern=$scratch/debug/postern
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
