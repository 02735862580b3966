#!/usr/bin/env bash
# Cost of a request in the fio engine compared with fio's own null engine, measured alternately in one run of fio with
# the same job and zone size. Prints medians and spread over several rounds, in nanoseconds per request.
#
#   scripts/fio-cost.sh [ROUNDS [MILLISECONDS]]   default 15 rounds of 300 ms
set -euo pipefail
cd "$(dirname "$0")/.."

rounds=${1:-15}
milliseconds=${2:-300}
engine=$(scripts/fio-engine.sh)
case $engine in /*) ;; *) engine=$PWD/$engine ;; esac
size=64G
zone=256M

# Adds a job: job NAME ENGINE-OPTIONS...
job() {
    local name=$1
    shift
    jobs+=(--name="$name" --stonewall "$@" --zonemode=zbd --zonesize=$zone --size=$size --bs=4k --thread --direct=1
        --gtod_reduce=1 --time_based --runtime="${milliseconds}ms" "${workload[@]}")
}

printf '%-26s %21s %21s %9s\n' "ns a request" "fio's null" "zonal, null device" "more"
measure() {
    local label=$1 device=$2 round
    shift 2
    workload=("$@")
    jobs=()
    for ((round = 0; round < rounds; round++)); do
        job null --ioengine=null --filename=null
        job zonal --ioengine="external:$engine" --device="$device"
    done
    fio --output-format=terse --terse-version=3 "${jobs[@]}" | awk -F';' -v label="$label" '
        $1 == 3 { n = ++count[$3]; ios = $8 + $49; ns[$3, n] = 1e9 / ios }
        function sorted(name, to,    i, j, t) {
            for (i = 1; i <= count[name]; i++) to[i] = ns[name, i]
            for (i = 2; i <= count[name]; i++)
                for (j = i; j > 1 && to[j] < to[j - 1]; j--) { t = to[j]; to[j] = to[j - 1]; to[j - 1] = t }
        }
        function cell(of, n) { return sprintf("%5.0f (%5.0f ..%6.0f)", of[int((n + 1) / 2)], of[int((n + 3) / 4)], of[int((3 * n + 3) / 4)]) }
        END {
            if (!count["null"] || count["null"] != count["zonal"]) { print "fio-cost: fio did not finish" > "/dev/stderr"; exit 1 }
            n = count["null"]
            sorted("null", a); sorted("zonal", b)
            # Compares adjacent runs, not halves of the whole.
            for (i = 1; i <= n; i++) ns["more", i] = ns["zonal", i] - ns["null", i]
            count["more"] = n; sorted("more", c)
            printf "%-26s %21s %21s %21s\n", label, cell(a, n), cell(b, n), cell(c, n)
        }'
}

measure "write, depth 1" "null:size=$size,zone_size=$zone" --rw=write --iodepth=1
measure "write, depth 16" "null:size=$size,zone_size=$zone" --rw=write --iodepth=16
measure "random read, depth 16" "null:size=$size,zone_size=$zone" --rw=randread --iodepth=16 --read_beyond_wp=1 --norandommap
measure "write, depth 16, polled" "null:size=$size,zone_size=$zone,complete=poll" --rw=write --iodepth=16
