#!/usr/bin/env bash
# bench.sh: the form of what `ebro bench` says. What it measures is nobody's promise: no test is timed.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
header=$(dirname "${BASH_SOURCE[0]}")/../../runtime/include/ebro/backend.h # EBRO_OPS, one a line

for what in "" model ops mla mem kv; do
    # shellcheck disable=SC2086
    run bench $what --help
    [ $rc -eq 0 ] && grep -q '^usage: ebro bench' "$out" && [ ! -s "$err" ]
    result $? "help bench $what"
done

fails "nothing named" 1 "model, ops, mla" bench
fails "unknown benchmark" 1 '"walk" is none of' bench walk
fails "threads that are no list" 1 '"1;2" is not a list.*bench model --help' bench model --quick -t '1;2'
fails "threads that are too many" 1 '"1,257" is not a list' bench model --quick -t 1,257
fails "no runs" 1 "-r" bench model -r 0
fails "a device that is not there" 3 "CUDA7" bench model --quick -dev CUDA7
fails "a model that is not there" 2 "no/such" bench model --quick -m no/such
fails "unknown operator" 1 '"walk" is no operator: embed, ' bench ops --op walk
cp "$err" "$work/told"
run bench ops --help
op=none
for op in $(sed -n 's/^ *X([A-Z_0-9]*, \([a-z_0-9]*\)).*/\1/p' "$header"); do
    grep -qw "$op" "$work/told" && grep -q "^  .* $op\(,\|\$\| \[EBRO\)" "$out" || break
    op=all
done
[ $op = all ] && ! grep -q '.\{81\}' "$out" && grep -q 'every "% read" is too high' "$out"
result $? "and every operator is named, in the help too"
run bench mla --help
grep -q 'is a fraction: 0.05 where the table has 5.0%' "$out"
result $? "the help tells a loss of JSON from one of the table"
EBRO_BENCH_OP=walk fails "unknown operator of the environment" 1 '^ebro: EBRO_BENCH_OP: "walk"' bench ops
EBRO_THREADS='1;2' fails "threads of the environment" 1 '^ebro: EBRO_THREADS: "1;2"' bench model --quick
run bench model --help
grep -q '^  -t, --threads N,N,\.\.\.' "$out"
result $? "model: help offers a list of threads"
for what in ops mla mem kv; do
    run bench $what --help
    grep -q '^  -t, --threads N ' "$out"
    result $? "$what: help offers one number of threads"
    fails "$what: two numbers of threads" 1 '-t: "1,2" is not a whole number' bench $what -t 1,2
done
fails "mla: an option of others" 1 '"-c"' bench mla -c 100

# number TEXT: lines of stdout that it matches.
number() {
    grep -cE -- "$1" "$out"
}

run bench model --quick -t 1,2
[ $rc -eq 0 ] && [ ! -s "$err" ] && [ "$(number '^(load|first token) +[12] .* ms ')" -eq 4 ] &&
    [ "$(number '^(prefill|decode) [0-9]+( @ 16)? +[12] +[0-9.]+ +[0-9.]+ - [0-9.]+ ')" -eq 12 ] &&
    [ "$(number '^peak resident memory [0-9.]+ MiB: the weights and [0-9.]+ MiB$')" -eq 1 ]
result $? "model: a row for each thing and number of threads"

run bench model --quick -t 1 -c 20
[ $rc -eq 0 ] && [ "$(number '^prefill 32 +1   needs a context of 32 tokens$')" -eq 1 ] &&
    [ "$(number '^decode 4 @ 16 +1 +[0-9.]+ ')" -eq 1 ]
result $? "model: what does not fit into the context says so"

run bench model --quick -t 1 --json
[ $rc -eq 0 ] && [ ! -s "$err" ] && [ "$(number '"schema": "ebro-bench-model-1"')" -eq 1 ] &&
    [ "$(number '"name": "')" -eq 8 ] && [ "$(number '"tokens_per_second": \{')" -eq 6 ] &&
    [ "$(number '"peak_resident_bytes": [1-9]')" -eq 1 ] && [ "$(number '"rung": "[a-z0-9]+"')" -eq 1 ]
result $? "model: JSON"

run bench ops --quick -t 1
[ $rc -eq 0 ] && [ ! -s "$err" ] && [ "$(number '^threads 1; read [0-9.]+ GB/s')" -eq 1 ]
result $? "ops: the ceilings of the device"
op=none
for op in $(sed -n 's/^ *X([A-Z_0-9]*, \([a-z_0-9]*\)).*/\1/p' "$header"); do
    [ "$(number "^$op +tiny .* [0-9.]+ +[0-9.]+ +[0-9.]+ ")" -ge 1 ] || break
    op=all
done
[ $op = all ]
result $? "ops: every operator has a row"
# of those with a reference the error is that of f32 arithmetic: sums in another order, no more
awk '$1 ~ /^(linear|rms_norm|act_mul|kda_step|mla_prefill|mla_decode)$/ && $NF ~ /e-/ { n++; if ($NF + 0 < 1e-5) ok++ }
    END { exit !(n >= 8 && ok == n) }' "$out"
result $? "ops: what is measured is right"

run bench ops --quick -t 1 --op kda_step --json
[ $rc -eq 0 ] && [ ! -s "$err" ] && [ "$(number '"schema": "ebro-bench-ops-1"')" -eq 1 ] &&
    [ "$(number '"op": "')" -eq 1 ] && [ "$(number '"error": [0-9.]+e-')" -eq 1 ]
result $? "ops: JSON of one operator"

run bench ops --quick -dev Null0
[ $rc -eq 0 ] && [ ! -s "$err" ] && [ "$(number '^read [0-9.]+ GB/s$')" -eq 1 ] &&
    [ "$(number '^linear +not computed: .*null')" -eq 1 ] && [ "$(number '^linear ')" -eq 1 ] &&
    [ "$(number '^rows_copy +tiny ')" -eq 1 ]
result $? "ops: what the device lacks has one row"
[ "$(number '^kda_recur +not measured: what it reads cannot be made: .*kda_prep')" -eq 1 ] &&
    [ "$(number '^kda_recur ')" -eq 1 ]
result $? "ops: what another operator would have to make is named with it"

run bench ops --quick -dev Null0 --op linear --json
[ $rc -eq 0 ] && [ "$(number '"rows": \[\]')" -eq 1 ] && [ "$(number '"reason": ')" -eq 1 ]
result $? "ops: JSON of what the device lacks"

run bench mla --quick -t 1
[ $rc -eq 0 ] && [ ! -s "$err" ] &&
    [ "$(number '^ +(0|256) +[12] +[0-9.]+ +[0-9.]+ +(expanded|absorbed) +(expanded|absorbed) +[0-9.]+%$')" -eq 4 ] &&
    [ "$(number '^  context +(0|256): ')" -eq 2 ] && [ "$(number '^(reasoning|agentic) .*%$')" -eq 2 ]
result $? "mla: the grid, the crossover, the mixes"
# one row is never expanded, and what is chosen loses nothing where it is the faster form
awk 'NF == 7 && $1 ~ /^[0-9]+$/ { n++; if ($2 == 1 && $6 != "absorbed" || $5 == $6 && $7 != "0.0%") bad++ }
    END { exit !(n == 4 && !bad) }' "$out"
result $? "mla: choice and loss fit"

run bench mla --quick -t 1 --json
[ $rc -eq 0 ] && [ ! -s "$err" ] && [ "$(number '"schema": "ebro-bench-mla-1"')" -eq 1 ] &&
    [ "$(number '"engine": "(expanded|absorbed)"')" -eq 4 ] && [ "$(number '"best_seconds": ')" -eq 2 ]
result $? "mla: JSON"

TMPDIR=$work run bench mem --quick -t 1
[ $rc -eq 0 ] && [ ! -s "$err" ] &&
    [ "$(number '^(match (deep|wide)|blocks|step|rewind) +[0-9]+ +[0-9.]+ +[0-9]+$')" -eq 5 ] &&
    [ "$(number '^(copy|disk write|(disk|cached) read) +1 +[0-9.]+ +[0-9]+ +[0-9.]+$')" -eq 4 ] &&
    [ "$(number '^(copy pages|save|(cached )?load) +[0-9]+ +[0-9.]+ +[0-9]+ +[0-9.]+ +[0-9]+%$')" -eq 4 ]
result $? "mem: a row for each thing"
[ -z "$(find "$work" -name 'ebro-bench-*')" ]
result $? "mem: leaves no file"
fails "mem: a model that is not there" 2 "no/such" bench mem --quick -t 1 -m no/such

run bench mem --quick -t 1 --json
[ $rc -eq 0 ] && [ ! -s "$err" ] && [ "$(number '"schema": "ebro-bench-mem-1"')" -eq 1 ] &&
    [ "$(number '"name": "')" -eq 13 ] && [ "$(number '"of_ceiling": ')" -eq 4 ]
result $? "mem: JSON"

run bench kv --quick -t 1
# of the demo: 6 layers of 3 heads of 128 x 128 and windows, 3 MLA layers of 576 values
[ $rc -eq 0 ] && [ ! -s "$err" ] &&
    grep -q 'a state of 1.20 MiB and 6912 bytes a token; all MLA 20736, all GQA 9216$' "$out" &&
    [ "$(number '^ +(128|512) +[0-9.]+( +[0-9.]+){6}$')" -eq 2 ]
result $? "kv: bytes and rates"

run bench kv --quick -t 1 -ctk f16 -c 128 --json
[ $rc -eq 0 ] && [ ! -s "$err" ] && [ "$(number '"schema": "ebro-bench-kv-1"')" -eq 1 ] &&
    [ "$(number '"token_bytes": 3456')" -eq 1 ] && [ "$(number '"tokens": ')" -eq 1 ]
result $? "kv: JSON, of what the context holds"
fails "kv: a context that holds nothing of it" 1 "at least 128" bench kv --quick -c 100

if [ -c /dev/full ]; then
    rc=0
    "$EBRO" bench model --quick >/dev/full 2>"$err" </dev/null || rc=$?
    : >"$out"
    [ $rc -eq 1 ] && grep -q "cannot write to standard output" "$err"
    result $? "full device"
else
    skip "no /dev/full here"
fi

finish
