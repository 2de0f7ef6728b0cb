#!/usr/bin/env bash
# hostile.sh: input that is broken, huge or meant to do harm: an error that says what is wrong, and
# soon. Speaks TAP.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# repeat TEXT N
repeat() { printf -v blanks '%*s' "$2" '' && printf '%s' "${blanks// /$1}"; }

refuses_ids() { # NAME PART FILE-TEXT
    printf '%s' "$3" >"$work/ids.json"
    fails "ids: $1" 1 "$2" logits --ids "$work/ids.json" --out "$work/none"
}
refuses_ids "an empty object" 'ids.json' '{}'
refuses_ids "nothing" 'ids.json' ''
refuses_ids "cut in the middle" 'not valid JSON' '[1, 2, '
refuses_ids "nested 100,000 deep" 'not valid JSON' "$(repeat '[' 100000)"
refuses_ids "an id beyond 64 bits" 'ids.json' '[99999999999999999999999]'
refuses_ids "an id beyond 32 bits" 'element 2 (4294967297) is' '[1, 4294967297]'
refuses_ids "the least number" 'element 1 (-9223372036854775808) is' '[-9223372036854775808]'
refuses_ids "a float that is whole" 'element 1 (1.0) is' '[1.0]'
refuses_ids "a string" 'element 2 ("2") is' '[1, "2"]'
refuses_ids "null" 'element 1 (null) is' '[null]'
refuses_ids "a long array" 'element 1 (\[7,7,7,[7,]*\.\.\.) is' "[[7$(repeat ',7' 9000)]]"
refuses_ids "something behind the array" 'not valid JSON' '[1] [2]'
refuses_ids "bytes that are no UTF-8" 'ids.json' $'["\xff\xfe"]'
refuses_ids "more ids than the context holds" 'context' "[1$(repeat ',1' 9000)]"
[ ! -e "$work/none" ]
result $? "no file is left"

for option in -n -c -ub -t --top-k --repeat-last-n -s; do
    for value in -1 99999999999999999999999 0x10 1e3 ' 5' '5 ' '' +5; do
        fails "$option '$value'" 1 '' run -p x "$option" "$value"
    done
done
for option in --temp --top-p --min-p --repeat-penalty --presence-penalty --frequency-penalty; do
    for value in nan inf 1e999 0x1p3 '' 1,5; do
        fails "$option '$value'" 1 '' run -p x "$option" "$value"
    done
done
fails "20,000 biases and one mistake" 1 '"x" is not ID=V' run -p x --logit-bias "$(repeat '5=1,' 20000)x"
stops=()
for i in $(seq 200); do stops+=(--stop "s$i"); done
fails "200 stop texts" 1 'times' run -p x "${stops[@]}"
fails "a prompt longer than the context" 1 'context' run -p "$(repeat 'word ' 20000)" -c 64
finish
