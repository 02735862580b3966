#!/bin/bash
# `zonal list` and `zonal doctor` on drives of the guest: a null_blk, QEMU's NVMe drive and a scsi_debug. Prints the keys of
# the findings after each change, without notes.
set -u
# shellcheck source=crates/zonal-check/tests/guest/lib.sh
. /share/lib.sh

zonal=/share/zonal

# Exit code, and keys of findings: found [DEVICE].
found() {
    local said status keys
    said=$($zonal doctor "$@" --json 2>/dev/null)
    status=$?
    keys=$(sed -n '/"key"/{N;s/.*"key": "\([^"]*\)".*"severity": "\(finding\|unusable\)".*/\1/p}' <<<"$said" | paste -sd ' ')
    echo "$status${keys:+ $keys}"
}

# Keys of notes: notes [DEVICE].
notes() {
    $zonal doctor "$@" --json 2>/dev/null |
        sed -n '/"key"/{N;s/.*"key": "\([^"]*\)".*"severity": "note".*/\1/p}' | paste -sd ' '
}

# Writes a block at sector SECTOR of DISK, past the page cache: block DISK SECTOR.
block() { dd if=/dev/zero of="$1" bs=4096 count=1 seek=$(($2 / 8)) oflag=direct conv=notrunc status=none; }

tell machine "$(found)"

modprobe null_blk nr_devices=0
SIZE=512 ZONE_SIZE=16 ZONE_CAPACITY=12 CONVENTIONAL=2 MAX_OPEN=4 MAX_ACTIVE=6
disk=$(null_blk)
name=${disk#/dev/}
directory=/sys/kernel/config/nullb/$name
tell null_blk "$(found "$disk")"
tell null_blk.notes "$(notes "$disk")"
tell null_blk.text "$($zonal doctor "$disk")"
tell listed "$($zonal list | grep "^$disk " | tr -s ' ')"
echo mq-deadline >"/sys/block/$name/queue/scheduler"
tell scheduler "$(found "$disk")"
echo none >"/sys/block/$name/queue/scheduler"
maximum=$(cat "/sys/block/$name/queue/max_sectors_kb")
echo 64 >"/sys/block/$name/queue/max_sectors_kb"
tell small_commands "$(found "$disk")"
echo "$maximum" >"/sys/block/$name/queue/max_sectors_kb"
echo $((5 * 32768)) >"$directory/zone_readonly"
echo $((6 * 32768)) >"$directory/zone_offline"
tell zones "$(found "$disk")"
blkzone open --offset $((8 * 32768)) --count 4 "$disk"
tell open "$(found "$disk")"
blkzone reset --offset $((8 * 32768)) "$disk"
for zone in 8 9 10 11 12 13; do block "$disk" $((zone * 32768)); done
tell active "$(found "$disk")"
blkzone reset --offset $((8 * 32768)) "$disk"
blockdev --setro "$disk"
tell read_only "$(found "$disk")"
blockdev --setrw "$disk"
tell user "$(setpriv --reuid=1000 --clear-groups $zonal doctor "$disk" --json 2>/dev/null | grep -c '"no-access"')"
tell file "$(found /etc/passwd)"
tell missing "$(found /dev/nowhere)"

disk=/dev/nvme0n1
start=$((3 * 16384))
tell nvme "$(found $disk)"
block $disk $start
tell written "$(found $disk)"
# The drive's logical block is a sector.
nvme zns reset-zone /dev/ng0n1 --start-lba=$start >/dev/null
tell reset_behind "$(found $disk)"
tell reset_behind.text "$($zonal doctor $disk 2>/dev/null | sed -n 's/^  evidence  //p')"
tell heal "$(found $disk --heal)"
tell healed "$(found $disk)"
blkzone reset --offset $start --count 1 $disk
tell reset "$(found $disk)"
nvme zns finish-zone /dev/ng0n1 --start-lba=$start >/dev/null
tell finished_behind "$(found $disk)"
blkzone reset --offset $start --count 1 $disk
mkdir -p /mnt/a
modprobe btrfs
mkfs.btrfs -q $disk >/dev/null 2>&1 && mount -t btrfs $disk /mnt/a
tell mounted "$(found $disk)"
tell mounted.listed "$($zonal list | grep -c 'mounted at /mnt/a')"
umount /mnt/a
tell unmounted "$(found $disk)"
dd if=/dev/urandom of=$disk bs=4096 count=4 seek=$((20 * 16384 / 8 + 10)) conv=notrunc,fsync status=none 2>/dev/null
tell buffered "$(found $disk)"

modprobe sd_mod
modprobe sg
modprobe scsi_debug zbc=managed zone_size_mb=8 zone_nr_conv=2 dev_size_mb=128 sector_size=4096
udevadm settle 2>/dev/null || sleep 2
tell scsi "$(found /dev/sda)"
tell scsi.notes "$(notes /dev/sda)"
address=$(basename "$(readlink -f /sys/block/sda/device)")
echo offline >/sys/block/sda/device/state
tell offline "$(found /dev/sda)"
echo running >/sys/block/sda/device/state
echo 'write through' >/sys/block/sda/queue/write_cache
tell flushes "$(found /dev/sda)"
echo "$address" >/sys/bus/scsi/drivers/sd/unbind
tell sg "$(found)"
