#!/usr/bin/env bash
# Can the simulated world fail? Each patch of scripts/mutants is a mistake. They are applied one after the other to a copy
# of the last commit, the world is built, and it runs until a promise was broken or 500 worlds were tried. Prints a table;
# fails if a mistake was not found and has no reason next to it.
#
#   scripts/mutants.sh [name ...]     these patches, by default all of them
#   scripts/mutants.sh --check        Does each patch still apply to the files as they are? Builds nothing.
#
# A patch begins with two lines: the mistake, and what a user would notice. A third line `Not found: …` is the reason why no
# world finds it.
set -euo pipefail
# A crash is a result, and what led to it is not looked for here.
export SWIFT_BACKTRACE=enable=no
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
patches=scripts/mutants
# A clone with a build folder of its own, which stays: each mistake costs an incremental build.
copy=${COPY:-$root/.build/mutants}
program=$copy/.build/debug/postern-world

# The first lines of a patch, up to an empty one.
preamble() { sed '/^$/q' "$patches/$1.patch"; }
reason() { preamble "$1" | sed -n 's/^Not found: //p'; }

check() {
    local failed=0 name
    for name; do
        if ! git apply --check "$patches/$name.patch"; then
            echo "$patches/$name.patch does not apply any more: adapt it to the code" >&2
            failed=1
        fi
        if ! preamble "$name" | awk '{ line[NR] = $0 }
            END { exit !(NR == 3 && line[3] == "" || NR == 4 && line[3] ~ /^Not found: ./ && line[4] == "") }'; then
            echo "$patches/$name.patch has to begin with the mistake and what a user would notice, a line each" >&2
            failed=1
        fi
    done
    return "$failed"
}

refresh() {
    [ -d "$copy" ] || git clone -q "$root" "$copy"
    git -C "$copy" fetch -q "$root" HEAD
    git -C "$copy" reset -q --hard FETCH_HEAD
    git diff --quiet HEAD -- Sources Tests Package.swift || echo "what is not committed is not part of the copy" >&2
}

build() { (cd "$copy" && ${SWIFT:-swift} build --product postern-world >"$copy/.build/mutant.log" 2>&1); }

# Runs worlds in growing numbers until some break a promise. Sets `result`, the cells of the table, and `outcome`.
worlds() {
    local first=1 count status log=$copy/.build/worlds.log found seed
    outcome=missed
    for count in ${WORLDS:-20 80 400}; do
        status=0
        timeout $((60 + 6 * count)) "$program" --first "$first" --seeds "$count" --jobs "$(nproc)" >"$log" 2>&1 || status=$?
        found=$(grep -c '^seed [0-9]*: ' "$log" || true)
        if [ "$found" -gt 0 ]; then
            seed=$(grep '^seed [0-9]*: ' "$log" | sort -t ' ' -k 2n | head -1)
            outcome=found
            result="$found of $count | $(cut -d ' ' -f 2 <<<"${seed%%:*}") | $(cut -d : -f 2 <<<"$seed" | sed 's/^ //')"
        elif [ "$status" -gt 128 ]; then
            outcome=found
            result="the process ended with $(kill -l $((status - 128))) | | "
        elif [ "$status" = 124 ]; then
            result="worlds $first to $((first + count - 1)) did not end in time | | "
        else
            result="0 of $((first + count - 1)) | | "
        fi
        [ "$outcome" = missed ] && [ "$status" -le 1 ] || break
        first=$((first + count))
    done
}

row() { printf '| %s | %s |\n' "$1" "$2"; }

all=()
for patch in "$patches"/*.patch; do all+=("$(basename "$patch" .patch)"); done
if [ "${1:-}" = --check ]; then
    check "${all[@]}"
    exit
fi
[ $# -gt 0 ] || set -- "${all[@]}"
check "$@"
refresh

printf '| mistake | worlds that broke a promise | first seed | its promise |\n|---|---|---|---|\n'
failed=0
# Without a mistake no world may break a promise, or the table says nothing.
build || { grep -m 5 error: "$copy/.build/mutant.log" >&2; exit 1; }
WORLDS=20 worlds
row "none" "$result"
[ "$outcome" = missed ] || failed=1
for name; do
    name=$(basename "$name" .patch)
    git -C "$copy" apply "$root/$patches/$name.patch"
    if ! build; then
        result="does not build: $(grep -m 1 -o 'error: .*' "$copy/.build/mutant.log" || true) | | "
        failed=1
    else
        worlds
        if [ "$outcome" = missed ]; then
            why=$(reason "$name")
            result="$result${why:-no reason is known}"
            [ -n "$why" ] || failed=1
        fi
    fi
    row "\`$name\`" "$result"
    git -C "$copy" reset -q --hard
done
exit "$failed"
