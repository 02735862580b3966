#!/usr/bin/env bash
# Checks licences and sources of all dependencies according to deny.toml, and their versions against RustSec's
# advisories, with cargo-deny. If the advisories cannot be fetched, the last fetched ones are used; without any, the
# last line says that the versions were not checked.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/tool.sh

tool cargo-deny
cargo deny --locked check licenses bans sources
said=$(cargo deny --locked check advisories 2>&1) && echo "$said" && exit
if grep -q 'failed to fetch advisory database' <<<"$said"; then
    said=$(cargo deny --offline --locked check advisories 2>&1) && echo "$said, as they were when last fetched" && exit
    if grep -q "failed to get 'FETCH_HEAD'" <<<"$said"; then
        echo "NOT CHECKED: known faults of the dependencies, because the advisory database cannot be fetched"
        exit
    fi
fi
echo "$said" >&2
exit 1
