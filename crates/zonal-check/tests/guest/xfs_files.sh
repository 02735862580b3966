#!/bin/bash
# Loads of beside.py on XFS, on a disk with zones of both kinds. SCSI is the serial number of the
# disk, which is FACTOR times slower than the real one. LOADS is a list of words, each a name, a
# mode (per-zone or qd1) and a load of beside.py without its directory, joined by commas. Prints a
# line for each: the word, bytes, seconds, share of the time in which the processors were idle, and
# KiB of a write at the disk.
set -euo pipefail
. /share/lib.sh

# Idle ticks and total ticks of the processors, and writes and sectors of the disk.
counters() {
    awk '$1 == "cpu" { print $5 + $6, $2 + $3 + $4 + $5 + $6 + $7 + $8 }' /proc/stat
    awk '{ print $5, $7 }' "$device/stat"
}

disk=$(scsi_disk "$SCSI")
device=/sys/block/${disk##*/}
# mq-deadline is Linux's choice for a disk with one queue.
echo mq-deadline >"$device/queue/scheduler"
echo 32 >"$device/device/queue_depth"
echo $((30 * FACTOR)) >"$device/device/timeout"
modprobe xfs
# Times after which Linux writes on its own are as slow as the disk.
for time in vm/dirty_expire_centisecs vm/dirty_writeback_centisecs fs/xfs/xfssyncd_centisecs; do
    echo $(($(cat "/proc/sys/$time") * FACTOR)) >"/proc/sys/$time"
done
mkfs.xfs -q -f -r zoned=1 "$disk" >/dev/null
mount -t xfs "$disk" /mnt
for load in $LOADS; do
    IFS=, read -r _ mode what words <<<"$load"
    is_qd1=0
    if [ "$mode" = qd1 ]; then is_qd1=1; fi
    echo "$is_qd1" >"$device/queue/zoned_qd1_writes"
    echo 3 >/proc/sys/vm/drop_caches
    before=$(counters)
    # shellcheck disable=SC2086 # words
    said=$(python3 /share/beside.py "$what" /mnt/files ${words//,/ })
    echo "$load $said" $before $(counters) |
        awk '{ printf "%s %d %s %.2f %.0f\n", $1, $2, $3, ($8 - $4) / ($9 - $5), ($11 - $7) / 2 / ($10 - $6) }'
    # Empty zones are reset, so the next load begins at the same place of the disk.
    rm -r /mnt/files
    sync
done
umount /mnt
dmesg | grep -E 'WARNING:|BUG:|hung|I/O error' | sed 's/^/messages /' || true
