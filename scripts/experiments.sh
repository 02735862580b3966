#!/usr/bin/env bash
# Reproduces published experiments, each in a directory of experiments/: experiments.sh [--tiny] [--rounds N] [NAME...].
# Prints the results beside the published figures and stores them in out/, as text and as JSON with the commands to
# repeat each row.
set -euo pipefail
cd "$(dirname "$0")/.."

usage="usage: scripts/experiments.sh [--tiny] [--rounds N] [NAME...]
Reproduces published experiments: the named ones, or all except s4-whole-disk and s0-kernel. experiments/README.md describes each of
them and its duration. --rounds: measurements per row, default 3; --tiny: a quick run to check that they work. The tables are
left in out/."
for argument in "$@"; do
    case $argument in
        -h | --help)
            echo "$usage"
            exit
            ;;
    esac
done
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
