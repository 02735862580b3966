#!/usr/bin/env bash
# The long campaigns, many times the work of `make test`: soak.sh [MINUTES [CAMPAIGN...]], MINUTES each (default 10), in
# this order:
#   whole      all cases of the tests that `make test` samples, regardless of MINUTES
#   cuts       power cuts around every call to an image's file, with one thread and with several
#   files      power cuts at any call of a drive with a file system, including metadata, against a model of the synced state
#   units      power cuts at any call under units of many files: at least 2,500 cases of four
#   store      power cuts at any call under the metadata store, in zones, in conventional zones and in a file
#   damage     metadata with damaged bits, blocks and segments, and stores rolled back: 10,000 cases per place, or DAMAGE_CASES,
#              regardless of MINUTES; also on drives with few active zones
#   misplaced  stale or foreign blocks of an aged drive, and writes lost or misdirected by a fault plan under a working file
#              system, each in three places: at least 3,000 cases
#   kills      commands that change a file system in an image, on one file, a directory or an archive, killed at random moments:
#              1,000, or KILLS, regardless of MINUTES
#   killed     processes that use the file system library from three threads, killed at random moments: at least 2,000
#   mounts     mount processes killed, and power cuts, under programs that write: 2,000 each, or four times KILLS, regardless of
#              MINUTES; mounts killed after each call that promises durability, 200 times each; a listing of a million names
#              while others are created and removed; and a hundred writers for MINUTES
#   databases  mount processes killed and power cuts under PostgreSQL and RocksDB: 25 rounds of each, or KILLS, regardless of MINUTES;
#              skipped if their packages are missing; see scripts/databases-under-kills.sh
#   storm      every kind of request concurrently, from four threads
#   schedules  random schedules of whole flows of a volume; see docs/THREADS.md
#   random     the whole stack on one thread, with faults and switches of the mode, against a model of its guarantees; at least
#              ten million requests
#   interference  like random, with other actions of callers, operators and drives: parts, cancels, options, lost and restored
#              zones, addresses at the ends of the range; at least four million requests
#   hosts      several hosts of one served drive, with faults, lost connections and resets, compared with the actions of the
#              drive; at least ten thousand seeds
#   clients    cases of units, commands and sessions against a target, half of them never sent by real hosts; at least ten million
#   disks      requests of a kernel, commands of an initiator, and rings and messages of a guest, half of them never sent by real
#              ones; at least ten million
#   model      the plug's queue, including chains, against its naive model
#   tables     the tables of a file system's metadata under commits, merges, failed syncs, full places and power cuts, against a map;
#              at least a hundred thousand sequences
#   calibrate  disks and flash drives with hidden profiles, measured, fitted and compared
#   loads      random loads on random drives, every block verified
#   fuzz       job files, device names, image headers, fault plans, traces, superblocks, units and rows of file systems, and
#              units, commands and sessions of hosts, tasks of initiators, messages and rings of guests, requests of ublk and
#              of FUSE, and archives, a quarter of MINUTES each; needs nightly and cargo-fuzz
#   mutants    random mutations of zonal-core and zonal-sim by cargo-mutants
#
# Each campaign has a row in docs/SOAK.md; those not run keep theirs. SEED (default 0) is the first seed: the same one
# repeats the same work. A failure stops its campaign, is counted, and is described in out/soak-CAMPAIGN.txt with the
# command to reproduce it.
set -uo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

minutes=${1:-10}
[ $# -gt 0 ] && shift
seed=${SEED:-0}
table=docs/SOAK.md
all=(whole cuts files units store damage misplaced kills killed mounts databases storm schedules random interference hosts clients disks model tables calibrate loads fuzz
    mutants)
declare -A rows=()
failures=0

# Records a campaign: row NAME OPERATIONS SEEDS FAILURES.
row() {
    local command="scripts/soak.sh $minutes $1"
    [ "$seed" = 0 ] || command="SEED=$seed $command"
    rows[$1]="| $1 | $2 | $3 | $4 | \`$command\` |"
    echo "$2; seeds $3; failures: $4"
    failures=$((failures + $4))
    [ "$4" = 0 ] || echo "see $out/soak-$1.txt"
}

mounts() {
    local kills=${KILLS:-500} bad=0
    ZONAL_MOUNT_SEED=$seed ZONAL_MOUNT_KILLS=$kills ZONAL_MOUNT_CALLS=200 cargo test --release --quiet --package zonal-check --test mount \
        -- kills >"$out/soak-mounts.txt" 2>&1 || bad=1
    ZONAL_MOUNT_NAMES=1000000 cargo test --release --quiet --package zonal-check --test mount \
        -- listing >>"$out/soak-mounts.txt" 2>&1 || bad=1
    ZONAL_MOUNT_WRITERS=100 ZONAL_MOUNT_SECONDS=$((minutes * 60)) cargo test --release --quiet --package zonal-check --test crowd \
        -- --nocapture >>"$out/soak-mounts.txt" 2>&1 || bad=1
    row mounts "$(grouped $((4 * kills))) mounts killed and as many power cuts under a writer, SQLite with both journals, and git; 200 after each call that promises durability" "$seed" $bad
    [ "$kills" = 500 ] || rows[mounts]=${rows[mounts]/scripts/KILLS=$kills scripts}
}

databases() {
    local kills=${KILLS:-25} status=0
    scripts/databases-under-kills.sh --kills "$kills" --seed "$seed" >"$out/soak-databases.txt" 2>&1 || status=$?
    if [ $status = 77 ]; then
        echo "skipped: $(tail -1 "$out/soak-databases.txt")"
        return 0
    fi
    local acknowledged
    acknowledged=$(grep -o '[0-9]* \(transactions\|numbers\|keys\) ' "$out/soak-databases.txt" | awk '{ sum += $1 } END { print sum + 0 }')
    row databases "$(grouped $((2 * kills))) mounts killed, every second one with a power cut, under PostgreSQL and RocksDB: $(grouped "$acknowledged") acknowledged commits checked" \
        "$seed" $((status != 0))
    [ "$kills" = 25 ] || rows[databases]=${rows[databases]/scripts/KILLS=$kills scripts}
}

begin() { end=$(($(date +%s) + minutes * 60)); }
lasts() { [ "$(date +%s)" -lt "$end" ]; }

# A number with thousands separators.
grouped() { sed ':a; s/\B[0-9]\{3\}\>/,&/; ta' <<<"$1"; }

whole() {
    local bad=0 tests
    {
        ZONAL_WHOLE=1 cargo test --release --package zonal-fs --test all --test million -- damage:: many:: misplaced:: plans:: million_ &&
            ZONAL_WHOLE=1 cargo test --release --package zonal-check --test all -- random:: &&
            ZONAL_WHOLE=1 cargo test --release --package zonal-bench --test all -- calibrate::
    } >"$out/soak-whole.txt" 2>&1 || bad=1
    tests=$(sed -n 's/^test result: .* \([0-9]*\) passed.*/\1/p' "$out/soak-whole.txt" | awk '{ sum += $1 } END { print sum + 0 }')
    row whole "$(grouped "$tests") tests with all their cases" "the tests' own" $bad
}

cuts() {
    local batch=500 at=$seed bad=0
    cargo test --release --quiet --package zonal-io --test all --no-run || return 1
    begin
    while lasts && [ $bad = 0 ]; do
        ZONAL_CUT_SEED=$at ZONAL_CUTS=$batch cargo test --release --quiet --package zonal-io --test all \
            -- power_cuts >"$out/soak-cuts.txt" 2>&1 || bad=1
        at=$((at + batch))
    done
    local cases=$((at - seed))
    row cuts "$(grouped $cases) cases of four power cycles; $(grouped $((cases / 10))) with threads" "$seed..$at" $bad
}

files() {
    local batch=200 at=$seed bad=0
    cargo test --release --quiet --package zonal-fs --test all --no-run || return 1
    begin
    while lasts && [ $bad = 0 ]; do
        ZONAL_SEED=$at ZONAL_CASES=$batch cargo test --release --quiet --package zonal-fs --test all crash:: \
            >"$out/soak-files.txt" 2>&1 || bad=1
        at=$((at + batch))
    done
    row files "$(grouped $((4 * (at - seed)))) power cuts under a file system" "$seed..$at" $bad
}

units() {
    local at=$seed batch=500 bad=0 least=2500 said=$out/soak-units.txt
    cargo test --release --quiet --package zonal-fs --test all --no-run || return 1
    begin
    while { lasts || [ $((at - seed)) -lt $least ]; } && [ $bad = 0 ]; do
        ZONAL_SEED=$at ZONAL_CASES=$batch cargo test --release --quiet --package zonal-fs --test all crash::units_of \
            >"$said" 2>&1 || bad=1
        at=$((at + batch))
    done
    row units "$(grouped $((4 * (at - seed)))) power cuts under units that carry many files" "$seed..$at" $bad
}

store() {
    local batch=100 at=$seed bad=0
    cargo test --release --quiet --package zonal-fs --test all --no-run || return 1
    begin
    while lasts && [ $bad = 0 ]; do
        ZONAL_CUT_SEED=$at ZONAL_CUTS=$batch cargo test --release --quiet --package zonal-fs --test all \
            -- store::cuts::file_beside_cut store::cuts::conventional_zones_cut store::cuts::zones_cut \
            >"$out/soak-store.txt" 2>&1 || bad=1
        at=$((at + batch))
    done
    # Three places, four power cycles per case.
    row store "$(grouped $((12 * (at - seed)))) power cuts under the metadata store" "$seed..$at" $bad
}

damage() {
    local cases=${DAMAGE_CASES:-10000} bad=0 said=$out/soak-damage.txt counts
    cargo test --release --quiet --package zonal-fs --test all --no-run || return 1
    ZONAL_SEED=$seed ZONAL_CASES=$cases cargo test --release --quiet --package zonal-fs --test all \
        -- --nocapture damage:: >"$said" 2>&1 || bad=1
    # Results of the cases on all drives, and defects found.
    counts=$(grep -o 'damage: .*' "$said" | grep -oE '[A-Za-z]+: [0-9]+|[0-9]+ defects' |
        sed -E 's/([0-9]+) defects/defects: \1/' |
        awk -F': ' '{ sum[$1] += $2 } END { printf "%d sound, %d refused, %d detected by a read, %d repaired, %d without the last batches, %d defects",
            sum["Sound"], sum["Refused"], sum["Told"], sum["Mended"], sum["LastBatchesLost"], sum["defects"] }')
    local drives
    drives=$(grep -c 'damage: ' "$said")
    row damage "$(grouped $((drives * cases))) cases on $drives drives: $counts" "$seed..$((seed + cases))" $bad
    [ "$cases" = 10000 ] || rows[damage]=${rows[damage]/scripts/DAMAGE_CASES=$cases scripts}
}

misplaced() {
    local at=$seed batch=250 bad=0 least=500 said=$out/soak-misplaced.txt counts
    cargo test --release --quiet --package zonal-fs --test all --no-run || return 1
    begin
    : >"$said"
    while { lasts || [ $((at - seed)) -lt $least ]; } && [ $bad = 0 ]; do
        ZONAL_SEED=$at ZONAL_CASES=$batch cargo test --release --quiet --package zonal-fs --test all \
            -- --nocapture misplaced:: >>"$said" 2>&1 || bad=1
        at=$((at + batch))
    done
    counts=$(grep -o 'misplaced: .*' "$said" | grep -oE '[A-Za-z]+: [0-9]+|[0-9]+ defects' |
        sed -E 's/([0-9]+) defects/defects: \1/' |
        awk -F': ' '{ sum[$1] += $2 } END { printf "%d spared, %d sound, %d detected by a read, %d refused, %d without the last batches, %d defects",
            sum["Spared"], sum["Sound"], sum["Told"], sum["Refused"], sum["Earlier"], sum["defects"] }')
    row misplaced "$(grouped $((6 * (at - seed)))) cases in three places: $counts" "$seed..$at" $bad
}

kills() {
    local kills=${KILLS:-1000} bad=0 said=$out/soak-kills.txt counts
    cargo test --release --quiet --package zonal-check --test kills --no-run || return 1
    ZONAL_KILL_SEED=$seed ZONAL_KILLS=$kills cargo test --release --quiet --package zonal-check --test kills \
        -- --nocapture >"$said" 2>&1 || bad=1
    # Results of the killed commands, for all three drives.
    counts=$(grep -o 'kills: .*; done' "$said" | grep -oE '(Before|After|Unfinished)\): [0-9]+' |
        awk -F'): ' '{ sum[$1] += $2 } END { printf "%d without effect, %d complete, %d to be repeated",
            sum["Before"], sum["After"], sum["Unfinished"] }')
    row kills "$(grouped $kills) commands killed on three images: $counts" "$seed" $bad
    [ "$kills" = 1000 ] || rows[kills]=${rows[kills]/scripts/KILLS=$kills scripts}
}

killed() {
    local at=$seed batch=500 bad=0 least=2000 said=$out/soak-killed.txt steps=0
    cargo test --release --quiet --package zonal-fs --test killed --no-run || return 1
    begin
    while { lasts || [ $((at - seed)) -lt $least ]; } && [ $bad = 0 ]; do
        ZONAL_KILL_SEED=$at ZONAL_KILLS=$batch cargo test --release --quiet --package zonal-fs --test killed \
            -- --nocapture survives >"$said" 2>&1 || bad=1
        at=$((at + batch))
        steps=$((steps + $(sed -n 's/.*killed: .*; \([0-9]*\) steps, .*/\1/p' "$said" | awk '{ sum += $1 } END { print sum + 0 }')))
    done
    row killed "$(grouped $((at - seed))) processes killed, $(grouped $steps) steps" "$seed..$at" $bad
}

storm() {
    local at=$seed bad=0
    cargo test --release --quiet --package zonal-check --test storm --no-run || return 1
    begin
    while lasts && [ $bad = 0 ]; do
        ZONAL_STORM_SEED=$at ZONAL_STORMS=1 cargo test --release --quiet --package zonal-check --test storm \
            >"$out/soak-storm.txt" 2>&1 || bad=1
        at=$((at + 1))
    done
    # A round: six modes, two ways of completion, with and without zeroes, four threads of 20,000 requests each.
    row storm "$(grouped $(((at - seed) * 24 * 80000))) requests" "$seed..$at" $bad
}

schedules() {
    local at=$seed batch=50000 bad=0 played=0
    cargo test --release --quiet --package zonal-io --features shuttle --test shuttle --no-run || return 1
    begin
    while lasts && [ $bad = 0 ]; do
        ZONAL_SCHEDULE_SEED=$at ZONAL_SCHEDULES=$batch cargo test --release --quiet --package zonal-io --features shuttle \
            --test shuttle -- --nocapture >"$out/soak-schedules.txt" 2>&1 || bad=1
        at=$((at + 1))
        played=$((played + $(sed -n 's/.*: \([0-9]*\) schedules,.*/\1/p' "$out/soak-schedules.txt" |
            awk '{ sum += $1 } END { print sum + 0 }')))
    done
    row schedules "$(grouped $played) schedules of the flows in docs/THREADS.md" "$seed..$at" $bad
}

# The whole stack: whole_stack CAMPAIGN TEST SEEDS-A-BATCH REQUESTS-A-SEED REQUESTS-AT-LEAST
whole_stack() {
    local campaign=$1 test=$2 batch=$3 operations=$4 least=$5 at=$seed bad=0
    cargo test --release --quiet --package zonal-check --test all --no-run || return 1
    begin
    while { lasts || [ $(((at - seed) * operations)) -lt "$least" ]; } && [ $bad = 0 ]; do
        ZONAL_SEED=$at ZONAL_SEEDS=$batch ZONAL_OPS=$operations cargo test --release --quiet --package zonal-check \
            --test all -- "random::$test" >"$out/soak-$campaign.txt" 2>&1 || bad=1
        at=$((at + batch))
    done
    row "$campaign" "$(grouped $(((at - seed) * operations))) requests, each run twice" "$seed..$at" $bad
}

random() { whole_stack random random_runs 200 3000 10000000; }

interference() { whole_stack interference interference 1000 400 4000000; }

hosts() {
    local at=$seed batch=500 bad=0 least=10000 said=$out/soak-hosts.txt commands=0
    cargo test --release --quiet --package zonal-check --test all --no-run || return 1
    begin
    while { lasts || [ $((at - seed)) -lt $least ]; } && [ $bad = 0 ]; do
        ZONAL_SEED=$at ZONAL_SEEDS=$batch cargo test --release --quiet --package zonal-check --test all \
            -- --nocapture hosts::hosts_of_one_drive >"$said" 2>&1 || bad=1
        at=$((at + batch))
        commands=$((commands + $(sed -n 's/.*Counts { commands: \([0-9]*\),.*/\1/p' "$said" | awk '{ sum += $1 } END { print sum + 0 }')))
    done
    row hosts "$(grouped $((at - seed))) runs of two or three hosts, $(grouped $commands) commands" "$seed..$at" $bad
}

clients() {
    local at=$seed batch=100000 bad=0 least=10000000 cases=0 kind
    cargo test --release --quiet --package zonal-nvme --test all --no-run || return 1
    begin
    while { lasts || [ $cases -lt $least ]; } && [ $bad = 0 ]; do
        # Units are the shortest cases: three times as many.
        for kind in "units 3" "commands 1" "sessions 1"; do
            set -- $kind
            ZONAL_SEED=$((at * $2)) ZONAL_CASES=$((batch * $2)) cargo test --release --quiet --package zonal-nvme \
                --test all -- "fuzz::$1" >"$out/soak-clients.txt" 2>&1 || bad=1
            [ $bad = 0 ] || break
            cases=$((cases + batch * $2))
        done
        at=$((at + batch))
    done
    row clients "$(grouped $cases) cases: three fifths units, one fifth commands, one fifth sessions" "$seed..$at" $bad
}

disks() {
    local at=$seed bad=0 least=10000000 cases=0 kind
    cargo test --release --quiet --package zonal-ublk --package zonal-scsi --package zonal-vhost --no-run || return 1
    begin
    while { lasts || [ $cases -lt $least ]; } && [ $bad = 0 ]; do
        # Tests of each front, with the number of cases. Those of SCSI take the longest.
        for kind in "ublk lib arbitrary 100000" "scsi test=all arbitrary 5000" "vhost test=all random 25000"; do
            set -- $kind
            PROPTEST_RNG_SEED=$at PROPTEST_CASES=$4 cargo test --release --quiet --package "zonal-$1" "--$2" "$3" \
                >"$out/soak-disks.txt" 2>&1 || bad=1
            [ $bad = 0 ] || break
            cases=$((cases + $4 * $(sed -n 's/^running \([0-9]*\) tests*$/\1/p' "$out/soak-disks.txt")))
        done
        at=$((at + 1))
    done
    row disks "$(grouped $cases) cases of requests, commands, rings and messages, each up to 40 steps" "$seed..$at" $bad
}

# Sequences of steps against a model: sequences CAMPAIGN PACKAGE TEST SEQUENCES-AT-LEAST STEPS
sequences() {
    local campaign=$1 package=$2 test=$3 least=$4 steps=$5 cases=0 batch=20000 bad=0
    cargo test --release --quiet --package "$package" --lib --no-run || return 1
    begin
    while { lasts || [ $cases -lt "$least" ]; } && [ $bad = 0 ]; do
        PROPTEST_CASES=$batch cargo test --release --quiet --package "$package" --lib -- "$test" >"$out/soak-$campaign.txt" 2>&1 || bad=1
        cases=$((cases + batch))
    done
    row "$campaign" "$(grouped $cases) sequences of up to $steps" "new in each run" $bad
}

model() { sequences model zonal-core plug_does_what_the_naive_one_does 0 "120 events"; }

tables() { sequences tables zonal-fs rows_are_those_of_a_map 100000 "400 steps"; }

calibrate() {
    local at=$seed batch=2 bad=0 measured=0 beyond=0 said=$out/soak-calibrate.txt
    cargo test --release --quiet --package zonal-bench --test all --no-run || return 1
    : >"$out/soak-calibrate-beyond.txt"
    begin
    while lasts && [ $bad = 0 ]; do
        ZONAL_CALIBRATE_SEED=$at ZONAL_CALIBRATIONS=$batch cargo test --release --quiet --package zonal-bench \
            --test all -- --nocapture calibrate::hidden_ >"$said" 2>&1 || bad=1
        at=$((at + batch))
        measured=$((measured + $(sed -n 's/^\.*rows: //p' "$said" | awk '{ sum += $1 } END { print sum + 0 }')))
        sed -n 's/^\.*beyond: //p' "$said" >>"$out/soak-calibrate-beyond.txt"
    done
    beyond=$(wc -l <"$out/soak-calibrate-beyond.txt")
    local each=$((at - seed)) far
    far=$(sed 's/.*: [+-]//' "$out/soak-calibrate-beyond.txt" | awk '$1 + 0 > 20 { n++ } END { print n + 0 }')
    row calibrate "$(grouped $((2 * each))) hidden disks, $(grouped $each) flash drives; $beyond of $(grouped $measured) rows off by more than 10% (rates 5%), $far by more than 20%" \
        "$seed..$at" $bad
}

# Sets a variable to one of the values: pick NAME VALUES... Not by output, because a subshell does not advance RANDOM.
pick() {
    local name=$1
    shift $((1 + RANDOM % ($# - 1)))
    printf -v "$name" %s "$1"
}

# Chooses a drive, a few hundred MiB in zones that fill up soon, and a load for it, in `create` and `load`.
pick_load() {
    local capacity open conventional append personality bs rw depth jobs io_size max_open mode
    local number=$((RANDOM << 15 | RANDOM))
    pick capacity 16M 12M 15M
    pick open 0 4 12 14
    pick conventional 0 1 5
    pick append 0 256 4294967295
    pick personality zns zbc
    pick bs 4k 8k 16k 64k
    pick rw write randwrite
    pick depth 1 4 32 128
    pick jobs 1 2 4
    pick io_size 8M 32M 64M
    pick max_open 4 8
    pick mode per-zone per-zone append direct zone-lock qd1 pipelined
    [ "$open" = 4 ] && max_open=4
    # The mode requires native append.
    [ "$append" = 0 ] && [ "$mode" = append ] && mode=per-zone
    create=(create "$image" --size 512M --zone-size 16M --zone-capacity "$capacity" --zone-nr-conv "$conventional"
        --zone-max-open "$open" --zone-append-max-sectors "$append" --personality "$personality")
    # An image guarantees no order, so a window exercises recovery.
    load=(bench --force --device "$image" --name=soak --randseed="$number" --thread --group_reporting
        --zonemode=zbd --verify=crc32c --offset=8z --size=24z --rw="$rw" --bs="$bs" --iodepth="$depth"
        --numjobs="$jobs" --io_size="$io_size" --max_open_zones="$max_open" --write-mode "$mode")
}

loads() {
    image=$out/soak.zonal
    local runs=0 bad=0 bytes=0
    RANDOM=$seed
    begin
    while lasts && [ $bad = 0 ]; do
        pick_load
        rm -f "$image" "$out/soak-loads.json"
        {
            printf '%q ' "$zonal" "${create[@]}" && echo
            printf '%q ' "$zonal" "${load[@]}" && echo
        } >"$out/soak-loads.txt"
        "$zonal" "${create[@]}" >>"$out/soak-loads.txt" 2>&1 &&
            "$zonal" "${load[@]}" --json "$out/soak-loads.json" >>"$out/soak-loads.txt" 2>&1 || bad=1
        runs=$((runs + 1))
        [ $bad = 1 ] || bytes=$((bytes + $(bytes write "$out/soak-loads.json")))
    done
    [ $bad = 1 ] || rm -f "$image"
    row loads "$(grouped $runs) runs, $(grouped $((bytes >> 20))) MiB written and verified" "RANDOM=$seed" $bad
}

fuzz() {
    command -v cargo-fuzz >/dev/null && cargo +nightly --version >/dev/null 2>&1 || {
        echo "left out: it needs the nightly toolchain and cargo-fuzz"
        return
    }
    local bad=0 runs
    scripts/fuzz.sh $((minutes * 15)) >"$out/soak-fuzz.txt" 2>&1 || bad=1
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$out/soak-fuzz.txt" | awk '{ sum += $1 } END { print sum + 0 }')
    row fuzz "$(grouped "$runs") inputs" "libFuzzer's own" $bad
}

# A missed mutation may have no observable effect, so it is counted but not a failure. A mutation that makes tests time
# out is undecided.
mutants() {
    . scripts/tool.sh
    tool cargo-mutants
    local bad=0 said=$out/mutants.out status
    rm -rf "$said"
    timeout --signal=INT --kill-after=60 $((minutes * 60)) cargo mutants --package zonal-core --package zonal-sim --shuffle --colors never \
        --output "$out" >"$out/soak-mutants.txt" 2>&1
    status=$?
    # Some were missed, some tests timed out, or out of time.
    case $status in 0 | 2 | 3 | 124 | 130) ;; *) bad=1 ;; esac
    lines() { cat "$said/$1.txt" 2>/dev/null | grep -c . || true; }
    local judged="$(lines caught) caught, $(lines missed) missed"
    [ "$judged" != "0 caught, 0 missed" ] || bad=1
    row mutants "mutations of zonal-core and zonal-sim: $judged, $(lines timeout) undecided, $(lines unviable) unbuildable" \
        "new in each run" $bad
}

# Rows of this run, and the existing rows of other campaigns.
write_table() {
    local campaign
    {
        echo '# Soak'
        echo
        echo 'Results of the long campaigns of `scripts/soak.sh`, each from its last run. The command includes the minutes;'
        echo 'the amount of work done in them depends on the machine and its load.'
        echo
        echo '| campaign | operations | seeds | failures | command |'
        echo '|---|---|---|---|---|'
        for campaign in "${all[@]}"; do
            if [ -n "${rows[$campaign]:-}" ]; then
                echo "${rows[$campaign]}"
            elif [ -e "$table" ]; then
                grep "^| $campaign |" "$table"
            fi
        done
    } >"$table.new"
    mv "$table.new" "$table"
}

for campaign in "${@:-${all[@]}}"; do
    for one in $campaign; do
        case " ${all[*]} " in *" $one "*) ;; *) fail "no campaign is called $one" ;; esac
        step "$one"
        "$one" || fail "$one does not build"
        write_table
    done
done
[ $failures = 0 ]
