#!/usr/bin/env bash
# tokenize.sh: `ebro tokenize`: every byte string there and back, and what is refused.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# shows NAME WANT ARGUMENTS...: success, nothing on stderr, exactly WANT on stdout.
shows() {
    local name=$1 want=$2
    shift 2
    run "$@"
    [ $rc -eq 0 ] && [ ! -s "$err" ] && [ "$(cat "$out")" = "$want" ]
    result $? "$name"
}

tab=$'\t'
shows "pieces with ids" "3821${tab}\"Hello\"
11${tab}\",\"
334${tab}\" \\\"\"" tokenize -p 'Hello, "'
shows "names of control tokens are text" "64${tab}\"a\"
3507${tab}\" [\"
36${tab}\"E\"
46${tab}\"O\"
50${tab}\"S\"
60${tab}\"]\"" tokenize -p "a [EOS]"
shows "unless they are asked for" "64${tab}\"a\"
4097${tab}\"[EOS]\"${tab}control" tokenize -p "a[EOS]" --special
shows "ids alone" "[3821, 11]" tokenize -p "Hello," --ids
shows "ids back to text, from numbers" "Hello," tokenize --decode "3821, 11"
shows "ids back to text, from JSON" "Hello," tokenize --decode "[3821,11]"
shows "no ids give no text" "" tokenize --decode ""

with $'a\xff\n' tokenize
[ $rc -eq 0 ] && [ "$(cat "$out")" = "64${tab}\"a\"
187${tab}\"\\xff\"
198${tab}\"\\n\"" ]
result $? "bytes that are no text, from stdin"
with "" tokenize --ids
[ $rc -eq 0 ] && [ "$(cat "$out")" = "[]" ]
result $? "an empty text has no tokens"

run tokenize -p "a[EOS]" --special --json
[ $rc -eq 0 ] && grep -q '"text": "\[EOS\]"' "$out" && grep -q '"bytes": "5b454f535d"' "$out" &&
    grep -q '"control": true' "$out"
result $? "as JSON"
with $'\xff' tokenize --json
[ $rc -eq 0 ] && grep -q '"text": null' "$out" && grep -q '"bytes": "ff"' "$out"
result $? "as JSON, bytes that are no text"

# every byte value, and some that follow each other by chance
head -c 3000 /dev/urandom >"$work/bytes"
"$EBRO" tokenize --ids <"$work/bytes" 2>"$err" | "$EBRO" tokenize --decode - >"$out" 2>>"$err"
[ ! -s "$err" ] && cmp -s "$work/bytes" "$out"
result $? "random bytes survive the way there and back"

"$EBRO" tokenize -p "Hello," --ids 2>"$err" |
    "$EBRO" logits --ids - --out "$work/logits" >"$out" 2>"$err"
[ $? -eq 0 ] && grep -q '^prompt 2 tokens' "$err"
result $? "ids go on to logits"

fails "ids beyond the vocabulary" 1 "0 to 4351" tokenize --decode 4352
fails "ids that are none" 1 '"1x"' tokenize --decode "3 1x"
fails "a negative id" 1 '"-1"' tokenize --decode -1
fails "ids that are no JSON" 1 "not valid JSON" tokenize --decode "[1,"
fails "two forms of output" 1 "exclude each other" tokenize -p x --ids --json
fails "text and ids" 1 "exclude each other" tokenize -p x --decode 1

# ---- the environment gives way

export EBRO_DECODE="3821"
shows "--ids over EBRO_DECODE" "[11]" tokenize -p "," --ids
with "," tokenize --ids
[ $rc -eq 0 ] && [ "$(cat "$out")" = "[11]" ]
result $? "--ids over EBRO_DECODE, a text on stdin"
run tokenize --json
[ $rc -eq 0 ] && grep -q '"text": "Hello"' "$out"
result $? "--json beside EBRO_DECODE"
unset EBRO_DECODE
export EBRO_IDS_ONLY=1
shows "--decode over EBRO_IDS_ONLY" "Hello" tokenize --decode 3821
run tokenize -p "," --json
[ $rc -eq 0 ] && grep -q '"text": ","' "$out"
result $? "--json over EBRO_IDS_ONLY"
EBRO_JSON=1 fails "two forms of output in the environment" 1 "exclude each other" tokenize -p x
unset EBRO_IDS_ONLY
export EBRO_JSON=1
shows "--ids over EBRO_JSON" "[11]" tokenize -p "," --ids
unset EBRO_JSON

fails "no such model" 2 "absent" tokenize -m "$work/absent" -p x

finish
