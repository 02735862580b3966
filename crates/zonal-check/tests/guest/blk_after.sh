#!/bin/bash
# Drives that Zonal wrote before, in other hands: fio's tests of zoned drives, btrfs, XFS and blkzone. Then what the kernel sees
# of Zonal's writes, and drives that fail in part, are pulled, mounted at boot, or stand still. SCSI is the serial number of a
# disk that the host serves, so that it keeps its data while it is pulled. PARTS, if set, has the names of the parts to run.
# Prints lines of a key and a value.
set -u
# shellcheck source=crates/zonal-check/tests/guest/lib.sh
. /share/lib.sh
export ZONAL_RUNTIME_DIR=/tmp/zonal-runtime
mkdir -p $ZONAL_RUNTIME_DIR /mnt/a
cd /tmp || exit 1
# Programs start slowly from the share.
cp /share/zonal /tmp/zonal
zonal=/tmp/zonal
configuration=/sys/kernel/config/nullb
modprobe null_blk nr_devices=0
modprobe fuse

# Makes a zoned null_blk with memory: null SETTING... There is only one at a time, so that its memory is free for the next.
null() {
    local setting
    if [ -d $configuration/nullb0 ]; then
        echo 0 >$configuration/nullb0/power
        rmdir $configuration/nullb0
    fi
    mkdir $configuration/nullb0
    for setting in memory_backed=1 zoned=1 blocksize=4096 "$@" power=1; do
        echo "${setting#*=}" >"$configuration/nullb0/${setting%%=*}" || echo "no $setting"
    done
}
disk=/dev/nullb0

# Conditions of a disk's zones, each once: conditions DISK.
conditions() { blkzone report "$1" | sed -n 's/.*zcond: *[0-9]*(\(..\)).*/\1/p' | sort -u | xargs; }

# Condition and pointer of one zone: zone DISK NUMBER MIB.
zone() { blkzone report -o $(($2 * $3 << 11)) -c 1 "$1" | sed 's/.*wptr \([^ ]*\) .*zcond: *[0-9]*(\(..\)).*/\2 \1/'; }

# Jobs in a write mode: bench DISK MODE OPTION...
bench() {
    local device=$1 mode=$2
    shift 2
    result timeout 120 $zonal bench --yes --output /tmp/results --device "blk:$device" --write-mode "$mode" "$@"
}

# Leaves full, partly written, opened and closed zones of MIB on a disk, beginning with zone FIRST, and ends: leave DISK MIB FIRST.
leave() {
    local device=$1 mib=$2 first=$3 said
    at() { echo "--offset=$(((first + $1) * mib))M"; }
    # The limit of active zones may be used up.
    $zonal reset --yes "blk:$device" --all >/tmp/said 2>&1
    said=$(bench "$device" per-zone --zonemode=zbd --bs=64k --iodepth=8 --max_open_zones=6 --verify=crc32c --do_verify=1 \
        --name=full --rw=write "$(at 0)" --size=$((2 * mib))M --name=random --stonewall --rw=randwrite "$(at 2)" --size=$((4 * mib))M --io_size=2M \
        --name=open --stonewall --rw=write "$(at 8)" --size=${mib}M --io_size=1M --name=closed --stonewall --rw=write "$(at 9)" --size=${mib}M --io_size=1M)
    if [ "$said" = ok ]; then said=$(result $zonal close "blk:$device" --offset $((first + 9))z --count 1); fi
    if [ "$said" = ok ]; then said=$(result $zonal open "blk:$device" --offset $((first + 10))z --count 1); fi
    echo "$said $(conditions "$device")"
}

# Some tests of fio's suite, each on a drive that Zonal left, with reads, writes and resets, limits and failing writes.
part_fio() {
    local number left
    cp -r /opt/fio /tmp/fio
    null size=512 zone_size=4 zone_capacity=3 zone_max_open=8 zone_max_active=8 badblocks_once=1 badblocks_partial_io=1 completion_nsec=0
    for number in 5 7 8 15 16 28 46 59 66 68 72 73; do
        left=$(leave $disk 4 2)
        /tmp/fio/t/zbd/test-zbd-support -o 8 -t "$number" $disk >/tmp/said 2>&1
        tell "fio.$number" "$left, $(sed -n 's/^Running test .* \.\.\. //p' /tmp/said)"
        if grep -q FAIL /tmp/said; then tail -n 40 "/tmp/fio/t/zbd/test-zbd-support.log.$number" | sed "s/^/log of $number: /"; fi
    done
}

# A file of 20 MB on the file system of another program: others KEY MOUNT-OPTIONS.
others() {
    local key=$1
    shift
    tell "$key.mount" "$(result mount "$@" $disk /mnt/a)"
    head -c 20000000 /dev/urandom >/tmp/data
    tell "$key.write" "$(result cp /tmp/data /mnt/a/data)"
    tell "$key.unmount" "$(result umount /mnt/a)"
    tell "$key.mount_again" "$(result mount "$@" $disk /mnt/a)"
    tell "$key.compare" "$(result cmp /tmp/data /mnt/a/data)"
    if [ "$key" = btrfs ]; then tell btrfs.scrub "$(btrfs scrub start -B /mnt/a 2>&1 | sed -n 's/^Error summary: *//p')"; fi
    tell "$key.unmount_again" "$(result umount /mnt/a)"
}

part_btrfs() {
    null size=768 zone_size=8 zone_max_open=14 zone_max_active=14
    tell btrfs.left "$(leave $disk 8 0)"
    modprobe btrfs
    tell btrfs.make "$(result mkfs.btrfs -q -f -O zoned -d single -m single $disk)"
    others btrfs -t btrfs
    tell btrfs.check "$(result btrfs check $disk)"
}

part_xfs() {
    # Its metadata is in the conventional zones.
    null size=832 zone_size=8 zone_nr_conv=40 zone_max_open=14 zone_max_active=14
    tell xfs.conventional "$(bench $disk per-zone --name=j --rw=randwrite --bs=4k --size=8M --verify=crc32c --do_verify=1)"
    tell xfs.left "$(leave $disk 8 42)"
    tell xfs.make "$(result mkfs.xfs -q -f -r zoned=1 $disk)"
    others xfs -t xfs
    tell xfs.check "$(result xfs_repair -n $disk)"
}

# Bad blocks that fail once, after the blocks before them are written. Another process compares the data.
part_partial() {
    local mode
    for mode in per-zone zone-lock; do
        null size=64 zone_size=8 badblocks=+16400-16407 badblocks_once=1 badblocks_partial_io=1
        tell "partial.$mode" "$(bench $disk $mode --verify=crc32c --do_verify=1 --name=j --rw=write --bs=64k --iodepth=8 --zonemode=zbd --size=8M --offset=8M)"
        tell "partial.$mode.zone" "$(zone $disk 1 8)"
        tell "partial.$mode.read" "$(result $zonal bench --readonly --device blk:$disk --verify=crc32c --name=j --rw=read --bs=64k --zonemode=zbd --size=8M --offset=8M)"
    done
}

# Begins and ends the record of what the block layer does.
record() {
    echo 0 >$tracing/tracing_on
    if [ "$1" = begin ]; then
        echo >$tracing/trace
        echo 1 >$tracing/tracing_on
    else
        cp $tracing/trace /tmp/trace
    fi
}

# What was recorded: how many writes there were, those that did not begin where the last one of their zone ended, those issued while
# another one to the same zone or drive was in flight, and those that the kernel held back because of another one: writes zone|drive.
writes() {
    gawk -v limit="$1" -v device="$(tr : , </sys/block/nullb0/dev)" '
        function amount(number) { return number > 100 ? "some" : number + 0 }
        !match($0, /: (block_rq_issue|block_rq_complete|disk_zone_wplug_add_bio): ([0-9,]+) ([A-Z]*)/, event) || event[2] != device { next }
        event[1] == "disk_zone_wplug_add_bio" { held++ }
        !match($0, /\) ([0-9]+) \+ ([0-9]+) /, place) { next }
        {
            zone = int(place[1] / 16384)
            where = limit == "drive" ? 0 : zone
            if (!(zone in end)) end[zone] = zone * 16384
        }
        event[3] !~ /^W/ { next }
        event[1] == "block_rq_complete" { flying[where]--; next }
        {
            issued++
            if (end[zone] != place[1]) misplaced++
            end[zone] = place[1] + place[2]
            if (++flying[where] > 1) many++
        }
        END { print amount(issued), amount(misplaced), amount(many), amount(held) }' /tmp/trace
}

# A run on a drive of its own, whose completions are late enough for other writes to overtake: traced MODE zone|drive.
traced() {
    null size=128 zone_size=8 zone_nr_conv=2 irqmode=2 completion_nsec=2000000
    record begin
    tell "trace.$1" "$(bench $disk "$1" --name=j --rw=randwrite --bs=4k --iodepth=32 --zonemode=zbd --max_open_zones=6 --size=48M --offset=16M --io_size=12M)"
    record end
    tell "trace.$1.writes" "$(writes "$2")"
    # A full buffer would have dropped the oldest events.
    tell "trace.$1.lost" "$(awk '/^(overrun|commit overrun|dropped events):/ { lost += $NF } END { print lost + 0 }' $tracing/per_cpu/cpu*/stats)"
}

part_trace() {
    local event tracing=/sys/kernel/tracing
    mountpoint -q $tracing || mount -t tracefs tracefs $tracing
    echo 16384 >$tracing/buffer_size_kb
    # The clocks of processors may differ. This one counts the events.
    echo counter >$tracing/trace_clock
    for event in block_rq_issue block_rq_complete disk_zone_wplug_add_bio; do echo 1 >$tracing/events/block/$event/enable; done
    traced qd1 drive
    traced zone-lock zone
    traced per-zone zone
    # The same record by the rule of qd1: writes to several zones are in flight.
    tell trace.per-zone.drive "$(writes drive)"
    # fio leaves the order to the kernel, which holds most of its writes back.
    null size=128 zone_size=8 zone_nr_conv=2 irqmode=2 completion_nsec=2000000
    record begin
    fio --filename=$disk --direct=1 --ioengine=libaio --name=j --rw=write --bs=4k --iodepth=32 --zonemode=zbd --size=16M --offset=16M >/tmp/said 2>&1
    record end
    tell trace.fio.writes "$(writes zone)"
    for event in block_rq_issue block_rq_complete disk_zone_wplug_add_bio; do echo 0 >$tracing/events/block/$event/enable; done
}

# Pulled while files are written and synced. Nothing that was synced is lost.
part_pulled() {
    local scsi name address mounted writer other n
    scsi=$(scsi_disk "$SCSI")
    name=${scsi##*/}
    tell pulled.make "$(result $zonal mkfs --yes "blk:$scsi")"
    $zonal mount "blk:$scsi" /mnt/a >/tmp/mounted 2>&1 &
    mounted=$!
    for _ in $(seq 100); do grep -q ^ready /tmp/mounted && break; sleep 0.1; done
    : >/tmp/sums
    for n in $(seq 400); do
        head -c $((n % 40 * 7919 + 1)) /dev/urandom >/tmp/one
        cp /tmp/one "/mnt/a/file.$n" && sync "/mnt/a/file.$n" || break
        echo "$(sha256sum </tmp/one | cut -d' ' -f1)  file.$n" >>/tmp/sums
    done 2>/tmp/writer.said &
    writer=$!
    # Another writer never syncs, and is in the middle of a file.
    (while head -c 3000000 /dev/urandom >/mnt/a/unsynced; do :; done) 2>/tmp/said &
    other=$!
    for _ in $(seq 600); do [ "$(wc -l </tmp/sums)" -ge 30 ] && break; sleep 0.1; done
    address=$(basename "$(readlink -f "/sys/block/$name/device")")
    echo 1 >"/sys/block/$name/device/delete"
    wait $writer $other
    # A write fails, or the sync.
    tell pulled.writer "$([ -s /tmp/writer.said ] && echo failed)"
    tell pulled.unmount "$(result timeout 60 $zonal unmount /mnt/a | grep -o 'not everything written is durable')"
    wait $mounted
    tell pulled.status $?
    tell pulled.said "$(grep -c 'is gone' /tmp/mounted | sed 's/[1-9][0-9]*/some/')"
    # The drive is gone, not full.
    tell pulled.full "$(cat /tmp/writer.said /tmp/said /tmp/mounted | grep -ic 'no space left')"
    echo "- - -" >"/sys/class/scsi_host/host${address%%:*}/scan"
    scsi=$(scsi_disk "$SCSI")
    tell pulled.fsck "$(result $zonal fsck --data "blk:$scsi")"
    $zonal mount "blk:$scsi" /mnt/a >/tmp/mounted 2>&1 &
    mounted=$!
    for _ in $(seq 100); do grep -q ^ready /tmp/mounted && break; sleep 0.1; done
    tell pulled.files "$([ "$(wc -l </tmp/sums)" -ge 30 ] && echo some)"
    tell pulled.compared "$(cd /mnt/a && result sha256sum --check --quiet /tmp/sums)"
    umount /mnt/a
    wait $mounted
    tell pulled.ended $?
}

# mount(8) looks for its helpers in /sbin, which is read-only here.
part_boot() {
    null size=256 zone_size=8 zone_nr_conv=4
    cp -a /usr/sbin /tmp/sbin
    ln -s $zonal /tmp/sbin/mount.zonal
    mount --bind /tmp/sbin /usr/sbin
    tell boot.left "$(leave $disk 8 6)"
    tell boot.make "$(result $zonal mkfs --yes $disk)"
    echo "$disk /mnt/a zonal nofail,nosuid 0 0" >/tmp/fstab
    tell boot.mount "$(result mount -T /tmp/fstab -a)"
    tell boot.mounted "$(awk '$2 == "/mnt/a" { print $1, $3, $4 }' /proc/mounts | cut -d, -f1,2)"
    tell boot.again "$(result mount -T /tmp/fstab -a)"
    tell boot.mounts "$(grep -c ' /mnt/a ' /proc/mounts)"
    head -c 3000000 /dev/urandom >/tmp/data
    tell boot.write "$(result cp /tmp/data /mnt/a/data)"
    tell boot.unmount "$(result umount /mnt/a)"
    # umount does not wait for the last sync.
    for _ in $(seq 100); do $zonal fsck $disk >/tmp/said 2>&1 && break; sleep 0.1; done
    tell boot.fsck "$(result $zonal fsck --data $disk)"
    tell boot.mount_again "$(result mount -T /tmp/fstab /mnt/a)"
    tell boot.compare "$(result cmp /tmp/data /mnt/a/data)"
    umount /mnt/a
    # A drive that is not there. The next line is mounted all the same.
    for _ in $(seq 100); do $zonal fsck $disk >/tmp/said 2>&1 && break; sleep 0.1; done
    mkdir -p /mnt/b
    { echo "/dev/nowhere /mnt/b zonal nofail 0 0"; cat /tmp/fstab; } >/tmp/fstab.two
    tell boot.missing "$(result mount -T /tmp/fstab.two -a)"
    tell boot.beside "$(grep -c ' /mnt/a ' /proc/mounts)"
    tell boot.words "$($zonal info /dev/nowhere 2>&1 | grep -c 'not supported yet')"
    umount /mnt/a /usr/sbin
    for _ in $(seq 100); do $zonal fsck $disk >/tmp/said 2>&1 && break; sleep 0.1; done
}

# Commands that have no answer for 40 s: the read that looks for data of others, and a write.
part_still() {
    null size=64 zone_size=8 irqmode=2 completion_nsec=40000000000
    # The kernel would give it up after 30 s.
    echo 120000 >/sys/block/nullb0/queue/io_timeout
    timeout 300 $zonal bench --yes --device blk:$disk --name=j --rw=write --bs=4k --size=4k --offset=8M >/tmp/said 2>/tmp/still
    tell still.status $?
    tell still.told "$(grep -c 'no answer for 30 s' /tmp/still) $(grep -c 'moves again' /tmp/still)"
    tell still.zone "$(zone $disk 1 8)"
}

# Zones that become read-only and offline, beside others.
part_zones() {
    null size=256 zone_size=8 zone_nr_conv=2 zone_max_open=8
    tell zones.left "$(leave $disk 8 2)"
    echo $((20 << 14)) >$configuration/nullb0/zone_readonly
    echo $((21 << 14)) >$configuration/nullb0/zone_offline
    $zonal report $disk >/tmp/ours
    blkzone report $disk >/tmp/theirs
    tell zones.conditions "$(conditions $disk)"
    tell zones.same "$(result cmp /tmp/ours /tmp/theirs)"
    tell zones.listed "$($zonal report $disk --state read-only,offline | grep -c .)"
    tell zones.read "$(result timeout 60 $zonal bench --readonly --output /tmp/results --device blk:$disk --name=j --rw=read --bs=64k --offset=160M --size=1M)"
    for mode in per-zone zone-lock qd1; do
        tell "zones.$mode.read_only" "$(bench $disk $mode --name=j --rw=write --bs=4k --size=8M --offset=160M)"
        tell "zones.$mode.offline" "$(bench $disk $mode --name=j --rw=write --bs=4k --size=8M --offset=168M)"
        # The job of another zone writes all of it.
        $zonal reset --yes $disk --zone 24 >/tmp/said 2>&1
        tell "zones.$mode.beside" "$(bench $disk $mode --bs=64k --iodepth=8 --rw=write --size=8M --name=bad --offset=160M --name=worse --offset=168M --name=good --offset=192M)"
        tell "zones.$mode.zone" "$(zone $disk 24 8)"
    done
    # A job with fio's rules for zones ends without a write.
    tell zones.skipped "$(bench $disk per-zone --name=j --rw=write --bs=4k --zonemode=zbd --size=16M --offset=160M) $(grep -c 'no writable zone' /tmp/results)"
}

for part in ${PARTS:-fio btrfs xfs partial trace pulled boot still zones}; do
    began=$SECONDS
    "part_$part"
    if [ -n "${TIMES:-}" ]; then tell "seconds.$part" $((SECONDS - began)); fi
done
tell complaints "$(dmesg | grep -cE 'WARNING:|BUG:|hung')"
