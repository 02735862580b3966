#!/usr/bin/env bash
# Fits a profile that comes with the program to the published figures that experiments/ calls calibrated: fit.sh PROFILE
# [KEY=VALUE...] [hold=KEY...]. Prints what each value comes to, the values that fit best, and how far off each figure is.
set -euo pipefail
cd "$(dirname "$0")/.."

usage="usage: scripts/fit.sh PROFILE [KEY=VALUE...] [hold=KEY...]
Fits the values of PROFILE whose source is fitted, and the given ones, to the figures that experiments/ calls calibrated,
beginning with its own values or with the given ones. Figures that are not called so are simulated in the end, and told apart.
The search leaves a value that is held as it is."
case ${1:-} in
    -h | --help | "")
        echo "$usage"
        exit
        ;;
esac
. scripts/lib.sh

cargo run --quiet --release --package zonal-check --bin fit -- "$zonal" "$@"
