#!/usr/bin/env bash
# experts.sh: `ebro logits --save-experts` and `--experts`: the same choices give the same bytes, others
# give others, and a file that does not fit is refused.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
text="Once upon a time there was a whale in the sea."
# header FILE: the JSON of a safetensors file
header() { tail -c +9 "$1" | head -c "$(od -An -t u8 -N 8 "$1" | tr -d ' ')"; }

run logits -p "$text" --last 99 --out "$work/plain"
run logits -p "$text" --last 99 --out "$work/first" --save-experts "$work/experts"
[ $rc -eq 0 ] && cmp -s "$work/plain" "$work/first" &&
    header "$work/experts" | grep -Eq '"experts":\{"dtype":"I32","shape":\[8,[0-9]+,4\]' &&
    header "$work/experts" | grep -Eq '"weights":\{"dtype":"F32","shape":\[8,[0-9]+,4\]' &&
    header "$work/experts" | grep -q '"layers":{"dtype":"I32","shape":\[8\]'
result $? "keeping choices changes nothing"
run logits -p "$text" --last 99 --out "$work/again" --experts "$work/experts" \
    --save-experts "$work/experts2"
[ $rc -eq 0 ] && cmp -s "$work/first" "$work/again" && cmp -s "$work/experts" "$work/experts2"
result $? "the same choices, forced, give the same bytes"
run logits -p "$text" --last 99 --strict -ub 3 --out "$work/cut" --experts "$work/experts"
run logits -p "$text" --last 99 --strict --out "$work/whole" --experts "$work/experts"
[ $rc -eq 0 ] && cmp -s "$work/cut" "$work/whole"
result $? "and so they do in other cuts"

# other FILE BYTE...: a copy of the saved choices with other bytes at the start of its data
other() {
    local file=$1 at
    shift
    at=$(($(od -An -t u8 -N 8 "$work/experts" | tr -d ' ') + 8))
    cp "$work/experts" "$file"
    # shellcheck disable=SC2059
    printf "$(printf '\\x%02x\\x00\\x00\\x00' "$@")" | dd of="$file" bs=1 seek="$at" conv=notrunc 2>/dev/null
}
other "$work/others" 0 1 2 3
other "$work/others2" 4 5 6 7
for file in others others2; do
    run logits -p "$text" --last 99 --out "$work/$file.logits" --experts "$work/$file"
    [ $rc -eq 0 ]
    result $? "choices of another kind: $file"
done
! cmp -s "$work/others.logits" "$work/others2.logits"
result $? "other experts give other logits"

# refused NAME PART FILE: exit code 1, PART in the text, and no output.
refused() {
    fails "$1" 1 "$2" logits -p "$text" --out "$work/none" --experts "$3"
    [ ! -e "$work/none" ]
    result $? "$1: no output"
}
other "$work/bad" 16 1 2 3
refused "an expert that is not there" "expert 16: there are 0 to 15" "$work/bad"
other "$work/bad" 3 1 2 3
refused "an expert twice" "expert 3 twice" "$work/bad"
refused "no such file" "cannot read .*absent" "$work/absent"
refused "a folder" "cannot read" "$work"
: >"$work/bad"
refused "an empty file" "no safetensors file" "$work/bad"
head -c 4000 "$work/experts" >"$work/bad"
[ "$(wc -c <"$work/experts")" -gt 4000 ]
refused "a file that is cut off" "outside the file\|larger than the file" "$work/bad"
head -c 100 "$work/experts" >"$work/bad"
refused "a header that is cut off" "cut off" "$work/bad"
printf '\20\0\0\0\0\0\0\0{"experts": [0]}' >"$work/bad"
refused "a tensor that is missing" 'no tensor "layers"' "$work/bad"
refused "a file of something else" 'no tensor "layers"' "$work/first"
fails "another prompt" 1 "another prompt" logits -p "Two" --out "$work/none" --experts "$work/experts"
fails "one file for both" 1 "same file" logits -p x --out "$work/none" --save-experts "$work/none"
fails "logits over the choices" 1 "--out and --experts name the same file" logits -p "$text" \
    --out "$work/../${work##*/}/experts" --experts "$work/experts"
fails "choices over the choices" 1 "--save-experts and --experts" logits -p "$text" --out "$work/none" \
    --save-experts "$work/experts" --experts "$work/experts"
printf '[4096, 488]' >"$work/ids"
fails "logits over the ids" 1 "--out and --ids" logits --ids "$work/ids" --out "$work/ids"
fails "choices over the ids" 1 "--save-experts and --ids" logits --ids "$work/ids" --out "$work/none" \
    --save-experts "$work/ids"
[ "$(cat "$work/ids")" = '[4096, 488]' ] && header "$work/experts" | grep -q '"experts"'
result $? "and both are as they were"
fails "choices that cannot be written" 1 "$work/absent/x" logits -p x --out "$work/none" \
    --save-experts "$work/absent/x"


finish
