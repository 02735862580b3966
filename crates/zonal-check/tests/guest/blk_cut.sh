#!/bin/bash
# A file system on the SCSI disk with the serial number SCSI, which outlives the guest. With STAGE=write, files are written and
# synced, and the guest is reset without a warning; the checksum of each synced file is in /share/sums before. With STAGE=check,
# the file system is checked and the files are compared. Prints lines of a key and a value.
set -u
# shellcheck source=crates/zonal-check/tests/guest/lib.sh
. /share/lib.sh
export ZONAL_RUNTIME_DIR=/tmp/zonal-runtime
mkdir -p $ZONAL_RUNTIME_DIR /mnt/z
cd /tmp || exit 1
zonal=/share/zonal
modprobe fuse
disk=$(scsi_disk "$SCSI")

mounted() {
    $zonal mount "blk:$disk" /mnt/z >/tmp/mounted 2>&1 &
    for _ in $(seq 100); do
        grep -q ^ready /tmp/mounted && return
        sleep 0.1
    done
    cat /tmp/mounted
}

if [ "$STAGE" = write ]; then
    $zonal mkfs --yes "blk:$disk" >/tmp/said 2>&1 || cat /tmp/said
    mounted
    # A writer that never syncs is in the middle of a file.
    (while :; do head -c 3000000 /dev/urandom >/mnt/z/unsynced; done) &
    for n in $(seq "$FILES"); do
        head -c $((n * 7919)) /dev/urandom >"/mnt/z/file.$n"
        sync "/mnt/z/file.$n"
        (cd /mnt/z && sha256sum "file.$n") >>/share/sums
        sync /share/sums
    done
    echo b >/proc/sysrq-trigger
    sleep 60
fi
tell fsck "$(result $zonal fsck --data "blk:$disk")"
mounted
tell compared "$(cd /mnt/z && sha256sum --check --quiet /share/sums >/tmp/said 2>&1 && echo ok || head -n 1 /tmp/said)"
tell files "$(wc -l </share/sums)"
umount /mnt/z
