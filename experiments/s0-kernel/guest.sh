#!/usr/bin/env bash
# Runs each job file of /share/jobs on the SCSI disk SCSI, with the scheduler SCHEDULER, one write of the drive at a time or one a
# zone (QD1), DEPTH commands of MAX_SECTORS_KB at most at the drive, and LARGE_PAGES for fio's buffers. Leaves fio's reports in
# /share/reports, and prints the name of each job file and the share of the time in which the processors were idle.
set -euo pipefail
. /share/lib.sh

# Ticks in which the processors did nothing, and all of them.
ticks() { awk '$1 == "cpu" { print $5 + $6, $2 + $3 + $4 + $5 + $6 + $7 + $8 }' /proc/stat; }

disk=$(scsi_disk "$SCSI")
queue=/sys/block/${disk##*/}/queue
echo "$SCHEDULER" >"$queue/scheduler"
echo "$QD1" >"$queue/zoned_qd1_writes"
echo "$DEPTH" >"$queue/../device/queue_depth"
echo "$MAX_SECTORS_KB" >"$queue/max_sectors_kb"
# Of buffers in large pages a write takes a descriptor in place of one a page, and the emulated processors less time.
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
