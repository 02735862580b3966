#!/bin/bash
# Writes to a block device of the guest while its server is killed and restarted; kills.py lists the
# checks. DRIVE is the device, ROUNDS the number of kills, SEED that of the times of the kills.
set -u
# shellcheck source=crates/zonal-check/tests/guest/lib.sh
. /share/lib.sh
cd /tmp || exit 1
RANDOM=$SEED
signs=$(mktemp -d)

# Kills the server of each round some time after its writers have started, and starts another.
killer() {
    local round
    for ((round = 0; round < ROUNDS; round++)); do
        while [ ! -e "$signs/writing-$round" ]; do
            [ ! -e "$signs/over" ] || return
            sleep 0.05
        done
        sleep "$((RANDOM % 2)).$((RANDOM % 1000))"
        : >"$signs/killing-$round"
        kill -KILL "$(cat /tmp/served.pid)"
        tell again "$(ublk "$DRIVE")"
        : >"$signs/restarted-$round"
    done
}

disk=$(ublk "$DRIVE")
tell disk "$disk"
killer >/tmp/killer.said &
killer=$!
python3 /share/kills.py "$disk" "$disk" "$ROUNDS" "$signs" 2>&1
tell ended "$?"
: >"$signs/over"
wait "$killer"
tell disks "$(sort -u /tmp/killer.said | xargs) $(grep -c again /tmp/killer.said)"
dmesg | grep -E 'WARNING:|BUG:|hung|I/O error' | sed 's/^/messages /'
tell server "$(end_ublk)"
