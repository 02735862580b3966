#!/usr/bin/env bash
# Mutation tests with cargo-mutants of the lines of zonal-core and zonal-sim changed since COMMIT: mutants.sh [COMMIT],
# by default the commit of `check.sh --for` or .ci/checked. Tries as many random mutations as fit into MUTANTS_SECONDS
# (default 600), and prints the ones missed by all tests. They are meant for the author and are not a failure: a program
# cannot distinguish a missing test from a mutation without an observable effect. Details are in out/mutants.out.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/tool.sh

since=${1:-${CHECK_SINCE:-$(head -n 1 .ci/checked)}}
tool cargo-mutants
mkdir -p out
# In the format expected by cargo-mutants, independently of git's settings. Untracked files are included by means of a
# separate index.
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
# A mutation recompiles only its own crate.
status=0
CARGO_INCREMENTAL=1 timeout --foreground --signal=INT --kill-after=60 "${MUTANTS_SECONDS:-600}" cargo mutants --package zonal-core \
    --package zonal-sim --in-diff out/mutants.diff --shuffle --colors never --output out || status=$?
# 2: some were missed, 3: some tests timed out, 124 and 130: out of time.
case $status in 0 | 2 | 3 | 124 | 130) ;; *) exit $status ;; esac
lines() { grep -c . "out/mutants.out/$1.txt" 2>/dev/null || true; }
judged=$(($(lines caught) + $(lines missed)))
echo "$(lines caught) caught, $(lines missed) missed, $(lines timeout) undecided, $(lines unviable) that do not build"
[ "$judged" -gt 0 ] || { echo "no mutation was judged" >&2 && exit 1; }
sed 's/^/missed: /' out/mutants.out/missed.txt
