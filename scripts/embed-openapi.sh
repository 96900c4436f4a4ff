#!/usr/bin/env bash
# Writes openapi/openapi.yaml into Sources/PosternServer/OpenAPIDocument.swift, which the gateway serves at
# /openapi.yaml. With --check it writes nothing and says with its exit code whether the two are the same.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

source=openapi/openapi.yaml
target=Sources/PosternServer/OpenAPIDocument.swift

embedded() {
    cat <<'SWIFT'
// swift-format-ignore-file
// Written by scripts/embed-openapi.sh from openapi/openapi.yaml; change that.

/// The description of the API that `/openapi.yaml` serves.
enum OpenAPIDocument {
    static let text = #"""
SWIFT
    cat "$source"
    # The empty line is the line feed at the end of the text.
    printf '\n"""#\n}\n'
}

if grep -q '"""#' "$source"; then
    echo "$source holds the end of a Swift literal" >&2
    exit 1
fi
if [[ ${1:-} == --check ]]; then
    diff -u "$target" <(embedded)
else
    embedded >"$target.new"
    mv "$target.new" "$target"
fi
