#!/usr/bin/env bash
# Runs the tests by the command given, and prints what the runner prints. If some fail, repeats which and why behind
# everything else, where it can be found, and ends with the runner's summary.
set -uo pipefail
log=$(mktemp)
trap 'rm -f "$log"' EXIT
"$@" 2>&1 | tee "$log"
status=${PIPESTATUS[0]}
if [ "$status" != 0 ]; then
    printf '\n=== what failed\n'
    grep -E 'recorded an issue|^Fatal error|: Fatal error|Program crashed' "$log" | cut -c 1-600 | head -15
    grep -E '✘ Test run' "$log"
fi
exit "$status"
