#!/usr/bin/env bash
# Runs the tests, in two processes at the same time: many of them wait, above all those that drive a gateway from outside, and
# a test that waits keeps one of the few threads that its process has for tests. Next to them runs a check. Prints what the
# runners and the check print, one after the other. If some tests fail, repeats which and why behind everything else, where
# it can be found. Ends with the runners' summaries.
#
# usage: scripts/test.sh CHECK RUNNER...
set -uo pipefail
check=$1
shift
log=$(mktemp -d)
$check >"$log/check" 2>&1 &
checking=$!
# Both halves take about as long.
half='^(EndToEndTests|PosternWorldTests)\.'
"$@" --ignore-lock --filter "$half" >"$log/first" 2>&1 &
first=$!
trap 'kill "$checking" "$first" 2>/dev/null; rm -rf "$log"' EXIT
# Both read SwiftPM's database of the build before they begin, and one that finds it locked has no tests.
has_begun() {
    local child
    for child in $(cat "/proc/$first/task/"*/children 2>/dev/null); do
        ! grep -qs xctest "/proc/$child/cmdline" || return 0
    done
    ! kill -0 "$first" 2>/dev/null
}
until has_begun; do sleep 0.2; done
"$@" --ignore-lock --skip "$half" 2>&1 | tee "$log/second"
status=${PIPESTATUS[0]}
wait "$first" || status=$?
cat "$log/first"
wait "$checking" || { status=$?; echo "$check has failed: see above" >"$log/failure"; }
printf '\n=== %s\n' "$check"
cat "$log/check"
if [ "$status" != 0 ]; then
    printf '\n=== what failed\n'
    grep -hE 'recorded an issue|^Fatal error|: Fatal error|Program crashed' "$log/first" "$log/second" |
        cut -c 1-600 | head -15
    cat "$log/failure" 2>/dev/null
fi
grep -hE '(✔|✘) Test run with' "$log/first" "$log/second"
exit "$status"
