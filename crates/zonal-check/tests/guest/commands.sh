#!/bin/bash
# Runs every command of nvme-cli and blkzone that a zoned drive answers. Prints lines of a key and a
# value, which commands.rs compares with the expected ones.
#
# PORT and NQN are the drive's: twelve sequential zones of 2048 blocks, 1536 of them writable, and
# four conventional ones. Zones 9, 10 and 11 become read-only on their second write.
set -u
# shellcheck source=crates/zonal-check/tests/guest/lib.sh
. /share/lib.sh

data=/tmp/data
head -c 64K /dev/urandom >$data

lba() { echo $(($1 * 2048 + ${2:-0})); }
# Writes blocks at the write pointer of a zone: write DISK LBA [BLOCKS].
write() { status nvme write "$1" --start-block="$2" --block-count=$((${3:-1} - 1)) --data-size=$((${3:-1} * 4096)) --data=$data; }
zns() { local verb=$1; shift; status nvme zns "$verb" "$zoned" "$@"; }
on() { local verb=$1 zone=$2; shift 2; zns "$verb" --start-lba="$(lba "$zone")" "$@"; }

append() {
    nvme zns zone-append "$zoned" --zslba="$1" --data-size="$2" --data=$data 2>&1 |
        sed -n 's/^Success appended data to LBA //p; s/^NVMe status: .*(\(0x[0-9a-f]*\))$/\1/p'
}

# Fields of a command's JSON output: fields FILTER COMMAND...
fields() {
    local filter=$1
    shift
    "$@" --output-format=json 2>/dev/null | jq -rc "$filter"
}

# Zones of a report, all or those selected by options: number:condition:blocks below the write
# pointer.
zones() {
    fields '[.zone_list[] | "\(.slba / 2048):\(.state):\(.wp - .slba)"] | join(" ")' \
        nvme zns report-zones "$zoned" "$@"
}

modprobe nvme-tcp
tell connected "$(result connect "$PORT" "$NQN")"
zoned=$(disk "$NQN" 1)
conventional=$(disk "$NQN" 2)
controller=$(controller "$zoned")
tell disks "$(disks | wc -l)"

# ---- identification
tell id-ctrl "$(fields '[.cntrltype, .sqes, .cqes, .nn, .mdts, .oncs, .vwc, .oaes, .acl, .aerl, .elpe, .frmw, .kas, .subnqn]' nvme id-ctrl "$controller")"
tell id-ns.zoned "$(fields '[.nsze, .ncap, .nuse, .nlbaf, .lbafs[0].ds, .lbafs[0].ms, .nmic, .dlfeat, .nsattr]' nvme id-ns "$zoned")"
tell id-ns.conventional "$(fields '[.nsze, .ncap, .nuse, .lbafs[0].ds]' nvme id-ns "$conventional")"
tell id-ns.absent "$(fields '[.nsze, .ncap]' nvme id-ns "$controller" --namespace-id=3)"
tell zns.id-ctrl "$(fields .zasl nvme zns id-ctrl "$controller")"
tell zns.id-ns "$(fields '[.zoc, .ozcs, .mar, .mor, .lbafe[0].zsze, .lbafe[0].zdes]' nvme zns id-ns "$zoned")"
tell zns.id-ns.conventional "$(status nvme zns id-ns "$conventional")"
tell list-ns "$(fields '[.nsid_list[].nsid]' nvme list-ns "$controller") $(fields '[.nsid_list[].nsid]' nvme list-ns "$controller" --csi=2)"
tell ns-descs "$(nvme ns-descs "$zoned" | xargs)"
tell id-iocs "$(nvme id-iocs "$controller" | xargs)"
tell independent "$(fields '[.nsfeat, .nmic, .nsattr, .nstat]' nvme cmdset-ind-id-ns "$zoned")"
tell show-regs "$(nvme show-regs "$controller" | sed -n 's/^\(cap\|version\|cc\|csts\|vs\) *: *//p' | xargs)"

# ---- each state of a zone, as reported by the drive
tell states.opened "$(write "$zoned" "$(lba 1)" 3) $(on open-zone 2) $(write "$zoned" "$(lba 3)" 2) $(on close-zone 3) $(on finish-zone 4)"
tell states.worn "$(write "$zoned" "$(lba 9)") $(write "$zoned" "$(lba 9 1)") $(write "$zoned" "$(lba 10)") $(write "$zoned" "$(lba 10 1)") $(on offline-zone 10)"
tell report.all "$(zones)"
for state in 1 2 3 4 5 6 7; do tell "report.state$state" "$(zones --state=$state)"; done
tell report.from "$(zones --start-lba="$(lba 8)" --descs=4)"
tell report.within "$(zones --start-lba="$(lba 8 5)" --descs=2)"
tell report.end "$(zns report-zones --start-lba="$(lba 12)")"
tell report.extended "$(zns report-zones --extended)"
tell report.conventional "$(status nvme zns report-zones "$conventional")"
# The number of zones in the header of a report with room for two. nvme-cli does not print the
# output of zone-mgmt-recv, so the raw command is sent: received OPTIONS-OF-DWORD-13 [ZONE].
received() {
    nvme io-passthru "$zoned" --opcode=0x7a --namespace-id=1 --read --raw-binary --data-len=192 --cdw10="$(lba "${2:-0}")" \
        --cdw12=47 --cdw13="$1" 2>/dev/null | od -A n -t u8 -N 8 | xargs
}
tell receive "$(received 0) $(received 0x10000) $(received 0x700) $(received 0 11)"
tell receive.action "$(zns zone-mgmt-recv --zra=5 --data-len=128)"

# ---- commands allowed in each state: empty 0, open 1 and 2, closed 3, full 4, read-only 9, offline
# 10
for verb in open close finish reset offline; do
    tell "refused.$verb" "$(for zone in 0 4 9 10; do
        case $verb-$zone in open-0 | finish-0 | finish-4 | reset-0 | reset-4 | offline-9 | offline-10) echo -n "- " ;; *) echo -n "$(on $verb-zone $zone) " ;; esac
    done)"
done
tell act.closed "$(on open-zone 3) $(zones --state=3)"
tell act.opened "$(on close-zone 1) $(zones --state=4)"
tell act.finished "$(on finish-zone 1) $(on finish-zone 4) $(zones --state=5)"
tell act.reset "$(on reset-zone 1) $(on reset-zone 4) $(on reset-zone 0) $(zones --state=5)."
tell act.not-start "$(zns open-zone --start-lba="$(lba 5 1)")"
tell act.beyond "$(zns open-zone --start-lba="$(lba 12)")"
tell act.send "$(on zone-mgmt-send 5 --zsa=3) $(on zone-mgmt-send 5 --zsa=1) $(on zone-mgmt-send 5 --zsa=9) $(zones --state=3)"
tell act.description "$(on set-zone-desc 5 --data=$data) $(status nvme io-passthru "$zoned" --opcode=0x79 --namespace-id=1 --cdw10="$(lba 5)" --cdw13=0x10)"
tell act.flush-window "$(zns zrwa-flush-zone --lba="$(lba 5)")"
tell act.conventional "$(status nvme zns reset-zone "$conventional" --start-lba=0)"

# ---- all zones at once
tell all.before "$(write "$zoned" "$(lba 6)") $(zones --state=2) / $(zones --state=3)"
tell all.close "$(zns close-zone --select-all) $(zones --state=4)"
tell all.open "$(zns open-zone --select-all) $(zones --state=3)"
tell all.finish "$(zns finish-zone --select-all) $(zones --state=5)"
tell all.reset "$(zns reset-zone --select-all) $(zones)"
tell all.offline "$(zns offline-zone --select-all) $(zones --state=7)"

# ---- writes and appends
tell append "$(append "$(lba 0)" 8192) $(append "$(lba 0)" 4096) $(append "$(lba 0 1)" 4096) $(zones --state=2)"
tell append.full "$(on finish-zone 0) $(append "$(lba 0)" 4096)"
tell append.conventional "$(status nvme zns zone-append "$conventional" --zslba=0 --data-size=4096 --data=$data)"
tell write.pointer "$(write "$zoned" "$(lba 1)" 2) $(write "$zoned" "$(lba 1)") $(write "$zoned" "$(lba 1 3)")"
tell zeroes "$(status nvme write-zeroes "$zoned" --start-block="$(lba 1 2)" --block-count=3) $(status nvme write-zeroes "$zoned" --start-block="$(lba 1 2)" --block-count=0) $(zones --state=2)"
tell zeroes.read "$(nvme read "$zoned" --start-block="$(lba 1 2)" --block-count=3 --data-size=16384 2>/dev/null | cmp -n 16384 - /dev/zero && echo zeroes)"
tell zeroes.conventional "$(write "$conventional" 7 2) $(status nvme write-zeroes "$conventional" --start-block=7 --block-count=0)"
tell zeroes.conventional.read "$(nvme read "$conventional" --start-block=7 --block-count=0 --data-size=4096 2>/dev/null | cmp -n 4096 - /dev/zero && echo zeroes) $(nvme read "$conventional" --start-block=8 --block-count=0 --data-size=4096 2>/dev/null | cmp -n 4096 -i 0:4096 - $data && echo same)"
tell verify "$(status nvme verify "$zoned" --start-block="$(lba 1)" --block-count=1) $(status nvme verify "$conventional" --start-block=7 --block-count=1) $(status nvme verify "$zoned" --start-block="$(lba 12)" --block-count=0)"
tell read.offline "$(status nvme read "$zoned" --start-block="$(lba 10)" --block-count=0 --data-size=4096)"
tell flush "$(status nvme flush "$zoned") $(status nvme flush "$conventional")"
tell dsm "$(status nvme dsm "$zoned" --ad --blocks=1 --slbs=0) $(status nvme dsm "$conventional" --ad --blocks=1 --slbs=8)"
tell unsupported "$(status nvme compare "$zoned" --start-block=0 --block-count=0 --data-size=4096 --data=$data) $(status nvme write-uncor "$conventional" --start-block=0 --block-count=0) $(status nvme copy "$conventional" --sdlba=0 --slbs=8 --blocks=0)"
tell unsupported.admin "$(status nvme format "$zoned" --force) $(status nvme device-self-test "$controller" --self-test-code=1) $(status nvme resv-report "$zoned")"

# ---- logs
tell changed-zone-list "$(nvme zns changed-zone-list "$zoned" --rae | sed -n 's/^zid [0-9]*: //p' | xargs)"
tell changed-zone-list.read "$(nvme zns changed-zone-list "$zoned" | sed -n 's/^zid [0-9]*: //p' | xargs) / $(nvme zns changed-zone-list "$zoned" | sed -n 's/^zid [0-9]*: //p' | xargs)"
tell smart-log "$(fields '[.critical_warning, .avail_spare, .percent_used, (.data_units_read > 0), (.data_units_written > 0), (.host_read_commands > 0), (.host_write_commands > 10), .media_errors, (.num_err_log_entries > 10)]' nvme smart-log "$controller")"
write "$zoned" "$(lba 1 100)" >/dev/null
tell error-log "$(fields '.errors[0] | [.sqid > 0, .status_field, .lba, .nsid, .opcode]' nvme error-log "$controller" --log-entries=1)"
tell error-log.count "$(fields '[.errors[].error_count] | [.[0] - .[1], length]' nvme error-log "$controller" --log-entries=64)"
effects() { nvme effects-log "$controller" --csi="$1" | sed -n 's/^\(ACS\|IOCS\)\([0-9]*\) .*\] 0*\([0-9a-f]*\)$/\1\2=\3/p' | xargs; }
tell effects-log.zns "$(effects 2)"
tell effects-log.nvm "$(effects 0)"
tell fw-log "$(nvme fw-log "$controller" | sed -n 's/^\(afi\|frs[1-7]\) *: *//p' | cut -d ' ' -f 1 | xargs)"
tell supported-log-pages "$(nvme supported-log-pages "$controller" | sed -n 's/^LID \([0-9a-fx]*\) .*/\1/p' | xargs)"
tell changed-ns-list-log "$(nvme changed-ns-list-log "$controller" | xargs)"
tell get-log.unknown "$(status nvme get-log "$controller" --log-id=0x55 --log-len=512)"
tell endurance-log "$(status nvme endurance-log "$controller")"

# ---- features
for feature in 1 2 4 5 6 7 0xa 0xb 0xf 0x19 3 0x20; do
    tell "get-feature.$feature" "$(nvme get-feature "$controller" --feature-id=$feature 2>&1 | sed -n 's/.*[Cc]urrent value: *//p; s/^NVMe status: .*(\(0x[0-9a-f]*\))$/\1/p')"
done
tell set-feature "$(status nvme set-feature "$controller" --feature-id=4 --value=0x160) $(status nvme set-feature "$controller" --feature-id=6 --value=2) $(status nvme set-feature "$controller" --feature-id=4 --value=0x160 --save) $(status nvme set-feature "$controller" --feature-id=0x20 --value=0)"
tell set-feature.kept "$(nvme get-feature "$controller" --feature-id=4 2>&1 | sed -n 's/.*[Cc]urrent value: *//p')"

# ---- blkzone, in sectors: a zone has 16384
tell blkzone.report "$(blkzone report --offset $((16384 * 8)) --count 3 "$zoned" | sed 's/.*start: \([^,]*\), .*wptr \([^ ]*\) .*zcond: *\([^ ]*\) .*/\1 \2 \3/' | xargs)"
tell blkzone.capacity "$(blkzone capacity "$zoned") $(blkzone capacity --offset 16384 --count 2 "$zoned")"
tell blkzone.open "$(result blkzone open --offset $((16384 * 5)) --count 2 "$zoned") $(zones --state=3)"
tell blkzone.close "$(result blkzone close --offset $((16384 * 5)) --count 2 "$zoned") $(zones --state=4)"
tell blkzone.written "$(write "$zoned" "$(lba 5)") $(write "$zoned" "$(lba 6)") $(result blkzone close --offset $((16384 * 5)) --length 32768 "$zoned") $(zones --state=4)"
tell blkzone.finish "$(result blkzone finish --offset $((16384 * 5)) --count 3 "$zoned") $(zones --state=5)"
tell blkzone.reset "$(result blkzone reset --offset $((16384 * 5)) --count 2 "$zoned") $(zones --state=5)"
tell blkzone.reset.all "$(result blkzone reset "$zoned") $(zones --state=5)."
tell blkzone.misaligned "$(result blkzone reset --offset 8 "$zoned" | sed "s|$zoned|DISK|")"
tell blkzone.beyond "$(result blkzone open --offset $((16384 * 12)) "$zoned" | sed "s|$zoned|DISK|")"
tell blkzone.conventional "$(result blkzone report "$conventional" | sed "s|$conventional|DISK|")"

tell messages "$(dmesg | grep -cE 'WARNING:|BUG:|nvme.*(timeout|reset|failed)')"
tell disconnected "$(nvme disconnect --nqn="$NQN" | grep -o 'disconnected 1 ')"
