#!/usr/bin/env bash
# Does each hazard's test fail when its fix is taken away? For every mutation of crates/zonal-check/mutations: a copy of the
# tree in which it is made, and in which the tests that it names have to fail. A test that does not end says nothing:
# it does not count as a failed test, so a test of something that may hang has a deadline or a bound of its own. A mutation
# that says `in: --package P --lib` or `in: --package P --test all MODULE::` names tests of that place, others those of
# zonal-check's hazards. The copy is kept in out/mutations, so that a second run builds little. Writes the table of
# docs/MUTATIONS.md; with arguments, only the mutations whose names begin so are made, and the table keeps its other rows.
#
# mutations.sh --sample N makes N at most, all of one package, others whenever a mutation has changed, and begins none after
# SAMPLE_SECONDS. What cargo has built of other packages it takes from the tests' own target.
# It fails for a mutation that is missed, writes no table, and a test that does not end leaves the mutation undecided.
set -uo pipefail
cd "$(dirname "$0")/.."

# A sample of the cases may lack the case that finds a mutation.
export ZONAL_WHOLE=1
# A mutation changes a few lines: only what these lines are in is compiled again.
export CARGO_INCREMENTAL=1
mutations=crates/zonal-check/mutations
copy=out/mutations/tree
# Seconds that a test gets: longer than the deadlines that tests have.
patience=${PATIENCE:-90}
table=docs/MUTATIONS.md

# With --sample, how many, and until when.
sample=
end=
if [ "${1:-}" = --sample ]; then
    sample=${2:?a number}
    end=$((SECONDS + ${SAMPLE_SECONDS:-240}))
    shift 2
fi
# Where the copy is built, from the copy.
target=../target
[ -z "$sample" ] || target=$(realpath -m "${CARGO_TARGET_DIR:-target}")

# Cargo tells what it has built from what by age: what a sample leaves in the tests' target must not pass for the tree's own. A crate
# whose root is newer is built again, with all that use it. While a sample runs, nothing else is to be built there.
crates_of() { sed -n 's/^at: \([^ /]*\)\( .*\|$\)/\1/p; s|^at: crates/\([^/]*\)/.*|\1|p' "$1"; }
leave_no_mutation() {
    local crate
    for crate in $(for mutation in "${selected[@]}"; do crates_of "$mutation"; done | sort -u); do
        touch "crates/$crate/src/lib.rs"
    done
}
[ -z "$sample" ] || trap leave_no_mutation EXIT

# Copies what differs, so that little is built again; a copied file is newer than what was built from it.
copy_tree() {
    mkdir -p "$copy"
    git ls-files --cached --others --exclude-standard | while read -r file; do
        [ -f "$file" ] && ! cmp -s "$file" "$copy/$file" || continue
        mkdir -p "$copy/$(dirname "$file")"
        cp "$file" "$copy/$file"
    done
    (cd "$copy" && find crates -type f) | while read -r file; do
        [ -e "$file" ] || rm "$copy/$file"
    done
}

in_copy() { (cd "$copy" && CARGO_TARGET_DIR=$target "$@"); }

header() { sed -n "s/^$1: //p" "$2"; }

# Where a mutation's tests are, as cargo's arguments.
place() {
    local place
    place=$(header in "$1")
    echo "${place:---package zonal-check --test hazards}"
}

# One test of a place in the copy: caught, missed, does not end, or what went wrong.
judge() {
    local log=out/mutations/log.txt place=$2 module= name status
    case $place in *::) module=${place##* } place=${place% *} ;; esac
    # shellcheck disable=SC2086 # a place is several words
    name=$(in_copy cargo test --quiet $place -- --list 2>/dev/null | sed -n "s/^\($module\(.*::\)\?$1\): test$/\1/p")
    [ -n "$name" ] || { echo "no such test" && return; }
    # shellcheck disable=SC2086
    in_copy timeout "$patience" cargo test --quiet $place -- --test-threads 1 --exact "$name" >"$log" 2>&1
    status=$?
    if [ $status = 0 ]; then
        echo missed
    elif [ $status = 124 ]; then
        echo "does not end"
    else
        echo caught
    fi
}

# Mutations in an order that the set of them draws, those of the first one's package.
drawn() {
    local seed drawn package mutation
    seed=$(git rev-parse "HEAD:$mutations" 2>/dev/null || date +%F)
    mapfile -t drawn < <(shuf --echo --random-source=<(yes "$seed") "$mutations"/*.mutation)
    package=$(place "${drawn[0]}" | cut -d ' ' -f 2)
    for mutation in "${drawn[@]}"; do
        [ "$(place "$mutation" | cut -d ' ' -f 2)" != "$package" ] || echo "$mutation"
    done
}

selected=()
if [ -n "$sample" ]; then
    mapfile -t -n "$sample" selected < <(drawn)
else
    for name in "${@:-}"; do
        for mutation in "$mutations/$name"*.mutation; do
            [ -e "$mutation" ] || { echo "no mutation is called $name" >&2; exit 1; }
            selected+=("$mutation")
        done
    done
fi

cargo build --quiet --package zonal-check --bin mutate || exit 1
copy_tree || exit 1
# A sample builds the copy's own one in its place.
cp "${CARGO_TARGET_DIR:-target}/debug/mutate" out/mutations/mutate || exit 1
mutate=out/mutations/mutate
# The tests of a sample have just passed.
[ -n "$sample" ] || while read -r place; do
    echo "building $place"
    # shellcheck disable=SC2086
    in_copy cargo test --quiet $place --no-run || exit 1
    # shellcheck disable=SC2086
    in_copy timeout 300 cargo test --quiet $place >out/mutations/log.txt 2>&1 || {
        grep -A3 'panicked at\|^failures:' out/mutations/log.txt >&2
        echo "the tests fail as they are" >&2
        exit 1
    }
done < <(for mutation in "${selected[@]}"; do place "$mutation"; done | sort -u)

declare -A rows=()
missed=0
judged=0
for mutation in "${selected[@]}"; do
    [ -z "$sample" ] || [ $SECONDS -lt "$end" ] || break
    judged=$((judged + 1))
    name=$(basename "$mutation" .mutation)
    place=$(place "$mutation")
    # shellcheck disable=SC2086
    if ! "$mutate" "$mutation" "$copy" 2>out/mutations/log.txt; then
        verdict="cannot be made"
    elif ! in_copy cargo test --quiet $place --no-run >out/mutations/log.txt 2>&1; then
        verdict="does not build"
    else
        verdict=
        for test in $(header test "$mutation"); do
            one=$(judge "$test" "$place")
            case $one in caught*) ;; *) verdict="$one: $test" ;; esac
            [ -n "$verdict" ] || verdict=$one
        done
    fi
    copy_tree
    case $sample,$verdict in *,caught*) ;; [0-9]*,"does not end"*) ;; *) missed=$((missed + 1)) ;; esac
    printf '%-40s %s\n' "$name" "$verdict"
    names=$(header test "$mutation" | sed 's/.*/`&`/' | paste -sd ' ')
    rows[$name]="| $name | $(header why "$mutation") | $names | $verdict |"
done
echo "$judged mutations, $missed not caught"
[ -z "$sample" ] || exit $((missed > 0))

# The rows of this run, and the table's own for mutations that it left out.
all_rows() {
    for mutation in "$mutations"/*.mutation; do
        name=$(basename "$mutation" .mutation)
        if [ -n "${rows[$name]:-}" ]; then echo "${rows[$name]}"; else grep "^| $name |" "$table"; fi
    done
}
all=$(all_rows)
count=$(wc -l <<<"$all")
caught=$(grep -c '| caught[^|]*|$' <<<"$all")
{
    echo '# Mutations'
    echo
    echo "What \`scripts/mutations.sh\` said the last time: for each hazard its fix was taken away by a mutation of"
    echo "\`$mutations\`, and the tests named had to fail. $count mutations, $((count - caught)) not caught."
    echo
    echo '| mutation | what it does | tests | verdict |'
    echo '|---|---|---|---|'
    echo "$all"
} >"$table.new" && mv "$table.new" "$table"
[ $missed = 0 ]
