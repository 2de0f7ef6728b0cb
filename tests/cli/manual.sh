#!/usr/bin/env bash
# manual.sh: the manual page, tools/ebro/ebro.1, names what the program's help names, and no more.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
page=$demo/../../tools/ebro/ebro.1

# same NAME: the lines of $work/helped and $work/written, in any order.
same() {
    sort -u "$work/helped" >"$work/a"
    sort -u "$work/written" >"$work/b"
    diff "$work/a" "$work/b" >"$out"
    [ $? -eq 0 ] && [ -s "$work/a" ]
    result $? "$1"
}
# section NAME: its lines, plain: no \- and no escape for a font.
section() { sed -n "/^\.SH $1/,/^\.SH /p" "$page" | sed 's/\\-/-/g; s/\\f[A-Z]//g'; }

run --help
cp "$out" "$work/help"
sed -n '/^Commands/,/^$/s/^  \([a-z-]*\)  *\(.*\)/\1: \2/p' "$work/help" >"$work/helped"
section COMMANDS | sed -n '/^\.TP/{n;s/^\.B //;N;s/\n/: /;p}' >"$work/written"
same "the same commands, in the same words"

sed -n '/^Exit codes/,$p' "$work/help" | awk '/^  [0-9]/ { code = $1; $1 = ""; text[code] = $0; next }
    /^  +[a-z]/ { $1 = $1; text[code] = text[code] " " $0 }
    END { for (code in text) print code ":" text[code] }' >"$work/helped"
section 'EXIT STATUS' | sed -n '/^\.TP/{n;s/^\.B //;N;s/\n/: /;p}' >"$work/written"
same "the same exit codes, in the same words"

for command in $(sed -n '/^Commands/,/^$/s/^  \([a-z-]*\) .*/\1/p' "$work/help") \
    "bench model" "bench ops" "bench mla" "bench mem" "bench kv"; do
    # shellcheck disable=SC2086
    run $command --help
    grep -o '\[EBRO_[A-Z_]*\]' "$out"
done | tr -d '[]' >"$work/helped"
section ENVIRONMENT | grep -o 'EBRO_[A-Z_]*' >"$work/written"
same "the same variables"

if command -v groff >/dev/null; then
    groff -man -Tutf8 -ww -z "$page" >"$out" 2>&1
    [ $? -eq 0 ] && [ ! -s "$out" ]
    result $? "groff has no complaint"
else
    skip "no groff here"
fi
if command -v man >/dev/null; then
    MANWIDTH=80 LC_ALL=C.UTF-8 man --warnings -l "$page" >"$work/page" 2>"$out" </dev/null
    [ $? -eq 0 ] && [ ! -s "$out" ] && grep -q '^EXIT STATUS' "$work/page"
    result $? "man shows it without a complaint"
else
    skip "no man here"
fi
finish
