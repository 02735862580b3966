#!/usr/bin/env bash
# Compares `zonal mount` with Linux's zoned XFS: against-xfs.sh [KIND...], with the kinds zonal and xfs. Each kind has
# its own drives, exported by `zonal serve` and attached by the Linux of scripts/guest.sh: 64 zones of 8 MiB and, for
# XFS's metadata, 40 conventional ones. The first drive has no faults (plain); the second has the timing of an SMR disk
# (disk). On the others, one write to a sequential zone fails with a medium error (medium), or its zone becomes
# read-only (read-only). Prints a table with the duration of each load, the write amplification as counted by the drive,
# and the consequences of the failed write. The guest's processor is emulated, so rates can only be compared with each
# other. DRIVES selects drives. The loads are in crates/zonal-check/tests/guest/beside.py.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

kinds=(zonal xfs)
if [ $# -gt 0 ]; then kinds=("$@"); fi
work=$(mktemp -d)
servers=()
clean_up() {
    for server in "${servers[@]}"; do kill "$server" 2>/dev/null || true; done
    wait
    rm -rf "$work"
}
trap clean_up EXIT
export ZONAL_RUNTIME_DIR=$work XDG_CONFIG_HOME=/nonexistent

fault() { printf '[[rule]]\non = "writes"\nzones = "40-"\nskip = 24\ncount = 1\n%s\n' "$2" >"$work/$1.toml"; }
fault medium $'fault = "refuse"\nerror = "medium"'
fault read-only 'fault = "read-only"'

scripts/guest.sh build
mkdir "$work/share"
cp "$zonal" crates/zonal-check/tests/guest/{lib.sh,beside.py} "$work/share/"
drives=()
for kind in "${kinds[@]}"; do
    for name in ${DRIVES:-plain disk medium read-only}; do
        image=$work/$kind-$name
        "$zonal" create "$image" --size 832M --zone-size 8M --zone-nr-conv 40 --zone-max-open 14 --zone-max-active 14 >/dev/null
        case $name in
            plain) device=$image ;;
            disk) device=timing:smr-hdd-26t+$image ;;
            *) device=fault:plan=$work/$name.toml+$image ;;
        esac
        "$zonal" serve "$device" --listen 127.0.0.1:0 >"$image.line" 2>"$image.log" &
        servers+=($!)
        for _ in $(seq 100); do
            [ -s "$image.line" ] && break
            sleep 0.1
        done
        read -r _ _ address nqn _ <"$image.line" || fail "$device is not served: $(cat "$image.log")"
        drives+=("$kind,$name,${address##*:},$nqn")
    done
done
scripts/guest.sh run crates/zonal-check/tests/guest/beside.sh --time-out 3000 --memory 2048 --share "$work/share" \
    --cmdline nvme_core.multipath=N --env "DRIVES=${drives[*]}" | tee "$out/against-xfs.lines" >&2

{
    head -n 1 "$out/against-xfs.lines"
    machine
    awk '
        $2 ~ /^(plain|disk)$/ && $4 ~ /^[0-9]+$/ && NF == 7 {
            key = $2 " " $3
            if (!(key in seen)) { seen[key] = 1; order[++n] = key }
            seconds[key, $1] = $5; amplified[key, $1] = $4 ? $7 / $4 : 0; operations[key] = $6
        }
        END {
            printf "%-6s %-15s %6s %10s %10s %7s %12s %12s\n", "drive", "load", "ops", "zonal s", "XFS s", "ratio", "zonal bytes", "XFS bytes"
            for (i = 1; i <= n; i++) {
                key = order[i]; split(key, words, " ")
                ours = seconds[key, "zonal"]; theirs = seconds[key, "xfs"]
                printf "%-6s %-15s %6d %10.2f %10.2f %7.2f %12.2f %12.2f\n", words[1], words[2], operations[key], ours, theirs,
                    ours ? theirs / ours : 0, amplified[key, "zonal"], amplified[key, "xfs"]
            }
        }' "$out/against-xfs.lines"
    echo
    awk '
        / dirty pages: / { next }
        $2 !~ /^(plain|disk)$/ && $3 ~ /^(write|verify|write_again|unmount|mount_again|failed_units|said)$/ { print }
        $4 == "failed" || $4 == "failed:" { print }' "$out/against-xfs.lines"
} | tee "$out/against-xfs.txt"
