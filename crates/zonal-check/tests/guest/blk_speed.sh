#!/bin/bash
# Time of an operation of 4 KiB on a null_blk without memory, Zonal's beside fio's in its fastest form for block devices. For
# --icount, where a nanosecond is an instruction; /share has the program `zonal`, of a release build, and lib.sh.
set -u
# shellcheck source=crates/zonal-check/tests/guest/lib.sh
. /share/lib.sh
export ZONAL_RUNTIME_DIR=/tmp/zonal-runtime
mkdir -p $ZONAL_RUNTIME_DIR
cd /tmp || exit 1
# In memory: the guest's clock would count the time in which its pages are read.
cp /share/zonal /tmp/zonal

modprobe null_blk nr_devices=0
directory=/sys/kernel/config/nullb/nullb0
mkdir $directory
for setting in zoned=1 blocksize=4096 size=4096 zone_size=64 submit_queues=1 hw_queue_depth=256 power=1; do
    echo "${setting#*=}" >"$directory/${setting%%=*}"
done
disk=/dev/nullb0
echo none >/sys/block/nullb0/queue/scheduler

writes="--rw=randwrite --zonemode=zbd --bs=4k --iodepth=16 --max_open_zones=8 --size=512M --io_size=512M"
reads="--rw=randread --norandommap --bs=4k --iodepth=32 --size=512M --io_size=1G"

# Microseconds an operation in the JSON of a run.
cost() { jq -r '.jobs[0] | 1e6 / (.read.iops + .write.iops) | . * 100 | round / 100' "$1"; }

by_fio() {
    blkzone reset $disk
    # shellcheck disable=SC2086 # options
    fio --name=j --filename=$disk --direct=1 --ioengine=io_uring --fixedbufs=1 --registerfiles=1 --iodepth_batch_submit=16 \
        --iodepth_batch_complete_max=16 --output-format=json "$@" >/tmp/fio.json 2>/dev/null
    cost /tmp/fio.json
}

by_zonal() {
    blkzone reset $disk
    /tmp/zonal bench --yes --device blk:$disk --json /tmp/zonal.json --write-mode per-zone --name=j "$@" >/tmp/said 2>&1
    cost /tmp/zonal.json
}

# shellcheck disable=SC2086 # options
{
    tell writes.fio "$(by_fio $writes)"
    tell writes.merged "$(by_zonal $writes)"
    tell writes.unmerged "$(by_zonal $writes --no-merge)"
    tell alone.zonal "$(by_zonal --rw=write --zonemode=zbd --bs=4k --iodepth=1 --size=512M --io_size=256M)"
    tell reads.fio "$(by_fio $reads)"
    tell reads.zonal "$(by_zonal $reads --read_beyond_wp=1)"
}
