#!/usr/bin/env bash
# Other people's programs on a mount, to be run by hand: stress-ng's whole file-system class, and backups of
# /usr/include by restic, borg, rsync and cp, which are verified, restored and compared. At the end the mount is
# detached, and fsck reads all data. programs.sh [SECONDS]: duration of each stressor (default 4). Needs root, and the
# packages stress-ng, restic, borgbackup and rsync.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

seconds=${1:-4}
for tool in stress-ng restic borg rsync; do
    command -v $tool >/dev/null || fail "$tool is not installed"
done
zonal=$(realpath "$zonal")
home=$(mktemp -d)
trap 'umount -q -l "$home/m" || true; rm -rf "$home"' EXIT
cd "$home"
export HOME=$home RESTIC_PASSWORD=zonal BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK=yes

# Runs a program and shows its output only if it fails.
does() {
    "$@" >"$home/output" 2>&1 || { echo "FAILED: $*" >&2; tail -20 "$home/output" >&2; exit 1; }
}

"$zonal" create d.img --size 4G --zone-size 16M >/dev/null
"$zonal" mkfs image:d.img >/dev/null
mkdir m
"$zonal" mount image:d.img m --daemon --log log >/dev/null

# Bind mounts and pseudo file systems do not concern this file system.
does stress-ng --class filesystem --exclude bind-mount,binderfs --sequential 2 --timeout "${seconds}s" --temp-path "$home/m" --verify
echo "stress-ng: passed; skipped: $(sed -n 's/.*\[[0-9]*\] \([a-z-]*\): .*skipping.*/\1/p' output | sort -u | paste -sd' ')"

does restic --no-cache -r m/restic init
does restic --no-cache -r m/restic backup /usr/include
does restic --no-cache -r m/restic check --read-data
does restic --no-cache -r m/restic restore latest --target m/restored
does diff -r --no-dereference /usr/include m/restored/usr/include
echo "restic: passed"

does borg init -e none m/borg
does borg create m/borg::one /usr/include
does borg check --verify-data m/borg
mkdir m/extracted
(cd m/extracted && does borg extract "$home/m/borg::one")
does diff -r --no-dereference /usr/include m/extracted/usr/include
echo "borg: passed"

does cp -a /usr/include m/copied
does rsync -aXH --delete /usr/include/ m/synced
does diff -r --no-dereference m/copied m/synced
does diff -r --no-dereference /usr/include m/synced
echo "cp and rsync: passed"

"$zonal" unmount m
"$zonal" fsck --data image:d.img
