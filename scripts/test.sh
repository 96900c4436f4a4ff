#!/usr/bin/env bash
# Runs the tests, and prints what their runner prints, then what a check has printed that leaves most of the processors idle,
# and that runs meanwhile. If some tests fail, repeats which and why behind everything else, where it can be found. Ends
# with the runner's summary.
#
# usage: scripts/test.sh CHECK RUNNER...
set -uo pipefail
check=$1
shift
log=$(mktemp -d)
$check >"$log/check" 2>&1 &
trap 'kill "$!" 2>/dev/null; rm -rf "$log"' EXIT
"$@" 2>&1 | tee "$log/tests"
status=${PIPESTATUS[0]}
wait "$!" || { status=$?; echo "$check has failed: see above" >"$log/failure"; }
printf '\n=== %s\n' "$check"
cat "$log/check"
if [ "$status" != 0 ]; then
    printf '\n=== what failed\n'
    grep -E 'recorded an issue|^Fatal error|: Fatal error|Program crashed' "$log/tests" | cut -c 1-600 | head -15
    cat "$log/failure" 2>/dev/null
fi
grep -E '(✔|✘) Test run' "$log/tests" | tail -1
exit "$status"
