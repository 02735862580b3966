#!/bin/bash
# fio's tests of zoned drives, t/zbd/test-zbd-support, against the disk of a served drive or a
# null_blk of equal shape. Prints one line per test, `NUMBER pass`, `NUMBER skip: REASON` or `NUMBER
# fail`, and the end of the log of each failed test.
#
# The disk is the served one of PORT and NQN, the one of UBLK or SCSI (lib.sh), or otherwise a
# null_blk of the shape given by the variables of lib.sh. MAX_OPEN applies to the suite as well; 0
# is no limit. WITH_FAULTS has a word TEST,PORT,NQN for each test that runs on a drive of its own
# with the failing writes of this test; with UBLK it has words TEST, each with its plan in
# planTEST.toml of the share; with SCSI words TEST,SERIAL. TESTS, if set, has the numbers of the
# tests to run.
set -u
# shellcheck source=crates/zonal-check/tests/guest/lib.sh
. /share/lib.sh

# The suite writes its logs to its own directory.
cp -r /opt/fio /tmp/fio
suite=/tmp/fio/t/zbd/test-zbd-support
configuration=/sys/kernel/config/nullb
modprobe null_blk nr_devices=0
modprobe nvme-tcp

# Runs the suite with its own options: suite DISK [OPTION...].
suite() {
    local disk=$1
    shift
    if [ "$MAX_OPEN" -gt 0 ]; then set -- -o "$MAX_OPEN" "$@"; fi
    "$suite" "$@" "$disk" 2>&1 | sed "s|$disk|DISK|" >>/tmp/said
    return "${PIPESTATUS[0]}"
}

if [ -n "${PORT:-}" ]; then
    tell connected "$(result connect "$PORT" "$NQN")"
    disk=$(disk "$NQN" 1)
elif [ -n "${UBLK:-}${SCSI:-}" ]; then
    disk=$(one_disk)
else
    disk=$(null_blk badblocks_once=1 badblocks_partial_io=1 completion_nsec=0)
fi
for attribute in zoned chunk_sectors nr_zones max_open_zones max_active_zones logical_block_size; do
    tell "$attribute" "$(cat "/sys/block/${disk##*/}/queue/$attribute")"
done

options=()
for number in ${TESTS:-}; do options+=(-t "$number"); done
suite "$disk" "${options[@]}"
ended=$?
for word in ${WITH_FAULTS:-}; do
    IFS=, read -r number port nqn <<<"$word"
    if [ -n "${UBLK:-}" ]; then
        tell "ended.$number" "$(end_ublk)"
        faulty=$(ublk "fault:plan=/share/plan$number.toml+$UBLK")
    elif [ -n "${SCSI:-}" ]; then
        faulty=$(scsi_disk "$port")
    else
        tell "connected.$number" "$(result connect "$port" "$nqn")"
        faulty=$(disk "$nqn" 1)
    fi
    # The suite writes its bad blocks to null_blk's configuration. This drive has them already, so
    # an unpowered null_blk takes the setting.
    mkdir "$configuration/${faulty##*/}"
    echo 1 >"$configuration/${faulty##*/}/badblocks_once"
    # The suite's result of this test without the bad blocks does not count.
    sed -i "/^Running test $number /d" /tmp/said
    suite "$faulty" -t "$number" || ended=$?
done
tell ended "$ended"

sed -n 's/^Running test 0*\([0-9]*\) \.\.\. PASS.*/\1 pass/p; s/^Running test 0*\([0-9]*\) \.\.\. .*SKIP *\(.*\)/\1 skip: \2/p
    s/^Running test 0*\([0-9]*\) \.\.\. .*FAIL.*/\1 fail/p' /tmp/said
tell time "$(sed -n 's/^Run time: //p' /tmp/said | head -n 1)"
tell complaints "$(complaints)"
for number in $(sed -n 's/^Running test 0*\([0-9]*\) .*FAIL.*/\1/p' /tmp/said); do
    tail -n 60 "$suite.log.$number" | sed "s/^/log of $number: /"
done
