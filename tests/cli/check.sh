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

for check in logits greedy recall split strict resume damage; do
    grep -q "^$check .* ok " "$out" && grep -q "\"check\": \"$check\"" "$json" || break
    [ $check != damage ] || check=all
done
[ $check = all ] && grep -q '^[1-9][0-9]* checks of the demo model: [0-9]* right, 0 failed, 0 refused$' "$out" &&
    grep -q '^CPU .* ok [0-9]*%$' "$out"
result $? "the demo model is right, and goes on from what was saved"

run check -dev CPU --op linear --case "mxfp4" -r 2 --json -
[ $rc -eq 0 ] && [ "$(head -c 1 "$out")" = "{" ] && ! grep -q 'cases on' "$out" &&
    grep -q '"case": "mxfp4"' "$out" && ! grep -q '"model"' "$out" && ! grep -q '"case": "few rows, bf16"' "$out" && grep -q '"runs": 2' "$out"
result $? "one case alone, as JSON on stdout"

run check -dev CPU --op linear -r 2 --html "$work/report.html" --json "$work/both.json"
[ $rc -eq 0 ] && [ "$(head -c 15 "$work/report.html")" = "<!DOCTYPE html>" ] &&
    [ "$(tail -n 1 "$work/report.html")" = "</html>" ] &&
    [ "$(grep -c '"verdict"' "$work/both.json")" -eq "$(grep -c '<tr class="row is-ok"' "$work/report.html")" ]
result $? "the page has every case"
run check -dev CPU --op embed -r 1 --html -
[ $rc -eq 0 ] && [ "$(head -c 15 "$out")" = "<!DOCTYPE html>" ] && ! grep -q 'cases on' "$out"
result $? "the page on stdout"
run check -dev CPU --op linear -r 2 --bundle "$work/bundle.json"
[ $rc -eq 0 ] && grep -q '"schema": "ebro-bundle-1"' "$work/bundle.json" && grep -q '"schema": "ebro-check-1"' "$work/bundle.json" &&
    grep -q '"kernel": "Linux ' "$work/bundle.json" && grep -q '"caps": "0x' "$work/bundle.json"
result $? "a bundle"
! grep -qF -e "$work" -e "${HOME:-/no home}/" "$work/bundle.json" && ! grep -qwF "$(uname -n)" "$work/bundle.json" &&
    { [ "$(id -u)" -eq 0 ] || ! grep -qwF "$(id -un)" "$work/bundle.json"; }
result $? "which names nobody"
fails "a bundle in the page" 1 'html and --bundle both to' check -dev CPU --op embed --html "$work/x" --bundle "$work/./x"
fails "two reports in one file" 1 'two files are needed' check -dev CPU --op embed --json "$work/x" --html "$work/./x"
fails "two reports on stdout" 1 'two files are needed' check -dev CPU --op embed --json - --html -
run check -dev CPU --op embed -r 1 --json "$work/no/such/x.json" --html "$work/kept.html"
[ $rc -eq 1 ] && grep -q '^ebro: .*no/such' "$err" && [ -s "$work/kept.html" ]
result $? "a page beside a file that cannot be written"

# ---- reports side by side

run check -dev CPU --op linear -r 2 -t 1 --seed 6 --json "$work/six.json"
run check --compare "$json" "$work/six.json"
[ $rc -eq 0 ] && [ ! -s "$err" ] && grep -q '^A: CPU, ' "$out" && grep -q '^B: CPU, ' "$out" &&
    grep -q '^linear  *[0-9.]*%  *[0-9.]*%  *[0-9.]*% [^ ]' "$out" && grep -q '^The seeds differ' "$out" &&
    grep -q '^  Cases that are there alone on A: .*embed ([1-9]' "$out" && ! grep -q '.\{101\}' "$out"
result $? "two reports side by side"
run check --compare --json - "$json" - <"$work/six.json"
[ $rc -eq 1 ] && grep -q '^ebro: .*standard input' "$err" # run gives no input
result $? "a report from an empty standard input"
rc=0
"$EBRO" check --compare --json - "$json" - <"$work/six.json" >"$out" 2>"$err" || rc=$?
[ $rc -eq 0 ] && grep -q '"schema": "ebro-check-compare-1"' "$out" && grep -q '"file": "standard input"' "$out" &&
    ! grep -q '^op ' "$out"
result $? "a comparison as JSON"
sed '/"model": {/,$ s/"failed": 0/"failed": 1/; /"model": {/,$ s/"ok": \([0-9]*\)/"ok": \1-1/
    /"check": "damage"/,$ s/"verdict": "ok"/"verdict": "failed"/' "$json" |
    awk '/"ok": [0-9]+-1/ { sub(/[0-9]+-1/, $2 - 1) } { print }' >"$work/model.json"
run check --compare "$json" "$work/model.json"
[ $rc -eq 6 ] && grep -q '^  FAILED in .*model.json: 1 checks of the demo model' "$out" &&
    grep -q '^Checks of the demo model are not compared.$' "$out"
result $? "a report in which the model failed"
sed '0,/"verdict": "ok"/s//"verdict": "failed"/; s/"failed": 0/"failed": 1/
    s/"ok": \([0-9]*\)/"ok": \1-1/' "$work/six.json" | awk '/"ok": [0-9]+-1/ { sub(/[0-9]+-1/, $2 - 1) } { print }' \
    >"$work/failed.json"
run check --compare "$work/six.json" "$work/failed.json"
[ $rc -eq 6 ] && grep -q '^  FAILED on B: linear, ' "$out" && tr -s '\n ' ' ' <"$out" | grep -q ': ; right on A 1'
result $? "a report in which something failed"
fails "no report" 1 'needs reports' check --compare
fails "one machine alone" 1 '1 device in all' check --compare "$json"
fails "a report that is not there" 1 'cannot read .*nothing.json: No such file' check --compare "$json" "$work/nothing.json"
fails "a page as a report" 1 'report.html is not valid JSON' check --compare "$json" "$work/report.html"
printf '{"schema": "ebro-check-2"}' >"$work/two.json"
fails "a report of another kind" 1 'two.json: "schema" is "ebro-check-2", not' check --compare "$json" "$work/two.json"
printf '{"schema": "ebro-check-1", "schema": "ebro-check-1"}' >"$work/twice.json"
fails "a member twice" 1 'twice.json is not valid JSON: .*schema' check --compare "$json" "$work/twice.json"
cp "$json" "$work/kept.json"
fails "a comparison in the place of a report" 1 'which is compared' check --compare "$json" "$work/six.json" --json "$json"
cmp -s "$json" "$work/kept.json"
result $? "the report is still there"
for option in "-dev CPU" --quick --full "--op linear" "--case x" "--seed 1" "-r 2" "-t 1" "--html $work/x.html" "--bundle $work/x.json"; do
    # shellcheck disable=SC2086
    fails "compare and $option" 1 'does not go with --compare' check --compare "$json" "$json" $option
done
fails "a report alone" 1 'reports go with --compare' check "$json"

run check -dev Null0
[ $rc -eq 0 ] && grep -q '^logits .* refused' "$out" && grep -q '^embed .* refused' "$out" && [ "$(grep -c '^  refused: embed' "$out")" -eq 1 ] && grep -q ' 0 failed, [1-9][0-9]* refused' "$out" &&
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
