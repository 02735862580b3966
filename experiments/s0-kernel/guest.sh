#!/usr/bin/env bash
# Runs each job file of /share/jobs on the SCSI disk SCSI, with the scheduler SCHEDULER, in mode qd1 or per-zone (QD1), with at most
# DEPTH commands of MAX_SECTORS_KB at the drive, and LARGE_PAGES for fio's buffers. Writes fio's reports to /share/reports, and prints the
# name of each job file and the share of the time in which the processors were idle.
set -euo pipefail
. /share/lib.sh

# Idle ticks and total ticks of the processors.
ticks() { awk '$1 == "cpu" { print $5 + $6, $2 + $3 + $4 + $5 + $6 + $7 + $8 }' /proc/stat; }

disk=$(scsi_disk "$SCSI")
queue=/sys/block/${disk##*/}/queue
echo "$SCHEDULER" >"$queue/scheduler"
echo "$QD1" >"$queue/zoned_qd1_writes"
echo "$DEPTH" >"$queue/../device/queue_depth"
echo "$MAX_SECTORS_KB" >"$queue/max_sectors_kb"
# With buffers in large pages a write takes one descriptor instead of one per page, which saves time of the emulated processors.
echo "$LARGE_PAGES" >/proc/sys/vm/nr_hugepages
for job in /share/jobs/*; do
    name=${job##*/}
    blkzone reset "$disk"
    before=$(ticks)
    report=/share/reports/$name
    DISK=$disk fio --output-format=json --output="$report" "$job" >&2 || {
        cat "$report"
        exit 1
    }
    echo "$name $before $(ticks)" | awk '{ print $1, ($4 - $2) / ($5 - $3) }'
done
