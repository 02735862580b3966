#!/bin/bash
# XFS on both namespaces of served drives, and `zonal mount` on the zoned namespace of other drives
# of equal shape, over a connection of its own: bytes written by programs and to the drive, then the
# cost of a failed write. Prints lines that begin with the file system and the drive.
#
# DRIVES is a list of words KIND,NAME,PORT,NQN: KIND is zonal or xfs, NAME describes the behaviour
# of the drive. The drives `plain` and `disk` get the loads of beside.py, others its writes. /share
# has the program and beside.py.
set -u
# shellcheck source=crates/zonal-check/tests/guest/lib.sh
. /share/lib.sh
export ZONAL_RUNTIME_DIR=/run
zonal=/share/zonal

mounted() {
    local kind=$1 is_new=$2
    case $kind in
        xfs)
            if [ "$is_new" = new ]; then mkfs.xfs -q -f -r "rtdev=$zoned,zoned=1" "$conventional" || return; fi
            mount -t xfs -o "rtdev=$zoned" "$conventional" /mnt
            ;;
        zonal)
            if [ "$is_new" = new ]; then "$zonal" mkfs "nvme-tcp://10.0.2.2:$port/$nqn" || return; fi
            "$zonal" mount "nvme-tcp://10.0.2.2:$port/$nqn" /mnt --daemon --log /tmp/log
            ;;
    esac
}

unmounted() {
    case $1 in
        xfs) umount /mnt ;;
        zonal) "$zonal" unmount /mnt ;;
    esac
}

modprobe nvme-tcp
modprobe fuse
for drive in $DRIVES; do
    IFS=, read -r kind name port nqn <<<"$drive"
    what="$kind $name"
    tell "$what connect $(result connect "$port" "$nqn")"
    zoned=$(disk "$nqn" 1)
    conventional=$(disk "$nqn" 2)
    dmesg -C
    : >/tmp/log
    tell "$what mount $(result mounted "$kind" new)"
    sync=sync
    if [ "$kind" = zonal ]; then sync="$zonal sync /mnt"; fi
    case $name in
        plain | disk)
            tell "$what room $(df -B1 --output=avail /mnt | tail -n 1 | xargs)"
            python3 /share/beside.py load /mnt "$sync" "$(controller "$zoned")" 2>&1 | sed -u "s/^/$what /"
            tell "$what unmount $(result unmounted "$kind")"
            head -n 8 /tmp/log | sed "s/^/$what said /"
            ;;
        *)
            tell "$what write $(python3 /share/beside.py write /mnt 60 2>&1 | xargs)"
            # Shows that the fault took effect, because programs do not notice it.
            if [ "$kind" = zonal ]; then
                tell "$what failed_units $("$zonal" stat /mnt --json | jq .files.activity.failed_units)"
            fi
            tell "$what unmount $(result unmounted "$kind")"
            tell "$what mount_again $(result mounted "$kind" old)"
            tell "$what verify $(python3 /share/beside.py verify /mnt 60 2>&1 | xargs)"
            tell "$what write_again $(python3 /share/beside.py write /mnt 60 2>&1 | xargs)"
            tell "$what unmount_again $(result unmounted "$kind")"
            dmesg | grep -E 'XFS|I/O error' | head -n 8 | sed "s/^/$what said /"
            head -n 8 /tmp/log | sed "s/^/$what said /"
            ;;
    esac
    nvme disconnect --nqn="$nqn" >/dev/null
done
