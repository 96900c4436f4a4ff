#!/usr/bin/env bash
# usage: scripts/write-registry.sh [--check]
# Writes the registries of the types of upstreams, of their simulators and of their scenarios from the list in
# Package.swift; --check only says whether they are up to date.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
check=${1:-}
types=$(sed -n '/^let upstreams = \[/,/^\]/s/^ *"\([A-Za-z]*\)",$/\1/p' Package.swift)
[ -n "$types" ] || { echo "Package.swift lists no types of upstreams" >&2; exit 1; }

# registry NAME ELEMENT SUFFIX MODULE COMMENT ACCESS: imports in the order that `make lint` wants, and the list.
registry() {
    local access=${6-public }
    echo "// Written by scripts/write-registry.sh from the list in Package.swift."
    for type in $types; do echo "import $type$3"; done | cat - <(echo "${access}import $4") |
        awk '{ print $NF, $0 }' | LC_ALL=C sort | cut -d ' ' -f 2-
    printf '\n/// %s\n%senum %s {\n    %sstatic let all: [%s] = [\n' "$5" "$access" "$1" "$access" "$2"
    for type in $types; do
        case $3 in
            Scenarios) echo "        ${type}Scenarios()," ;;
            *) echo "        .$(tr '[:upper:]' '[:lower:]' <<<"$type")," ;;
        esac
    done
    printf '    ]\n}\n'
}

status=0
put() {
    if [ "$check" != --check ]; then
        cat >"$1"
    elif ! diff "$1" -; then
        echo "$1 is not what Package.swift lists; run scripts/write-registry.sh" >&2
        status=1
    fi
}

put Sources/PosternGateway/UpstreamRegistry.swift < <(registry UpstreamRegistry UpstreamType Adapter PosternUpstream \
    "Every type of upstream there is (see CONTRIBUTING.md).")
put Sources/PosternSimulators/SimulatorRegistry.swift < <(registry SimulatorRegistry SimulatorType Simulator \
    PosternSimulatorKit "The simulator of every type of upstream, in the order of their ports.")
put Tests/PosternWorld/ScenarioRegistry.swift < <(registry ScenarioRegistry "any TypeScenarios" Scenarios PosternScenarios \
    "What the world has to know of every type of upstream." "")
exit $status
