#!/usr/bin/env bash
# Puts openapi/core.yaml and what types of upstream add, Sources/Upstreams/*/openapi.yaml, together as
# openapi/openapi.yaml, which the gateway serves at /openapi.yaml: Sources/COpenAPI embeds it.
# With --check it writes nothing and says with its exit code whether that is up to date.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

document=openapi/openapi.yaml

# The lines of one section of every type, in the order of the types' names.
section() {
    awk -v wanted="$1:" 'FNR == 1 { inside = 0 } /^[^ ]/ { inside = ($0 == wanted); next } inside' Sources/Upstreams/*/openapi.yaml
}

# Gives each operation that takes an Idempotency-Key an example of its own: a key that is used for another request is
# rejected. References to the anchor `ingestParameters` are written out for that.
with_keys() {
    awk '
        /^      operationId: / { operation = $2 }
        /^      parameters: &ingestParameters$/ { collecting = 1; print "      parameters:"; next }
        collecting && !/^        / { collecting = 0 }
        collecting { shared[++count] = $0 }
        /^      parameters: \*ingestParameters$/ {
            print "      parameters:"
            for (line = 1; line <= count; line++) write(shared[line])
            next
        }
        { write($0) }
        function write(text) {
            if (text !~ /parameters\/idempotencyKey"$/) { print text; return }
            print "        - name: Idempotency-Key"
            print "          in: header"
            print "          schema:"
            print "            $ref: \"#/components/schemas/IdempotencyKey\""
            print "          example: " operation "-8e03978e"
        }'
}

whole() {
    echo "# Put together by scripts/embed-openapi.sh from openapi/core.yaml and Sources/Upstreams/*/openapi.yaml; change those."
    while IFS= read -r line; do
        case $line in
            '  # The paths of upstream types:'*) section paths ;;
            '    # The parameters of upstream types:'*) section parameters ;;
            '    # The examples of upstream types:'*) section examples ;;
            '    # The schemas of upstream types:'*) section schemas ;;
            *) printf '%s\n' "$line" ;;
        esac
    done <openapi/core.yaml | with_keys
}

if [[ ${1:-} == --check ]]; then
    diff -u "$document" <(whole)
else
    whole >"$document.new"
    mv "$document.new" "$document"
fi
