#!/usr/bin/env bash
# Makes published experiments again, each a folder of experiments/: experiments.sh [--tiny] [--rounds N] [NAME...]. Prints a
# table of each beside the published figures and leaves it in out/, as text and as JSON with the commands to repeat a row.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

options=()
while [[ ${1:-} == --* ]]; do
    options+=("$1")
    if [ "$1" = --rounds ]; then
        options+=("${2:?--rounds N}")
        shift
    fi
    shift
done
cargo run --quiet --release --package zonal-check --bin experiments -- "${options[@]}" "$zonal" "$out" "$@"
