#!/bin/sh
# Asks a running gateway the questions an operator would, with curl alone.
# usage: deploy/smoke.sh [BASE_URL]     default http://127.0.0.1:8080
# POSTERN_KEY, if set, is sent as the API key (it needs the scopes write and read).
# SMOKE_TRIES: how often it asks, a second apart, whether an event was delivered; 20 by default.
# Nothing is sent to its upstreams, except to one of type samsara, if there is one: it gets four small events, which have to
# be delivered, so it has to be a simulator or a test instance.
set -u

base=${1:-http://127.0.0.1:8080}
base=${base%/}
body=$(mktemp) || exit 1
head=$(mktemp) || exit 1
trap 'rm -f "$body" "$head"' EXIT
failed=0

# ask METHOD PATH [curl options]: the status is in $status, the answer in the files $body and $head.
ask() {
    method=$1 path=$2
    shift 2
    if [ -n "${POSTERN_KEY:-}" ]; then set -- "$@" --header "Authorization: Bearer $POSTERN_KEY"; fi
    status=$(curl --silent --max-time 60 --request "$method" --output "$body" --dump-header "$head" \
        --write-out '%{http_code}' "$@" "$base$path")
}

post() {
    path=$1 type=$2 data=$3
    shift 3
    ask POST "$path" --header "Content-Type: $type" --data-binary "$data" "$@"
}

ok() { echo "ok    $1"; }

fail() {
    echo "FAIL  $1"
    echo "      status $status, $(head -c 300 "$body" | tr '\n' ' ')"
    failed=$((failed + 1))
}

# expect STATUS WHAT [PATTERN]: the answer has that status and a line that matches, in its head or its body.
expect() {
    if [ "$status" != "$1" ]; then
        fail "$2 (expected $1)"
    elif [ -n "${3:-}" ] && ! cat "$head" "$body" | grep -Eiq -- "$3"; then
        fail "$2 (expected to find $3)"
    else
        ok "$2"
    fi
}

# field NAME: the first string of that name in the answer.
field() { tr -d '\n' <"$body" | sed -n "s/.*\"$1\" *: *\"\([^\"]*\)\".*/\1/p"; }

stamp=$(date +%s)
event() {
    printf '{"timestamp":%s000,"sourceId":"smoke-%s","eventName":"smoke.%s","n":%s}' "$stamp" "$stamp" "$1" "$2"
}

ask GET /livez
expect 200 "/livez: the process answers"
ask GET /readyz
expect 200 "/readyz: ready for traffic"
ask GET /metrics
expect 200 "/metrics: Prometheus text" '^# TYPE postern_'
ask GET /openapi.yaml
expect 200 "/openapi.yaml: the API's description" '^openapi:'

post /v1/messages application/json '{"upstream":'
expect 400 "broken JSON is refused" 'urn:postern:problem:invalid-json'
post /v1/messages application/json '{"upstream":"no-such-upstream","kind":"event","payload":{}}'
expect 422 "a bad envelope is refused, with the field's name" '"pointer" *: *"/upstream"'
post /v1/no-such-upstream/event application/json '{}'
expect 404 "an unknown upstream is refused" 'urn:postern:problem:unknown-upstream'
ask DELETE /v1/messages
expect 405 "a wrong method is refused, the right one named" '^Allow:.*POST'

ask GET /v1/upstreams
expect 200 "/v1/upstreams lists the upstreams" '"upstreams"'
samsara=$(tr -d '\n' <"$body" | sed -n 's/.*"name" *: *"\([^"]*\)", *"type" *: *"samsara".*/\1/p')

finish() {
    if [ "$failed" -gt 0 ]; then
        echo "$failed checks failed for $base"
        exit 1
    fi
    echo "all checks passed for $base"
    exit 0
}
if [ -z "$samsara" ]; then
    echo "      no upstream is of type samsara, so nothing is sent"
    finish
fi

post "/v1/$samsara/event" application/json "$(event single 1)"
expect 202 "one event is accepted" '^Location: */v1/messages/'
id=$(field id)
post "/v1/$samsara/event" application/json "[$(event array 2),$(event array 3)]"
expect 202 "an array is accepted" '"accepted" *: *2'
post "/v1/$samsara/event" application/x-ndjson "$(event ndjson 4)
"
expect 202 "NDJSON is accepted" '"accepted" *: *1'

post "/v1/$samsara/event" application/json '{"timestamp":1,"sourceId":"smoke"}'
expect 422 "a bad payload is refused, with the field's name" '"pointer" *: *"/eventName"'
# At most about thirty seconds by default: 20 times a pause and a quick answer.
state=unknown tries=0
while [ -n "$id" ] && [ "$tries" -lt "${SMOKE_TRIES:-20}" ]; do
    ask GET "/v1/messages/$id"
    state=$(field state)
    case $state in delivered | failed | cancelled | dropped | expired) break ;; esac
    tries=$((tries + 1))
    sleep 1
done
if [ "$state" = delivered ]; then ok "the event was delivered"; else fail "the event was not delivered: it is $state"; fi

finish
