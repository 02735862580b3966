#!/usr/bin/env bash
# Repeats experiments/s0-files and experiments/s4-large with Linux's zoned XFS on the simulated disk: xfs-files.sh [ROUNDS].
# The guest of scripts/guest.sh attaches the disk as a SCSI disk in real time, and only Linux orders its writes. Prints a
# table with the published figures, those of zonal-fs on the same disk in virtual time, and each run of XFS, in MB/s.
# The disk keeps the data of its conventional zones, where XFS has its metadata, and of the first zone behind them. The
# guest's processors are emulated; the idle column shows whether they limit a figure. FACTOR=N makes the disk N times
# slower, and the figures are multiplied by N. LOADS selects the loads. An hour for three rounds.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

rounds=${1:-3}
factor=${FACTOR:-1}
uuid=67e55044-10b1-426f-9247-bb680e5fe0e8
work=$(mktemp -d)
server=
clean_up() {
    if [ -n "$server" ]; then kill "$server" 2>/dev/null || true; fi
    wait
    rm -rf "$work"
}
trap clean_up EXIT
export ZONAL_RUNTIME_DIR=$work XDG_CONFIG_HOME=/nonexistent

# Name, experiment, size of the disk, sectors of its largest command, modes, load of beside.py.
all="files256M s0-files 29999809691648 8192 per-zone,qd1 files,8,8,256,256
files2-8M s0-files 29999809691648 8192 per-zone,qd1 files,8,400,2,8
overwrite s4-large 137438953472 2560 qd1 overwrite,128,50"
declare -A options=(
    [s0-files]="--fs-unit=2M"
    [s4-large]="--fs-fill=50 --fs-max-open-zones=8 --fs-zone-order=lowest"
)
conventional=16
zone=$((256 << 20))

# The figures of zonal-fs, and the published ones.
while read -r name experiment size sectors modes _; do
    for mode in ${modes//,/ }; do
        # shellcheck disable=SC2086 # words
        bench "xfs-files-$name-$mode" --device "sim:smr-hdd-30t,size=$size,command_max=$((sectors * 512)),zone_nr_conv=$conventional" \
            --target=fs --write-mode "$mode" ${options[$experiment]} --section "$name" "experiments/$experiment/jobs.fio"
        published=$(sed -n "/^section = \"$name\"/,/^\[\[/s/^published.*[{ ]$mode = \([0-9.]*\).*/\1/p" "experiments/$experiment/experiment.toml")
        echo "$name,$mode ${published:--} $(rate "$out/xfs-files-$name-$mode.json")"
    done
done <<<"$all" >"$work/ours"

# All rates are divided and all times multiplied by the factor.
awk -v factor="$factor" '
    /^[a-z_]+_(us|mb_s) = / {
        value = $6
        gsub(/[_,]/, "", value)
        sub(/value = [0-9._]+/, sprintf("value = %f", $1 ~ /_us$/ ? value * factor : value / factor))
        sub(/, range = \[[^]]*\]/, "")
    }
    { print }' profiles/smr-hdd-30t.toml >"$work/disk.toml"

scripts/guest.sh build
mkdir "$work/share"
cp crates/zonal-check/tests/guest/{lib.sh,beside.py} "$work/share/"
# Boots once for each disk, and runs all its loads.
: >"$out/xfs-files.lines"
for disk in "29999809691648 8192" "137438953472 2560"; do
    read -r size sectors <<<"$disk"
    loads=$(for _ in $(seq "$rounds"); do
        while read -r name _ of _ modes load; do
            case " ${LOADS:-$name} " in *" $name "*) ;; *) continue ;; esac
            if [ "$of" = "$size" ]; then for mode in ${modes//,/ }; do echo "$name,$mode,$load"; done; fi
        done <<<"$all"
    done)
    [ -n "$loads" ] || continue
    shape=zone_size=$zone,blocksize=4096,zone_max_open=128,rotational=1,personality=zbc,max_sectors=$sectors
    kept=$(((conventional + 1) * zone))
    "$zonal" serve "timing:$work/disk.toml+concat:[ram:size=$kept,zone_nr_conv=$conventional,$shape][null:size=$((size - kept)),$shape]" \
        --write-mode direct --uuid "$uuid" --vhost-user-scsi "$work/disk" >"$work/line" 2>"$work/log" &
    server=$!
    for _ in $(seq 100); do
        [ -s "$work/line" ] && break
        sleep 0.1
    done
    [ -s "$work/line" ] || fail "the disk is not served: $(cat "$work/log")"
    # Without the processor's fast string moves, an emulated processor copies data three times as fast.
    scripts/guest.sh run crates/zonal-check/tests/guest/xfs_files.sh --time-out 10000 --memory 4096 --share "$work/share" \
        --cmdline clearcpuid=erms,fsrm --env SCSI="${uuid//-/}" --env FACTOR="$factor" --env LOADS="${loads//$'\n'/ }" \
        --qemu "-object memory-backend-memfd,id=shared,size=4096M,share=on -numa node,memdev=shared" \
        --qemu "-chardev socket,id=disk,path=$work/disk -device vhost-user-scsi-pci,chardev=disk,num_queues=1,virtqueue_size=512,max_sectors=$sectors" |
        tee -a "$out/xfs-files.lines" >&2
    kill "$server"
    wait "$server"
    server=
    : >"$work/line"
done

{
    head -n 1 "$out/xfs-files.lines"
    machine
    awk -v factor="$factor" '
        FNR == NR { ours[$1] = $3; published[$1] = $2; order[++n] = $1; next }
        NF == 5 && $2 ~ /^[0-9]+$/ {
            split($1, words, ",")
            key = words[1] "," words[2]
            runs[key] = runs[key] sprintf(" %.0f", $2 / $3 / 1e6 * factor)
            if (!(key in idle) || $4 < idle[key]) idle[key] = $4
            kib[key] = $5
        }
        /^messages|^failed/ { print }
        END {
            printf "%-10s %-9s %9s %5s %5s %10s  %s\n", "load", "mode", "published", "ours", "idle", "KiB/write", "XFS"
            for (i = 1; i <= n; i++) {
                key = order[i]
                split(key, words, ",")
                if (key in runs) printf "%-10s %-9s %9s %5s %4.0f%% %10d %s\n", words[1], words[2], published[key], ours[key], idle[key] * 100, kib[key], runs[key]
            }
        }' "$work/ours" "$out/xfs-files.lines"
} | tee "$out/xfs-files.txt"
