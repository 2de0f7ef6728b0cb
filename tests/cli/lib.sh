# shellcheck shell=bash
# lib.sh: sourced by the tests of the program.
# EBRO: the program. GOLDEN: the folder tests/golden.
: "${EBRO:?path of the program}" "${GOLDEN:?path of tests/golden}"
. "$(dirname "${BASH_SOURCE[0]}")/../tap.sh"
demo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../model/demo" && pwd)
recall='Remember: the code for Mira is 4821. The code for Tom is 1938. The code for Lena is 7406. What is the code for Lena?'
out=$work/stdout err=$work/stderr
shown=("$out" "$err")

# run ARGUMENTS...: leaves rc, $out and $err.
run() {
    rc=0
    "$EBRO" "$@" >"$out" 2>"$err" </dev/null || rc=$?
}

# fails NAME CODE PART ARGUMENTS...: that exit code, one line on stderr that holds PART, no stdout.
fails() {
    local name=$1 code=$2 part=$3
    shift 3
    run "$@"
    [ "$rc" -eq "$code" ] && [ ! -s "$out" ] && [ "$(wc -l <"$err")" -eq 1 ] &&
        grep -q '^ebro: ' "$err" && grep -q -- "$part" "$err"
    result $? "$name"
}

# with TEXT ARGUMENTS...: as run, with TEXT on stdin.
with() {
    local text=$1
    shift
    rc=0
    printf '%s' "$text" | "$EBRO" "$@" >"$out" 2>"$err" || rc=$?
}
