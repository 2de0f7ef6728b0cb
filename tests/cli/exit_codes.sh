#!/usr/bin/env bash
# exit_codes.sh: an example of each exit code of `ebro --help` that can be brought about from outside:
# not those of a lost device and of a fault of the program itself. Ctrl-C is tried in cli.sh.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

run --help
sed -n '/^Exit codes/,$s/^  \([0-9][0-9]*\)  *\([^ ].*\)/\1 \2/p' "$out" >"$work/helped"
sed -n '/^| code | meaning |/,/^$/s/^| \([0-9][0-9]*\) | \(.*\) |$/\1 \2/p' "$demo/../../README.md" >"$work/written"
[ "$(cut -d ' ' -f 1 "$work/helped" | tr '\n' ' ')" = "0 1 2 3 4 5 6 70 130 " ] &&
    cut -d ' ' -f 1 "$work/written" | cmp -s - <(cut -d ' ' -f 1 "$work/helped") &&
    [ "$(grep '^3' "$work/written")" = "$(grep '^3' "$work/helped")" ]
result $? "README.md lists the codes that help lists"

run run -p "The whale is" -n 1
[ $rc -eq 0 ]
result $? "0: success"
fails "1: a usage error" 1 "-n" run -p x -n many
fails "1: a file that cannot be read" 1 "No such file" logits --ids "$work/absent" --out "$work/none"
fails "1: a file that cannot be written" 1 "$work/absent" logits -p x --out "$work/absent/x"
fails "2: a model that is not there" 2 "absent" run -m "$work/absent" -p x
printf '{"architectures": ["GptTwo"]}' >"$work/config.json"
fails "2: a model that is not supported" 2 "GptTwo" run -m "$work" -p x
fails "2: the same of a simulation" 2 "GptTwo" cache-sim --generate one-off -m "$work"
fails "3: a device that is not there" 3 "Warp7" run -dev Warp7 -p x
fails "3: a device that computes nothing" 3 "Null0" chat -dev Null0
fails "4: too little memory" 4 "--memory 1 (MiB) is too little" chat --memory 1

# A device that is there, but without a strict mode. The error is the device's, not the model's.
run devices --json
lacking=
for device in $(sed -n 's/.*"name": "\([^"]*\)".*/\1/p' "$out"); do
    run inspect -dev "$device" --strict
    if [ $rc -ne 0 ]; then lacking=$device; fi
done
if [ -n "$lacking" ]; then
    fails "3: a mode that $lacking lacks" 3 "strict: $lacking cannot give" run -dev "$lacking" --strict -p x
    fails "3: the same before anything is loaded" 3 "strict: $lacking cannot give" inspect -dev "$lacking" --strict
    fails "3: the same of a benchmark" 3 "strict: $lacking cannot give" bench kv --quick -dev "$lacking" --strict
else
    for what in run inspect bench; do skip "every device here has a strict mode ($what)"; done
fi

# The program without the modules of its backends.
mkdir -p "$work/alone"
cp "$EBRO" "$work/alone/ebro"
for options in "" --json; do
    rc=0
    # shellcheck disable=SC2086
    "$work/alone/ebro" devices $options >"$out" 2>"$err" </dev/null || rc=$?
    [ $rc -eq 3 ] && grep -q '^ebro: no device can be used' "$err" && [ "$(tr -d '[]\n' <"$out" | wc -c)" -eq 0 ]
    result $? "3: no device at all, devices $options"
done
rm -r "$work/alone"

# The demo model with the last norm's weights, float32, all not a number.
mkdir "$work/nan"
cp "$demo"/*.json "$demo/tiktoken.model" "$demo/model.safetensors" "$work/nan"
chmod u+w "$work/nan/model.safetensors"
head=$(od -An -t u8 -N 8 "$work/nan/model.safetensors" | tr -d ' ')
at=$(tail -c +9 "$work/nan/model.safetensors" | head -c "$head" |
    sed -n 's/.*"[a-z_.]*model\.norm\.weight":{[^}]*"data_offsets":\[\([0-9]*\),\([0-9]*\)\].*/\1 \2/p')
from=${at% *} to=${at#* }
tr '\0' '\377' </dev/zero | head -c $((to - from)) |
    dd of="$work/nan/model.safetensors" bs=1 seek=$((8 + head + from)) conv=notrunc status=none
fails "6: a value that is not finite" 6 "logit of token 0 .* is -\?nan" run -m "$work/nan" -p x -n 1
finish
