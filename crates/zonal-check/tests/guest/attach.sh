#!/bin/bash
# First use of two served drives by a host. Prints lines of a key and a value, which main.rs
# compares with the expected ones.
#
# GOOD_PORT and FAULTY_PORT are the ports of the drives, GOOD_NQN and FAULTY_NQN their names.
# /share/pattern has 16 KiB.
set -u
pattern=/share/pattern
# shellcheck source=crates/zonal-check/tests/guest/lib.sh
. /share/lib.sh

write() { status nvme write "$1" --start-block="$2" --block-count=$(($3 / $4 - 1)) --data-size="$3" --data="$pattern"; }

read_back() {
    local file=/tmp/read_back
    nvme read "$1" --start-block="$2" --block-count=$(($3 / 4096 - 1)) --data-size="$3" --data="$file" >/dev/null 2>&1
    if cmp -s -n "$3" "$file" "$pattern"; then echo same; else echo differs; fi
}

append() {
    nvme zns zone-append "$zoned" --zslba="$1" --data-size="$2" --data="$pattern" 2>&1 |
        sed -n 's/^Success appended data to LBA //p; s/^NVMe status: .*(\(0x[0-9a-f]*\))$/\1/p'
}

# Conditions and write pointers of the first $1 zones, as reported by the drive; pointers in blocks
# from the start of the zone.
zones() {
    nvme zns report-zones "$zoned" --descs="$1" --output-format=json |
        jq -r '[.zone_list[] | "\(.state):\(.wp - .slba)"] | join(" ")'
}

modprobe nvme-tcp
tell discovered "$(nvme discover --transport=tcp --traddr=10.0.2.2 --trsvcid="$GOOD_PORT" --output-format=json |
    jq -r '[.records[] | select(.subtype == "nvme subsystem") | .subnqn] | join(" ")')"
tell connected "$(result connect "$GOOD_PORT" "$GOOD_NQN")"
zoned=$(disk "$GOOD_NQN" 1)
conventional=$(disk "$GOOD_NQN" 2)
tell disks "$(disks | wc -l)"

for attribute in zoned chunk_sectors nr_zones max_open_zones max_active_zones zone_append_max_bytes zone_write_granularity \
    logical_block_size max_hw_sectors_kb write_cache; do
    tell "zoned.$attribute" "$(cat "/sys/block/${zoned##*/}/queue/$attribute")"
done
tell zoned.sectors "$(cat "/sys/block/${zoned##*/}/size")"
tell zoned.uuid "$(cat "/sys/block/${zoned##*/}/uuid")"
tell conventional.zoned "$(cat "/sys/block/${conventional##*/}/queue/zoned")"
tell conventional.sectors "$(cat "/sys/block/${conventional##*/}/size")"

tell report.kernel "$(blkzone report "$zoned" | sed 's/start: [^,]*, //; s/^ *//' | sort | uniq -c | sed 's/^ *//')"
tell report.drive "$(nvme zns report-zones "$zoned" --output-format=json | jq -r '"\(.nr_zones) \([.zone_list[] |
    "\(.type) \(.state) \(.cap)"] | unique | join(", ")) \([.zone_list[] | .slba % 2048 + (.wp - .slba)] | add)"')"

# One zone, from its first write to its reset.
tell write.at_pointer "$(write "$zoned" 0 8192 4096)"
tell append.lba "$(append 0 8192)"
tell append.not_zone_start "$(append 5 8192)"
tell read.written "$(read_back "$zoned" 0 8192)"
tell read.appended "$(read_back "$zoned" 2 8192)"
tell write.misplaced "$(write "$zoned" 100 8192 4096)"
tell write.below_pointer "$(write "$zoned" 0 8192 4096)"
tell zones.written "$(zones 2)"
tell reset "$(status nvme zns reset-zone "$zoned" --start-lba=0)"
tell zones.reset "$(zones 2)"

# Through the block layer.
tell dd "$(result dd if="$pattern" of="$zoned" bs=16k count=1 oflag=direct conv=fsync)"
tell dd.pointer "$(blkzone report --count 1 "$zoned" | sed -n 's/.*wptr \([^ ]*\) .*/\1/p')"
tell blkzone.finish "$(result blkzone finish --offset $((2048 * 8)) --count 1 "$zoned")"
tell write.full "$(write "$zoned" 2048 8192 4096)"
tell blkzone.reset "$(result blkzone reset --offset 0 --count 1 "$zoned")"
tell zones.finished "$(zones 3)"

# The limits: four open zones, six active ones.
opened=
for zone in 4 5 6 7 8; do opened+=" $(status nvme zns open-zone "$zoned" --start-lba=$((zone * 2048)))"; done
tell open.five "${opened# }"
tell write.too_many_open "$(write "$zoned" $((8 * 2048)) 4096 4096)"
tell blkzone.reset_open "$(result blkzone reset "$zoned")"
active=
for zone in 0 1 2 3 4 5 6; do active+=" $(write "$zoned" $((zone * 2048)) 4096 4096)"; done
tell write.seven_active "${active# }"
tell blkzone.reset_active "$(result blkzone reset "$zoned")"

# The conventional namespace, with a file system.
tell mkfs "$(result mkfs.ext4 -q "$conventional")"
tell mount "$(result mount "$conventional" /mnt)"
head -c 8M /dev/urandom >/tmp/file
tell copy "$(result cp /tmp/file /mnt/file)"
tell unmount "$(result umount /mnt)"
tell fsck "$(result fsck.ext4 -fn "$conventional")"
tell mount_again "$(result mount "$conventional" /mnt)"
tell file "$(result cmp /tmp/file /mnt/file)"
tell remove "$(result rm /mnt/file)"
tell fstrim "$(result fstrim /mnt)"
tell unmount_again "$(result umount /mnt)"

# Data that the test looks for in the image: 12 KiB at the write pointers of two zones, and a block
# of the conventional namespace.
tell left.first "$(write "$zoned" $((3 * 2048)) 8192 4096) $(append $((3 * 2048)) 4096)"
tell left.second "$(write "$zoned" $((5 * 2048)) 4096 4096)"
tell left.finished "$(status nvme zns finish-zone "$zoned" --start-lba=$((7 * 2048)))"
tell left.conventional "$(write "$conventional" 8191 4096 4096)"
tell left.flushed "$(status nvme flush "$zoned") $(status nvme flush "$conventional")"
tell complaints "$(complaints)"

# A drive with faults and blocks of 512 bytes.
tell faulty.connected "$(result connect "$FAULTY_PORT" "$FAULTY_NQN")"
faulty=$(disk "$FAULTY_NQN" 1)
tell faulty.writes "$(write "$faulty" 0 512 512) $(write "$faulty" 1 512 512) $(write "$faulty" 1 512 512)"
tell faulty.read "$(status nvme read "$faulty" --start-block=16384 --block-count=0 --data-size=512)"
tell faulty.worn "$(write "$faulty" $((5 * 8192)) 512 512) $(write "$faulty" $((5 * 8192 + 1)) 512 512)"
tell faulty.condition "$(blkzone report --offset $((5 * 8192)) --count 1 "$faulty" | sed -n 's/.*zcond:\([^ ]*\) .*/\1/p')"
tell faulty.changed "$(nvme zns changed-zone-list "$faulty" | sed -n 's/^zid [0-9]*: //p')"
dd if="$faulty" of=/dev/null bs=4k skip=2048 count=1 iflag=direct 2>/dev/null
tell faulty.dd_read $?

tell disconnected "$(nvme disconnect --nqn="$GOOD_NQN") $(nvme disconnect --nqn="$FAULTY_NQN")"
tell disks.left "$(disks | wc -l)"
