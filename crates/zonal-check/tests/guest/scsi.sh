#!/bin/bash
# A drive as a SCSI disk of the guest. Prints lines of a key and a value. SCSI is its serial number,
# TURNS that of a rotational disk.
set -u
# shellcheck source=crates/zonal-check/tests/guest/lib.sh
. /share/lib.sh
cd /tmp || exit 1

# A zone of the disk according to blkzone: condition, and number of written sectors. zone SECTOR.
zone() { blkzone report --offset "$1" --count 1 "$disk" | sed -n 's/.*wptr \([^ ]*\) .*zcond: *\([^ ]*\) .*/\2 \1/p'; }

# Result of a write: write BLOCK COUNT. Its data is that of the pattern.
write() {
    local said
    said=$(dd if=/share/pattern of="$disk" bs=4096 seek="$1" count="$2" oflag=direct conv=notrunc 2>&1)
    case $said in *"error writing"*) sed -n 's/.*error writing[^:]*: //p' <<<"$said" ;; *) echo ok ;; esac
}

# Sense data of a command that bypasses the kernel's handling of zones: raw CDB... [< DATA].
raw() {
    local said
    said=$(sg_raw "$@" 2>&1)
    case $said in
    *"Sense Information"* | *"Additional sense"*) sed -n 's/^ *Additional sense: //p; s/.*Sense key: //p' <<<"$said" | xargs ;;
    *) sed -n 's/^SCSI Status: \([A-Za-z]*\).*/\1/p' <<<"$said" ;;
    esac
}
# Writes a block with WRITE(16): raw_write BLOCK.
raw_write() {
    local lba
    lba=$(printf '%016x' "$1" | sed 's/../& /g')
    # shellcheck disable=SC2086 # bytes
    raw --send=4096 --infile=/share/pattern "$disk" 8a 00 $lba 00 00 00 01 00 00
}

disk=$(scsi_disk "$SCSI")
name=${disk##*/}
for attribute in zoned chunk_sectors nr_zones max_open_zones max_active_zones logical_block_size rotational write_cache fua \
    zoned_qd1_writes; do
    tell "$attribute" "$(cat "/sys/block/$name/queue/$attribute")"
done
tell sectors "$(cat "/sys/block/$name/size")"
tell types "$(blkzone report "$disk" | grep -c CONVENTIONAL) $(blkzone report "$disk" | grep -c SEQ_WRITE_REQUIRED)"
tell zone.first "$(blkzone report --offset 0x10000 --count 1 "$disk" | xargs)"
tell inquiry "$(sg_inq "$disk" | sed -n 's/.*Peripheral device type: //p; s/ *Vendor identification: //p; s/ *Product identification: //p' | xargs)"
tell zbc "$(sg_vpd -p zbdc "$disk" | sed -n 's/ *URSWRZ: /urswrz /p; s/.*write required zones: /open /p; s/.*alignment method: /method /p; s/.*LBA granularity: /granularity /p' | xargs)"
tell naa "$(sg_vpd -p di "$disk" | sed -n 's/ *\(0x3[0-9a-f]*\)$/\1/p')"
# The list has zones and gaps: sg_rep_zones asks for the header first.
tell zones.number "$(sg_rep_zones --num=0 --raw "$disk" 2>/dev/null | wc -c)"
tell zones.gaps "$(sg_rep_zones "$disk" | grep -c 'Zone type: gap')"
tell zones.empty "$(sg_rep_zones --report=1 "$disk" | grep -c 'Zone type:')"
tell opcodes "$(sg_opcodes "$disk" | grep -cE '^ [0-9a-f]{2} ')"
tell luns "$(sg_luns "$disk" | tail -n 1 | xargs)"
tell verify "$(result sg_verify --lba=0 --count=8 "$disk")"
tell turs "$(result sg_turs "$disk")"
tell logs "$(result sg_logs -p 0 "$disk")"

# The first four zones are conventional. Zones have 2048 blocks, 1536 of them writable.
tell write.conventional "$(write 100 2)"
tell write.at_pointer "$(write 8192 2)"
tell zone.written "$(zone 65536)"
tell read "$(dd if="$disk" bs=4096 skip=8192 count=2 iflag=direct status=none | cmp -n 8192 - /share/pattern && echo same)"
tell raw.at_pointer "$(raw_write 8194)"
tell raw.beyond_pointer "$(raw_write 8200)"
tell raw.below_pointer "$(raw_write 8192)"
tell raw.gap "$(raw_write 9800)"
tell raw.beyond_end "$(raw_write 99999999)"
tell raw.unknown "$(raw "$disk" ff 00 00 00 00 00)"
tell raw.not_zone_start "$(raw "$disk" 94 04 00 00 00 00 00 00 20 01 00 00 00 00 00 00)"
tell sg_zone.finish "$(result sg_zone --finish --zone=8192 "$disk") $(zone 65536)"
tell raw.full "$(raw_write 8195)"
tell sg_reset_wp "$(result sg_reset_wp --zone=8192 "$disk") $(zone 65536)"
tell sg_zone.open "$(for n in 5 6 7 8; do result sg_zone --open --zone=$((n * 2048)) "$disk"; done | xargs)"
tell raw.too_many "$(raw "$disk" 94 03 00 00 00 00 00 00 48 00 00 00 00 00 00 00)"
tell sg_zone.close "$(result sg_zone --close --zone=10240 "$disk") $(zone 81920)"
tell sg_reset_wp.all "$(result sg_reset_wp --all "$disk")"
tell zones.reset "$(sg_rep_zones --report=1 "$disk" | grep -c 'Zone type:')"
# Raw commands have not moved the kernel's write pointers, so this uses another zone.
tell zeroes "$(result blkdiscard --force --zeroout --offset $((20480 * 4096)) --length 1M "$disk") $(zone 163840)"
tell zonefs "$(result mkzonefs -f "$disk") $(result mount -t zonefs "$disk" /mnt)"
tell zonefs.write "$(result dd if=/share/pattern of=/mnt/seq/0 bs=4096 count=4 oflag=direct,append conv=notrunc)"
tell zonefs.size "$(stat -c %s /mnt/seq/0) $(cmp -n 16384 /mnt/seq/0 /share/pattern && echo same)"
tell zonefs.unmount "$(result umount /mnt)"
tell left.durable "$(write 24576 3) $(result sync "$disk")"
# The same queries to the kernel's own emulated disk.
modprobe scsi_debug zbc=managed zone_nr_conv=4 zone_size_mb=8 zone_cap_mb=6 dev_size_mb=128 sector_size=4096 zone_max_open=4
for _ in $(seq 50); do other=$(ls -d /sys/block/sd*/device/model 2>/dev/null | xargs grep -l scsi_debug) && break; sleep 0.1; done
other=/dev/$(cut -d / -f 4 <<<"$other")
for page in zbdc bl bdc lbpv; do
    diff <(sg_vpd -p $page "$disk" 2>&1) <(sg_vpd -p $page "$other" 2>/dev/null) | sed -n "s/^[<>] */& $page: /p" >>/tmp/differs
    tell "differs.$page" "$(diff <(sg_vpd -p $page "$disk" 2>&1) <(sg_vpd -p $page "$other" 2>/dev/null) | grep -c '^[<>]')"
done
tell differs.zones "$(diff <(sg_rep_zones "$disk" | grep -E 'type|start|Length') <(sg_rep_zones "$other" | grep -E 'type|start|Length') | grep -c '^[<>]')"

disk=$(scsi_disk "$TURNS")
tell turns "$(cd "/sys/block/${disk##*/}/queue" && cat rotational zoned_qd1_writes write_cache | xargs)"
if [ -n "${LIST:-}" ]; then cat /tmp/differs; fi
dmesg | grep -E 'WARNING:|BUG:|hung' | sed 's/^/messages /'
