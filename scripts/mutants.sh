#!/usr/bin/env bash
# Mutates what changed in zonal-core and zonal-sim since COMMIT, by default that of `check.sh --for` or of .ci/checked, with cargo-mutants:
# mutants.sh [COMMIT]. It fails for a mutation that no test of the crate catches. out/mutants.out has the details.
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
# Only what a mutation is in is compiled again.
CARGO_INCREMENTAL=1 cargo mutants --package zonal-core --package zonal-sim --in-diff out/mutants.diff --colors never --output out
