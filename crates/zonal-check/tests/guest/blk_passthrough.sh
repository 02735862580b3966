#!/bin/bash
# Zones of a drive that are changed through the SCSI generic file, while a volume writes others. CHANGES is the number of changes.
# Prints lines of a key and a value.
set -u
# shellcheck source=crates/zonal-check/tests/guest/lib.sh
. /share/lib.sh
export ZONAL_RUNTIME_DIR=/tmp/zonal-runtime
mkdir -p $ZONAL_RUNTIME_DIR
cd /tmp || exit 1

modprobe scsi_debug dev_size_mb=64 zbc=managed zone_size_mb=4 zone_nr_conv=2 sector_size=4096 zone_max_open=4 delay=0
modprobe sd_mod
modprobe sg
for _ in $(seq 50); do
    disk=$(ls /sys/bus/pseudo/drivers/scsi_debug/adapter*/host*/target*/*/block 2>/dev/null | head -n 1)
    [ -n "$disk" ] && [ -e "/dev/$disk" ] && break
    sleep 0.1
done
/share/passthrough "blk:/dev/$disk" "/dev/$(ls /sys/block/"$disk"/device/scsi_generic)" "$CHANGES" 2>/tmp/said || tell error "$(tail -n 1 /tmp/said)"
