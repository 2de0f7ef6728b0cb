# shellcheck shell=bash
# tap.sh: sourced by the tests that are scripts. Each of them speaks TAP and ends with `finish`.
# $work is a folder of its own; no variable of Ebro is set.
set -u
for name in $(compgen -e); do
    case $name in
        EBRO_*) unset "$name" ;;
    esac
done
failed=0 n=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
shown=("$work/log") # what a failure shows the end of

# result RC NAME: one TAP line.
result() {
    local file
    n=$((n + 1))
    if [ "$1" -eq 0 ]; then
        echo "ok $n - $2"
        return
    fi
    failed=1
    echo "not ok $n - $2"
    for file in "${shown[@]}"; do
        if [ -s "$file" ]; then tail -n 40 "$file" | sed "s|^|# ${file##*/}: |"; fi
    done
}
skip() {
    n=$((n + 1))
    echo "ok $n # SKIP $1"
}

finish() {
    echo "1..$n"
    exit $failed
}
