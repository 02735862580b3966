#!/bin/bash
# Zones of a drive that are changed through the SCSI generic file, while a volume writes others. CHANGES is the number of changes.
# Prints lines of a key and a value.
set -u
# shellcheck source=crates/zonal-check/tests/guest/lib.sh
. /share/lib.sh
export ZONAL_RUNTIME_DIR=/tmp/zonal-runtime
mkdir -p $ZONAL_RUNTIME_DIR
cd /tmp || exit 1

scsi_debug
/share/passthrough "blk:$disk" "$sg" "$CHANGES" 2>/tmp/said || tell error "$(tail -n 1 /tmp/said)"
