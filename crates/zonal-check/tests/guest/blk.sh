#!/bin/bash
# Block devices of the guest as drives: the conformance kit, all write modes, errors, drives that are pulled or changed behind
# the kernel's back. Prints lines of a key and a value.
. /share/lib.sh
export ZONAL_RUNTIME_DIR=/tmp/zonal-runtime
mkdir -p $ZONAL_RUNTIME_DIR
cd /tmp
zonal=/share/zonal

# Makes a zoned null_blk with memory: null NUMBER SETTING...
null() {
    local directory=/sys/kernel/config/nullb/nullb$1 setting
    shift
    mkdir "$directory"
    for setting in memory_backed=1 zoned=1 blocksize=4096 "$@" power=1; do
        echo "${setting#*=}" >"$directory/${setting%%=*}" || echo "no $setting"
    done
}

# Result of the conformance kit: how many checks were kept, or the violation.
conforms() {
    local said
    if said=$(timeout 120 /share/conformance "$@" 2>/tmp/said); then
        echo "kept $(grep -c ': kept$' <<<"$said")"
    else
        echo "broken: $(grep BROKEN <<<"$said" || tail -n 1 /tmp/said)"
    fi
}

# A verified run in a mode: bench DEVICE MODE OPTION...
bench() {
    local device=$1 mode=$2
    shift 2
    result timeout 120 $zonal bench --yes --device "$device" --write-mode "$mode" --name=j --verify=crc32c --do_verify=1 "$@"
}

modprobe null_blk nr_devices=0
null 0 size=128 zone_size=8 zone_capacity=6 zone_nr_conv=2 zone_max_open=4 zone_max_active=6
$zonal info blk:/dev/nullb0 >/tmp/info
for key in zones "zone capacity" "open zones" "active zones" "logical block" "write mode"; do
    tell "info.${key// /_} $(sed -n "s/^$key *//p" /tmp/info)"
done
tell "info.bare $($zonal info /dev/nullb0 | sed -n 's/^device *//p')"
tell "info.drive $(sed -n 's/^drive *//p' /tmp/info)"
tell "info.qd1 $(sed -n 's/^kernel *//p' /tmp/info)"
# Lines that older kernels cannot have are left out.
if [ -e /sys/block/nullb0/queue/zoned_qd1_writes ]; then
    echo 1 >/sys/block/nullb0/queue/zoned_qd1_writes
    tell "info.qd1.on $($zonal info blk:/dev/nullb0 | sed -n 's/^kernel *//p')"
    echo 0 >/sys/block/nullb0/queue/zoned_qd1_writes
fi
tell "kit.null_blk $(conforms blk:/dev/nullb0 any 100)"
tell "kit.queues $(conforms blk:/dev/nullb0,queues=2,depth=4 any 50)"
tell "kit.readonly $(conforms blk:/dev/nullb0,readonly any)"
for mode in direct zone-lock per-zone qd1; do
    tell "mode.$mode $(bench blk:/dev/nullb0 "$mode" --rw=randwrite --zonemode=zbd --bs=4k --iodepth=16 --max_open_zones=4 --size=8M --offset=16M)"
done
tell "mode.pipelined $(bench blk:/dev/nullb0 pipelined --rw=write --bs=4k --size=8M)"

# Zones as Zonal and as blkzone report them.
$zonal reset --yes blk:/dev/nullb0 --all >/tmp/said 2>&1
dd if=/dev/urandom of=/dev/nullb0 bs=64k count=3 seek=$((32 << 4)) oflag=direct 2>/tmp/said
blkzone finish -o $((40 << 11)) -l $((8 << 11)) /dev/nullb0
blkzone report /dev/nullb0 >/tmp/theirs
$zonal report blk:/dev/nullb0 >/tmp/ours
tell "report.lines $(wc -l </tmp/ours)"
tell "report.same $(result cmp /tmp/ours /tmp/theirs)"
# The report of zbd in the format of blkzone: it has bytes, and pointers of all zones.
zbd report -csv /dev/nullb0 | awk -F ', *' '
    BEGIN { split("0x0 0(nw) 0x1 1(em) 0x2 2(oi) 0x3 3(oe) 0x4 4(cl) 0xd 13(ro) 0xe 14(fu) 0xf 15(of)", words, " "); for (n = 1; n in words; n += 2) condition[words[n]] = words[n + 1] }
    NR > 1 {
        pointer = ($2 == 1 || $7 == "0xd" || $7 == "0xe" || $7 == "0xf") ? "N/A" : sprintf("0x%06x", ($6 - $3) / 512)
        kind = $2 == 1 ? "1(CONVENTIONAL)" : "2(SEQ_WRITE_REQUIRED)"
        printf "  start: 0x%09x, len 0x%06x, cap 0x%06x, wptr %s reset:%d non-seq:%d, zcond:%6s [type: %s]\n", $3 / 512, $4 / 512, $5 / 512, pointer, $9, $8, condition[$7], kind
    }' >/tmp/of_zbd
tell "report.zbd $(result cmp /tmp/ours /tmp/of_zbd)"
tell "guard $($zonal reset blk:/dev/nullb0 --all 2>&1 | sed 's/^zonal: //')"

for n in $(seq 24); do
    { $zonal info blk:/dev/nullb0 >/dev/null 2>&1 && echo ok; } >"/tmp/reader.$n" &
    readers="${readers:-} $!"
done
# shellcheck disable=SC2086 # words
wait $readers
tell "readers $(cat /tmp/reader.* | grep -c ok)"

# Refusals: a partition, an ordinary disk, a mounted one, one that is open.
tell "refused.ordinary $($zonal info blk:/dev/vda 2>&1 | grep -o 'is not host-managed.*none')"
exec 9<>/dev/nullb0
$zonal info blk:/dev/nullb0 >/dev/null 2>&1 && tell "shared.ordinary_opener ok"
exec 9>&-

# Bad blocks, once and always.
null 2 size=64 zone_size=8 badblocks=+16400-16407
if grep -q badblocks_once /sys/kernel/config/nullb/features; then
    null 1 size=64 zone_size=8 badblocks=+16400-16407 badblocks_once=1
    tell "bad.once $(result timeout 60 $zonal bench --device blk:/dev/nullb1 --write-mode per-zone --name=j --rw=write --bs=4k --iodepth=8 --zonemode=zbd --size=8M --offset=8M)"
    tell "bad.once.zone $(blkzone report -o 16384 -c 1 /dev/nullb1 | grep -o 'zcond:[^)]*)')"
fi
tell "bad.always $(result timeout 60 $zonal bench --device blk:/dev/nullb2 --write-mode per-zone --name=j --rw=write --bs=4k --iodepth=8 --zonemode=zbd --size=8M --offset=8M | grep -o 'medium error\|Input/output error' | head -n 1)"

# Behind the kernel's back, through sg: the drive is ahead of the kernel, which refuses writes for ever.
scsi_debug
tell "kit.scsi_debug $(conforms "blk:$disk" any 60)"
start=$((16 << 11))
dd if=/dev/zero of="$disk" bs=4k count=2 seek=$((start / 8)) oflag=direct 2>/dev/null && tell "stale.before ok"
head -c 4096 /dev/zero >/tmp/zeroes
timeout 10 sg_raw -s 4096 -i /tmp/zeroes "$sg" 8a 00 00 00 00 00 00 00 $(printf '%02x %02x' $(((start / 8 + 2) >> 8)) $(((start / 8 + 2) & 255))) 00 00 00 01 00 00 >/tmp/said 2>&1 || tell "stale.sg failed: $(tail -n 1 /tmp/said)"
tell "stale.drive $(blkzone report -o $start -c 1 "$disk" | grep -o 'wptr 0x[0-9a-f]*')"
plugs=/sys/kernel/debug/block/${disk#/dev/}/zone_wplugs
shows() { grep -qs '^Zone no' "$plugs" && tell "$@"; }
pointer() { sed -n "s/^Zone no: $((start / 8192)),.*wp ofst: \([0-9]*\),.*/\1/p" "$plugs" 2>/dev/null; }
shows "stale.kernel $(pointer)"
$zonal info "blk:$disk" >/tmp/said 2>&1
shows "stale.reader $(grep -c 'the kernel has been told' /tmp/said) $(pointer)"
timeout 60 $zonal bench --yes --device "blk:$disk" --name=j --rw=write --bs=4k --size=4k --offset=0 >/tmp/told 2>&1
shows "stale.writer $(grep -c 'the kernel has been told' /tmp/told) $(pointer)"
dd if=/dev/zero of="$disk" bs=4k count=1 seek=$((start / 8 + 3)) oflag=direct 2>/dev/null && tell "stale.cured ok"

# A write of another program that the drive answers after 6 s: its zone only looks stale.
scsi=/sys/bus/pseudo/drivers/scsi_debug
echo 6 >"/sys/block/${disk#/dev/}/device/timeout"
start=$((24 << 11))
head -c 16384 /dev/urandom >/tmp/other
echo 4 >$scsi/opts
echo 1 >$scsi/every_nth
dd if=/tmp/other of="$disk" bs=16k count=1 seek=$((start * 512))B oflag=direct,seek_bytes 2>/dev/null &
other=$!
sleep 0.3
echo 0 >$scsi/every_nth
echo 0 >$scsi/opts
timeout 60 $zonal bench --yes --device "blk:$disk" --name=j --rw=write --bs=4k --size=4k --offset=0 >/tmp/said 2>&1
tell "busy.accepted $(grep -c 'has accepted' /tmp/said)"
wait $other
tell "busy.status $?"
tell "busy.pointer $(blkzone report -o $start -c 1 "$disk" | grep -o 'wptr 0x[0-9a-f]*')"

# A file system on a drive.
null 4 size=256 zone_size=8 zone_nr_conv=4
tell "files.format $(result $zonal mkfs --yes blk:/dev/nullb4)"
head -c 3000000 /dev/urandom >/tmp/data
tell "files.put $(result $zonal put blk:/dev/nullb4 /tmp/data /data)"
$zonal get blk:/dev/nullb4 /data /tmp/back 2>/tmp/said
tell "files.get $(result cmp /tmp/data /tmp/back)"
tell "files.fsck $(result $zonal fsck blk:/dev/nullb4)"
mkdir -p /mnt/z
modprobe fuse
$zonal mount blk:/dev/nullb4 /mnt/z >/tmp/mounted 2>&1 &
for _ in $(seq 100); do grep -q ^ready /tmp/mounted && break; sleep 0.1; done
tell "files.mounted $(result cmp /tmp/data /mnt/z/data)"
tell "files.second $($zonal info blk:/dev/nullb4,readonly 2>&1 | grep -c nullb4)"
cp /tmp/data /mnt/z/again && sync /mnt/z/again && tell "files.synced ok"
umount /mnt/z
for _ in $(seq 100); do $zonal fsck blk:/dev/nullb4 >/tmp/said 2>&1 && break; sleep 0.1; done
tell "files.fsck_again $(result $zonal fsck blk:/dev/nullb4)"

# A drive that is pulled while it is written.
null 3 size=512 zone_size=8 completion_nsec=1000000 irqmode=2
timeout 60 $zonal bench --device blk:/dev/nullb3 --write-mode per-zone --name=j --rw=randwrite --bs=4k --iodepth=8 --zonemode=zbd --max_open_zones=8 --time_based --runtime=20 >/tmp/pulled 2>&1 &
bench=$!
for _ in $(seq 300); do
    [ "$(awk '{ print $5 }' /sys/block/nullb3/stat)" -gt 100 ] && break
    sleep 0.1
done
echo 0 >/sys/kernel/config/nullb/nullb3/power
wait $bench
tell "pulled.status $?"
tell "pulled.gone $(grep -c 'the drive is gone\|device is gone' /tmp/pulled | sed 's/[1-9][0-9]*/some/')"
