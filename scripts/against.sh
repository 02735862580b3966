#!/usr/bin/env bash
# Compares the speed of the write path with that of an earlier commit, by default the last release: 2432272. Builds that
# commit once in out/, with the benchmark of this tree, runs both programs alternately, and prints the median time per
# request and the median ratio for each path. Paths missing in that commit are skipped. against.sh [COMMIT [PATH...]]
set -euo pipefail
cd "$(dirname "$0")/.."
out=out

commit=${1:-2432272}
rounds=${ROUNDS:-9}
tree=$PWD/$out/against/$commit
if [ ! -x "$tree/target/release/instructions" ]; then
    rm -rf "$tree"
    mkdir -p "$tree"
    git archive "$commit" | tar --extract --directory "$tree"
    cp crates/zonal-check/src/bench/instructions.rs "$tree/crates/zonal-check/src/bench/instructions.rs"
    (cd "$tree" && CARGO_TARGET_DIR=$tree/target cargo build --quiet --release --package zonal-check --bin instructions)
fi
cargo build --quiet --release --package zonal-check --bin instructions
now=${CARGO_TARGET_DIR:-target}/release/instructions
then=$tree/target/release/instructions

# Nanoseconds per request, including start and opening, which are negligible with this many requests.
requests=${REQUESTS:-5000000}
time_of() {
    local begin end
    begin=$(date +%s%N)
    "$1" "$2" "$requests" >/dev/null
    end=$(date +%s%N)
    awk -v ns=$((end - begin)) -v n="$requests" 'BEGIN { printf "%.2f", ns / n }'
}

median() { sort -n | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }

printf '%-16s %12s %12s %8s\n' path "$commit" now ratio
shift || true
for path in ${@:-$("$then")}; do
    befores='' afters='' ratios=''
    for _ in $(seq "$rounds"); do
        before=$(time_of "$then" "$path")
        after=$(time_of "$now" "$path")
        befores+="$before"$'\n' afters+="$after"$'\n'
        ratios+=$(awk -v b="$before" -v a="$after" 'BEGIN { printf "%.3f", b / a }')$'\n'
    done
    printf '%-16s %9s ns %9s ns %8s\n' "$path" "$(printf %s "$befores" | median)" "$(printf %s "$afters" | median)" \
        "$(printf %s "$ratios" | median)"
done
