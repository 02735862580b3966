#!/bin/bash
# Instructions that the guest's processor executes for a request to a block device served by zonal,
# and to a null_blk. Needs a processor whose clock counts instructions, at 1 ns each. Both devices
# keep no data. Prints DRIVE.JOB and the number of instructions.
set -u
# shellcheck source=crates/zonal-check/tests/guest/lib.sh
. /share/lib.sh
cd /tmp || exit 1

# Instructions per request: measure DRIVE DISK.
measure() {
    local drive=$1 disk=$2 job options
    for job in randread randwrite; do
        options=()
        [ "$job" = randread ] || options=(--zonemode=zbd --max_open_zones=8)
        blkzone reset "$disk"
        fio --name=job --filename="$disk" --direct=1 --ioengine=libaio --rw="$job" --bs=4k --iodepth=16 --time_based --runtime=2 \
            --ramp_time=0.2 --size=512M --output-format=json --random_generator=lfsr --norandommap "${options[@]}" >/tmp/fio.json 2>/tmp/fio.said ||
            tell "failed $(cat /tmp/fio.said)"
        tell "$drive.$job" "$(jq '1e9 / (.jobs[0].read.iops + .jobs[0].write.iops) | floor' /tmp/fio.json)"
    done
}

modprobe null_blk nr_devices=0
SIZE=1024 ZONE_SIZE=16 ZONE_CAPACITY=16 MAX_OPEN=0 MAX_ACTIVE=0
null=$(null_blk memory_backed=0 completion_nsec=0 irqmode=0)
measure null_blk "$null"
disk=$(ublk null:size=1G,zone_size=16M,blocksize=4096)
measure ublk "$disk"
tell ended "$(end_ublk)"
