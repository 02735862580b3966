#!/usr/bin/env bash
# Checks licences and sources of all dependencies by deny.toml, and their versions against RustSec's advisories, with cargo-deny. The
# advisories are fetched; where that fails, the last lines say that they were not checked.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/tool.sh

tool cargo-deny
cargo deny --locked check licenses bans sources
if ! said=$(cargo deny --locked check advisories 2>&1); then
    echo "$said"
    if grep -q 'failed to fetch advisory database' <<<"$said"; then
        echo "NOT CHECKED: known faults of the dependencies, because the advisory database cannot be fetched"
        exit
    fi
    exit 1
fi
