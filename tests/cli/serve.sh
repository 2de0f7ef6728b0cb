#!/usr/bin/env bash
# serve.sh: `ebro serve`: starts, answers, says what was wrong with its options, and ends as it is asked
# to. The protocol itself is tested in tests/server.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

fails "a port that is none" 1 "65536" serve --port 65536
fails "a host that is none" 1 "no such host" serve --host "no such host"
fails "an address of another machine" 1 "192.0.2.1" serve --host 192.0.2.1
fails "a key with a blank" 1 "visible" serve --api-key "a b"
fails "an empty key" 1 "visible" serve --api-key ""
EBRO_API_KEY="" fails "a variable for keys without one" 1 "set and empty" serve --port 0
fails "a name of the model that is empty" 1 "alias" serve --alias ""
fails "a name of the model that is no text" 1 "UTF-8" serve --alias $'\xff'
fails "a temperature that OpenAI does not know" 1 "from 0 to 2" serve --temp 3
fails "no sequence at all" 1 "parallel" serve --parallel 0
fails "a model that is none" 2 "nowhere" serve -m /nowhere --port 0

if ! command -v curl >/dev/null; then
    skip "no curl here"
    finish
fi

server=
trap 'kill $server 2>/dev/null; rm -rf "$work"' EXIT
# start ARGUMENTS...: leaves $server, its process, and $url. Within a minute, or not at all.
start() {
    : >"$out"
    "$EBRO" serve --port 0 "$@" >"$out" 2>"$err" </dev/null &
    server=$!
    for _ in $(seq 600); do
        if grep -q '^listening on' "$out" || ! kill -0 $server 2>/dev/null; then break; fi
        sleep 0.1
    done
    url=$(sed -n 's/^listening on \(http:[^ ]*\).*/\1/p' "$out")
}
# stop SIGNAL: leaves rc.
stop() {
    kill "-$1" $server
    rc=0
    wait $server || rc=$?
    server=
}
# get ARGUMENTS...: what curl says of it, in $got.
get() { got=$(curl -sS -m 60 "$@" 2>&1); }
post() { get -H 'Content-Type: application/json' "${@:2}" -d "$1"; }
# wait_for URL PART: until the answer has it; not for ever.
wait_for() {
    for _ in $(seq 600); do
        get "$1"
        if [[ $got == *"$2"* ]]; then break; fi
        sleep 0.02
    done
}
chat='{"messages":[{"role":"user","content":"Remember: the code for Mira is 4821. What is the code for Mira?"}]'

start --log 3 --alias robin
[ -n "$url" ] && [ "$(wc -l <"$out")" -eq 1 ] && [[ $url == http://127.0.0.1:* ]]
result $? "says where it listens, on this machine alone"
get "$url/health"
[ "$got" = '{"status":"ok"}' ]
result $? "is well"
post "$chat}" "$url/v1/chat/completions"
[[ $got == *'"content":"4821"'* ]] && [[ $got == *'"model":"robin"'* ]]
result $? "answers a message"
post "$chat,\"stream\":true}" "$url/v1/chat/completions"
[[ $got == *'data: [DONE]'* ]]
result $? "and streams"
post "$chat,\"model\":\"ebro-demo\"}" "$url/v1/chat/completions"
[[ $got == *4821* ]]
result $? "knows the model by its folder too"
get "$url/"
[[ $got == *'<html'* ]]
result $? "has a page"
fails "a port that is taken" 1 "port 0 takes any" serve --port "${url##*:}"
stop TERM
[ $rc -eq 0 ]
result $? "SIGTERM ends it with 0"
get -o /dev/null "$url/health"
[ $? -ne 0 ]
result $? "and nothing listens any more"

start --log 3
post "$chat}" "$url/v1/chat/completions"
stop TERM
[ $rc -eq 0 ] && grep -q '\[info\] POST /v1/chat/completions 200 ' "$err" &&
    grep -q '\[info\] chatcmpl-.*: 49 prompt tokens, 0 of them cached, ' "$err" &&
    ! grep -q 'Mira' "$err" && ! grep -q 4821 "$err"
result $? "logs requests, and nothing of what they say"
start --log-prompts
post "$chat}" "$url/v1/chat/completions"
stop INT
[ $rc -eq 0 ] && [ "$(grep -vc 'ending: ' "$err")" -eq 1 ] && grep -q 'Mira.*"content":"4821"' "$err"
result $? "unless it is asked to; ctrl-C ends it too"

EBRO_API_KEY=sk-test start
get "$url/v1/models"
[[ $got == *invalid_api_key* ]]
result $? "asks for the key of the environment"
get -H 'Authorization: Bearer sk-test' "$url/v1/models"
[[ $got == *'"id":"ebro-demo"'* ]]
result $? "and takes it"
stop TERM

# A reply that is being written: it may end, or not.
long='{"prompt":"The whale","max_tokens":400,"ignore_eos":true}'
start
post "$long" "$url/v1/completions" -o "$work/whole" &
asking=$!
wait_for "$url/slots" '"running":1'
stop TERM
wait $asking
[ $rc -eq 0 ] && grep -q '"completion_tokens":400' "$work/whole"
result $? "lets what runs end"
start -c 8192
post "${long/400/8000}" "$url/v1/completions" -o "$work/cut" &
asking=$!
wait_for "$url/slots" '"running":1'
kill -TERM $server
wait_for "$url/health" draining
[[ $got == *draining* ]]
result $? "says that it ends"
stop TERM
wait $asking
[ $rc -eq 130 ] && grep -q '"type":"server_error"' "$work/cut"
result $? "unless a second signal comes"
start -c 8192 --drain-seconds 0
post "${long/400/8000}" "$url/v1/completions" -o "$work/cut" &
asking=$!
wait_for "$url/slots" '"running":1'
stop TERM
wait $asking
[ $rc -eq 0 ] && grep -q '"type":"server_error"' "$work/cut"
result $? "or its time is over"
finish
