#!/bin/bash
# A file system on a served drive: made, mounted, filled until there is no space, half emptied,
# refilled, each file compared with the written data, unmounted, checked, mounted again and compared
# again. Prints lines of a key and a value.
#
# KIND is the file system. BYTES, if set, is the amount to write instead of all that fits; without
# REMOVE=1 no file is removed and it is filled only once. PORT and NQN are the drive's. With UBLK or
# SCSI it is one disk with zones of both kinds (lib.sh), otherwise a null_blk of the shape given by
# the variables of lib.sh.
set -u
# shellcheck source=crates/zonal-check/tests/guest/lib.sh
. /share/lib.sh

# Result of fill.py: `ok FILES BYTES`.
files() {
    local said
    if said=$(python3 /share/fill.py "$1" "$directory" /tmp/manifest ${2:-} ${BYTES:-} 2>&1); then
        echo "ok $said"
    else
        echo "failed: ${said//$'\n'/ }"
    fi
}

if [ -n "${PORT:-}" ]; then
    modprobe nvme-tcp
    tell connected "$(result connect "$PORT" "$NQN")"
    zoned=$(disk "$NQN" 1)
    any=$(disks | awk '{ print $1; exit }')
    failed_before=$(failed_commands "$any")
    conventional=$(disk "$NQN" 2)
elif [ -n "${UBLK:-}${SCSI:-}" ]; then
    # The share is too slow for an image that is written here.
    if [ -n "${UBLK:-}" ]; then cp --sparse=always /share/d "$UBLK"; fi
    zoned=$(one_disk)
    conventional=
else
    modprobe null_blk nr_devices=0
    zoned=$(null_blk)
fi
directory=/mnt
fill=fill
remove=remove
case $KIND in
f2fs)
    make="mkfs.f2fs -q -f -m ${conventional:+-c $zoned} ${conventional:-$zoned}"
    mount="mount -t f2fs ${conventional:-$zoned} /mnt"
    check="fsck.f2fs -f ${conventional:-$zoned}"
    ;;
zonefs)
    make="mkzonefs -f $zoned"
    mount="mount -t zonefs $zoned /mnt"
    # There is no program to check it, but a mount examines each zone.
    check="true"
    directory=/mnt/seq
    fill=fill-zones
    remove=remove-zones
    ;;
xfs)
    # Without another disk its metadata is in the conventional zones.
    make="mkfs.xfs -q -f -r zoned=1${conventional:+,rtdev=$zoned} ${conventional:-$zoned}"
    mount="mount -t xfs ${conventional:+-o rtdev=$zoned} ${conventional:-$zoned} /mnt"
    check="xfs_repair -n ${conventional:+-r $zoned} ${conventional:-$zoned}"
    ;;
btrfs)
    make="mkfs.btrfs -q -f $zoned"
    mount="mount -t btrfs $zoned /mnt"
    check="btrfs check $zoned"
    # The flush of a file fails with EAGAIN now and then, on a null_blk as well. See docs/GUEST.md.
    fill=fill-at-once
    ;;
ext4)
    make="mkfs.ext4 -q $conventional"
    mount="mount -t ext4 $conventional /mnt"
    check="fsck.ext4 -fn $conventional"
    ;;
esac

tell mkfs "$(result $make)"
tell mount "$(result $mount)"
tell mounted "$(awk '$2 == "/mnt" { kind = $3 } END { print kind }' /proc/mounts)"
tell fill "$(files $fill 1)"
tell full.df "$(df -B1 --output=used,avail /mnt | tail -n 1 | xargs)"
if [ -n "${REMOVE:-}" ]; then
    tell remove "$(files $remove)"
    tell fill_again "$(files $fill 2)"
fi
tell verify "$(files verify)"
tell unmount "$(result umount /mnt)"
tell check "$(result $check)"
tell mount_again "$(result $mount)"
tell verify_again "$(files verify)"
tell unmount_again "$(result umount /mnt)"
tell complaints "$(complaints)"
if [ "$(complaints)" != 0 ]; then dmesg | tail -n 30 | sed 's/^/messages /'; fi
if [ -n "${PORT:-}" ]; then
    tell failed_commands $(($(failed_commands "$any") - failed_before))
    tell disconnected "$(nvme disconnect --nqn="$NQN" | grep -o 'disconnected 1 ')"
elif [ -n "${UBLK:-}" ]; then
    tell ended "$(end_ublk)"
    cp --sparse=always "$UBLK" /share/d
fi
