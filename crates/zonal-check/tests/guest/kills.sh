#!/bin/bash
# Writes to a served drive while its server is killed and restarted; kills.py lists the checks. PORT
# and NQN are the drive's, or SCSI is the serial number of a SCSI disk; ROUNDS is the number of
# kills.
set -u
# shellcheck source=crates/zonal-check/tests/guest/lib.sh
. /share/lib.sh

if [ -n "${SCSI:-}" ]; then
    disk=$(scsi_disk "$SCSI")
    tell disk "$disk"
    python3 /share/kills.py "$disk" "$disk" "$ROUNDS" /share 2>&1
    tell ended "$?"
    dmesg | grep -E 'WARNING:|BUG:|hung|I/O error' | sed 's/^/messages /'
    exit
fi

modprobe nvme-tcp
# The server is away only briefly, so the kernel retries soon, and does not give up.
tell connected "$(result connect "$PORT" "$NQN" --reconnect-delay=1 --ctrl-loss-tmo=600 --nr-io-queues=2)"
zoned=$(disk "$NQN" 1)
conventional=$(disk "$NQN" 2)
python3 /share/kills.py "$zoned" "$conventional" "$ROUNDS" /share 2>&1
tell ended "$?"
tell kernel.lost "$(dmesg | grep -c 'starting error recovery\|reconnect')"
dmesg | grep -E 'WARNING:|BUG:|hung' | sed 's/^/messages /'
tell disconnected "$(nvme disconnect --nqn="$NQN" | grep -o 'disconnected 1 ')"
