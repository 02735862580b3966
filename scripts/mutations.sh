#!/usr/bin/env bash
# Does each hazard's test fail when its fix is taken away? For every patch in crates/zonal-check/mutations: a copy of the
# tree with the patch applied, in which the tests that the patch names have to fail, or not to end. The copy is kept in
# out/mutations, so that a second run builds little. Writes the table of docs/MUTATIONS.md; with arguments, only the
# patches whose names begin so, and no table.
set -uo pipefail
cd "$(dirname "$0")/.."

patches=crates/zonal-check/mutations
copy=out/mutations/tree
# A test of these ends in well under a second; one that hangs for this long is caught, too.
patience=${PATIENCE:-30}
tests=(--package zonal-check --test hazards)

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

in_copy() { (cd "$copy" && CARGO_TARGET_DIR=../target "$@"); }

# One test in the copy: caught, missed, or what went wrong.
judge() {
    local log=out/mutations/log.txt
    in_copy timeout "$patience" cargo test --quiet "${tests[@]}" -- --test-threads 1 "$1" >"$log" 2>&1
    local status=$?
    if grep -q '^running 0 tests' "$log"; then
        echo "no such test"
    elif [ $status = 0 ]; then
        echo missed
    elif [ $status = 124 ]; then
        echo "caught: does not end"
    else
        echo caught
    fi
}

header() { sed -n "s/^$1: //p" "$2"; }

copy_tree || exit 1
echo "building"
in_copy cargo test --quiet "${tests[@]}" --no-run || exit 1
in_copy timeout 300 cargo test --quiet "${tests[@]}" >/dev/null || { echo "the tests fail as they are" >&2; exit 1; }

rows=() missed=0 count=0
for patch in "$patches"/"${1:-}"*.patch; do
    name=$(basename "$patch" .patch)
    if ! in_copy patch --quiet --strip 1 --forward --no-backup-if-mismatch <"$patch" >/dev/null; then
        verdict="does not apply"
    elif ! in_copy cargo test --quiet "${tests[@]}" --no-run >out/mutations/log.txt 2>&1; then
        verdict="does not build"
    else
        verdict=
        for test in $(header test "$patch"); do
            one=$(judge "$test")
            case $one in caught*) ;; *) verdict="$one: $test" ;; esac
            [ -n "$verdict" ] || verdict=$one
        done
    fi
    copy_tree
    count=$((count + 1))
    case $verdict in caught*) ;; *) missed=$((missed + 1)) ;; esac
    printf '%-32s %s\n' "$name" "$verdict"
    names=$(header test "$patch" | sed 's/.*/`&`/' | paste -sd ' ')
    rows+=("| $name | $(header why "$patch") | $names | $verdict |")
done

echo "$count patches, $missed not caught"
if [ $# = 0 ]; then
    {
        echo '# Mutations'
        echo
        echo "What \`scripts/mutations.sh\` said the last time: for each hazard its fix was taken away by a patch of"
        echo "\`$patches\`, and the tests named had to fail. $count patches, $missed not caught."
        echo
        echo '| patch | what it does | tests | verdict |'
        echo '|---|---|---|---|'
        printf '%s\n' "${rows[@]}"
    } >docs/MUTATIONS.md
fi
[ $missed = 0 ]
