#!/usr/bin/env bash
# The long campaigns: power cuts of an image and random operations through a volume, many times what `make test` does;
# every hazard's test against the code with its fix removed; then random loads on random drives, every block verified, for
# so many minutes (default 10). What fails can be run again: seeds and commands are printed, the drive is kept.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

minutes=${1:-10}
: "${ZONAL_CUTS:=20000}" "${ZONAL_OPS:=1000000}"
export ZONAL_CUTS ZONAL_OPS

step "Power cuts: $ZONAL_CUTS cases; operations: $ZONAL_OPS"
cargo test --release --quiet --package zonal-io --package zonal-check

if [ -x scripts/mutations.sh ]; then
    step "Hazards: each test with its fix removed"
    scripts/mutations.sh
fi

step "Random loads on random drives, $minutes min"
image=$out/soak.zonal
end=$(($(date +%s) + minutes * 60))
runs=0

# One of its arguments.
one_of() {
    shift $((RANDOM % $#))
    echo "$1"
}

while [ "$(date +%s)" -lt "$end" ]; do
    # Geometry: a few hundred MiB in zones that fill up soon.
    capacity=$(one_of 16M 12M 15M)
    open=$(one_of 0 4 12 14)
    rm -f "$image"
    create=(create "$image" --size 512M --zone-size 16M --zone-capacity "$capacity"
        --zone-nr-conv "$(one_of 0 1 5)" --zone-max-open "$open"
        --zone-append-max-sectors "$(one_of 0 256 4294967295)" --personality "$(one_of zns zbc)")
    bs=$(one_of 4k 8k 16k 64k)
    load=(bench --device "$image" --name=soak --randseed="$RANDOM$RANDOM" --thread --group_reporting --zonemode=zbd --verify=crc32c --offset=8z --size=24z
        --rw="$(one_of write randwrite)" --bs="$bs" --iodepth="$(one_of 1 4 32 128)" --numjobs="$(one_of 1 2 4)"
        --io_size="$(one_of 8M 32M 64M)" --max_open_zones="$(one_of 4 8)"
        --write-mode "$(one_of per-zone per-zone append direct)")
    if [[ "${create[*]}" == *"--zone-append-max-sectors 0"* || "${load[*]}" == *"--max_open_zones=8"* && $open = 4 ]]; then
        load=("${load[@]/--max_open_zones=8/--max_open_zones=4}")
        load=("${load[@]/#append/per-zone}")
    fi
    "$zonal" "${create[@]}" >/dev/null
    if ! "$zonal" "${load[@]}" --output "$out/soak.txt"; then
        printf '%q ' "$zonal" "${create[@]}" && echo
        printf '%q ' "$zonal" "${load[@]}" && echo
        fail "run $((runs + 1)) failed; the drive is $image, the report $out/soak.txt"
    fi
    runs=$((runs + 1))
done
rm -f "$image" "$out/soak.txt"
echo "$runs runs in $minutes min, every block verified"
