#!/usr/bin/env bash
# Counts the instructions per request on the fault-free paths with callgrind, and the locked ones among them, as the
# difference between a program with N requests and one with 2N. Prints them beside the stored counts of this
# architecture, docs/instructions/ARCH.txt, and fails if a path exceeds them by more than 10%, or has more locked ones.
# The device's share is included: one of the three locked instructions of an inline write. Each line of the table has
# the path, its instructions and the locked ones. Link-time optimisation is disabled (profile `counted`), as it removes
# some of them. instructions.sh --bless stores the counts in the table; --if-there does nothing without valgrind.
set -euo pipefail
cd "$(dirname "$0")/.."

tolerance=10
table=docs/instructions/$(uname -m).txt
program=${CARGO_TARGET_DIR:-target}/counted/instructions

fail() {
    echo "${0##*/}: $*" >&2
    exit 1
}

for tool in valgrind objdump; do
    command -v $tool >/dev/null && continue
    [ "${1:-}" = --if-there ] || fail "it needs $tool, which is not installed: nothing was counted"
    echo "instructions are not counted: $tool is not installed"
    exit
done
# Incremental builds are partitioned and optimised differently.
CARGO_INCREMENTAL=0 cargo build --quiet --profile counted --package zonal-check --bin instructions

# Addresses of the program's locked instructions. An exchange with memory is implicitly locked.
locks=$(objdump --disassemble --no-show-raw-insn "$program" |
    awk '/\tlock |\txchg .*\(/ { sub(":", "", $1); print "0x" $1 }')

# Total instructions and locked instructions of a number of requests along a path. The line after `calls=` is the cost
# of the callee, which has lines of its own.
collected() {
    valgrind --tool=callgrind --dump-instr=yes --compress-pos=no --compress-strings=no \
        --callgrind-out-file=/dev/fd/3 "$program" "$1" "$2" 3>&1 >/dev/null 2>&1 |
        awk -v program="$(basename "$program")" '
            NR == FNR { is_locked[$1] = 1; next }
            /^ob=/ { here = $0 ~ "/" program "$" }
            /^calls=/ { getline; next }
            /^0x/ { all += $3; if (here && $1 in is_locked) locked += $3 }
            END { printf "%.0f %.0f\n", all, locked }' <(echo "$locks") -
}

# Number of requests for a path. A job first calibrates a clock, which takes eight million instructions more or less
# until it converges; this many requests make that negligible.
requests() {
    case $1 in job) echo 1000000 ;; *) echo 10000 ;; esac
}

# A path, with its instructions and locked instructions per request.
count_path() {
    local path=$1 count once twice locked_once locked_twice
    count=$(requests "$path")
    read -r once locked_once <<<"$(collected "$path" "$count")"
    read -r twice locked_twice <<<"$(collected "$path" $((2 * count)))"
    awk -v path="$path" -v n=$((twice - once)) -v locked=$((locked_twice - locked_once)) -v count="$count" \
        'BEGIN { printf "%s %.0f %.2f\n", path, n / count, locked / count }'
}

# Counts do not depend on other load, so paths are counted in parallel.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
paths=$("$program")
for path in $paths; do
    while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n; done
    count_path "$path" >"$work/$path" &
done
wait
for path in $paths; do
    [ -s "$work/$path" ] || fail "$path was not counted"
done
counted=$(for path in $paths; do cat "$work/$path"; done)

if [ "${1:-}" = --bless ]; then
    mkdir -p "$(dirname "$table")"
    echo "$counted" >"$table"
elif [ ! -e "$table" ]; then
    echo "$counted"
    echo "there is no $table to compare with; --bless writes it"
    exit
fi
awk -v tolerance=$tolerance '
    NR == FNR { expected[$1] = $2; locked[$1] = $3; next }
    FNR == 1 {
        printf "%-14s %12s %9s %7s %7s %9s\n", "path", "instructions", "expected", "", "locked", "expected"
    }
    {
        over = $2 > expected[$1] * (1 + tolerance / 100) || $3 > locked[$1] + 0.02
        bad += over
        change = expected[$1] > 0 ? sprintf("%+.1f%%", 100 * ($2 / expected[$1] - 1)) : "-"
        printf "%-14s %12d %9s %7s %7.2f %9s%s\n", $1, $2, expected[$1], change, $3, locked[$1], over ? "  too many" : ""
    }
    END { exit bad > 0 }
' "$table" - <<<"$counted" || fail "a path costs more than $table allows; a count at the commit before says whether it is your change"
