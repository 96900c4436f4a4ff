#!/bin/sh
# Writes the man pages postern(1), postern-simulate(1) and postern.json(5) into a directory.
# usage: scripts/write-manual.sh BINARIES DIRECTORY
#   BINARIES has postern, postern-simulate, and generate-manual, which comes with swift-argument-parser
# The commands describe themselves; the settings are those of docs/configuration.md, whose tables become lists.
set -eu
cd "$(dirname "$0")/.."
[ $# -eq 2 ] || { sed -n '3,4p' "$0" >&2; exit 64; }
binaries=$1
out=$2
date=$(date -u -d "@${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}" +%Y-%m-%d)

mkdir -p "$out"
for program in postern postern-simulate; do
    "$binaries/generate-manual" "$binaries/$program" --date "$date" --output-directory "$out" >/dev/null
done

awk -v date="$date" '
    BEGIN {
        print "% postern.json 5 \"" date "\" \"postern\" \"Postern\"\n\n# NAME\n\npostern.json - configuration of the gateway Postern\n\n# DESCRIPTION"
    }
    /^# / || /^<!--/ { next }
    /^##+ / { sub(/^#/, ""); gsub(/`/, ""); print; next }
    # A table: its first row names the columns, the second one is a rule.
    /^\|/ {
        if (!columns) { columns = split($0, name, / *\| */); row = 0 }
        row++
        if (row < 3) next
        gsub(/\\\|/, "\001")
        split($0, cell, / *\| */)
        term = ""
        for (i = 3; i < columns - 1; i++)
            if (cell[i] != "") term = term (term == "" ? "" : ", ") (name[i] == "default" ? "default " : "") cell[i]
        text = cell[columns - 1] (term == "" ? "" : " (" term ")")
        gsub(/\001/, "|", text)
        print "\n**" cell[2] "**\n:   " text
        next
    }
    { columns = 0; print }
    END { print "\n# SEE ALSO\n\n**postern**(1)" }
' docs/configuration.md | sed 's/\[\([^]]*\)\](\([^)]*\))/\1/g; s/^\*\*`\(.*\)`\*\*$/**\1**/' | go-md2man >"$out/postern.json.5"
