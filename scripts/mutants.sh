#!/usr/bin/env bash
# Mutates the lines of zonal-core and zonal-sim changed since COMMIT with cargo-mutants: mutants.sh [COMMIT], by default the commit of
# `check.sh --for` or .ci/checked. Draws as many mutations as MUTANTS_SECONDS (default 600) allow, and prints those that no test catches. These are for
# the author to read, and no failure: a program cannot tell a missing test from a mutation that changes nothing that can be seen.
# out/mutants.out has the details.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/tool.sh

since=${1:-${CHECK_SINCE:-$(head -n 1 .ci/checked)}}
tool cargo-mutants
mkdir -p out
# As cargo-mutants reads it, whatever git is set to; with files that are not tracked yet, by an index of their own.
index=$(mktemp)
trap 'rm -f "$index"' EXIT
cp "$(git rev-parse --git-path index)" "$index"
GIT_INDEX_FILE=$index git add --intent-to-add crates/zonal-core/src crates/zonal-sim/src
GIT_INDEX_FILE=$index git diff --no-ext-diff --no-color --src-prefix=a/ --dst-prefix=b/ "$since" -- \
    crates/zonal-core/src crates/zonal-sim/src >out/mutants.diff
if [ ! -s out/mutants.diff ]; then
    echo "nothing of zonal-core and zonal-sim has changed since $since"
    exit
fi
# A mutation recompiles its own crate only.
status=0
CARGO_INCREMENTAL=1 timeout --foreground --signal=INT --kill-after=60 "${MUTANTS_SECONDS:-600}" cargo mutants --package zonal-core \
    --package zonal-sim --in-diff out/mutants.diff --shuffle --colors never --output out || status=$?
# 2: some were missed, 3: the tests of some did not end, 124 and 130: the time was over.
case $status in 0 | 2 | 3 | 124 | 130) ;; *) exit $status ;; esac
lines() { grep -c . "out/mutants.out/$1.txt" 2>/dev/null || true; }
judged=$(($(lines caught) + $(lines missed)))
echo "$(lines caught) caught, $(lines missed) missed, $(lines timeout) undecided, $(lines unviable) that do not build"
[ "$judged" -gt 0 ] || { echo "no mutation was judged" >&2 && exit 1; }
sed 's/^/missed: /' out/mutants.out/missed.txt
