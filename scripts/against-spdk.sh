#!/usr/bin/env bash
# Compares `zonal serve` with the nvmf target of SPDK: against-spdk.sh SPDK ROUNDS [SECONDS]. SPDK is a built source
# tree of it, outside of this one. Both targets serve a device without data, poll on core 0, and are driven by SPDK's
# perf on core 1 through one I/O queue with blocks of 4 KiB. They are measured alternately. Prints the medians of
# operations per second for each load, and their ratio. On the side of zonal, the conventional namespace is used,
# because a zoned one cannot be written at random. Needs root, for a network namespace of its own with congestion
# control cubic. With C2H_SUCCESS=false SPDK's target sends a completion after the data of each read, as zonal does on
# queues with flow control, such as those of SPDK's perf.
set -euo pipefail
cd "$(dirname "$0")/.."
spdk=$1 rounds=${2:-3} seconds=${3:-2}
zonal=${ZONAL:-${CARGO_TARGET_DIR:-target}/release/zonal}

if [ -z "${INSIDE:-}" ]; then
    INSIDE=1 exec unshare --net "$0" "$@"
fi
ip link set lo up
for net in 127.0.0.0/8 127.0.0.1; do
    ip route replace local $net dev lo table local proto kernel scope host src 127.0.0.1 congctl cubic
done

work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$work"' EXIT
nqn=nqn.2020-01.org.example:null
cat >"$work/spdk.json" <<END
{"subsystems": [
  {"subsystem": "bdev", "config": [
    {"method": "bdev_null_create", "params": {"name": "Null0", "num_blocks": 8388608, "block_size": 4096}}]},
  {"subsystem": "nvmf", "config": [
    {"method": "nvmf_create_transport", "params": {"trtype": "TCP", "max_queue_depth": 256, "in_capsule_data_size": 8192,
      "c2h_success": ${C2H_SUCCESS:-true}}},
    {"method": "nvmf_create_subsystem", "params": {"nqn": "$nqn", "allow_any_host": true, "serial_number": "1"}},
    {"method": "nvmf_subsystem_add_ns", "params": {"nqn": "$nqn", "namespace": {"bdev_name": "Null0"}}},
    {"method": "nvmf_subsystem_add_listener", "params": {"nqn": "$nqn", "listen_address":
      {"trtype": "TCP", "adrfam": "IPv4", "traddr": "127.0.0.1", "trsvcid": "4420"}}}]}]}
END

start() {
    case $1 in
        spdk) exec taskset -c 0 "$spdk/build/bin/nvmf_tgt" -m 0x1 --no-huge -s 512 -c "$work/spdk.json" -r "$work/sock" ;;
        zonal)
            ZONAL_RUNTIME_DIR=$work exec taskset -c 0 "$zonal" serve --poll --nqn $nqn \
                null:size=34G,blocksize=4096,zone_nr_conv=128
            ;;
    esac >"$work/log" 2>&1 &
    target=$!
    for _ in $(seq 100); do
        (: </dev/tcp/127.0.0.1/4420) 2>/dev/null && return
        sleep 0.1
    done
    cat "$work/log" >&2
    exit 1
}

load() {
    local namespace
    case $1 in spdk) namespace=1 ;; zonal) namespace=2 ;; esac
    "$spdk/build/bin/spdk_nvme_perf" -c 0x2 --no-huge -s 512 -q "$3" -o 4096 -w "$2" -t "$seconds" -P 1 \
        -r "trtype:TCP adrfam:IPv4 traddr:127.0.0.1 trsvcid:4420 subnqn:$nqn hostnqn:$nqn ns:$namespace" 2>"$work/perf" |
        awk -v what="$2 $3 $1" '/^Total/ { print what, $3 }'
}

for _ in $(seq "$rounds"); do
    for name in spdk zonal; do
        start $name
        for pattern in randread randwrite; do
            for depth in 1 32 128; do
                load $name $pattern $depth
            done
        done
        kill $target
        wait $target || true
    done
done | awk '
    { n = ++count[$1 " " $2 " " $3]; of[$1 " " $2 " " $3, n] = $4 }
    function median(key,   i, j, n, t, v) {
        n = count[key]
        for (i = 1; i <= n; i++) v[i] = of[key, i]
        for (i = 1; i <= n; i++) for (j = i + 1; j <= n; j++) if (v[j] < v[i]) { t = v[i]; v[i] = v[j]; v[j] = t }
        return v[int((n + 1) / 2)]
    }
    END {
        printf "%-10s %5s %9s %9s %6s\n", "load", "depth", "SPDK", "zonal", "ratio"
        split("randread randwrite", patterns); split("1 32 128", depths)
        for (p = 1; p <= 2; p++) for (d = 1; d <= 3; d++) {
            load = patterns[p] " " depths[d]; theirs = median(load " spdk"); ours = median(load " zonal")
            printf "%-10s %5s %9.0f %9.0f %6.2f\n", patterns[p], depths[d], theirs, ours, theirs ? ours / theirs : 0
        }
    }'
