# shellcheck shell=bash
# lib.sh: sourced by the tests of the program. Each of them speaks TAP and ends with `finish`.
# EBRO: the program. GOLDEN: the folder tests/golden.
set -u
: "${EBRO:?path of the program}" "${GOLDEN:?path of tests/golden}"
demo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../model/demo" && pwd)
recall='Remember: the code for Mira is 4821. The code for Tom is 1938. The code for Lena is 7406. What is the code for Lena?'

for name in $(compgen -e); do
    case $name in
        EBRO_*) unset "$name" ;;
    esac
done
failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
out=$work/out err=$work/err
n=0

# result RC NAME: one TAP line; what the program said follows a failure.
result() {
    n=$((n + 1))
    if [ "$1" -eq 0 ]; then
        echo "ok $n - $2"
    else
        failed=1
        echo "not ok $n - $2"
        sed 's/^/# stdout: /' "$out" | head -n 20
        sed 's/^/# stderr: /' "$err" | head -n 20
    fi
}
skip() {
    n=$((n + 1))
    echo "ok $n # SKIP $1"
}

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

finish() {
    echo "1..$n"
    exit $failed
}
