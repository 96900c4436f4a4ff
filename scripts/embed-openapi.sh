#!/usr/bin/env bash
# Puts openapi/core.yaml and what each upstream type adds, openapi/types/*.yaml, together as openapi/openapi.yaml, and
# writes that into Sources/PosternServer/OpenAPIDocument.swift, which the gateway serves at /openapi.yaml.
# With --check it writes nothing and says with its exit code whether both are up to date.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

document=openapi/openapi.yaml
target=Sources/PosternServer/OpenAPIDocument.swift

# The lines of one section of every type, in the order of the types' names.
section() {
    awk -v wanted="$1:" 'FNR == 1 { inside = 0 } /^[^ ]/ { inside = ($0 == wanted); next } inside' openapi/types/*.yaml
}

whole() {
    echo "# Put together by scripts/embed-openapi.sh from openapi/core.yaml and openapi/types/*.yaml; change those."
    while IFS= read -r line; do
        case $line in
            '  # The paths of upstream types:'*) section paths ;;
            '    # The schemas of upstream types:'*) section schemas ;;
            *) printf '%s\n' "$line" ;;
        esac
    done <openapi/core.yaml
}

embedded() {
    cat <<'SWIFT'
// swift-format-ignore-file
// Written by scripts/embed-openapi.sh from openapi/; change that.

/// The description of the API that `/openapi.yaml` serves.
enum OpenAPIDocument {
    static let text = #"""
SWIFT
    cat "$1"
    # The empty line is the line feed at the end of the text.
    printf '\n"""#\n}\n'
}

if grep -q '"""#' openapi/core.yaml openapi/types/*.yaml; then
    echo "openapi/ holds the end of a Swift literal" >&2
    exit 1
fi
if [[ ${1:-} == --check ]]; then
    diff -u "$document" <(whole)
    diff -u "$target" <(embedded "$document")
else
    whole >"$document.new"
    mv "$document.new" "$document"
    embedded "$document" >"$target.new"
    mv "$target.new" "$target"
fi
