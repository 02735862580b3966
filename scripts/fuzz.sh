#!/usr/bin/env bash
# Fuzzes every target for the given number of seconds, starting from the corpora of the tests. The targets for hosts,
# initiators, guests, kernels and archives have none.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
# Link-time optimisation would take a minute per target.
export CARGO_PROFILE_RELEASE_LTO=off
command -v cargo-fuzz >/dev/null || cargo install --locked cargo-fuzz

declare -A corpora=(
    [job]="crates/zonal-bench/tests/corpus/job/accept crates/zonal-bench/tests/corpus/job/raw crates/zonal-bench/tests/corpus/job/refuse"
    [name]="crates/zonal-io/tests/corpus/name"
    [image]="crates/zonal-io/tests/corpus/image/accept crates/zonal-io/tests/corpus/image/refuse"
    [plan]="crates/zonal-io/tests/data/fault"
    [superblock]="crates/zonal-fs/tests/corpus/superblock"
    [unit]="crates/zonal-fs/tests/corpus/unit"
    [row]="crates/zonal-fs/tests/corpus/row"
    [trace]="crates/zonal-bench/tests/corpus/trace/accept crates/zonal-bench/tests/corpus/trace/refuse"
)
for target in job name image plan trace superblock unit row nvme_unit nvme_command nvme_session \
    scsi_task vhost_message vring ublk_request fuse_request archive; do
    mkdir -p "fuzz/corpus/$target"
    # shellcheck disable=SC2086 # the corpora are several words
    cargo +nightly fuzz run "$target" "fuzz/corpus/$target" ${corpora[$target]:-} -- \
        -max_total_time="$seconds" -print_final_stats=1
done
