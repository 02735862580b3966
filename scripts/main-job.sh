#!/usr/bin/env bash
# The main job: a simulated disk with and without order, fio's own zoned jobs on an emulated drive, a verified load from several threads, and the write modes side
# by side. Takes less than a minute and leaves its reports in out/; the drive is removed at the end.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

image=$out/main.zonal
# Longest run of one job, in seconds. fio's random write runs for three minutes otherwise.
runtime=1
# Room that the drive may come to take, with the page cache's speed as the limit of that run.
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
# Where documentation is not installed, as in small containers, make setup unpacks them here.
[ -e "${examples[0]:-}" ] || examples=("$out"/fio-examples/usr/share/doc/fio/examples/zbd-*.fio)
[ -e "${examples[0]:-}" ] || fail "fio's examples are not there; install fio-examples or set FIO_EXAMPLES to their directory"

machine
step "A simulated 30 TB SMR disk: 1 MiB writes in order, a write a zone (as Linux does it) against one on the whole drive (qd1)"
printf '%8s %14s %14s %24s\n' depth per-zone qd1 'published, MB/s'
while read -r depth baseline patched; do
    bench s0 --device sim:smr-hdd-30t --write-mode per-zone,qd1 --report "$out/s0.html" --name=sequential --rw=write \
        --zonemode=zbd --bs=1M --iodepth="$depth" --time_based --runtime=300
    rates=$(grep -E '^ +WRITE: ' "$out/s0.txt" | sed -E 's/.*bw=[^(]*\(([0-9.]+)MB.*/\1/' | tr '\n' ' ')
    # shellcheck disable=SC2086 # two numbers
    printf '%8s %14s %14s %24s\n' "$depth" $rates "$baseline and $patched"
done <<'PUBLISHED'
1 244 245
8 242 245
32 211 245
128 112 246
PUBLISHED
echo "the page of the last row: $out/s0.html; all of the published figures: make experiments"

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

# A small drive in memory: pages that the machine has not touched before would cost more than the write path.
for device in null:size=64G,zone_size=256M,complete=poll,preserves_write_order=1 \
    ram:size=256M,zone_size=16M,preserves_write_order=1; do
    kind=${device%%:*}
    step "Write modes on $device"
    echo "  4 KiB writes for $runtime s each: sequential at depth 16; to random zones at depth 8 from two threads"
    bench "modes-$kind" --device "$device" --write-mode direct,zone-lock,per-zone,qd1,pipelined,append \
        --zonemode=zbd --bs=4k --time_based --runtime=${runtime}s --thread --size=8z --max_open_zones=8 \
        --name=sequential --rw=write --iodepth=16 \
        --name=random --stonewall --rw=randwrite --iodepth=8 --numjobs=2 --group_reporting
    sed -n '/^job  */,$p' "$out/modes-$kind.txt"
done

step "Reports"
for name in fill "${ran[@]}" verify modes-null modes-ram; do
    echo "  $out/$name.json"
done
