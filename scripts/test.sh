#!/usr/bin/env bash
# The quick lane, required for every change: test.sh. Prints the duration of each step and of the slowest tests.
#
# test.sh --full SELECTOR... builds and runs tests of the full lane instead, one program at a time. The selectors, such
# as zonal-fs/waiting, are in the table of parts in docs/HACKING.md.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p out

suite() { cargo run --quiet --package zonal-check --bin suite -- "$@"; }

if [ "${1:-}" = --full ]; then
    suite out/full.md "$@"
    exit
fi

steps=
# Runs a step and records its duration: step NAME COMMAND...
step() {
    local name=$1 begin=$SECONDS
    shift
    printf '\n== %s\n' "$name"
    "$@"
    steps+="| $((SECONDS - begin)) | $name |"$'\n'
}

step "format and clippy" "${MAKE:-make}" --no-print-directory lint
step "the guest's machine" scripts/guest.sh build
step "building the tests' runner" cargo build --quiet --package zonal-check --bin suite
step "tests, and building them" suite out/suite.md
step "examples of the documentation" cargo test --quiet --workspace --doc
steps+="| $SECONDS | all |"

printf '\n| seconds | step |\n|---|---|\n%s\n' "$steps"
