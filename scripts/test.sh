#!/usr/bin/env bash
# Everything that has to pass before a change lands, and how long each step of it takes: test.sh [--write]. --write keeps the times in
# docs/TESTS.md.
set -euo pipefail
cd "$(dirname "$0")/.."

table=docs/TESTS.md
said=out/tests.md
make=${MAKE:-make}
steps=
mkdir -p out

# Runs a step and notes its seconds: step NAME COMMAND...
step() {
    local name=$1 begin=$SECONDS
    shift
    printf '\n== %s\n' "$name"
    "$@"
    steps+="| $((SECONDS - begin)) | $name |"$'\n'
}

step "format, clippy, documentation" "$make" --no-print-directory lint
step "the guest's machine" scripts/guest.sh build
step "building the tests' runner" cargo build --quiet --package zonal-check --bin suite
step "tests, and building them" cargo run --quiet --package zonal-check --bin suite -- --write "$said"
step "examples of the documentation" cargo test --quiet --workspace --doc
step "schedules of threads" "$make" --no-print-directory loom
step "instructions" scripts/instructions.sh --if-there
step "ten mutations" scripts/mutations.sh --sample 10
steps+="| $SECONDS | all |"

printf '\n| seconds | step |\n|---|---|\n%s\n' "$steps"
[ "${1:-}" = --write ] || exit 0
cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)
{
    printf '# Tests\n\nHow long `make test` took, step by step: `scripts/test.sh --write` runs it and writes this page. '
    printf 'Measured on %s x %s.\n\n' "$(nproc)" "${cpu:-$(uname -m)}"
    printf '| seconds | step |\n|---|---|\n%s\n\n## Slowest tests\n\n' "$steps"
    cat "$said"
} >"$table"
