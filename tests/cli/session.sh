#!/usr/bin/env bash
# session.sh: --session of `ebro run` and `ebro chat`: what was read before is not read again, and no
# file is lost or half written.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
facts='Remember: the code for Mira is 4821. The code for Tom is 1938. What is the code for Tom?'

# says WANT: the last command went well and said exactly that.
says() { [ $rc -eq 0 ] && [ "$(cat "$out")" = "$1" ]; }

# ---- text

run run -p "The whale is" -n 8 --session "$work/text"
first=$(cat "$out")
[ $rc -eq 0 ] && [ -s "$work/text" ] && [ "$(wc -l <"$err")" -eq 1 ]
result $? "a session that begins"
# the same in one run; a word with its blank is read alike wherever it stands
run run -p "The whale is$first and the" -n 9
whole=$(cat "$out")
run run -p " and the" -n 9 --session "$work/text"
says "$whole" && grep -q "^session $work/text: 11 of 14 tokens reused$" "$err"
result $? "a text goes on where it ended"
cp "$work/text" "$work/kept"

# without a prompt: eight tokens and nine more are what seventeen are
run run -p "The whale is" -n 17
whole=$(cat "$out")
run run -p "The whale is" -n 8 --session "$work/on"
first=$(cat "$out")
run run -n 9 --session "$work/on"
[ $rc -eq 0 ] && [ "$first$(cat "$out")" = "$whole" ] &&
    grep -q "^session $work/on: 11 of 12 tokens reused$" "$err"
result $? "a text goes on without a prompt"
stop=${whole:${#first}:12}
run run -p "The whale is" -n 17 --stop "$stop" --session "$work/ended"
cut=$(cat "$out")
run run -n 2 --session "$work/ended"
[ $rc -eq 0 ] && [ "$cut" = "$first" ] && [ "${whole:0:$((${#cut} + ${#stop}))}" = "$cut$stop" ]
result $? "and where a stop text ended it"

# reused SESSION UNREAD: all of the session but at most so many tokens was reused.
reused() {
    local a b
    read -r a b < <(sed -n "s|^session $1: \([0-9]*\) of \([0-9]*\) tokens reused.*|\1 \2|p" "$err")
    [ -n "$b" ] && [ "$b" -ge 4 ] && [ "$a" -ge $((b - $2)) ]
}

# A text that is cut anywhere goes on as the same text does that was given as a prompt, and is the
# file's. Of a long one little is read again.
run run -p "The whale is" -n 90
whole=$(cat "$out")
bad=0
for at in 0 1 2 3 17 40 41 42 43 44 45 130 131 132 133 134; do
    rm -f "$work/cut"
    stop=${whole:$at:11}
    run run -p "The whale is" -n 90 --stop "$stop" --session "$work/cut"
    cut=$(cat "$out")
    [ "${whole:0:$((${#cut} + 11))}" = "$cut$stop" ] && [ "$(wc -l <"$err")" -eq 1 ] || bad=1
    run run -p "The whale is$cut" -n 12
    more=$(cat "$out")
    run run -n 12 --session "$work/cut"
    [ "$(cat "$out")" = "$more" ] && reused "$work/cut" 32 || bad=1
    [ $bad -eq 0 ] || { echo "# cut at $at: '$cut', then '$(cat "$out")', not '$more'"; break; }
done
result $bad "a stop text anywhere: the file holds what was shown"
rm -f "$work/cut"
run run -p "The whale is" -n 90 --stop "${whole:$((${#whole} - 8))}" --session "$work/cut"
run run -n 1 --session "$work/cut"
[ $rc -eq 0 ] && reused "$work/cut" 32 && grep -q 'reused, [0-9]* of the stored ones are read again$' "$err"
result $? "and a line says how many of its tokens are read again"

# a full context: the text that was shown is the text that goes on
run run -p "The whale is" -n 40
whole=$(cat "$out")
run run -p "The whale is" -n 40 -c 20 --session "$work/full"
cut=$(cat "$out")
grep -q 'generated 16 tokens.*context full' "$err"
result $? "a full context"
fails "that nothing more fits into" 1 "context full" run -p " and" -c 20 --session "$work/full"
run run -n 24 --session "$work/full"
[ $rc -eq 0 ] && [ "$cut$(cat "$out")" = "$whole" ] && grep -q "^session $work/full: 19 of 20 tokens reused$" "$err"
result $? "goes on in a larger one"

# ctrl-C: likewise
endless="4097=-1e9,4098=-1e9,4099=-1e9,4100=-1e9,4101=-1e9,4102=-1e9"
"$EBRO" run -p "The whale is" -n 100000 --logit-bias "$endless" --session "$work/int" \
    >"$out" 2>"$err" </dev/null &
one=$!
for ((i = 0; i < 600 && $(wc -c <"$out") < 40; i++)); do sleep 0.1; done
kill -INT $one
rc=0
wait $one || rc=$?
cut=$(cat "$out")
[ $rc -eq 130 ] && [ ${#cut} -ge 40 ] && grep -q 'interrupted$' "$err" && [ -s "$work/int" ]
result $? "ctrl-C"
run run -n 1 --logit-bias "$endless" --session "$work/int"
more=$(cat "$out")
[ $rc -eq 0 ] && reused "$work/int" 1
result $? "loses nothing of what was shown"
# what it held, the unread one and the new one too, is the prompt of four and what was generated
generated=$(sed -n 's/^session .*: \([0-9]*\) of .*/\1/p' "$err")
run run -p "The whale is" -n $((generated - 2)) --logit-bias "$endless"
[ "$(cat "$out")" = "$cut$more" ]
result $? "and adds nothing to it"
fails "nothing to go on from" 1 "the prompt is empty" run --session "$work/none"

# ---- chat

run run --chat -p "$facts" --session "$work/talk"
says 1938
result $? "a chat that begins"
run run --chat -p "What is the code for Mira?" --session "$work/talk"
says 4821 && grep -q "^session $work/talk: [0-9]* of [0-9]* tokens reused$" "$err" &&
    ! grep -q ": 0 of " "$err"
result $? "a chat goes on"
with "What is the code for Tom?
/save $work/talk.json
" chat --session "$work/talk"
says 1938 && grep -q "^(session $work/talk: 4 messages, " "$err" && ! grep -q 'read again:' "$err" &&
    [ "$(grep -c '"role"' "$work/talk.json")" -eq 6 ]
result $? "and in ebro chat, with its messages"
with "What is the code for Mira?
" chat --session "$work/talk" -ctk f16
says 4821 && grep -q 'its latent cache in f32, this engine has f16: converted and rounded' "$err" && ! grep -q 'read again:' "$err"
result $? "in a cache of another type, which a warning says"
with "/undo
What is the code for Tom?
" chat --session "$work/talk"
says 1938
result $? "undo in a session"
EBRO_SESSION=$work/talk run run --chat -p "What is the code for Mira?"
says 4821 && grep -q '^session ' "$err"
result $? "EBRO_SESSION"
with "/system Answer briefly.
What is the code for Tom?
" chat --session "$work/new"
[ $rc -eq 0 ] && [ -s "$work/new" ]
result $? "ebro chat makes the file"
run run --chat --system "Answer in a word." -p "Hello" --session "$work/new"
[ $rc -eq 0 ] && grep -q 'begins otherwise than the stored one (--system or --think' "$err"
result $? "another system message: all is read again, and a line says so"

# kept NAME MESSAGES COMMANDS: these commands and the end leave so many messages in the file.
kept() {
    with "$facts
/save $work/before.json
" chat --session "$work/kept-$n"
    with "$3
" chat --session "$work/kept-$n"
    with "/save $work/after.json
" chat --session "$work/kept-$n"
    [ $rc -eq 0 ] && [ "$(grep -c '"role"' "$work/after.json")" -eq "$2" ]
    result $? "$1"
}
kept "/clear is kept" 0 "/clear"
kept "/undo is kept" 0 "/undo"
kept "/system is kept" 3 "/system Answer briefly."
kept "/load is kept" 2 "/clear
/load $work/before.json"

# What was taken back is not in the file, and what is in it is not read again.
# again NAME COMMANDS [OPTIONS...]: a conversation with these commands, then another message.
again() {
    local name=$1 commands=$2
    shift 2
    rm -f "$work/again"
    with "$facts
What is the code for Mira?
$commands
" chat --session "$work/again" "$@"
    [ $rc -eq 0 ] && grep -q ' read again: ' "$err" || return 1
    with "What is the code for Mira?
/stats
" chat --session "$work/again"
    [ $rc -eq 0 ] && ! grep -q 'read again:' "$err" && [ "$(cat "$out")" = 4821 ] &&
        grep -q '^(since the start: .* 0 of them again' "$err" &&
        grep -q "^(session $work/again: [0-9]* messages, \([0-9]*\) of \1 tokens reused)$" "$err"
}
again "undo" "/undo"
result $? "/undo: the file is as if the turn had not been"
with "/undo
" chat --session "$work/again"
with "What is the code for Tom?
/undo
" chat --session "$work/again"
[ $rc -eq 0 ] && ! grep -q 'read again:' "$err"
result $? "nor is what was loaded, where all that came after it is taken back"
again "regen" "/undo
Tell me a story.
/regen" --temp 1 -n 9
result $? "/regen: the file holds the new reply alone"
again "system" "/system Answer briefly."
result $? "/system: the conversation is read with it, and stored so"
again "stop" "Count: one, two, three, four, five, six, seven." --stop "3" --stop "82"
result $? "a stop text: the file does not hold it"

# ---- two on one file

mkfifo "$work/lines"
"$EBRO" chat --session "$work/both" <"$work/lines" >"$work/both.out" 2>&1 &
one=$!
exec 7>"$work/lines"
printf '%s\n' "$facts" >&7
for ((i = 0; i < 600; i++)); do [ -s "$work/both" ] && break; sleep 0.1; done
sleep 0.3 # it locks what it has written right after that
fails "a file that another one is using" 1 "another ebro is using .*both: wait" chat \
    --session "$work/both"
fails "and not by ebro run either" 1 "another ebro is using" run --chat -p x --session "$work/both"
cp "$work/both" "$work/other"
mv "$work/other" "$work/both"
cp "$work/both" "$work/before"
printf '%s\n' "What is the code for Mira?" >&7
exec 7>&-
rc=0
wait $one || rc=$?
[ $rc -eq 1 ] && cmp -s "$work/both" "$work/before" &&
    grep -q 'another program has written .*both meanwhile: it is left as it is' "$work/both.out"
result $? "what another one has written is not written over"
run run --chat -p "What is the code for Mira?" --session "$work/both"
says 4821
result $? "and is free when its user has ended"

# ---- what is refused

fails "a device" 1 "a device, a pipe or a socket, it must be a file" chat --session /dev/null
long=$(printf 'x%.0s' $(seq 255))
run run -p "The whale is" -n 2 --session "$work/$long"
[ $rc -eq 0 ] && [ -s "$work/$long" ]
result $? "the longest name is as good as any"
fails "a name that is too long" 1 "--session: cannot write .*: File name too long" run -p x -n 2 \
    --session "$work/x$long"

fails "no name" 1 "--session needs the name of a file" chat --session ""
fails "a folder that is not there" 1 "cannot write .*absent/x: .*No such file" chat --session \
    "$work/absent/x"
fails "a file as folder" 1 "is no folder" run -p x --session "$work/text/x"

cp "$work/talk" "$work/good"
fails "a chat as text" 1 "holds a chat: .ebro chat. and" run -p x --session "$work/talk"
fails "a text as chat" 1 "holds plain text: .ebro run. without --chat" run --chat -p x \
    --session "$work/text"
fails "a folder" 1 "is a folder" run -p x --session "$work"
fails "a chat without a message" 1 "the prompt is empty" run --chat --session "$work/talk"
fails "a context that is too small" 1 "tokens, the context has 20 (-c sets" run --chat -p x -c 20 \
    --session "$work/talk"
head -c 5000 "$work/good" >"$work/short"
fails "a file cut short" 1 "is no session, or a damaged one (KDA states: the stream ends" run --chat -p x --session "$work/short"
{ cat "$work/good"; echo; } >"$work/long"
fails "a file with more behind it" 1 "bytes behind it" run --chat -p x --session "$work/long"
cp -rL "$demo" "$work/model"
weights=$work/model/model.safetensors
head -c 4096 /dev/zero | dd of="$weights" bs=1 seek=$(($(wc -c <"$weights") - 4096)) conv=notrunc 2>/dev/null
fails "another model" 2 "cannot be gone on from: made by another model" run --chat -p x \
    --session "$work/talk" -m "$work/model"
fails "too little memory" 4 "memory 1 (MiB) is too little: .* needs 1769472 (1.7 MiB)" chat --memory 1
echo "a text" >"$work/no"
fails "a file of another kind" 1 "no stored sequence of Ebro" run --chat -p x --session "$work/no"
: >"$work/empty"
fails "an empty file" 1 "no stored sequence of Ebro" run --chat -p x --session "$work/empty"
ln -s "$work/absent" "$work/link"
fails "a link that leads nowhere" 1 "No such file" run -p x --session "$work/link"
[ "$(cat "$work/no")" = "a text" ] && [ ! -s "$work/empty" ] && cmp -s "$work/talk" "$work/good" &&
    cmp -s "$work/text" "$work/kept"
result $? "none of them was changed"

# ---- a context that is full

# The reply fits, and what ends its message does not: the messages are stored all the same.
with "second
third
" chat --session "$work/brim" -c 36
[ $rc -eq 0 ] && [ -s "$out" ] && grep -q "tokens, and 36 are all: its messages are stored" "$err" &&
    grep -q "context full: with this message" "$err"
result $? "a chat at the brim goes on"
reply=$(cat "$out")
with "/save $work/brim.json
" chat --session "$work/brim"
[ $rc -eq 0 ] && grep -q '"second"' "$work/brim.json" && grep -qF "\"$reply\"" "$work/brim.json" &&
    ! grep -q third "$work/brim.json"
result $? "and what was said is stored"
with "hello
/system $(printf 'whales %.0s' $(seq 80))
/stats
" chat --session "$work/brim2" -c 80
[ $rc -eq 0 ] && grep -q "and 80 are all: its messages are stored" "$err" && grep -q "3 messages" "$err"
result $? "a system message that is too long ends no chat"
run run --chat -p second --session "$work/brim3" -c 38
[ $rc -eq 0 ] && [ "$(cat "$out")" = "$reply" ] && grep -q "^session .*: the conversation has" "$err" &&
    grep -q "^prompt " "$err"
result $? "a chat of one run at the brim"
run run --chat -p "and a third" --session "$work/brim3" -n 4
[ $rc -eq 0 ]
result $? "goes on in a larger context"
run run -p "The whale is" -n 4 --session "$work/brim4"
cp "$work/brim4" "$work/brim4.kept"
run run --session "$work/brim4" -n 8 -c 9 --stop le --logit-bias 1893=1e9
[ $rc -eq 1 ] && grep -q "ends inside a token.*-c has room for 9; the session is not written" "$err" &&
    cmp -s "$work/brim4" "$work/brim4.kept"
result $? "half a token that has no room leaves the old file, and says so"

# ---- a disk that is full: the old file stays, and the reply was given

rc=0
(
    ulimit -f 1000
    exec "$EBRO" run --chat -p "What is the code for Tom?" --session "$work/talk" >"$out" 2>"$err" \
        </dev/null
) || rc=$?
[ $rc -eq 1 ] && [ "$(cat "$out")" = 1938 ] && grep -q "^ebro: .*talk: writing: File too large" "$err" &&
    cmp -s "$work/talk" "$work/good" && ! compgen -G "$work/.ebro-*" >/dev/null
result $? "a full disk leaves the old file"
rc=0
(
    ulimit -f 1000
    printf '%s\n' "What is the code for Tom?" |
        "$EBRO" chat --session "$work/talk" >"$out" 2>"$err"
) || rc=$?
[ $rc -eq 1 ] && [ "$(cat "$out")" = 1938 ] && cmp -s "$work/talk" "$work/good"
result $? "and ebro chat ends with 1"
finish
