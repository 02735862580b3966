#!/usr/bin/env bash
# The main job: simulates a 30 TB disk in two write modes, then runs fio's own zoned jobs on an emulated drive, a
# verified load from several threads, and a comparison of the write modes. Takes less than a minute and leaves its
# reports in out/; the drive is removed at the end.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

image=$out/main.zonal
# Maximum runtime of a job, in seconds. fio's random write would run for three minutes.
runtime=1
# Rounds of the comparison of write modes. A single one gives no ratio.
rounds=5
# Space that the drive may take, limited by the page cache's speed in that run.
need_mib=6144

trap 'rm -f "$image"' EXIT
rm -f "$image"
free_mib=$(df -Pm "$out" | awk 'NR == 2 { print $4 }')
[ "$free_mib" -ge "$need_mib" ] || fail "$out has $free_mib MiB left; the drive may need $need_mib"

examples=()
if [ -n "${FIO_EXAMPLES:-}" ]; then
    examples=("$FIO_EXAMPLES"/zbd-*.fio)
elif command -v dpkg >/dev/null; then
    mapfile -t examples < <(dpkg -L fio-examples 2>/dev/null | grep -E '/zbd-[^/]*\.fio$' | sort -r)
fi
# On systems that do not install documentation, such as small containers, make setup unpacks it here.
[ -e "${examples[0]:-}" ] || examples=("$out"/fio-examples/usr/share/doc/fio/examples/zbd-*.fio)
[ -e "${examples[0]:-}" ] || fail "fio's examples are not there; install fio-examples or set FIO_EXAMPLES to their directory"

# One line of the rehearsal: rehearse NAME OPTION=VALUE JOBFILE SECTION WORDS PUBLISHED-PER-ZONE PUBLISHED-QD1
rehearse() {
    local mode rates=()
    for mode in per-zone qd1; do
        bench "$1-$mode" --device sim:smr-hdd-30t --write-mode "$mode" --set "$2" --section "$4" "$3" 2>/dev/null
        rates+=("$(rate "$out/$1-$mode.json")")
    done
    awk -v what="$5" -v a="${rates[0]}" -v b="${rates[1]}" -v p="$6" -v q="$7" 'BEGIN {
        printf "  %-34s %8d %8d %7.2fx %11d %8d %7.2fx\n", what, a, b, b / a, p, q, q / p }'
}

# Combines the tables of several rounds, with ratios to the first mode of each job: compare FILE...
compare() {
    awk '
        function middle(values, n,    i, j, t) {
            for (i = 2; i <= n; i++)
                for (j = i; j > 1 && values[j] < values[j - 1]; j--) {
                    t = values[j]; values[j] = values[j - 1]; values[j - 1] = t
                }
            least = values[1]; most = values[n]
            return values[int((n + 1) / 2)]
        }
        FNR == 1 { inside = 0; round++ }
        /^job  / { inside = 1; next }
        inside && NF == 9 {
            key = $1 " " $3
            if (!(key in seen)) { seen[key] = 1; order[++keys] = key }
            if (!($1 in first)) first[$1] = key
            iops[key, round] = $4; commands[key, round] = $8
        }
        # Jobs on the same device share its commands: their table has one figure per mode.
        /^cmds\/write, all jobs of a mode: / {
            sub(/^[^:]*: /, "")
            n = split($0, each, ", ")
            for (i = 1; i <= n; i++) { split(each[i], word, " "); shared[word[1], round] = word[2] }
        }
        END {
            printf "  %-11s %-10s %11s %25s %11s %7s %15s\n",
                "job", "mode", "IOPS", "", "cmds/write", "ratio", ""
            for (k = 1; k <= keys; k++) {
                split(order[k], name, " ")
                for (r = 1; r <= round; r++) {
                    a[r] = iops[order[k], r]; c[r] = commands[order[k], r]
                    if (c[r] == "-") c[r] = shared[name[2], r]
                    b[r] = a[r] / iops[first[name[1]], r]
                }
                m = middle(a, round); range = sprintf("%d to %d", least, most)
                ratio = middle(b, round); spread = sprintf("%.2f to %.2f", least, most)
                printf "  %-11s %-10s %11d %25s %11s %6.2fx %15s\n",
                    name[1], name[2], m, range, middle(c, round), ratio, spread
            }
        }' "$@"
}

machine
step "Rehearsal: a simulated 30 TB SMR disk, MB/s; one write at a time per zone, or one on the whole drive"
printf '  %-34s %26s %29s\n' "" "simulated" "published in 2026"
printf '  %-34s %8s %8s %8s %11s %8s %8s\n' "1 MiB writes" per-zone qd1 ratio per-zone qd1 ratio
rehearse s0-depth-1 iodepth=1 experiments/s0-depth/jobs.fio seqw1M "one job, in order, depth 1" 244 245
rehearse s0-depth-32 iodepth=32 experiments/s0-depth/jobs.fio seqw1M "one job, in order, depth 32" 211 245
rehearse s0-depth-128 iodepth=128 experiments/s0-depth/jobs.fio seqw1M "one job, in order, depth 128" 112 246
rehearse s0-zones-8 max_open_zones=8 experiments/s0-zones/jobs.fio rndw1M "16 jobs, at random, 8 zones" 90 120
rehearse s0-zones-128 max_open_zones=128 experiments/s0-zones/jobs.fio rndw1M "16 jobs, at random, 128 zones" 55 99
echo "  for details and errors see scripts/experiments.sh s0-depth s0-zones, and docs/SIM.md"
bench s0 --device sim:smr-hdd-30t --write-mode per-zone,qd1 --set iodepth=128 --report "$out/s0.html" \
    experiments/s0-depth/jobs.fio 2>/dev/null

step "A drive of 160 GiB: 8 conventional zones, 240 of each 256 MiB writable, 128 open and active zones"
"$zonal" create "$image" --size 160G --zone-size 256M --zone-capacity 240M --zone-nr-conv 8 \
    --zone-max-open 128 --zone-max-active 128
"$zonal" info "$image" | grep '^write mode'

step "First fill: 16 MiB in each of the 40 zones that fio's sequential read will read"
bench fill --device "$image" --name=fill --rw=write --zonemode=zbd --bs=1M --thread --group_reporting \
    --numjobs=40 --offset=140660178944 --offset_increment=256M --size=256M --io_size=16M
summary fill
"$zonal" report "$image" --offset $((140660178944 / 512)) --count 2

ran=()
for job in "${examples[@]}"; do
    name=$(basename "$job" .fio)
    ran+=("$name")
    step "$job, as it is but for:"
    bench "$name" --device "$image" --set "runtime=$runtime" "$job"
    summary "$name"
    read=$(bytes read "$out/$name.json")
    write=$(bytes write "$out/$name.json")
    case $name in
        *read*) [ "$read" -gt 0 ] || fail "$name read nothing" ;;
        *write*) [ "$write" -gt 0 ] || fail "$name wrote nothing" ;;
    esac
done

step "Four threads at depth 32, every block verified from the closed and reopened drive; the drive's plugs meanwhile"
bench verify --device "$image" --name=verify --rw=randwrite --zonemode=zbd --bs=16k --iodepth=32 --thread \
    --numjobs=4 --group_reporting --offset=100z --size=32z --io_size=256M --max_open_zones=16 --verify=crc32c &
job=$!
for _ in $(seq 100); do
    if plugs=$("$zonal" plugs "$image" 2>/dev/null) && [ -n "$plugs" ]; then
        head -3 <<<"$plugs"
        break
    fi
    kill -0 "$job" 2>/dev/null || break
    sleep 0.02
done
wait "$job"
summary verify
verified=$(sed -n 's/^Verify.*: \([0-9]*\) blocks.*/\1/p' "$out/verify.txt")
[ "${verified:-0}" -gt 0 ] || fail "nothing was verified"

# A small drive in memory: page faults would cost more than the write path.
for device in null:size=64G,zone_size=256M,complete=poll,preserves_write_order=1 \
    ram:size=256M,zone_size=16M,preserves_write_order=1; do
    kind=${device%%:*}
    step "Write modes on $device"
    echo "  4 KiB writes: sequential at depth 16; to random zones at depth 8 from two threads"
    echo "  $rounds rounds of 0.2 s, the modes in turn: medians, and the range of all rounds"
    tables=()
    for round in $(seq "$rounds"); do
        bench "modes-$kind-$round" --device "$device" \
            --write-mode direct,zone-lock,per-zone,qd1,pipelined,append \
            --zonemode=zbd --bs=4k --time_based --runtime=200ms --thread --size=8z --max_open_zones=8 \
            --name=sequential --rw=write --iodepth=16 \
            --name=random --stonewall --rw=randwrite --iodepth=8 --numjobs=2 --group_reporting
        tables+=("$out/modes-$kind-$round.txt")
        ran+=("modes-$kind-$round")
    done
    compare "${tables[@]}"
done

step "Reports"
echo "  $out/s0.html"
for name in s0 fill verify "${ran[@]}"; do
    echo "  $out/$name.json"
done
echo
echo "Open $out/s0.html in a browser: the simulated disk in both write modes."
echo "README.md continues with a drive of your own; docs/BENCH.md explains the reports."
