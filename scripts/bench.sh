#!/usr/bin/env bash
# The write modes side by side, with the direct one as baseline: median of ROUNDS runs of a second each, and their spread.
# Then the cost of one write through each layer. Takes about four minutes; the table is kept in out/bench.txt.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

rounds=${ROUNDS:-5}

# Job, place of the mode, mode and IOPS of every run, to median and spread.
table() {
    sort -k1,1 -k2,2n -k4,4n | cut -d' ' -f1,3- | awk '
        function flush() {
            if (!n) return
            median = n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2
            if (mode == "direct") base[job] = median
            row[++rows] = job; modes[rows] = mode; med[rows] = median; low[rows] = v[1]; high[rows] = v[n]
            n = 0
        }
        { if ($1 != job || $2 != mode) flush(); job = $1; mode = $2; v[++n] = $3 }
        END {
            flush()
            printf "  %-22s %-9s %12s %23s %7s\n", "job", "mode", "median IOPS", "lowest - highest", "ratio"
            for (i = 1; i <= rows; i++)
                printf "  %-22s %-9s %12d %11d - %9d %6.2fx\n", row[i], modes[i], med[i], low[i], high[i], \
                    base[row[i]] ? med[i] / base[row[i]] : 0
        }'
}

runs() {
    local device=$1
    for _ in $(seq "$rounds"); do
        bench bench-run --device "$device" --write-mode direct,per-zone,append \
            --zonemode=zbd --time_based --runtime=1s --thread --size=8z --max_open_zones=8 --group_reporting \
            --name=seq-4k-depth1 --stonewall --rw=write --bs=4k --iodepth=1 \
            --name=seq-4k-depth16 --stonewall --rw=write --bs=4k --iodepth=16 \
            --name=seq-128k-depth16 --stonewall --rw=write --bs=128k --iodepth=16 \
            --name=rand-4k-2x-depth8 --stonewall --rw=randwrite --bs=4k --iodepth=8 --numjobs=2
        awk '$3 ~ /^(direct|per-zone|append)$/ { print $1, ++place[$1], $3, $4 }' "$out/bench-run.txt"
    done | table
}

{
    machine
    echo "$rounds runs of each"
    # A small drive in memory: pages that the machine has not touched before would cost more than the write path.
    for device in null:size=64G null:size=64G,complete=poll ram:size=256M,zone_size=16M; do
        echo
        echo "$device"
        runs "$device"
    done
    echo
    echo "Cost of one command to a device, and of one write through a volume"
    for example in device_cost volume_cost; do
        cargo run --quiet --release --package zonal-io --example "$example"
    done
} | tee "$out/bench.txt"
