#!/usr/bin/env bash
# Fits a built-in profile to the published figures marked as calibrated in experiments/: fit.sh PROFILE [KEY=VALUE...]
# [hold=KEY...]. Prints the result of each try, the best values, and the error of each figure.
set -euo pipefail
cd "$(dirname "$0")/.."

usage="usage: scripts/fit.sh PROFILE [KEY=VALUE...] [hold=KEY...]
Fits the values of PROFILE with source \`fitted\`, and the given ones, to the figures marked as calibrated in experiments/,
starting from the profile's or the given values. All other figures are simulated at the end and listed separately.
Held values are not changed."
case ${1:-} in
    -h | --help | "")
        echo "$usage"
        exit
        ;;
esac
. scripts/lib.sh

cargo run --quiet --release --package zonal-check --bin fit -- "$zonal" "$@"
