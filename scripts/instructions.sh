#!/usr/bin/env bash
# Instructions a request costs on the paths without faults, counted by callgrind: the difference between a program that makes
# N and one that makes 2N. Prints them beside the committed ones of this architecture, docs/instructions/ARCH.txt, and fails
# where a path costs more than 2% above those. The table's last column is the count before volumes recovered from failed
# writes, for comparison. instructions.sh --bless writes the counts into the table, --if-there does nothing without valgrind.
set -euo pipefail
cd "$(dirname "$0")/.."

count=10000
tolerance=2
table=docs/instructions/$(uname -m).txt
program=${CARGO_TARGET_DIR:-target}/release/instructions

fail() {
    echo "${0##*/}: $*" >&2
    exit 1
}

if ! command -v valgrind >/dev/null; then
    [ "${1:-}" = --if-there ] || fail "it needs valgrind, which is not installed: nothing was counted"
    echo "instructions are not counted: valgrind is not installed"
    exit
fi
cargo build --quiet --release --package zonal-check --bin instructions

# What callgrind collects for so many requests.
collected() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$program" "$1" "$2" 2>&1 |
        sed -n 's/.*Collected : *\([0-9]*\).*/\1/p'
}

counted=$(for path in $("$program"); do
    once=$(collected "$path" $count)
    twice=$(collected "$path" $((2 * count)))
    awk -v path="$path" -v n="$((twice - once))" -v count=$count 'BEGIN { printf "%s %.0f\n", path, n / count }'
done)

if [ "${1:-}" = --bless ]; then
    mkdir -p "$(dirname "$table")"
    touch "$table"
    blessed=$(awk 'NR == FNR { before[$1] = $3; next }
        { printf "%s %s %s\n", $1, $2, ($1 in before) && before[$1] ? before[$1] : "-" }' "$table" - <<<"$counted")
    echo "$blessed" >"$table"
elif [ ! -e "$table" ]; then
    echo "$counted"
    echo "there is no $table to compare with; --bless writes it"
    exit
fi
awk -v tolerance=$tolerance '
    function change(now, then) { return then > 0 ? sprintf("%+.1f%%", 100 * (now / then - 1)) : "-" }
    NR == FNR { expected[$1] = $2; before[$1] = $3; next }
    FNR == 1 { printf "%-14s %12s %9s %7s %16s %7s\n", "path", "instructions", "expected", "", "without recovery", "" }
    {
        over = $2 > expected[$1] * (1 + tolerance / 100)
        bad += over
        printf "%-14s %12d %9s %7s %16s %7s%s\n", $1, $2, expected[$1], change($2, expected[$1]), before[$1],
            change($2, before[$1]), over ? "  too many" : ""
    }
    END { exit bad > 0 }
' "$table" - <<<"$counted" || fail "a path costs more than $tolerance% above $table"
