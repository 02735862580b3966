# Common functions of the scripts. Sourced from the root of the repository.

# The program under test.
zonal=${ZONAL:-${CARGO_TARGET_DIR:-target}/release/zonal}
out=out

step() { printf '\n== %s\n' "$*"; }

fail() {
    echo "${0##*/}: $*" >&2
    exit 1
}

[ -x "$zonal" ] || fail "$zonal is not built; run make build"
mkdir -p "$out"

# Description of the machine for results, in one line.
machine() {
    local cpu
    cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)
    echo "$(nproc) x ${cpu:-$(uname -m)}, Linux $(uname -r), $("$zonal" --version)"
}

# Total bytes transferred by the jobs of a JSON report: bytes read|write FILE.
bytes() {
    awk -v key="\"$1\": {" 'index($0, key) { getline; gsub(/[^0-9]/, ""); sum += $0 } END { printf "%d\n", sum }' "$2"
}

# Write rate of the jobs of a JSON report in MB/s: rate FILE.
rate() {
    awk '/"write": \{/ { inside = 1 } inside && /"bw_bytes"/ { gsub(/[^0-9]/, ""); sum += $0; inside = 0 }
         END { printf "%.0f\n", sum / 1e6 }' "$1"
}

# Runs jobs, stores both reports in out/, and prints the summary: bench NAME ARGUMENTS...
bench() {
    local name=$1
    shift
    rm -f "$out/$name.txt" "$out/$name.json"
    "$zonal" bench --output "$out/$name.txt" --json "$out/$name.json" "$@" || {
        if [ -e "$out/$name.txt" ]; then cat "$out/$name.txt"; fi
        fail "$name failed"
    }
}

# Summary lines of a text report.
summary() {
    grep -E '^ +(READ|WRITE): |^Verify' "$out/$1.txt" | sed 's/^ */  /'
}
