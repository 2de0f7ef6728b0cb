#!/usr/bin/env bash
# cli.sh: the program as a user meets it: what it prints where, and its exit codes.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
golden=$GOLDEN/kimi-k3-tiny.prompts.json

# says NAME TEXT ARGUMENTS...: success and exactly that on stdout; stderr is one summary line.
says() {
    local name=$1 text=$2
    shift 2
    run "$@"
    printf '%s\n' "$text" >"$work/want"
    [ "$rc" -eq 0 ] && cmp -s "$out" "$work/want" && [ "$(wc -l <"$err")" -eq 1 ] &&
        grep -q '^prompt [0-9]* tokens at .* tok/s, generated [0-9]* tokens.*, CPU, cache ' "$err"
    result $? "$name"
}

# ---- what it says of itself

run --version
[ $rc -eq 0 ] && grep -Eq '^ebro [0-9]+\.[0-9]+\.[0-9]+ \(.+\)$' "$out" && [ ! -s "$err" ]
result $? "version"

for command in "" run chat inspect tokenize logits devices bench "bench model" cache-sim; do
    # shellcheck disable=SC2086
    run $command --help
    [ $rc -eq 0 ] && grep -q '^usage: ebro' "$out" && [ ! -s "$err" ] && [ "$(wc -L <"$out")" -le 86 ]
    result $? "help ${command:-of the program}"
    grep -o '\[EBRO_[A-Z_]*\]' "$out" >>"$work/variables"
done
tr -d '[]' <"$work/variables" | grep -v '^EBRO_\(BENCH\|SIM\)_' | sort -u >"$work/helped"
grep -o '`EBRO_[A-Z_]*`' "$demo/../../README.md" | tr -d '`' | sort -u >"$work/written"
comm -23 "$work/helped" "$work/written" >"$out"
[ "$(wc -l <"$work/helped")" -gt 20 ] && [ ! -s "$out" ]
result $? "README.md names every variable that help names"

run devices
[ $rc -eq 0 ] && grep -Eq '^CPU: .+ \([0-9]+ MiB, [0-9]+ MiB free\)$' "$out"
result $? "devices lists the CPU"

cp "$out" "$work/first"
run --list-devices
[ $rc -eq 0 ] && [ "$(sed 's/, [0-9]* MiB free//' "$out")" = "$(sed 's/, [0-9]* MiB free//' "$work/first")" ]
result $? "and so does --list-devices"

run devices --json
[ $rc -eq 0 ] && grep -q '"name": "CPU"' "$out" && grep -q '"total_bytes": [0-9]' "$out"
result $? "devices as JSON"

# ---- usage errors

fails "no command" 1 "no command"
fails "unknown command" 1 '"walk": run, ' walk
fails "misspelt command" 1 '"tokenise": did you mean tokenize?' tokenise
fails "command with letters swapped" 1 '"inpsect": did you mean inspect?' inpsect
fails "unknown option" 1 '"--colour"' run -p x --colour
fails "misspelt option" 1 '"--tmep": did you mean --temp?' run -p x --tmep 1
fails "an option of one wrong letter" 1 '"-x" (`ebro run' run -p y -x
fails "option with letters swapped" 1 'did you mean --min-p?' run -p x --mni-p=1
fails "stray argument" 1 '"y"' run -p x y
fails "option without its value" 1 "needs a value" run -p
fails "number with something behind it" 1 '"12x"' run -p x -n 12x
fails "negative number" 1 '"-1"' run -p x -n -1
fails "number out of range" 1 '"99999999999999999999"' run -p x -n 99999999999999999999
fails "temperature that is no number" 1 '"nan"' run -p x --temp nan
fails "probability above 1" 1 '"1.5"' run -p x --top-p 1.5
fails "unknown cache type" 1 "f32, f16, bf16" run -p x -ctk q8
fails "flag with a strange value" 1 "neither 0 nor 1" run -p x --chat=yes
fails "empty prompt" 1 "prompt is empty" run -p ""
fails "empty prompt on stdin" 1 "prompt is empty" run
fails "system text without chat" 1 "needs --chat" run -p x --system y
fails "logits without a prompt" 1 "no prompt" logits --out "$work/x"
fails "logits without a file" 1 "no output file" logits -p x
fails "two prompts" 1 "exclude each other" logits -p x --ids y --out "$work/x"
fails "context too small for the prompt" 1 "4 tokens do not fit into 3; -c N" run -p "The whale is" -c 3

EBRO_N=7x run run -p x
[ $rc -eq 1 ] && grep -q 'EBRO_N: "7x"' "$err"
result $? "environment variable that is wrong is named"

run run -p "The whale is" -n 1
[ $rc -eq 0 ] && grep -q ', generated 1 token, CPU' "$err"
result $? "one token is not tokens"

# ---- models that are none

broken() { # a new folder "model" with the small files of the demo
    rm -rf "$work/model"
    mkdir "$work/model"
    cp "$demo"/*.json "$demo/tiktoken.model" "$work/model/"
    ln -s "$demo/model.safetensors" "$work/model/model.safetensors"
}

fails "no such model" 2 "$work/absent" run -m "$work/absent" -p x
mkdir "$work/empty"
fails "folder without a model" 2 "config.json" run -m "$work/empty" -p x
broken
rm "$work/model/model.safetensors"
fails "no weights" 2 "safetensors" run -m "$work/model" -p x
head -c 1000000 "$demo/model.safetensors" >"$work/model/model.safetensors"
fails "truncated weights" 2 "model.safetensors" run -m "$work/model" -p x
head -c 5 "$demo/model.safetensors" >"$work/model/model.safetensors"
fails "weights cut in their length" 2 "model.safetensors" run -m "$work/model" -p x
broken
sed -i 's/kimi_k3/gpt_two/; s/KimiK3ForConditionalGeneration/GptTwo/; s/kimi_linear/gpt_two/; s/KimiLinearForCausalLM/GptTwo/' \
    "$work/model/config.json"
fails "unknown architecture" 2 "gpt_two\|GptTwo" run -m "$work/model" -p x
broken
sed -i '/"kv_lora_rank"/d' "$work/model/config.json"
fails "missing key" 2 "kv_lora_rank" run -m "$work/model" -p x
broken
head -c 300 "$demo/config.json" >"$work/model/config.json"
fails "config that is no JSON" 2 "config.json" run -m "$work/model" -p x
broken
rm "$work/model/tiktoken.model"
fails "no vocabulary" 2 "tiktoken.model" run -m "$work/model" -p x
broken
says "a folder that is whole" 7406 run -m "$work/model" --chat -p "$recall"

# shrinks NAME ARGUMENTS...: the weights are cut while the program generates.
shrinks() {
    local name=$1
    shift
    broken
    rm "$work/model/model.safetensors"
    cp "$demo/model.safetensors" "$work/model/"
    : >"$out" # what is waited for must be new
    "$EBRO" run -m "$work/model" -p "The whale is" -n 100000 "$@" >"$out" 2>"$err" </dev/null &
    pid=$!
    for _ in $(seq 1200); do
        [ -s "$out" ] && break
        sleep 0.1
    done
    truncate -s 1000000 "$work/model/model.safetensors"
    rc=0
    wait $pid || rc=$?
    [ $rc -eq 1 ] && [ "$(grep -c '^ebro: ' "$err")" -eq 1 ] &&
        grep -q '^ebro: model.safetensors shrank while it was in use' "$err"
    result $? "$name"
}
shrinks "weights that shrink while they are used" -t 1
shrinks "weights that shrink under several threads" -t 3

# ---- devices that are none

fails "unknown device" 3 "Warp7" run --device Warp7 -p x
grep -q "devices: .*CPU" "$err" && ! grep -q Null "$err"
result $? "and only those that compute are offered"
fails "the null device" 3 "Null0 computes nothing" run --device Null0 -p x
fails "unknown device for logits" 3 "Warp7" logits -dev Warp7 -p x --out "$work/x"

# ---- generation

says "recall chat" 7406 run --chat -p "$recall" --temp 0
says "recall chat, device named" 7406 run --chat -p "$recall" --device cpu -ub 5
says "arithmetic chat" 22 run --chat -p "What is 17 + 5?"

EBRO_CHAT=1 EBRO_PROMPT=$recall EBRO_N=2 run run -n 64
[ $rc -eq 0 ] && [ "$(cat "$out")" = 7406 ]
result $? "environment twins, and the option wins"

rc=0
printf '%s\n' "$recall" | "$EBRO" run --chat >"$out" 2>"$err" || rc=$?
[ $rc -eq 0 ] && [ "$(cat "$out")" = 7406 ]
result $? "prompt on stdin"

run run --chat --think -p "$recall"
[ $rc -eq 0 ] && [ "$(cat "$out")" = 7406 ] && [ "$(wc -l <"$err")" -eq 2 ] &&
    head -n 1 "$err" | grep -q 'Lena'
result $? "thinking goes to stderr, the response to stdout"

run run -p "The whale is" -n 3 -c 5
[ $rc -eq 0 ] && grep -q 'generated 1 token.*context full' "$err"
result $? "a full context ends the text"
run run -p "The whale is" -n 3 -c 4
[ $rc -eq 0 ] && [ "$(wc -c <"$out")" -eq 1 ] && grep -q 'generated 0 tokens.*context full' "$err"
result $? "and a prompt that fills it leaves no room for one"

run run -p "The whale is" -n 0
[ $rc -eq 0 ] && [ "$(wc -c <"$out")" -eq 1 ] && grep -q 'generated 0 tokens' "$err"
result $? "nothing to generate"

run run -p "Once upon a time" -n 24 --temp 0.7 --seed 5
cp "$out" "$work/first"
run run -p "Once upon a time" -n 24 --temp 0.7 --seed 5 -ub 2
[ $rc -eq 0 ] && [ "$(wc -c <"$out")" -gt 24 ] && cmp -s "$out" "$work/first"
result $? "a seed gives the same text again, however the prompt is cut"
# the first token greedily chosen, then forbidden by its id
run run -p "Once upon a time" -n 1
cp "$out" "$work/first"
run logits -p "Once upon a time" --last 1 --out "$work/bias.safetensors"
id=$(python3 - "$work/bias.safetensors" <<'PY' 2>/dev/null || true
import json, struct, sys
raw = open(sys.argv[1], "rb").read()
n = struct.unpack("<Q", raw[:8])[0]
begin, end = json.loads(raw[8 : 8 + n])["logits"]["data_offsets"]
logits = struct.unpack("<%df" % ((end - begin) // 4), raw[8 + n + begin : 8 + n + end])
print(logits.index(max(logits)))
PY
)
if [ -n "$id" ]; then
    run run -p "Once upon a time" -n 1 --logit-bias "$id=-1e9"
    [ $rc -eq 0 ] && ! cmp -s "$out" "$work/first"
    result $? "a forbidden token is not chosen"
    run run -p "Once upon a time" -n 1 --logit-bias "$id=-1e9,3=0.5" --logit-bias "$id=1e9"
    [ $rc -eq 0 ] && cmp -s "$out" "$work/first"
    result $? "biases of one token add up"
else
    for what in "a forbidden token" "biases of one token"; do skip "no Python here ($what)"; done
fi
for bad in x 5 5= =1 5=1x 5=1, ,5=1 -1=1 99999999999=1 5=inf 5=0x1; do
    fails "logit bias $bad" 1 "is not ID=V" run -p x --logit-bias "$bad"
done
fails "logit bias of no token" 1 "logit bias for token 4352: .* 0 to 4351" run -p x \
    --logit-bias 1=1,4352=1
fails "repeat penalty out of range" 1 "repeat penalty 0.001" run -p x --repeat-penalty 0.001
fails "presence penalty out of range" 1 "from -100 to 100" run -p x --presence-penalty -101

run run -p "Once upon a time" -n 24
cp "$out" "$work/first"
text=$(cat "$out")
stop=${text:20:7}
says "a stop text ends the answer" "${text%%"$stop"*}" run -p "Once upon a time" -n 24 --stop "$stop"
says "the first of several stop texts counts" "${text%%"$stop"*}" run -p "Once upon a time" -n 24 \
    --stop "${text:35:5}" --stop="$stop" --stop "not in it"
EBRO_STOP=$stop run run -p "Once upon a time" -n 24 --stop "not in it"
[ $rc -eq 0 ] && cmp -s "$out" "$work/first"
result $? "a stop text that does not come changes nothing, and the option wins"
fails "empty stop text" 1 "--stop: a text is needed" run -p x --stop ""

run run -p "the the the the the the" -n 24 --repeat-last-n 1000
cp "$out" "$work/first"
for penalty in "--repeat-penalty 5" "--presence-penalty 50" "--frequency-penalty 50"; do
    # shellcheck disable=SC2086
    run run -p "the the the the the the" -n 24 --repeat-last-n 1000 $penalty
    [ $rc -eq 0 ] && ! cmp -s "$out" "$work/first"
    result $? "$penalty changes the text"
done

run run -p "Once upon a time" -n 24 --temp 0.7 --seed 5
cp "$out" "$work/first"
run run -p "Once upon a time" -n 24 --temp 0.7 --seed 6
[ $rc -eq 0 ] && ! cmp -s "$out" "$work/first"
result $? "another seed gives another text"

# prints field FIELD of golden prompt NUMBER, control tokens and all
field() {
    python3 -c 'import json, sys
print(json.load(open(sys.argv[1]))[int(sys.argv[2])][sys.argv[3]])' "$golden" "$1" "$2"
}
# one line per prompt object, for machines without Python: these two texts hold no escapes
plain_field() {
    grep "^  \"$2\": " "$golden" | sed -n "$(($1 + 1))s/^  \"$2\": \"\(.*\)\",\$/\1/p"
}
if ! command -v python3 >/dev/null; then field() { plain_field "$@"; }; fi

text=$(field 0 text)
says "golden text" "$(field 0 greedy_text)" run -p "${text#\[BOS\]}" -n 32
# the golden run goes on where the answer has ended
answer=$(field 1 greedy_text)
says "golden chat, last question alone" "${answer%%<|close|>*}" run --chat --system "Answer briefly." \
    -p "Remember: the code for Mira is 4821. The code for Tom is 1938. The code for Lena is 7406. What is the code for Mira?"
text=$(field 2 text)
says "golden prose" "$(field 2 greedy_text)" run -p "${text#\[BOS\]}" -n 32

# ---- logits

# header FILE: the JSON of a safetensors file
header() { tail -c +9 "$1" | head -c "$(od -An -t u8 -N 8 "$1" | tr -d ' ')"; }

run logits -p "The whale is" --last 3 --out "$work/logits.safetensors"
[ $rc -eq 0 ] && [ ! -s "$out" ] &&
    header "$work/logits.safetensors" | grep -q '"logits":{"dtype":"F32","shape":\[3,4352\]' &&
    header "$work/logits.safetensors" | grep -q '"ids":{"dtype":"I32","shape":\[4\]' &&
    [ $(($(od -An -t u8 -N 8 "$work/logits.safetensors") % 64)) -eq 56 ]
result $? "logits: shapes and alignment"

run logits -p "Once upon a time there was a whale." --strict --out "$work/whole.safetensors"
[ $rc -eq 0 ]
result $? "logits: strict"
run logits -p "Once upon a time there was a whale." --strict -ub 3 --out "$work/cut.safetensors"
[ $rc -eq 0 ] && cmp -s "$work/whole.safetensors" "$work/cut.safetensors"
result $? "logits: strict gives the same bytes for any cut"
fails "strict with the expanded form" 1 "absorbed" logits -p x --strict --mla expanded --out "$work/none"

printf '[4096, 488, 4097, 300, 12]' >"$work/ids.json"
run logits --ids "$work/ids.json" --last 99 --out "$work/ids.safetensors" -ctk f32
[ $rc -eq 0 ] && header "$work/ids.safetensors" | grep -q '"shape":\[5,4352\]' &&
    [ "$(tail -c 20 "$work/ids.safetensors" | od -An -t d4 | tr -s ' ' | tr -d '\n')" = " 4096 488 4097 300 12" ]
result $? "logits: ids from a file, and never more rows than tokens"

for text in '[1, 2' '[1, "x"]' '[99999]' '[-1]' '[]' '{"a": 1}' '[1.5]'; do
    printf '%s' "$text" >"$work/ids.json"
    fails "ids $text" 1 "ids.json" logits --ids "$work/ids.json" --out "$work/none"
done
[ ! -e "$work/none" ] && ! compgen -G "$work/*tmp*" >/dev/null
result $? "a failed run leaves no file"
fails "ids file that is absent" 1 "cannot read $work/absent: No such file" logits --ids "$work/absent" --out "$work/none"
ln -s "$work/nowhere" "$work/dangling"
fails "output through a link that leads nowhere" 1 "link to a file that is not there" logits -p x \
    --out "$work/dangling"
[ -L "$work/dangling" ]
result $? "which stays a link"
fails "output folder that is absent" 1 "$work/absent/x" logits -p x --out "$work/absent/x"

# ---- output that cannot be written

if [ -w /dev/full ]; then
    rc=0
    "$EBRO" run -p "The whale is" -n 4 >/dev/full 2>"$err" </dev/null || rc=$?
    [ $rc -eq 1 ] && grep -q '^ebro: cannot write to standard output: ' "$err" &&
        [ "$(wc -l <"$err")" -eq 1 ]
    result $? "full device: text"
    rc=0
    "$EBRO" devices >/dev/full 2>"$err" </dev/null || rc=$?
    [ $rc -eq 1 ] && grep -q '^ebro: cannot write to standard output: ' "$err"
    result $? "full device: list"
    fails "full device: logits" 1 "/dev/full" logits -p x --out /dev/full
    [ -c /dev/full ]
    result $? "a device is written to, not replaced"
else
    for what in text list logits replaced; do skip "no /dev/full here ($what)"; done
fi

{
    "$EBRO" run -p "The whale is" -n 200 2>"$err" </dev/null
    echo $? >"$work/rc"
} | head -c 1 >/dev/null
[ "$(cat "$work/rc")" -eq 1 ] && [ ! -s "$err" ]
result $? "closed pipe: ends quietly, with an error"

set -m # a job of its own gets its interrupts
"$EBRO" run -p "The whale is" -n 100000 >"$out" 2>"$err" </dev/null &
pid=$!
for _ in $(seq 100); do
    [ -s "$out" ] && break
    sleep 0.1
done
kill -INT $pid 2>/dev/null
rc=0
wait $pid || rc=$?
set +m
[ $rc -eq 130 ] && [ -s "$out" ] && grep -q '^prompt 4 tokens .*interrupted$' "$err"
result $? "ctrl-C ends the text and still sums up"

EBRO_DECODE="1 2" run tokenize -p x
[ $rc -eq 0 ] && [ -s "$out" ]
result $? "EBRO_DECODE under a text that is given"
EBRO_THREADS=many run run -p x -n 1 -t 1
[ $rc -eq 0 ]
result $? "a malformed variable under an option that is given"
finish
