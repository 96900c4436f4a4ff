#!/usr/bin/env bash
# usage: scripts/write-registry.sh [--check]
# Writes the registry of the types of upstreams from their list in Package.swift; --check only says whether it is up to date.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
registry=Sources/PosternApp/UpstreamRegistry.swift
types=$(sed -n '/^let upstreams = \[/,/^\]/s/^ *"\([A-Za-z]*\)",$/\1/p' Package.swift)
[ -n "$types" ] || { echo "Package.swift lists no types of upstreams" >&2; exit 1; }

written() {
    echo "// Written by scripts/write-registry.sh from the list in Package.swift."
    for type in $types; do printf 'import %sAdapter\nimport %sSimulator\n' "$type" "$type"; done |
        cat - <(printf 'public import PosternCore\npublic import PosternSimulatorKit\n') |
        awk '{ print $NF, $0 }' | LC_ALL=C sort | cut -d ' ' -f 2-
    cat <<'SWIFT'

/// Every type of upstream there is, in the order of the ports of their simulators (see CONTRIBUTING.md).
public enum UpstreamRegistry {
    public static let all: [(type: UpstreamType, simulator: SimulatorType)] = [
SWIFT
    for type in $types; do
        name=$(tr '[:upper:]' '[:lower:]' <<<"$type")
        echo "        (.$name, .$name),"
    done
    cat <<'SWIFT'
    ]

    public static let types = all.map(\.type)
    public static let simulators = all.map(\.simulator)
}
SWIFT
}

if [ "${1:-}" = --check ]; then
    written | diff "$registry" - || { echo "$registry is not what Package.swift lists; run scripts/write-registry.sh" >&2; exit 1; }
else
    written >"$registry"
fi
