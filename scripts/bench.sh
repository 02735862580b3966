#!/usr/bin/env bash
# Measures the write path: a table of ratios within one run, kept in out/bench.txt, and the same as JSON in out/bench.json.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

cargo bench --quiet --package zonal-check --bench write_path -- --json "$PWD/$out/bench.json" "$@" | tee "$out/bench.txt"
echo "JSON: $out/bench.json"
