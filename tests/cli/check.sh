#!/usr/bin/env bash
# check.sh: the form of what `ebro check` says. That it finds faults is a test of tests/check.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
header=$(dirname "${BASH_SOURCE[0]}")/../../runtime/include/ebro/backend.h # EBRO_OPS, one a line

run check --help
[ $rc -eq 0 ] && grep -q '^usage: ebro check' "$out" && [ ! -s "$err" ]
result $? "help"
fails "a device that is not there" 3 "CUDA7" check -dev CUDA7
fails "an unknown operator" 1 '"walk" is no operator' check -dev CPU --op walk
fails "an unknown case" 1 'no case of that name' check -dev CPU --case walk
fails "quick and full" 1 'not both' check --quick --full
run check -dev CPU --op embed --json "$work/no/such/x.json" -r 1
[ $rc -eq 1 ] && grep -q '^ebro: .*no/such' "$err"
result $? "a file that cannot be written"

run check -dev CPU --quick -t 1 --seed 5 --json "$work/report.json"
[ $rc -eq 0 ] && [ ! -s "$err" ] && grep -q '^[0-9]* cases on 1 device: [0-9]* right, 0 failed, 0 refused; seed 5$' "$out"
result $? "the CPU is right"
! grep -q '.\{101\}' "$out"
result $? "no line is longer than 100 columns"
op=none
for op in $(sed -n 's/^ *X([A-Z_0-9]*, \([a-z_0-9]*\)).*/\1/p' "$header"); do
    grep -q "^$op .* ok " "$out" || break
    op=all
done
[ $op = all ]
result $? "every operator has a line"
json=$work/report.json
[ "$(grep -c '"schema": "ebro-check-1"' "$json")" -eq 1 ] && grep -q '"seed": "5"' "$json" &&
    grep -q '"failed": 0' "$json" && [ "$(grep -c '"verdict": "ok"' "$json")" -gt 60 ] &&
    ! grep -q '"repeatable": false' "$json"
result $? "the JSON has every case"

run check -dev CPU --op linear --case "mxfp4" -r 2 --json -
[ $rc -eq 0 ] && [ "$(head -c 1 "$out")" = "{" ] && ! grep -q 'cases on' "$out" &&
    grep -q '"case": "mxfp4"' "$out" && ! grep -q '"case": "few rows, bf16"' "$out" && grep -q '"runs": 2' "$out"
result $? "one case alone, as JSON on stdout"

run check -dev CPU --op linear -r 2 --html "$work/report.html" --json "$work/both.json"
[ $rc -eq 0 ] && [ "$(head -c 15 "$work/report.html")" = "<!DOCTYPE html>" ] &&
    [ "$(tail -n 1 "$work/report.html")" = "</html>" ] &&
    [ "$(grep -c '"verdict"' "$work/both.json")" -eq "$(grep -c '<tr class="row is-ok"' "$work/report.html")" ]
result $? "the page has every case"
run check -dev CPU --op embed -r 1 --html -
[ $rc -eq 0 ] && [ "$(head -c 15 "$out")" = "<!DOCTYPE html>" ] && ! grep -q 'cases on' "$out"
result $? "the page on stdout"
fails "two reports in one file" 1 'two files are needed' check -dev CPU --op embed --json "$work/x" --html "$work/./x"
fails "two reports on stdout" 1 'two files are needed' check -dev CPU --op embed --json - --html -
run check -dev CPU --op embed -r 1 --json "$work/no/such/x.json" --html "$work/kept.html"
[ $rc -eq 1 ] && grep -q '^ebro: .*no/such' "$err" && [ -s "$work/kept.html" ]
result $? "a page beside a file that cannot be written"

run check -dev Null0
[ $rc -eq 0 ] && grep -q '^embed .* refused' "$out" && [ "$(grep -c '^  refused: embed' "$out")" -eq 1 ] && grep -q ' 0 failed, [1-9][0-9]* refused' "$out" &&
    ! grep -q '.\{101\}' "$out"
result $? "a device that computes nothing is refused, not failed"

if [ -c /dev/full ]; then
    rc=0
    "$EBRO" check -dev CPU --op embed >/dev/full 2>"$err" </dev/null || rc=$?
    : >"$out"
    [ $rc -eq 1 ] && grep -q "cannot write to standard output" "$err"
    result $? "full device"
else
    skip "no /dev/full here"
fi
finish
