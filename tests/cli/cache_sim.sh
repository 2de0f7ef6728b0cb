#!/usr/bin/env bash
# cache_sim.sh: the form of what `ebro cache-sim` says. That it counts as the engine does is a test of
# the engine's (tests/engine/sim.c).
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

run cache-sim --help
[ $rc -eq 0 ] && grep -q '^usage: ebro cache-sim' "$out" && [ ! -s "$err" ]
result $? "help"

fails "no trace" 1 "no trace" cache-sim
fails "a trace and a load" 1 "not both" cache-sim x.jsonl --generate one-off
fails "a trace that is not there" 1 "no/such" cache-sim no/such
fails "an unknown load" 1 '"walk" is none of multi-turn' cache-sim --generate walk
fails "an unknown geometry" 1 '"walk" is none of kimi-linear-48b' cache-sim --generate one-off --geometry walk
fails "two geometries" 1 "not both" cache-sim --generate one-off --geometry demo -m "$demo"
fails "a model that is not there" 2 "no/such" cache-sim --generate one-off -m no/such
fails "a budget that is none" 1 '"1X" is not a list' cache-sim --generate one-off --budget 1X
fails "a budget too small for one token" 4 "holds no sequence" cache-sim --generate one-off --budget 1M
fails "an unknown policy" 1 '"fifo" is not' cache-sim --generate one-off --policy fifo
fails "a policy twice" 1 '"lru,lru" is not' cache-sim --generate one-off --policy lru,lru
fails "unknown retention" 1 '"all" is neither' cache-sim --generate one-off --keep all
EBRO_SIM_BUDGET=1X fails "a budget of the environment" 1 '^ebro: EBRO_SIM_BUDGET: "1X"' cache-sim --generate one-off
EBRO_SIM_BUDGET=1X fails "and one of the command line" 1 '^ebro: --budget: "2X"' cache-sim --generate one-off --budget 2X
fails "only the trace, of a file" 1 "goes with --generate" cache-sim x.jsonl --print-trace

# The second prompt shares 1,500 tokens, but no snapshot was taken there; the third finds it.
trace='{"parts": [["system", 1500], ["a", 700]], "generate": 10}
{"parts": [["system", 1500], ["b", 700]], "generate": 10}
{"parts": [["system", 1500], ["c", 700]], "generate": 10}'
printf '%s\n' "$trace" >"$work/trace.jsonl"
run cache-sim "$work/trace.jsonl" --budget 2G --policy lru
[ $rc -eq 0 ] && [ ! -s "$err" ] && grep -q '^kimi-linear-48b: a state of 43 MiB, 8064 bytes a token' "$out" &&
    grep -q '^3 requests with 6600 prompt tokens, ' "$out" &&
    grep -qE '^ +2 GiB lru +0 +6600 +3000 +1500 +5100 +22\.7%$' "$out" &&
    grep -qE '^ +2 GiB lru +0 +1 +1 +0 +1 +0 +0$' "$out" && ! grep -q '!' "$out"
result $? "three prompts, one junction"

# The second request is longer than the budget holds, the third than -c allows.
refused='{"parts": [["system", 1000]], "generate": 10}
{"parts": [["system", 1000], ["long", 7000]]}
{"parts": [["system", 1000], ["longer", 9000]]}
{"parts": [["system", 1000], ["short", 1]]}'
with "$refused" cache-sim - --budget 100M,1G --policy lru -c 9000 --svg "$work/refused.svg"
[ $rc -eq 0 ] && grep -q '^4 requests with 20001 prompt tokens, ' "$out" &&
    grep -qE '^ +100 MiB lru +18000 +2001 +[0-9]+ +999 +1002 +5\.0% !$' "$out" &&
    grep -qE '^ +1 GiB lru +10000 +10001 +[0-9]+ +1999 +8002 +10\.0% !$' "$out" &&
    grep -qE '^ +100 MiB lru +2 ' "$out" && grep -qE '^ +1 GiB lru +1 ' "$out" && grep -q '^! requests' "$out"
result $? "refused requests are shown, and look no better"
[ "$(grep -c '<title>[12] requests\? refused</title>' "$work/refused.svg")" -eq 2 ] &&
    grep -q '>some refused</text>' "$work/refused.svg"
result $? "and are marked in the plot"
with "$refused" cache-sim - --budget 100M --policy lru -c 9000 --json --csv "$work/refused.csv"
[ $rc -eq 0 ] && grep -q '"asked_tokens": 20001,' "$out" && grep -q '"refused": 2,' "$out" &&
    grep -q '"refused_tokens": 18000,' "$out" && grep -q '"saved_tokens": 999,' "$out" &&
    grep -q '"hit_share": 0.0499' "$out" && grep -q ',20001,18000,999$' "$work/refused.csv"
result $? "refused requests in JSON and CSV"
run cache-sim --help
for word in refused read matched reused recomputed saved none new off no_snapshot evicted earlier "held most" kept; do
    grep -q "^    $word " "$out" || break
    word=all
done
[ "$word" = all ]
result $? "every column is explained"
with '{"parts": [["system", 1]]}' cache-sim - --budget 1G --policy lru
[ $rc -eq 0 ] && grep -q '^1 request with 1 prompt token, ' "$out"
result $? "one request is not requests"

with "$trace" cache-sim - --budget 2G,1G --json
[ $rc -eq 0 ] && [ "$(grep -c '"schema": "ebro-cache-sim-1"' "$out")" -eq 1 ] &&
    [ "$(grep -c '"recomputed_tokens": 5100' "$out")" -eq 4 ] &&
    [ "$(grep '"budget_bytes"' "$out" | sort -u | wc -l)" -eq 2 ]
result $? "JSON, from stdin"

with '' cache-sim -
[ $rc -eq 1 ] && grep -q '^ebro: standard input holds no request$' "$err"
result $? "an empty trace"
with '{"session": "a", "cut": 1, "parts": [["a", 3]]}' cache-sim -
[ $rc -eq 1 ] && grep -q '^ebro: standard input, line 1: cut after token 1, the session has 0' "$err"
result $? "a cut behind the session's end"

with '{"tokens": [1, 2]}
{"tokens": [1, -2]}' cache-sim -
[ $rc -eq 1 ] && grep -q 'standard input, line 2: a token id' "$err"
result $? "a line that is wrong is named"

printf '%s\n' '{"tokens": [1]}' '' '{"parts": []}' >"$work/empty.jsonl"
fails "an empty prompt is told with its line" 1 "empty.jsonl, line 3: an empty prompt" cache-sim "$work/empty.jsonl"

run cache-sim --generate agentic --requests 40 --print-trace
cp "$out" "$work/a.jsonl"
run cache-sim --generate agentic --requests 40 --print-trace
[ $rc -eq 0 ] && cmp -s "$out" "$work/a.jsonl" && [ "$(wc -l <"$out")" -eq 40 ]
result $? "the same seed, the same trace"
run cache-sim --generate agentic --requests 40 --budget 1G --json
cp "$out" "$work/a.json"
run cache-sim "$work/a.jsonl" --budget 1G --json
[ $rc -eq 0 ] && cmp -s "$out" "$work/a.json"
result $? "a load at once and through its trace"

for load in multi-turn agentic shared-system one-off; do
    run cache-sim --generate $load --requests 60 --keep none --budget 4G
    [ $rc -eq 0 ] && [ "$(awk '$1 == 4 && $2 == "GiB" && $9 == "0.0%"' "$out" | wc -l)" -eq 2 ]
    result $? "$load: nothing kept, nothing reused"
done

run cache-sim --generate shared-system --requests 40 --geometry demo -ctk f32 --budget 16M --json
cp "$out" "$work/demo.json"
run cache-sim --generate shared-system --requests 40 -m "$demo" -ctk f32 --budget 16M --json
grep -v '"geometry"' "$out" >"$work/of_folder"
[ $rc -eq 0 ] && grep -v '"geometry"' "$work/demo.json" | cmp -s - "$work/of_folder"
result $? "a geometry is read from config.json"

EBRO_MODEL=no/such run cache-sim --generate one-off --requests 2 --geometry kimi-k3
[ $rc -eq 0 ] && grep -q '^kimi-k3: a state of 4[0-9][0-9] MiB, 27648 bytes a token' "$out"
result $? "a geometry on the command line, a model in the environment"

run cache-sim --generate multi-turn --requests 60 --budget 1G,2G,4G --csv "$work/t.csv" --svg "$work/t.svg"
[ $rc -eq 0 ] && [ "$(wc -l <"$work/t.csv")" -eq 7 ] && [ "$(awk -F, '{ print NF }' "$work/t.csv" | sort -u)" = 23 ]
result $? "CSV: a row for each budget and policy"
python=$(command -v python3 || true)
if [ -n "$python" ]; then
    "$python" -c 'import sys, xml.dom.minidom as m
d = m.parse(sys.argv[1])
assert len(d.getElementsByTagName("circle")) == 6
t = [x.firstChild.data for x in d.getElementsByTagName("text")]
assert "lru" in t and "cost" in t and "1 GiB" in t and any("bytes" in x for x in t)' "$work/t.svg"
    result $? "SVG: well-formed, points, legend, units"
else
    skip "no python3 to read the SVG with"
fi
cp "$work/trace.jsonl" "$work/t.jsonl"
ln -s t.jsonl "$work/link.jsonl"
fails "a table over the trace" 1 "--csv and the trace are the same file: $work/t" cache-sim "$work/link.jsonl" --csv "$work/t.jsonl"
fails "a plot over the trace" 1 "--svg and the trace are the same file: $work/t" cache-sim "$work/t.jsonl" --csv "$work/other.csv" --svg "$work/t.jsonl"
fails "a plot over the table" 1 "--csv and --svg are the same file" cache-sim "$work/t.jsonl" --csv "$work/new" --svg "$work/./new"
cmp -s "$work/t.jsonl" "$work/trace.jsonl" && [ ! -e "$work/new" ] && [ ! -e "$work/other.csv" ]
result $? "none of them is written"
run cache-sim "$work/t.jsonl" --csv /dev/null --svg /dev/null
[ $rc -eq 0 ]
result $? "what is no file may be named twice"
fails "a plot that cannot be written" 1 "cannot write" cache-sim --generate one-off --requests 2 --svg "$work/no/such.svg"

finish
