#!/bin/bash
# The conformance kit on drives of other drivers: QEMU's NVMe drive, and drives that Zonal serves over SCSI, NVMe/TCP and ublk.
# SCSI is the serial number of the SCSI disk, PORT and NQN are those of the controller. Prints lines of a key and a value.
set -u
# shellcheck source=crates/zonal-check/tests/guest/lib.sh
. /share/lib.sh
export ZONAL_RUNTIME_DIR=/tmp/zonal-runtime
mkdir -p $ZONAL_RUNTIME_DIR
cd /tmp || exit 1
zonal=/share/zonal

# Personality of a device, and the result of the kit.
kit() {
    local said personality
    personality=$($zonal info "blk:$1" | sed -n 's/^personality *//p')
    if said=$(timeout 200 /share/conformance "blk:$1" any 60 2>/tmp/said); then
        echo "$personality kept $(grep -c ': kept$' <<<"$said")"
    else
        echo "$personality broken: $(grep BROKEN <<<"$said" || tail -n 1 /tmp/said)"
    fi
}

tell qemu "$(kit /dev/nvme0n1)"
tell scsi "$(kit "$(scsi_disk "$SCSI")")"
modprobe nvme-tcp
connect "$PORT" "$NQN" >/tmp/said 2>&1
for _ in $(seq 50); do
    remote=$(grep -ls tcp /sys/class/nvme/nvme*/transport | head -n 1)
    remote=$(basename "$(dirname "${remote:-/none/none}")")
    [ -e "/dev/${remote}n1" ] && break
    sleep 0.1
done
tell tcp "$(kit "/dev/${remote}n1")"
tell ublk "$(kit "$(ublk ram:size=128M,zone_size=8M,zone_capacity=6M,zone_nr_conv=4,zone_max_open=4,personality=zbc)")"
kill "$(cat /tmp/served.pid)"
