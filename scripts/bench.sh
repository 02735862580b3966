#!/usr/bin/env bash
# Measures the write path. Writes a table of ratios within one run to out/bench.txt, and as JSON to out/bench.json.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

cargo bench --quiet --package zonal-check --bench write_path -- --json "$PWD/$out/bench.json" "$@" | tee "$out/bench.txt"
echo "JSON: $out/bench.json"
