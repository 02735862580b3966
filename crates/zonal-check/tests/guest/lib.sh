# Functions shared by the scripts of the guest. The test copies this file to the share.
# shellcheck shell=bash
export LC_ALL=C

tell() { echo "$*"; }

# Result of an NVMe command: ok, or the status returned by the drive.
status() {
    local said
    if said=$("$@" 2>&1 >/dev/null); then
        echo ok
    else
        sed -n 's/^NVMe status: .*(\(0x[0-9a-f]*\))$/\1/p' <<<"$said" | grep . || echo "failed: ${said//$'\n'/ }"
    fi
}

# Result of a command of another program.
result() {
    local said
    if said=$("$@" 2>&1); then echo ok; else echo "failed: ${said//$'\n'/ }"; fi
}

# Makes a host-managed disk of 64 MiB by scsi_debug; sets disk and sg to its device files.
scsi_debug() {
    modprobe scsi_debug dev_size_mb=64 zbc=managed zone_size_mb=4 zone_nr_conv=2 sector_size=4096 zone_max_open=4 delay=0
    modprobe sd_mod
    modprobe sg
    for _ in $(seq 50); do
        disk=$(ls /sys/bus/pseudo/drivers/scsi_debug/adapter*/host*/target*/*/block 2>/dev/null | head -n 1)
        [ -n "$disk" ] && [ -e "/dev/$disk" ] && break
        sleep 0.1
    done
    sg=/dev/$(ls /sys/block/"$disk"/device/scsi_generic)
    disk=/dev/$disk
}

# Number of kernel messages about errors.
complaints() { dmesg | grep -cE 'I/O error|I/O Error|WARNING:|BUG:|nvme.*(timeout|reset|failed|Invalid)' || true; }

# Attaches a drive served by the machine that runs QEMU: connect PORT NQN [OPTION...].
connect() {
    local port=$1 nqn=$2
    shift 2
    nvme connect --transport=tcp --traddr=10.0.2.2 --trsvcid="$port" --nqn="$nqn" "$@"
}

# Makes a null_blk with memory, for comparison, and prints its disk. SIZE, ZONE_SIZE and
# ZONE_CAPACITY (MiB), CONVENTIONAL (number of conventional zones, default 0), MAX_OPEN and
# MAX_ACTIVE (0 for no limit) define its shape. Arguments are further settings.
null_blk() {
    local directory=/sys/kernel/config/nullb/nullb0 setting
    mkdir "$directory"
    for setting in blocksize=4096 "size=$SIZE" memory_backed=1 zoned=1 "zone_size=$ZONE_SIZE" "zone_capacity=$ZONE_CAPACITY" \
        "zone_nr_conv=${CONVENTIONAL:-0}" "zone_max_open=$MAX_OPEN" "zone_max_active=$MAX_ACTIVE" "$@" power=1; do
        echo "${setting#*=}" >"$directory/${setting%%=*}" || echo "/dev/without-$setting"
    done
    echo /dev/nullb0
}

# Serves a device in the guest as a block device, in the background: ublk DEVICE [OPTION...]. Prints
# its disk, or the program's message. The process id is in /tmp/served.pid. BEFORE holds words to
# put before the program's name.
ublk() {
    modprobe ublk_drv
    : >/tmp/served
    # shellcheck disable=SC2086 # words
    ${BEFORE:-} /share/zonal serve "$@" --ublk >/tmp/served 2>/tmp/served.said &
    echo $! >/tmp/served.pid
    for _ in $(seq 600); do
        if grep -q ^ready /tmp/served || ! kill -0 "$(cat /tmp/served.pid)" 2>/dev/null; then break; fi
        sleep 0.1
    done
    sed -n 's/^ready ublk //p' /tmp/served | grep . || cat /tmp/served.said
}

# Terminates the server of a block device: end_ublk. Prints ok once it has exited, or its message.
end_ublk() {
    local pid
    pid=$(cat /tmp/served.pid)
    kill -TERM "$pid"
    for _ in $(seq 600); do
        if ! kill -0 "$pid" 2>/dev/null; then
            if [ -s /tmp/served.said ]; then cat /tmp/served.said; else echo ok; fi
            return
        fi
        sleep 0.1
    done
    echo "the server does not end"
}

# Waits for a SCSI disk served by the machine that runs QEMU, and prints it: scsi_disk SERIAL.
scsi_disk() {
    local disk
    modprobe -a virtio_scsi sd_mod sg
    for _ in $(seq 300); do
        for disk in /sys/block/sd*; do
            if [ -e "$disk" ] && tail -c +5 "$disk/device/vpd_pg80" 2>/dev/null | tr -d '\0' | grep -qx "$1"; then
                echo "/dev/${disk##*/}"
                return
            fi
        done
        sleep 0.1
    done
    echo "/dev/no-disk-$1"
}

# A disk with zones of both kinds: the device UBLK served here, or the SCSI disk with the serial
# number SCSI.
one_disk() { if [ -n "${UBLK:-}" ]; then ublk "$UBLK"; else scsi_disk "$SCSI"; fi; }

# Attached disks: name, namespace id, and name of the subsystem.
disks() {
    local disk
    for disk in /sys/block/nvme*; do
        [ -e "$disk/nsid" ] && echo "${disk##*/} $(cat "$disk/nsid") $(cat "$disk/device/subsysnqn")"
    done
    return 0
}

# Waits for the disk of a namespace, and prints it: disk NQN NSID. Linux numbers disks in order of
# discovery, which varies.
disk() {
    local name
    for _ in $(seq 100); do
        name=$(disks | awk -v nsid="$2" -v nqn="$1" '$2 == nsid && $3 == nqn { print "/dev/" $1 }')
        if [ -b "$name" ]; then
            echo "$name"
            return
        fi
        sleep 0.1
    done
    echo "/dev/no-namespace-$2"
}

# The controller of an attached disk: controller DISK.
controller() { echo "/dev/$(basename "$(dirname "$(realpath "/sys/block/${1##*/}")")")"; }

# Number of failed commands of a disk's controller: failed_commands DISK.
failed_commands() { nvme smart-log "$(controller "$1")" --output-format=json | jq .num_err_log_entries; }
