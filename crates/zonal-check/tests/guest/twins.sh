#!/bin/bash
# Sends equal commands to QEMU's zoned drive, the first disk, and to a served one. PORT and NQN are
# the served drive's; SEED and COMMANDS are the seed and the number of the commands.
set -u
# shellcheck source=crates/zonal-check/tests/guest/lib.sh
. /share/lib.sh

modprobe nvme-tcp
qemu=$(disks | awk '$2 == 1 { print "/dev/" $1 }' | head -n 1)
tell connected "$(result connect "$PORT" "$NQN")"
served=$(disk "$NQN" 1)
for attribute in nr_zones chunk_sectors max_open_zones max_active_zones logical_block_size; do
    tell "$attribute" "$(cat "/sys/block/${qemu##*/}/queue/$attribute") $(cat "/sys/block/${served##*/}/queue/$attribute")"
done
python3 /share/twins.py "$qemu" "$served" "$SEED" "$COMMANDS" 2>&1
tell ended "$?"
