#!/usr/bin/env bash
# Makes published experiments again, each a folder of experiments/: experiments.sh [--tiny] [--rounds N] [NAME...]. Prints a
# table of each beside the published figures and leaves it in out/, as text and as JSON with the commands to repeat a row.
set -euo pipefail
cd "$(dirname "$0")/.."

usage="usage: scripts/experiments.sh [--tiny] [--rounds N] [NAME...]
Makes published experiments again: those named, or all but s4-whole-disk and s0-kernel. experiments/README.md says what each is and how
long it takes. --rounds: how often each row is measured, by default 3; --tiny: only to see that they run. The tables are
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
