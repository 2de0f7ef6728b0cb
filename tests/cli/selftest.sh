#!/usr/bin/env bash
# selftest.sh: what the program does about a device that computes wrong (HD-20), and says of it. The
# device is tests/check/faulty/faulty.c, beside a copy of the program.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
mkdir "$work/bin"
ln "$EBRO" "$work/bin/ebro" 2>/dev/null || cp "$EBRO" "$work/bin/ebro"
cp "$(dirname "$EBRO")/tests/faulty/ebro_cpu.so" "$work/bin"
options=(--cache-dir "$work/cache" -p "The whale is" -n 8 -t 1)
run run "${options[@]}" --no-selftest
cp "$out" "$work/want"
EBRO=$work/bin/ebro

# warnings: how many lines of stderr are one of the self-test.
warnings() { grep -c '^ebro: \[warning\] CPU fails its self-test' "$err"; }

run run "${options[@]}" --log 3
[ $rc -eq 0 ] && cmp -s "$out" "$work/want" && grep -q 'CPU: self-test of [0-9]* operators' "$err" && [ "$(warnings)" -eq 0 ]
result $? "the first start tests"
run run "${options[@]}" --log 3
[ $rc -eq 0 ] && cmp -s "$out" "$work/want" && ! grep -q self-test "$err"
result $? "the second one does not"
rm "$work/cache"/selftest-*.txt

export EBRO_FAULTY=b:fast
run run "${options[@]}"
[ $rc -eq 0 ] && cmp -s "$out" "$work/want" && [ "$(warnings)" -eq 1 ] && [ "$(grep -c '^ebro: ' "$err")" -eq 1 ] &&
    grep -q 'in b:fast, and uses b:plain instead from now on: rms_norm, case ".*allowed' "$err"
result $? "a wrong variant is replaced, and the text is right"
run run "${options[@]}" --log 3
[ $rc -eq 0 ] && cmp -s "$out" "$work/want" && [ "$(warnings)" -eq 0 ] &&
    grep -q 'CPU does without what a self-test found wrong: b:fast$' "$err"
result $? "it is told once"
run bench ops -dev CPU --op embed --quick --cache-dir "$work/bench"
[ $rc -eq 0 ] && [ "$(warnings)" -eq 1 ]
result $? "a benchmark tells it too, once"
run run "${options[@]}" --no-selftest --log 3
[ $rc -eq 0 ] && ! cmp -s "$out" "$work/want" && ! grep -q self-test "$err"
result $? "--no-selftest leaves the device as it is"
EBRO_NO_SELFTEST=1 run run "${options[@]}" --log 3
[ $rc -eq 0 ] && ! grep -q self-test "$err"
result $? "so does EBRO_NO_SELFTEST"
run run "${options[@]}" --no-selftest --avoid b:fast
[ $rc -eq 0 ] && cmp -s "$out" "$work/want"
result $? "--avoid does by hand what the self-test does"
fails "an unknown variant" 1 'no variant "c:fast" to avoid' run "${options[@]}" --avoid c:fast

export EBRO_FAULTY="a:fast a:plain"
for command in "run -p x" chat serve "bench ops --op embed" "logits -p x --out $work/none"; do
    # shellcheck disable=SC2086
    fails "6: ${command%% -*} on a device that is wrong in every variant" 6 \
        'CPU fails its self-test, .*a:plain.*rms_norm, case ".*allowed' $command --cache-dir none
done
run inspect --cache-dir none
[ $rc -eq 0 ]
result $? "inspect computes nothing and asks nothing"
run devices --cache-dir none
[ $rc -eq 0 ] && grep -q '^CPU: ' "$out"
result $? "nor does devices"
run check -dev CPU --op rms_norm -r 1 --cache-dir none
[ $rc -eq 6 ] && grep -q '^rms_norm .* FAILED' "$out" && [ "$(warnings)" -eq 0 ]
result $? "check shows what is wrong"
finish
