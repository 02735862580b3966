#!/usr/bin/env bash
# Runs PostgreSQL with pgbench and RocksDB with db_bench on a mount, and kills the process of the mount at random moments.
# After each kill fsck reads the whole drive, the drive is mounted again, and the database recovers and is checked.
# databases-under-kills.sh [--kills N] [--seed N] [--only postgresql|rocksdb] [--canary]
#   --kills   kills of each database (default 25)
#   --seed    seed of the moments (default 0); the progress of the programs by then differs between runs
#   --only    only this database
#   --canary  let the databases acknowledge before they sync, and pass if acknowledged data is found missing
#
# Every second kill is also a power cut: the run continues with a copy of the image, which has only what was flushed
# (docs/FAULT.md). Every two rounds the mount changes between write-back and write-through.
#
# PostgreSQL has to pass pg_amcheck for all databases, the sums of pgbench's four tables have to agree, and the history has to
# have a row for each transaction in pgbench's log. Each number whose insert psql has reported has to be there. RocksDB has
# to pass ldb checkconsistency and have correct checksums and the right number of keys, in a database that four threads overwrite
# and in one in which a thread has written ascending keys, up to the last acknowledged one.
#
# Prints a line for each kill. The exit code is 0 if all checks passed, 77 if a program is missing, and 1 otherwise; after a
# failure the image and the logs are kept. Needs root, the packages postgresql-15 (or later) and rocksdb-tools, and 2 GB in TMPDIR.
set -euo pipefail
# db_bench aborts when the mount is gone.
ulimit -c 0
cd "$(dirname "$0")/.."
. scripts/lib.sh

kills=25 seed=0 only='' canary=false
while [ $# -gt 0 ]; do
    case $1 in
        --kills) kills=$2 && shift 2 ;;
        --seed) seed=$2 && shift 2 ;;
        --only) only=$2 && shift 2 ;;
        --canary) canary=true && kills=1 && shift ;;
        *) fail "unknown argument: $1" ;;
    esac
done

case $only in '' | postgresql | rocksdb) ;; *) fail "unknown database: $only" ;; esac

postgresql_programs=$(find /usr/lib/postgresql -maxdepth 2 -name bin 2>/dev/null | sort -V | tail -1 || true)
PATH=${postgresql_programs:-/nonexistent}:$PATH
is_missing() {
    echo "${0##*/}: $1 is missing; install $2" >&2
    exit 77
}
for program in initdb postgres pg_isready pg_amcheck pgbench psql; do
    [ "$only" = rocksdb ] || command -v $program >/dev/null || is_missing $program "postgresql-15 and postgresql-client-15"
done
for program in db_bench ldb; do
    [ "$only" = postgresql ] || command -v $program >/dev/null || is_missing $program rocksdb-tools
done
[ "$(id -u)" = 0 ] || fail "needs root, to mount for the user postgres"

# PostgreSQL refuses to run as root, so its user passes through this directory.
zonal=$(realpath "$zonal")
home=$(mktemp -d)
chmod 711 "$home"
mkdir "$home/m" "$home/run" "$home/socket"
export ZONAL_RUNTIME_DIR=$home/run PGHOST=$home/socket PGUSER=postgres PGPORT=5432 PGCONNECT_TIMEOUT=20
unset PGDATABASE PGDATA PGOPTIONS
mount='' database='' load=() database_name='' round=0

# Ends all processes, and removes the directory unless a check has failed.
clean_up() {
    local status=$? pid
    set +e
    {
        for pid in "${load[@]}" $mount; do kill -KILL "$pid"; done
        [ -z "$database" ] || kill -QUIT "$database"
        wait
        while umount -q -l "$home/m"; do :; done
    } 2>/dev/null
    if [ $status = 1 ]; then
        echo "${0##*/}: image and logs are kept in $home" >&2
    else
        rm -rf "$home"
    fi
    exit $status
}
trap clean_up EXIT
trap 'exit 130' INT TERM

# Ends the run after a failed check.
broken() { fail "$database_name, round $round, ${after:-at the start}: $*"; }

# Acknowledged data is missing, as it has to be in a canary.
missing() {
    $canary || broken "$@"
    found="$*"
}

# Runs a program, with its output in out.log, for ten minutes at most.
does() {
    timeout 600 "$@" >"$home/out.log" 2>&1 </dev/null || {
        tail -20 "$home/out.log" >&2
        broken "failed: $*"
    }
}

query() { timeout 600 psql -XqAt -d bench -c "$1" 2>>"$home/out.log" </dev/null || broken "failed: $1: $(tail -3 "$home/out.log")"; }

# Waits for a process for a minute at most. The shell's notices of killed processes are dropped.
ends() {
    local end=$((SECONDS + 60))
    {
        while kill -0 "$1" && [ $SECONDS -lt $end ]; do sleep 0.05; done
        ! kill -0 "$1" || end=
        [ -z "$end" ] || wait "$1" || true
    } 2>/dev/null
    [ -n "$end" ] || broken "process $1 ($2) does not end"
}

mounts() {
    : >"$home/ready"
    "$zonal" mount image:"$home/d.img" "$home/m" -o "allow_other,$1" >"$home/ready" 2>>"$home/mount.log" &
    mount=$!
    local end=$((SECONDS + 60))
    until grep -q '^ready' "$home/ready"; do
        if ! kill -0 "$mount" 2>/dev/null || [ $SECONDS -ge $end ]; then broken "does not mount: $(tail -3 "$home/mount.log")"; fi
        sleep 0.02
    done
    # A damaged file system would be mounted for reading only.
    touch "$home/m/writable" || broken "is mounted for reading only: $(tail -3 "$home/mount.log")"
}

fsck_is_clean() {
    "$zonal" fsck --data image:"$home/d.img" >"$home/fsck.log" 2>&1 || broken "fsck: $(head -5 "$home/fsck.log")"
}

# Starts PostgreSQL, and waits until it has recovered and accepts connections. Small buffers and logs cause frequent checkpoints.
postgresql_start() {
    local options=(-c listen_addresses= -c unix_socket_directories="$PGHOST" -c max_wal_size=64MB -c min_wal_size=32MB
        -c checkpoint_timeout=30s -c shared_buffers=32MB -c autovacuum_naptime=5s -c restart_after_crash=off)
    # Acknowledges transactions before their log is written.
    if $canary; then options+=(-c synchronous_commit=off -c wal_writer_delay=10s); fi
    setpriv --reuid=postgres --regid=postgres --init-groups "$(command -v postgres)" -D "$home/m/pg" "${options[@]}" \
        >>"$home/postgresql.log" 2>&1 </dev/null &
    database=$!
    local end=$((SECONDS + 120))
    until pg_isready -q; do
        if ! kill -0 "$database" 2>/dev/null || [ $SECONDS -ge $end ]; then
            broken "PostgreSQL does not start: $(tail -5 "$home/postgresql.log")"
        fi
        sleep 0.05
    done
}

postgresql_make() {
    chown postgres "$PGHOST"
    mkdir "$home/m/pg"
    chown postgres "$home/m/pg"
    does setpriv --reuid=postgres --regid=postgres --init-groups "$(command -v initdb)" -D "$home/m/pg" \
        --auth=trust --data-checksums --wal-segsize=4
    postgresql_start
    does createdb bench
    does pgbench -i -s 3 bench
    query 'CREATE TABLE acknowledged(n bigint PRIMARY KEY)'
    history=0 first=1
}

postgresql_load() {
    rm -f "$home"/transactions.*
    pgbench -n -c 4 -T 600 -l --log-prefix="$home/transactions" bench >"$home/pgbench.log" 2>&1 </dev/null &
    load+=($!)
    # psql prints a number once the server has acknowledged its commit.
    seq "$first" 1000000000 | sed 's/.*/INSERT INTO acknowledged VALUES (&) RETURNING n;/' |
        psql -XqAt -v ON_ERROR_STOP=1 -d bench >"$home/numbers.log" 2>"$home/psql.log" &
    load+=($!)
}

postgresql_end() {
    sleep 0.2
    kill -QUIT "$database" 2>/dev/null || true
    ends "$database" postgres
    database=
}

postgresql_check() {
    local said transactions last rows
    does pg_amcheck --all --install-missing --heapallindexed
    said=$(query 'SELECT (SELECT sum(abalance) FROM pgbench_accounts), (SELECT sum(bbalance) FROM pgbench_branches),
        (SELECT sum(tbalance) FROM pgbench_tellers), (SELECT coalesce(sum(delta), 0) FROM pgbench_history)')
    [ "$(tr '|' '\n' <<<"$said" | sort -u | wc -l)" = 1 ] || broken "sums of the tables differ: $said"
    transactions=$(cat "$home"/transactions.* | wc -l)
    rows=$(query 'SELECT count(*) FROM pgbench_history')
    rows=$((rows - history))
    [ $rows -ge "$transactions" ] || missing "$((transactions - rows)) of $transactions acknowledged transactions are missing"
    # Each client has one transaction in flight.
    [ $rows -le $((transactions + 4)) ] || broken "$rows new rows of the history, but $transactions transactions"
    history=$((history + rows))
    # Those of earlier rounds included.
    last=$(tail -1 "$home/numbers.log")
    last=${last:-$((first - 1))}
    rows=$(query "SELECT count(*) FROM acknowledged WHERE n <= $last")
    [ "$rows" = "$last" ] || missing "$((last - rows)) of $last acknowledged numbers are missing"
    result="$transactions transactions and $((last - first + 1)) numbers acknowledged"
    first=$(($(query 'SELECT coalesce(max(n), 0) FROM acknowledged') + 1))
}

# Small buffers and files, for frequent flushes and compactions.
db_bench=(db_bench --value_size=400 --write_buffer_size=1048576 --target_file_size_base=1048576 --max_bytes_for_level_base=4194304)
keys=50000

rocksdb_start() { :; }

rocksdb_make() {
    does "${db_bench[@]}" --db="$home/m/overwritten" --benchmarks=fillseq --num=$keys
}

rocksdb_load() {
    local sync=1
    if $canary; then sync=0; fi
    "${db_bench[@]}" --db="$home/m/overwritten" --benchmarks=overwrite --use_existing_db=1 --num=$keys --threads=4 --sync=$sync \
        --duration=600 --seed=$((seed + round + 1)) --stats_interval=100 >"$home/overwrite.log" 2>&1 </dev/null &
    load+=($!)
    # Prints a line for each key, to standard error, which is not buffered.
    "${db_bench[@]}" --db="$home/m/ascending" --benchmarks=fillseq --num=1000000000 --sync=$sync --stats_interval=1 \
        >"$home/ascending.out" 2>"$home/ascending.log" </dev/null &
    load+=($!)
}

rocksdb_end() { :; }

# Verifies consistency and all checksums of a database, and prints the number of its keys.
rocksdb_keys() {
    local db=$home/m/$1
    does ldb --db="$db" checkconsistency
    grep -q OK "$home/out.log" || broken "ldb checkconsistency of $1: $(tail -3 "$home/out.log")"
    does "${db_bench[@]}" --db="$db" --benchmarks=verifychecksum,readseq --verify_checksum=1 --use_existing_db=1 --num=1000000000
    does ldb --db="$db" dump --count_only
    sed -n 's/^Keys in range: //p' "$home/out.log"
}

rocksdb_check() {
    local acknowledged found_keys overwrites
    found_keys=$(rocksdb_keys overwritten)
    [ "$found_keys" = $keys ] || broken "$found_keys keys instead of $keys"
    overwrites=$(sed -n 's/.*thread \([0-9]*\): ([0-9]*,\([0-9]*\)) ops.*/\1 \2/p' "$home/overwrite.log" |
        awk '{ last[$1] = $2 } END { for (thread in last) sum += last[thread]; print sum + 0 }')
    acknowledged=$(sed -n 's/.*thread 0: ([0-9]*,\([0-9]*\)) ops.*/\1/p' "$home/ascending.log" | tail -1)
    # db_bench counts failed writes as well, so the last one may have failed. Another one may be in flight. Without an
    # acknowledged key, the database may be incomplete.
    acknowledged=$((${acknowledged:-1} - 1))
    if [ $acknowledged -gt 0 ]; then
        found_keys=$(rocksdb_keys ascending)
        [ "${found_keys:-0}" -ge $acknowledged ] || missing "$((acknowledged - found_keys)) of $acknowledged acknowledged keys are missing"
        [ "$found_keys" -le $((acknowledged + 2)) ] || broken "$found_keys keys, but $acknowledged acknowledged"
    fi
    result="$acknowledged keys acknowledged, at least $overwrites overwrites"
}

# Runs all rounds of a database, on a drive of its own: campaign NAME NUMBER.
campaign() {
    database_name=$1 round=0 after='' found=''
    RANDOM=$((seed * 2 + $2))
    "$zonal" create "$home/d.img" --size 512M --zone-size 4M >/dev/null
    "$zonal" mkfs image:"$home/d.img" >/dev/null
    mounts writeback
    "$1_make"
    local delay end modes=(writeback writeback writethrough writethrough) mode=writeback
    for round in $(seq "$kills"); do
        delay=$((500 + RANDOM % 5000))
        end='killed'
        if [ $((round % 2)) = 0 ]; then end='killed and power cut'; fi
        after="$end after $((delay / 1000)).$(printf %03d $((delay % 1000))) s, $mode"
        load=()
        "$1_load"
        sleep "$((delay / 1000)).$(printf %03d $((delay % 1000)))"
        for pid in "${load[@]}" "$mount" $database; do
            kill -0 "$pid" || broken "process $pid has ended before the kill"
        done
        kill -KILL "$mount"
        ends "$mount" zonal
        mount=
        "$1_end"
        for pid in "${load[@]}"; do ends "$pid" load; done
        load=()
        if [ $((round % 2)) = 0 ]; then
            cp --sparse=always "$home/d.img" "$home/cut.img"
            mv "$home/cut.img" "$home/d.img"
        fi
        fsck_is_clean
        mode=${modes[round % 4]}
        mounts "$mode"
        "$1_start"
        "$1_check"
        if $canary; then
            [ -n "$found" ] || fail "$1: the canary's check has found nothing, with $result"
            echo "$1 canary: $after: $found"
        else
            echo "$1 $round/$kills: $after: $result; checks passed"
        fi
    done
    after='after the last round'
    if [ -n "$database" ]; then
        kill -INT "$database"
        ends "$database" postgres
        database=
    fi
    "$zonal" unmount "$home/m" >/dev/null || broken "does not unmount"
    ends "$mount" zonal
    mount=
    fsck_is_clean
    rm "$home/d.img"
}

for name in postgresql rocksdb; do
    if [ -z "$only" ] || [ "$only" = $name ]; then
        campaign $name "$([ $name = postgresql ] && echo 0 || echo 1)"
    fi
done
