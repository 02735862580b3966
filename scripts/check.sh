#!/usr/bin/env bash
# The full lane, in parts: tests that are too slow for `make test`.
#
#   check.sh [PART...]        run these parts, or all; a part may be a pattern such as 'guest-*'
#   check.sh --for [COMMIT]   run the parts that are due for the changes since COMMIT, or since they last passed. Parts that do not
#                             fit into CHECK_SECONDS (default 2400) are listed at the end and stay due.
#   check.sh --due [COMMIT]   print the parts that are due
#   check.sh --due-of FILE... print the parts concerned by these files
#
# The first line of .ci/checked is the commit on which all parts passed. Lines `PART COMMIT` name parts that passed on a
# later one.
#
# The parts are defined by two tables in docs/HACKING.md: `## Parts of the full lane` has the duration and the command
# of each part, and `## Which tests for which change` maps paths to parts. A file without a row concerns all parts.
set -euo pipefail
cd "$(dirname "$0")/.."

page=docs/HACKING.md
checked=.ci/checked

fail() {
    echo "check: $*" >&2
    exit 2
}

# Cells of the table under a heading, separated by tabs: table HEADING.
table() {
    awk -v heading="## $1" '
        /^## / { inside = $0 == heading; next }
        inside && /^\| / && !/^\|[- |]*$/ && rows++ > 0 {
            gsub(/^\| *| *\|$/, ""); gsub(/ *\| */, "\t"); print
        }' "$page"
}

declare -A seconds command
parts=()
while IFS=$'\t' read -r name takes what _; do
    name=${name//\`/} what=${what#*\`} what=${what%\`*}
    [[ $takes =~ ^[0-9]+$ ]] || fail "$page: part $name: not a number of seconds: $takes"
    parts+=("$name") seconds[$name]=$takes command[$name]=$what
done < <(table "Parts of the full lane")
[ ${#parts[@]} -gt 0 ] || fail "$page has no parts"

# Path prefixes and the parts of each, in two arrays.
prefixes=() concerns=()
while IFS=$'\t' read -r paths _ names; do
    [ "$names" != none ] || names=
    for name in ${names//[\`,]/ }; do
        [ -n "${seconds[$name]:-}" ] || fail "$page: no part is called $name"
    done
    for prefix in ${paths//[\`,]/ }; do
        prefixes+=("$prefix") concerns+=("${names//[\`,]/ }")
    done
done < <(table "Which tests for which change")
[ ${#prefixes[@]} -gt 0 ] || fail "$page has no paths"

# Parts concerned by the files on standard input, in the order of the table.
due_of() {
    local file i known name
    declare -A due=()
    while IFS= read -r file; do
        known=
        for i in "${!prefixes[@]}"; do
            [[ $file == "${prefixes[i]}"* ]] || continue
            known=1
            for name in ${concerns[i]}; do due[$name]=1; done
        done
        [ -n "$known" ] || for name in "${parts[@]}"; do due[$name]=1; done
    done
    for name in "${parts[@]}"; do [ -z "${due[$name]:-}" ] || echo "$name"; done
}

# Files that differ from a commit, including untracked ones.
changed() {
    local git=(git -c core.quotePath=false)
    if "${git[@]}" rev-parse --quiet --verify "$1^{commit}" >/dev/null; then
        "${git[@]}" diff --name-only --no-renames "$1" -- && "${git[@]}" ls-files --others --exclude-standard
    else
        echo "check: commit $1 is not in this clone: all files count as changed" >&2
        "${git[@]}" ls-files
    fi
}

# Parts that are due, one per line: due [COMMIT].
due() {
    local name since default
    declare -A base=() of=()
    default=${1:-$(head -n 1 "$checked")}
    [ -n "$default" ] || fail "$checked is empty"
    for name in "${parts[@]}"; do base[$name]=$default; done
    if [ -z "${1:-}" ]; then
        while read -r name since; do
            [ -n "${seconds[$name]:-}" ] || fail "$checked: no part is called $name"
            base[$name]=$since
        done < <(tail -n +2 "$checked")
    fi
    local files
    for since in $(printf '%s\n' "${base[@]}" | sort -u); do
        files=$(changed "$since") || fail "git cannot list the changes since $since"
        of[$since]=" $([ -z "$files" ] || due_of <<<"$files" | tr '\n' ' ')"
    done
    for name in "${parts[@]}"; do
        [[ ${of[${base[$name]}]} != *" $name "* ]] || echo "$name"
    done
}

# Ends the running part, which is a process group of its own, and this script.
running=
stop() {
    trap - INT TERM
    [ -z "$running" ] || kill -TERM -- "-$running" 2>/dev/null || true
    echo "check: ended by a signal${running:+, and $current with it}" >&2
    exit 130
}
trap stop INT TERM

# Runs a part with a time limit: run PART SECONDS. Returns 124 if the limit was exceeded.
run() {
    local begin=$SECONDS status=0
    current=$1
    printf '\n== %s: %s\n' "$1" "${command[$1]}"
    set -m
    timeout --foreground --kill-after=30 "$2" bash -c "${command[$1]}" </dev/null &
    running=$!
    set +m
    wait "$running" || status=$?
    # Its children may still be running.
    kill -KILL -- "-$running" 2>/dev/null || true
    running=
    echo "== $1: $((SECONDS - begin)) s, status $status"
    [ $status != 137 ] || status=124
    if [ $status = 124 ] && [ $((SECONDS - begin)) -lt "$2" ]; then status=1; fi
    return $status
}

case ${1:-} in
    --due-of)
        shift
        printf '%s\n' "$@" | due_of
        exit
        ;;
    --due)
        due "${2:-}"
        exit
        ;;
    --for)
        budget=${CHECK_SECONDS:-2400}
        [[ $budget =~ ^(0|[1-9][0-9]{0,8})$ ]] || fail "CHECK_SECONDS is not a number of seconds: $budget"
        # For scripts/mutants.sh.
        export CHECK_SINCE=${2:-$(head -n 1 "$checked")}
        list=$(due "${2:-}")
        mapfile -t wanted < <([ -z "$list" ] || echo "$list")
        ;;
    -*) fail "unknown option $1; the first lines of $0 list all options" ;;
    *)
        wanted=()
        for pattern in "${@:-*}"; do
            count=${#wanted[@]}
            # shellcheck disable=SC2053 # a pattern is matched as one
            for name in "${parts[@]}"; do
                [[ $name != $pattern ]] || { wanted+=("$name") && count=-1; }
            done
            [ $count = -1 ] || fail "no part is called $pattern; there are: ${parts[*]}"
        done
        ;;
esac

passed=() failed=() due=()
declare -A done=()
for name in "${wanted[@]}"; do
    [ -z "${done[$name]:-}" ] || continue
    done[$name]=1
    # A part that takes three times its usual duration hangs or has become slow: that is a failure, not a lack of time.
    limit=$((3 * seconds[$name] + 60))
    is_short=
    if [ -n "${budget:-}" ]; then
        left=$((budget - SECONDS))
        if [ "${seconds[$name]}" -gt "$left" ]; then
            due+=("$name")
            continue
        fi
        if [ "$left" -lt "$limit" ]; then limit=$left is_short=1; fi
    fi
    status=0
    run "$name" "$limit" || status=$?
    case $status,$is_short in
        0,*) passed+=("$name") ;;
        124,1) due+=("$name") ;;
        *) failed+=("$name") ;;
    esac
done

printf '\nfull lane: %d of %d parts passed in %d s\n' ${#passed[@]} $((${#passed[@]} + ${#due[@]} + ${#failed[@]})) $SECONDS
[ ${#passed[@]} = 0 ] || echo "passed: ${passed[*]}"
[ ${#due[@]} = 0 ] || echo "still due, for lack of time: ${due[*]}"
[ ${#failed[@]} = 0 ] || echo "failed: ${failed[*]}"
[ ${#failed[@]} = 0 ]
