#!/bin/bash
# Drives as block devices of the guest, served by the program in the share. Prints lines of a key
# and a value.
set -u
# shellcheck source=crates/zonal-check/tests/guest/lib.sh
. /share/lib.sh
cd /tmp || exit 1

# Message of the program if it refuses to serve.
refused() { /share/zonal serve "$@" --ublk 2>&1 | tail -n 1; }

# A zone of the disk according to blkzone: condition, and number of written blocks of 4096 bytes.
# zone SECTOR.
zone() { blkzone report --offset "$1" --count 1 "$disk" | sed -n 's/.*wptr \([^ ]*\) .*zcond: *\([^ ]*\) .*/\2 \1/p'; }

# Result of a write: write BLOCK COUNT [FLAG...]. Its data is that of the pattern.
write() {
    local at=$1 count=$2 said
    shift 2
    said=$(LC_ALL=C dd if=/share/pattern of="$disk" bs=4096 seek="$at" count="$count" oflag=direct conv=notrunc "$@" 2>&1)
    case $said in *"error writing"*) sed -n 's/.*error writing[^:]*: //p' <<<"$said" ;; *) echo ok ;; esac
}

tell no_driver "$(refused ram:size=64M,zone_size=4M)"
modprobe ublk_drv
chmod a+x /share/zonal
tell no_right "$(setpriv --reuid 65534 --clear-groups /share/zonal serve ram:size=64M --ublk 2>&1 | tail -n 1)"
tell smaller_last_zone "$(refused ram:size=63M,zone_size=4M)"

disk=$(ublk "$DRIVE")
tell disk "$disk"
for attribute in zoned chunk_sectors nr_zones max_open_zones max_active_zones logical_block_size zone_append_max_bytes \
    max_hw_sectors_kb rotational write_cache fua zone_write_granularity; do
    tell "$attribute" "$(cat "/sys/block/${disk##*/}/queue/$attribute")"
done
tell sectors "$(cat "/sys/block/${disk##*/}/size")"
tell types "$(blkzone report "$disk" | grep -c CONVENTIONAL) $(blkzone report "$disk" | grep -c SEQ_WRITE_REQUIRED)"
tell zone.first "$(blkzone report --offset 0x10000 --count 1 "$disk" | xargs)"

# Zones have 2048 blocks, 1536 of them writable; the first four are conventional.
tell write.conventional "$(write 100 2)"
tell write.at_pointer "$(write 8192 2)"
tell write.durable "$(write 8194 1 oflag=direct,dsync)"
tell zone.written "$(zone 65536)"
tell write.beyond_pointer "$(write 8200 1)"
tell read "$(dd if="$disk" bs=4096 skip=8192 count=2 iflag=direct status=none | cmp -n 8192 - /share/pattern && echo same)"
tell blkzone.open "$(result blkzone open --offset 0x14000 --count 1 "$disk") $(zone 81920)"
tell blkzone.close "$(result blkzone close --offset 0x10000 --count 1 "$disk") $(zone 65536)"
tell blkzone.finish "$(result blkzone finish --offset 0x10000 --count 1 "$disk") $(zone 65536)"
tell write.full "$(write 8195 1)"
tell blkzone.reset "$(result blkzone reset --offset 0x10000 --count 1 "$disk") $(zone 65536)"
# Open zones as counted by the kernel: the explicitly opened one, and three more.
tell open.five "$(for n in 6 7 8 9; do result blkzone open --offset $((n * 16384)) --count 1 "$disk" | cut -c1-6; done | xargs)"
tell blkzone.reset_all "$(result blkzone reset "$disk")"
tell zones.empty "$(blkzone report "$disk" | grep -c 'zcond: 1(em)')"
tell discard "$(result blkdiscard --offset 0 --length 1M "$disk")"
tell zeroes "$(result blkdiscard --zeroout --offset $((8192 * 4096)) --length 1M "$disk") $(zone 65536)"
# zonefs writes to sequential zones by direct appends and positional writes.
tell zonefs "$(result mkzonefs -f "$disk") $(result mount -t zonefs "$disk" /mnt)"
tell zonefs.write "$(result dd if=/share/pattern of=/mnt/seq/0 bs=4096 count=4 oflag=direct,append conv=notrunc)"
tell zonefs.size "$(stat -c %s /mnt/seq/0) $(cmp -n 16384 /mnt/seq/0 /share/pattern && echo same)"
tell zonefs.unmount "$(result umount /mnt)"
# One queue per processor.
tell stat "$(/share/zonal stat "$DRIVE" | grep -c " of $disk: 0 requests")"
tell left.durable "$(write 24576 3) $(result sync "$disk")"
tell ended "$(end_ublk)"
tell files.left "$(ls /dev | grep -c ublk[bc])"

# A drive in memory may be rotational, and needs no flush; a drive may be served read-only.
disk=$(ublk "$ROTATIONAL")
tell rotational.attributes "$(cd "/sys/block/${disk##*/}/queue" && cat rotational write_cache fua | xargs)"
tell rotational.write "$(write 0 4) $(result sync "$disk")"
tell rotational.ended "$(end_ublk)"
disk=$(ublk "$DRIVE" --read-only)
tell read_only "$(blockdev --getro "$disk") $(blockdev --getsz "$disk")"
tell read_only.ended "$(end_ublk)"

# A server that waits for its drive exits on a second signal, or when killed; its requests then
# fail.
for signal in TERM KILL; do
    disk=$(ublk null:size=64M,zone_size=4M,blocksize=4096,completion_nsec=8000000000)
    write 0 1 >/tmp/lost &
    writer=$!
    pid=$(cat /tmp/served.pid)
    sleep 1
    kill -TERM "$pid"
    sleep 1
    kill -"$signal" "$pid"
    for _ in $(seq 100); do
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.1
    done
    if kill -0 "$pid" 2>/dev/null; then echo waits >/tmp/lost; else wait "$writer"; fi
    tell "ends.$signal" "$(cat /tmp/lost)"
done

# The next server removes the disk that a killed server of a drive without identity has left.
disk=$(ublk ram:size=64M,zone_size=4M)
kill -KILL "$(cat /tmp/served.pid)"
# The kernel removes the disk asynchronously, and announces that afterwards.
for _ in $(seq 300); do [ -e "$disk" ] || break; sleep 0.1; done
sleep 1
tell killed.left "$(ls /dev | grep ublk[bc] | xargs)"
disk=$(ublk ram:size=64M,zone_size=4M)
tell killed.next "$(ls /dev | grep ublk[bc] | xargs) $disk"
tell killed.ended "$(end_ublk)"

# A drive with an identity is taken over while in use, and only with unchanged parameters.
disk=$(ublk "$DRIVE")
exec 3<"$disk"
tell kept.write "$(write 24579 1)"
kill -KILL "$(cat /tmp/served.pid)"
dd if=/share/pattern of="$disk" bs=4096 seek=24580 count=1 oflag=direct conv=notrunc 2>/tmp/dd.said &
# A copy of the drive counts as another drive: its server makes a disk of its own.
cp "$DRIVE" /tmp/copy
tell kept.copy "$(ublk /tmp/copy) $(end_ublk)"
tell kept.changed "$(refused "$DRIVE" --read-only)"
tell kept.disk "$(ublk "$DRIVE")"
wait $!
tell kept.waited "$(grep -c 'error' /tmp/dd.said) $(zone 196608)"
kill -KILL "$(cat /tmp/served.pid)"
# Each server fails for lack of a descriptor, at a later step than the previous one, and must leave
# the disk to the next. The first with enough descriptors ends the loop.
lacking=$(for n in $(seq 4 30); do
    said=$(BEFORE="prlimit --nofile=$n" ublk "$DRIVE")
    case $said in "$disk") break ;; *) sed -n '/Too many open files/ s/.*ublk: \(its [^:]*\): .*/\1/p' <<<"$said" ;; esac
done | uniq | xargs)
tell kept.lacking "$lacking"
kill -KILL "$(cat /tmp/served.pid)"
tell kept.again "$(ublk "$DRIVE")"
exec 3<&-
tell kept.ended "$(end_ublk)"
dmesg | grep -E 'WARNING:|BUG:|hung' | sed 's/^/messages /'
