// swift-format-ignore-file
// Written by scripts/embed-openapi.sh from openapi/; change that.

/// The description of the API that `/openapi.yaml` serves.
enum OpenAPIDocument {
    static let text = #"""
# Put together by scripts/embed-openapi.sh from openapi/core.yaml and openapi/types/*.yaml; change those.
openapi: 3.1.1
info:
  title: Postern
  summary: Takes payloads over HTTP, keeps them on disk, and delivers them to the upstreams.
  description: |
    A mobile backend posts a payload once, is answered `202` when it is safely on disk, and Postern delivers it to the
    right upstream: batched, in order where order matters, with retries and dead letters, however long the upstream is
    away.

    * A 2xx to a write means that it is on disk: committed and fsynced before the answer leaves.
    * Nothing accepted is lost: accepted = queued + delivered + failed + cancelled + dropped + expired, at any moment.
    * Delivery is at least once, and rarely twice.
    * Payload bytes are forwarded as they came.

    Times are RFC 3339 in UTC with milliseconds. JSON is read strictly: UTF-8, at most 64 levels deep, no repeated
    member names, no lone surrogates, nothing after the end. A query parameter that a path does not know is refused
    with `400`, a method with `405` and `Allow`. `GET` paths answer `HEAD` too.

    While no key is configured, `Host` must be `localhost`, an IP address or a name in `server.hosts`. Requests other than
    `GET` and `HEAD` are rejected if a browser sends them for a web page of another origin, unless that origin is listed
    in `server.corsOrigins`. Both are answered `403`.
  version: 0.1.0
  license:
    name: MIT
    identifier: MIT
servers:
  - url: http://127.0.0.1:8080
    description: The address of a gateway with the example configuration.
tags:
  - name: Writing
    description: Handing in messages.
  - name: Messages
    description: Reading and steering messages.
  - name: Upstreams
    description: Reading and steering upstreams.
  - name: Operating
    description: For machines that watch.
paths:
  /v1/{upstream}/{kind}:
    parameters:
      - $ref: "#/components/parameters/upstream"
      - $ref: "#/components/parameters/kind"
    post:
      operationId: postPayloads
      tags: [Writing]
      summary: Hands in payloads of one kind for one upstream.
      description: |
        One JSON object, an array of them, or NDJSON; the fields are exactly those of the upstream's own API. All or
        nothing: one bad payload and nothing is stored, unless `Prefer: handling=lenient`.
      parameters:
        - $ref: "#/components/parameters/dryRun"
        - $ref: "#/components/parameters/prefer"
        - $ref: "#/components/parameters/contentEncoding"
        - $ref: "#/components/parameters/requestId"
      requestBody:
        required: true
        content:
          application/json:
            schema:
              oneOf:
                - $ref: "#/components/schemas/Payload"
                - type: array
                  items:
                    $ref: "#/components/schemas/Payload"
            examples:
              one:
                summary: An event for Samsara.
                value:
                  timestamp: 1433004485870
                  sourceId: 3aw4sedrtcyvgbuhjkn
                  eventName: session.started
              many:
                summary: Two events at once.
                value:
                  - timestamp: 1433004485870
                    sourceId: 3aw4sedrtcyvgbuhjkn
                    eventName: session.started
                  - timestamp: 1433004489321
                    sourceId: 3aw4sedrtcyvgbuhjkn
                    eventName: item.viewed
                    item: "4711"
          application/x-ndjson:
            schema:
              type: string
              description: One JSON object a line. `application/ndjson` and `application/jsonl` are taken too.
            example: |
              {"timestamp":1433004485870,"sourceId":"3aw4sedrtcyvgbuhjkn","eventName":"session.started"}
              {"timestamp":1433004489321,"sourceId":"3aw4sedrtcyvgbuhjkn","eventName":"item.viewed"}
      security:
        - key: [write]
      responses: &ingestResponses
        "200":
          $ref: "#/components/responses/SettledOrDryRun"
        "202":
          $ref: "#/components/responses/Accepted"
        "400":
          $ref: "#/components/responses/BadRequest"
        "401":
          $ref: "#/components/responses/Unauthorized"
        "403":
          $ref: "#/components/responses/Forbidden"
        "404":
          $ref: "#/components/responses/NotFound"
        "405":
          $ref: "#/components/responses/MethodNotAllowed"
        "406":
          $ref: "#/components/responses/NotAcceptable"
        "409":
          $ref: "#/components/responses/Conflict"
        "413":
          $ref: "#/components/responses/PayloadTooLarge"
        "415":
          $ref: "#/components/responses/UnsupportedMediaType"
        "422":
          $ref: "#/components/responses/InvalidPayload"
        "429":
          $ref: "#/components/responses/RateLimited"
        "431":
          $ref: "#/components/responses/HeaderTooLarge"
        "500":
          $ref: "#/components/responses/Internal"
        "502":
          $ref: "#/components/responses/DeliveryFailed"
        "503":
          $ref: "#/components/responses/Unavailable"
        "507":
          $ref: "#/components/responses/DiskFull"
  /v1/messages:
    post:
      operationId: postMessages
      tags: [Writing]
      summary: Hands in messages for any upstreams, in envelopes.
      description: "Order is kept. All or nothing, unless `Prefer: handling=lenient`."
      parameters:
        - $ref: "#/components/parameters/dryRun"
        - $ref: "#/components/parameters/prefer"
        - $ref: "#/components/parameters/contentEncoding"
        - $ref: "#/components/parameters/requestId"
      requestBody:
        required: true
        content:
          application/json:
            schema:
              oneOf:
                - $ref: "#/components/schemas/Envelope"
                - type: array
                  items:
                    $ref: "#/components/schemas/Envelope"
            examples:
              one:
                summary: An event for Samsara, not to be sent before noon.
                value:
                  upstream: samsara
                  kind: event
                  payload:
                    timestamp: 1433004485870
                    sourceId: 3aw4sedrtcyvgbuhjkn
                    eventName: session.started
                  key: order-4711
                  notBefore: "2026-01-31T12:00:00Z"
          application/x-ndjson:
            schema:
              type: string
              description: One envelope a line. `application/ndjson` and `application/jsonl` are taken too.
            example: |
              {"upstream":"samsara","kind":"event","payload":{"timestamp":1433004485870,"sourceId":"s1","eventName":"a"}}
              {"upstream":"samsara","kind":"event","payload":{"timestamp":1433004485871,"sourceId":"s1","eventName":"b"}}
      security:
        - key: [write]
      responses: *ingestResponses
    get:
      operationId: listMessages
      tags: [Messages]
      summary: Lists messages, oldest first.
      parameters:
        - name: upstream
          in: query
          description: Only those of this upstream.
          schema:
            $ref: "#/components/schemas/UpstreamName"
        - name: kind
          in: query
          description: Only those of this kind.
          schema:
            type: string
        - name: state
          in: query
          description: Only those in this state.
          schema:
            $ref: "#/components/schemas/State"
        - name: key
          in: query
          description: Only those with this key of the caller's.
          schema:
            type: string
        - name: limit
          in: query
          description: |
            The most messages of a page. A page may be short of it although more follow; go by `next`. It ends early when
            it has 1 MiB, or 16 MiB with `include=payload`.
          schema:
            type: integer
            minimum: 1
            maximum: 1000
            default: 100
        - name: cursor
          in: query
          description: The `next` of the page before.
          schema:
            $ref: "#/components/schemas/MessageID"
        - $ref: "#/components/parameters/include"
        - $ref: "#/components/parameters/requestId"
      security:
        - key: [read]
      responses:
        "200":
          description: A page of messages.
          headers:
            X-Request-Id:
              $ref: "#/components/headers/X-Request-Id"
          content:
            application/json:
              schema:
                type: object
                required: [messages, next]
                properties:
                  messages:
                    type: array
                    items:
                      $ref: "#/components/schemas/Message"
                  next:
                    description: The cursor of the next page; null at the end.
                    oneOf:
                      - $ref: "#/components/schemas/MessageID"
                      - type: "null"
        "400":
          $ref: "#/components/responses/BadRequest"
        "401":
          $ref: "#/components/responses/Unauthorized"
        "403":
          $ref: "#/components/responses/Forbidden"
        "404":
          $ref: "#/components/responses/NotFound"
        "406":
          $ref: "#/components/responses/NotAcceptable"
        "429":
          $ref: "#/components/responses/RateLimited"
        "500":
          $ref: "#/components/responses/Internal"
        "503":
          $ref: "#/components/responses/Unavailable"
  /v1/messages/retry:
    post:
      operationId: retryMessages
      tags: [Messages]
      summary: Queues failed or dropped messages again.
      description: All dead letters of an upstream, or those of a list. Ids that cannot be queued again are passed over.
      parameters:
        - $ref: "#/components/parameters/requestId"
      requestBody:
        required: true
        content:
          application/json:
            schema:
              type: object
              additionalProperties: false
              description: Names an upstream, or ids; ids win.
              anyOf:
                - required: [upstream]
                - required: [ids]
              properties:
                upstream:
                  $ref: "#/components/schemas/UpstreamName"
                state:
                  type: string
                  enum: [failed, dropped]
                  default: failed
                kind:
                  type: string
                ids:
                  type: array
                  items:
                    $ref: "#/components/schemas/MessageID"
                dryRun:
                  description: Count the messages, and change nothing.
                  type: boolean
                  default: false
            examples:
              deadLetters:
                value:
                  upstream: samsara
                  state: failed
      security:
        - key: [admin]
      responses:
        "200":
          $ref: "#/components/responses/RetryPreview"
        "202":
          $ref: "#/components/responses/Retried"
        "400":
          $ref: "#/components/responses/BadRequest"
        "401":
          $ref: "#/components/responses/Unauthorized"
        "403":
          $ref: "#/components/responses/Forbidden"
        "405":
          $ref: "#/components/responses/MethodNotAllowed"
        "415":
          $ref: "#/components/responses/UnsupportedMediaType"
        "422":
          $ref: "#/components/responses/InvalidPayload"
        "429":
          $ref: "#/components/responses/RateLimited"
        "500":
          $ref: "#/components/responses/Internal"
  /v1/messages/cancel:
    post:
      operationId: cancelMessages
      tags: [Messages]
      summary: Cancels queued messages, so that they are never sent.
      description: |
        All that an upstream has queued, or those of a list. Messages that are settled or being sent are passed over.
      parameters:
        - $ref: "#/components/parameters/requestId"
      requestBody:
        required: true
        content:
          application/json:
            schema:
              type: object
              additionalProperties: false
              description: Names an upstream, or ids; ids win.
              anyOf:
                - required: [upstream]
                - required: [ids]
              properties:
                upstream:
                  $ref: "#/components/schemas/UpstreamName"
                state:
                  const: queued
                kind:
                  type: string
                ids:
                  type: array
                  items:
                    $ref: "#/components/schemas/MessageID"
                dryRun:
                  description: Count the messages, and change nothing.
                  type: boolean
                  default: false
            examples:
              preview:
                summary: How many messages would be cancelled?
                value:
                  upstream: samsara
                  kind: event
                  dryRun: true
      security:
        - key: [admin]
      responses:
        "200":
          description: How many messages were cancelled, or would be.
          headers:
            X-Request-Id:
              $ref: "#/components/headers/X-Request-Id"
          content:
            application/json:
              schema:
                type: object
                required: [cancelled]
                properties:
                  cancelled:
                    type: integer
                  dryRun:
                    const: true
        "400":
          $ref: "#/components/responses/BadRequest"
        "401":
          $ref: "#/components/responses/Unauthorized"
        "403":
          $ref: "#/components/responses/Forbidden"
        "405":
          $ref: "#/components/responses/MethodNotAllowed"
        "406":
          $ref: "#/components/responses/NotAcceptable"
        "415":
          $ref: "#/components/responses/UnsupportedMediaType"
        "422":
          $ref: "#/components/responses/InvalidPayload"
        "429":
          $ref: "#/components/responses/RateLimited"
        "500":
          $ref: "#/components/responses/Internal"
        "503":
          $ref: "#/components/responses/Unavailable"
        "507":
          $ref: "#/components/responses/DiskFull"
  /v1/messages/{id}:
    parameters:
      - $ref: "#/components/parameters/id"
    get:
      operationId: getMessage
      tags: [Messages]
      summary: Shows a message.
      parameters:
        - $ref: "#/components/parameters/include"
        - $ref: "#/components/parameters/requestId"
      security:
        - key: [read]
      responses:
        "200":
          $ref: "#/components/responses/Message"
        "400":
          $ref: "#/components/responses/BadRequest"
        "401":
          $ref: "#/components/responses/Unauthorized"
        "403":
          $ref: "#/components/responses/Forbidden"
        "404":
          $ref: "#/components/responses/NotFound"
        "405":
          $ref: "#/components/responses/MethodNotAllowed"
        "406":
          $ref: "#/components/responses/NotAcceptable"
        "429":
          $ref: "#/components/responses/RateLimited"
        "500":
          $ref: "#/components/responses/Internal"
    delete:
      operationId: cancelMessage
      tags: [Messages]
      summary: Takes a queued message back, so that it is never sent.
      parameters:
        - $ref: "#/components/parameters/requestId"
      security:
        - key: [admin]
      responses:
        "200":
          $ref: "#/components/responses/Message"
        "400":
          $ref: "#/components/responses/BadRequest"
        "401":
          $ref: "#/components/responses/Unauthorized"
        "403":
          $ref: "#/components/responses/Forbidden"
        "404":
          $ref: "#/components/responses/NotFound"
        "406":
          $ref: "#/components/responses/NotAcceptable"
        "409":
          $ref: "#/components/responses/Conflict"
        "429":
          $ref: "#/components/responses/RateLimited"
        "500":
          $ref: "#/components/responses/Internal"
        "503":
          $ref: "#/components/responses/Unavailable"
        "507":
          $ref: "#/components/responses/DiskFull"
  /v1/messages/{id}/retry:
    parameters:
      - $ref: "#/components/parameters/id"
    post:
      operationId: retryMessage
      tags: [Messages]
      summary: Queues one failed or dropped message again, at its old place.
      parameters:
        - $ref: "#/components/parameters/requestId"
      security:
        - key: [admin]
      responses:
        "202":
          $ref: "#/components/responses/Retried"
        "400":
          $ref: "#/components/responses/BadRequest"
        "401":
          $ref: "#/components/responses/Unauthorized"
        "403":
          $ref: "#/components/responses/Forbidden"
        "404":
          $ref: "#/components/responses/NotFound"
        "405":
          $ref: "#/components/responses/MethodNotAllowed"
        "406":
          $ref: "#/components/responses/NotAcceptable"
        "409":
          $ref: "#/components/responses/Conflict"
        "415":
          $ref: "#/components/responses/UnsupportedMediaType"
        "429":
          $ref: "#/components/responses/RateLimited"
        "500":
          $ref: "#/components/responses/Internal"
        "503":
          $ref: "#/components/responses/Unavailable"
        "507":
          $ref: "#/components/responses/DiskFull"
  /v1/upstreams:
    get:
      operationId: listUpstreams
      tags: [Upstreams]
      summary: How all upstreams are.
      parameters:
        - $ref: "#/components/parameters/requestId"
      security:
        - key: [read]
      responses:
        "200":
          description: The configured upstreams, ordered by name.
          headers:
            X-Request-Id:
              $ref: "#/components/headers/X-Request-Id"
          content:
            application/json:
              schema:
                type: object
                required: [upstreams]
                properties:
                  upstreams:
                    type: array
                    items:
                      $ref: "#/components/schemas/Upstream"
        "400":
          $ref: "#/components/responses/BadRequest"
        "401":
          $ref: "#/components/responses/Unauthorized"
        "403":
          $ref: "#/components/responses/Forbidden"
        "405":
          $ref: "#/components/responses/MethodNotAllowed"
        "406":
          $ref: "#/components/responses/NotAcceptable"
        "429":
          $ref: "#/components/responses/RateLimited"
  /v1/upstreams/{name}:
    parameters:
      - $ref: "#/components/parameters/name"
    get:
      operationId: getUpstream
      tags: [Upstreams]
      summary: How one upstream is.
      parameters:
        - $ref: "#/components/parameters/requestId"
      security:
        - key: [read]
      responses:
        "200":
          description: The upstream.
          headers:
            X-Request-Id:
              $ref: "#/components/headers/X-Request-Id"
          content:
            application/json:
              schema:
                $ref: "#/components/schemas/Upstream"
        "400":
          $ref: "#/components/responses/BadRequest"
        "401":
          $ref: "#/components/responses/Unauthorized"
        "403":
          $ref: "#/components/responses/Forbidden"
        "404":
          $ref: "#/components/responses/NotFound"
        "405":
          $ref: "#/components/responses/MethodNotAllowed"
        "406":
          $ref: "#/components/responses/NotAcceptable"
        "429":
          $ref: "#/components/responses/RateLimited"
  /v1/{upstream}/sessions/{sessionCode}:
    parameters:
      - $ref: "#/components/parameters/upstream"
      - name: sessionCode
        in: path
        required: true
        description: The code under which the caller started it.
        schema:
          type: string
    get:
      operationId: getSession
      tags: [Upstreams]
      summary: What is known of a session of an upstream of type `curio`.
      description: |
        A session is forgotten a while after its end, or when nothing happens in it for long.
      parameters:
        - $ref: "#/components/parameters/requestId"
      security:
        - key: [read]
      responses:
        "200":
          description: The session.
          headers:
            X-Request-Id:
              $ref: "#/components/headers/X-Request-Id"
          content:
            application/json:
              schema:
                $ref: "#/components/schemas/Session"
        "401":
          $ref: "#/components/responses/Unauthorized"
        "403":
          $ref: "#/components/responses/Forbidden"
        "404":
          $ref: "#/components/responses/NotFound"
        "405":
          $ref: "#/components/responses/MethodNotAllowed"
        "406":
          $ref: "#/components/responses/NotAcceptable"
        "429":
          $ref: "#/components/responses/RateLimited"
    delete:
      operationId: endSession
      tags: [Upstreams]
      summary: Ends a session of an upstream of type `streamone`.
      description: |
        The session is forgotten whatever the platform answers. `sessionCode` is the `id` that the login was answered with.
      parameters:
        - $ref: "#/components/parameters/prefer"
        - $ref: "#/components/parameters/requestId"
      security:
        - key: [write]
      responses:
        "204":
          description: It has ended.
          headers:
            X-Request-Id:
              $ref: "#/components/headers/X-Request-Id"
        "401":
          $ref: "#/components/responses/Unauthorized"
        "403":
          $ref: "#/components/responses/Forbidden"
        "404":
          $ref: "#/components/responses/NotFound"
        "405":
          $ref: "#/components/responses/MethodNotAllowed"
        "406":
          $ref: "#/components/responses/NotAcceptable"
        "429":
          $ref: "#/components/responses/RateLimited"
  /v1/upstreams/{name}/flush:
    parameters:
      - $ref: "#/components/parameters/name"
    post:
      operationId: flushUpstream
      tags: [Upstreams]
      summary: Sends now what waits to collect, for a schedule, for a retry or for an open circuit.
      description: |
        With `Prefer: wait=N` the answer is `200` with counts when everything that could be sent has been.
      parameters:
        - name: Prefer
          in: header
          description: "`wait=N`: holds the answer until the flush is over, at most N seconds, at most 60."
          schema:
            type: string
          example: wait=10
        - $ref: "#/components/parameters/requestId"
      security:
        - key: [admin]
      responses:
        "200":
          description: The flush that was waited for is over.
          headers:
            X-Request-Id:
              $ref: "#/components/headers/X-Request-Id"
          content:
            application/json:
              schema:
                $ref: "#/components/schemas/Flushed"
        "202":
          $ref: "#/components/responses/Steered"
        "400":
          $ref: "#/components/responses/BadRequest"
        "401":
          $ref: "#/components/responses/Unauthorized"
        "403":
          $ref: "#/components/responses/Forbidden"
        "404":
          $ref: "#/components/responses/NotFound"
        "405":
          $ref: "#/components/responses/MethodNotAllowed"
        "406":
          $ref: "#/components/responses/NotAcceptable"
        "415":
          $ref: "#/components/responses/UnsupportedMediaType"
        "429":
          $ref: "#/components/responses/RateLimited"
  /v1/upstreams/{name}/batches/{batch}:
    parameters:
      - $ref: "#/components/parameters/name"
      - name: batch
        in: path
        required: true
        description: A request to the upstream, as `attemptLog` names it.
        schema:
          type: string
        example: "7"
    get:
      operationId: getBatch
      tags: [Upstreams]
      summary: The receipt of one request to the upstream.
      parameters:
        - $ref: "#/components/parameters/requestId"
      security:
        - key: [read]
      responses:
        "200":
          description: What came of it, and the messages it carried.
          headers:
            X-Request-Id:
              $ref: "#/components/headers/X-Request-Id"
          content:
            application/json:
              schema:
                allOf:
                  - $ref: "#/components/schemas/Attempt"
                  - type: object
                    required: [upstream, ids]
                    properties:
                      upstream:
                        $ref: "#/components/schemas/UpstreamName"
                      ids:
                        type: array
                        items:
                          $ref: "#/components/schemas/MessageID"
        "401":
          $ref: "#/components/responses/Unauthorized"
        "403":
          $ref: "#/components/responses/Forbidden"
        "404":
          $ref: "#/components/responses/NotFound"
        "405":
          $ref: "#/components/responses/MethodNotAllowed"
        "406":
          $ref: "#/components/responses/NotAcceptable"
        "429":
          $ref: "#/components/responses/RateLimited"
  /v1/upstreams/{name}/pause:
    parameters:
      - $ref: "#/components/parameters/name"
    post:
      operationId: pauseUpstream
      tags: [Upstreams]
      summary: Stops sending and keeps accepting, until it is resumed; a restart does not change that.
      parameters:
        - $ref: "#/components/parameters/requestId"
      security:
        - key: [admin]
      responses: &steeringResponses
        "202":
          $ref: "#/components/responses/Steered"
        "400":
          $ref: "#/components/responses/BadRequest"
        "401":
          $ref: "#/components/responses/Unauthorized"
        "403":
          $ref: "#/components/responses/Forbidden"
        "404":
          $ref: "#/components/responses/NotFound"
        "405":
          $ref: "#/components/responses/MethodNotAllowed"
        "406":
          $ref: "#/components/responses/NotAcceptable"
        "415":
          $ref: "#/components/responses/UnsupportedMediaType"
        "429":
          $ref: "#/components/responses/RateLimited"
  /v1/upstreams/{name}/resume:
    parameters:
      - $ref: "#/components/parameters/name"
    post:
      operationId: resumeUpstream
      tags: [Upstreams]
      summary: Goes on sending after a pause.
      parameters:
        - $ref: "#/components/parameters/requestId"
      security:
        - key: [admin]
      responses: *steeringResponses
  /v1/keys:
    get:
      operationId: listKeys
      tags: [Operating]
      summary: The configured API keys, by name.
      security:
        - key: [admin]
      responses:
        "200":
          description: Never a key or its digest.
          headers:
            X-Request-Id:
              $ref: "#/components/headers/X-Request-Id"
          content:
            application/json:
              schema:
                type: object
                required: [keys]
                properties:
                  keys:
                    type: array
                    items:
                      $ref: "#/components/schemas/Key"
        "400":
          $ref: "#/components/responses/BadRequest"
        "401":
          $ref: "#/components/responses/Unauthorized"
        "403":
          $ref: "#/components/responses/Forbidden"
        "406":
          $ref: "#/components/responses/NotAcceptable"
        "429":
          $ref: "#/components/responses/RateLimited"
        "431":
          $ref: "#/components/responses/HeaderTooLarge"
  /livez:
    get:
      operationId: live
      tags: [Operating]
      summary: Does the process answer?
      security: []
      responses:
        "200":
          description: It does.
          content:
            application/json:
              schema:
                type: object
                required: [status]
                properties:
                  status:
                    const: ok
        "403":
          $ref: "#/components/responses/Forbidden"
  /readyz:
    get:
      operationId: ready
      tags: [Operating]
      summary: Does it take messages?
      description: Looks at the store and at the workers, never at the upstreams; it is there for their being down.
      security: []
      responses:
        "200":
          description: It does.
          content:
            application/json:
              schema:
                type: object
                required: [status]
                properties:
                  status:
                    const: ready
                  notes:
                    description: What an operator should look at, although messages are taken.
                    type: array
                    items:
                      type: string
        "403":
          $ref: "#/components/responses/Forbidden"
        "503":
          description: It does not, and why.
          content:
            application/json:
              schema:
                type: object
                required: [status, reasons]
                properties:
                  status:
                    const: unready
                  reasons:
                    type: array
                    items:
                      type: string
              example:
                status: unready
                reasons: [draining]
  /metrics:
    get:
      operationId: metrics
      tags: [Operating]
      summary: Figures for Prometheus.
      security:
        - key: [read]
      responses:
        "200":
          description: The text format of Prometheus, version 0.0.4.
          content:
            text/plain:
              schema:
                type: string
        "401":
          $ref: "#/components/responses/Unauthorized"
        "403":
          $ref: "#/components/responses/Forbidden"
        "429":
          $ref: "#/components/responses/RateLimited"
  /openapi.yaml:
    get:
      operationId: document
      tags: [Operating]
      summary: This document.
      security:
        - key: []
      responses:
        "200":
          description: OpenAPI 3.1.
          content:
            application/yaml:
              schema:
                type: string
        "401":
          $ref: "#/components/responses/Unauthorized"
        "403":
          $ref: "#/components/responses/Forbidden"
        "429":
          $ref: "#/components/responses/RateLimited"
  /v1/{upstream}/registrations/{userId}/{deviceId}:
    parameters:
      - $ref: "#/components/parameters/upstream"
      - $ref: "#/components/parameters/userId"
      - name: deviceId
        in: path
        required: true
        description: The device's UUID, in any case.
        schema:
          type: string
          format: uuid
    get:
      operationId: getRegistration
      tags: [Upstreams]
      summary: Which of the four requirements a user on a device meets; type `appservices`.
      parameters:
        - $ref: "#/components/parameters/requestId"
      security:
        - key: [read]
      responses:
        "200":
          description: What is known of the pair.
          headers:
            X-Request-Id:
              $ref: "#/components/headers/X-Request-Id"
          content:
            application/json:
              schema:
                $ref: "#/components/schemas/Registration"
        "401":
          $ref: "#/components/responses/Unauthorized"
        "403":
          $ref: "#/components/responses/Forbidden"
        "404":
          $ref: "#/components/responses/NotFound"
        "405":
          $ref: "#/components/responses/MethodNotAllowed"
        "406":
          $ref: "#/components/responses/NotAcceptable"
        "429":
          $ref: "#/components/responses/RateLimited"
  /v1/{upstream}/users/{userId}/token:
    parameters:
      - $ref: "#/components/parameters/upstream"
      - $ref: "#/components/parameters/userId"
    put:
      operationId: putUserToken
      tags: [Upstreams]
      summary: Hands in a fresh token of a user, and lets go on what waits for one; type `appservices`.
      description: |
        It serves everything that is queued for the user, in order, whatever token it came with. It is gone when nothing
        needs it any more, so at once when nothing is queued. `409`: that token was refused before, or has expired.
      parameters:
        - $ref: "#/components/parameters/requestId"
      requestBody:
        required: true
        content:
          application/json:
            schema:
              type: object
              required: [token]
              properties:
                provider:
                  description: Who issued it; by default what the configuration says.
                  enum: [pi, mi]
                token:
                  description: With or without the word `Bearer` from `pi`, without from `mi`.
                  type: string
                expiresAt:
                  $ref: "#/components/schemas/Time"
                expiresIn:
                  description: Seconds from now, as a number or a string.
                  type: [integer, string]
            example:
              provider: pi
              token: eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ1MSJ9.c2lnbmF0dXJl
              expiresIn: 3600
      security:
        - key: [write]
      responses:
        "200":
          description: On disk, or in memory if there is no key to encrypt it.
          headers:
            X-Request-Id:
              $ref: "#/components/headers/X-Request-Id"
          content:
            application/json:
              schema:
                $ref: "#/components/schemas/TokenReceipt"
        "400":
          $ref: "#/components/responses/BadRequest"
        "401":
          $ref: "#/components/responses/Unauthorized"
        "403":
          $ref: "#/components/responses/Forbidden"
        "404":
          $ref: "#/components/responses/NotFound"
        "405":
          $ref: "#/components/responses/MethodNotAllowed"
        "406":
          $ref: "#/components/responses/NotAcceptable"
        "409":
          $ref: "#/components/responses/Conflict"
        "422":
          $ref: "#/components/responses/InvalidPayload"
        "429":
          $ref: "#/components/responses/RateLimited"
  /v1/{upstream}/notifications/parse:
    parameters:
      - $ref: "#/components/parameters/upstream"
    post:
      operationId: parseNotification
      tags: [Upstreams]
      summary: Turns an APNs payload into the object that AppServices' framework makes of it; type `appservices`.
      description: Sends and stores nothing.
      parameters:
        - $ref: "#/components/parameters/requestId"
      requestBody:
        required: true
        content:
          application/json:
            schema:
              type: object
            example:
              aps:
                alert: New grade
                badge: 3
                sound: ping.caf
              course: biology
      security:
        - key: [read]
      responses:
        "200":
          description: What the payload does not have is absent.
          headers:
            X-Request-Id:
              $ref: "#/components/headers/X-Request-Id"
          content:
            application/json:
              schema:
                $ref: "#/components/schemas/Notification"
        "400":
          $ref: "#/components/responses/BadRequest"
        "401":
          $ref: "#/components/responses/Unauthorized"
        "403":
          $ref: "#/components/responses/Forbidden"
        "404":
          $ref: "#/components/responses/NotFound"
        "405":
          $ref: "#/components/responses/MethodNotAllowed"
        "406":
          $ref: "#/components/responses/NotAcceptable"
        "422":
          $ref: "#/components/responses/InvalidPayload"
        "429":
          $ref: "#/components/responses/RateLimited"
  /v1/{upstream}/endpoints:
    parameters:
      - $ref: "#/components/parameters/upstream"
    get:
      operationId: getEndpoints
      tags: [Upstreams]
      summary: The endpoint table of an upstream of type `seer`.
      description: |
        The SDK's six names first, then custom ones, which are kinds of their own.
      parameters:
        - $ref: "#/components/parameters/requestId"
      security:
        - key: [read]
      responses:
        "200":
          description: The table.
          headers:
            X-Request-Id:
              $ref: "#/components/headers/X-Request-Id"
          content:
            application/json:
              schema:
                $ref: "#/components/schemas/Endpoints"
        "401":
          $ref: "#/components/responses/Unauthorized"
        "403":
          $ref: "#/components/responses/Forbidden"
        "404":
          $ref: "#/components/responses/NotFound"
        "405":
          $ref: "#/components/responses/MethodNotAllowed"
        "406":
          $ref: "#/components/responses/NotAcceptable"
        "429":
          $ref: "#/components/responses/RateLimited"
  /v1/{upstream}/sessions:
    parameters:
      - $ref: "#/components/parameters/upstream"
    post:
      operationId: beginSession
      tags: [Upstreams]
      summary: Logs a person in at an upstream of type `streamone`.
      description: |
        Only where an application signs. The password is not kept; the session's key stays in the gateway. Calls are made
        in the session by the header `Postern-Session`.
      parameters:
        - $ref: "#/components/parameters/prefer"
        - $ref: "#/components/parameters/requestId"
      requestBody:
        required: true
        content:
          application/json:
            schema:
              type: object
              required: [username, password, userip]
              properties:
                username:
                  type: string
                password:
                  type: string
                userip:
                  type: string
                  description: The person's own address, by which the platform counts failed logins.
            example:
              username: jane
              password: correct horse battery staple
              userip: 203.0.113.7
      security:
        - key: [write]
      responses:
        "201":
          description: The session.
          headers:
            X-Request-Id:
              $ref: "#/components/headers/X-Request-Id"
          content:
            application/json:
              schema:
                $ref: "#/components/schemas/PersonalSession"
        "400":
          $ref: "#/components/responses/BadRequest"
        "401":
          description: "`unauthorized`: the platform refused the name or the password."
          content:
            application/problem+json:
              schema:
                $ref: "#/components/schemas/Problem"
        "403":
          $ref: "#/components/responses/Forbidden"
        "404":
          $ref: "#/components/responses/NotFound"
        "405":
          $ref: "#/components/responses/MethodNotAllowed"
        "406":
          $ref: "#/components/responses/NotAcceptable"
        "409":
          $ref: "#/components/responses/Conflict"
        "422":
          $ref: "#/components/responses/InvalidPayload"
        "429": &blocked
          description: "`rate-limited`: the platform blocks the actor or the address for a while."
          headers:
            Retry-After:
              $ref: "#/components/headers/Retry-After"
          content:
            application/problem+json:
              schema:
                $ref: "#/components/schemas/Problem"
        "502": &unanswered
          description: "`delivery-failed`: the platform could not be asked, or its answer is of no use."
          content:
            application/problem+json:
              schema:
                $ref: "#/components/schemas/Problem"
        "429":
          $ref: "#/components/responses/RateLimited"
        "503":
          $ref: "#/components/responses/Unavailable"
        "504": &late
          description: "`delivery-failed`: the platform did not answer in time."
          content:
            application/problem+json:
              schema:
                $ref: "#/components/schemas/Problem"
  /v1/{upstream}/proxy/{command}/{action}:
    parameters:
      - $ref: "#/components/parameters/upstream"
      - name: command
        in: path
        required: true
        description: Lower-case letters and digits, e.g. `item`.
        schema:
          type: string
          pattern: "^[a-z][a-z0-9]*$"
      - name: action
        in: path
        required: true
        description: Lower-case letters and digits, e.g. `view`.
        schema:
          type: string
          pattern: "^[a-z][a-z0-9]*$"
    post:
      operationId: postProxy
      tags: [Upstreams]
      summary: Makes a call of an upstream of type `streamone` and answers with the platform's answer.
      description: |
        Never queued. The platform's refusals are `200` too, with its header and body as they came. Equal reads under way
        share a request, and cacheable ones are answered from memory for a while. `Prefer: wait=N` says how long it may
        take; without it 30 s.
      parameters:
        - $ref: "#/components/parameters/account"
        - $ref: "#/components/parameters/accounts"
        - $ref: "#/components/parameters/customer"
        - name: timezone
          in: query
          description: Zone of the dates, e.g. `Europe/Amsterdam`; else the actor's own.
          schema:
            type: string
        - $ref: "#/components/parameters/session"
        - $ref: "#/components/parameters/prefer"
        - $ref: "#/components/parameters/requestId"
      requestBody:
        description: The arguments; without a body there are none.
        content:
          application/json:
            schema:
              type: object
              additionalProperties:
                description: A text, number, boolean, null, or a list of those.
            example:
              itemid: 4711
              fields: [title, published]
      security:
        - key: [write]
      responses:
        "200": &answered
          description: The platform's answer, refusals included.
          headers:
            X-Request-Id:
              $ref: "#/components/headers/X-Request-Id"
            X-Cache:
              description: Was it answered from memory?
              schema:
                type: string
                enum: [hit, miss]
            Age:
              description: Seconds since the platform gave the answer; only with a hit.
              schema:
                type: integer
          content:
            application/json:
              schema:
                type: object
                required: [header, body]
                properties:
                  header:
                    type: object
                    required: [status, statusmessage]
                    properties:
                      status:
                        type: integer
                        description: 0 is success.
                      statusmessage:
                        type: string
                  body: {}
        "400":
          $ref: "#/components/responses/BadRequest"
        "401":
          $ref: "#/components/responses/Unauthorized"
        "403":
          $ref: "#/components/responses/Forbidden"
        "404":
          $ref: "#/components/responses/NotFound"
        "405":
          $ref: "#/components/responses/MethodNotAllowed"
        "406":
          $ref: "#/components/responses/NotAcceptable"
        "409": &noSession
          description: "`unknown-session`: log in again; `conflict`: a user signs, so that there are no sessions."
          content:
            application/problem+json:
              schema:
                $ref: "#/components/schemas/Problem"
        "422":
          $ref: "#/components/responses/InvalidPayload"
        "429": *blocked
        "502": *unanswered
        "504": *late
        "429":
          $ref: "#/components/responses/RateLimited"
  /v1/{upstream}/api/{command}/{action}:
    parameters:
      - $ref: "#/components/parameters/upstream"
      - name: command
        in: path
        required: true
        description: Lower-case letters and digits, e.g. `item`.
        schema:
          type: string
      - name: action
        in: path
        required: true
        description: Lower-case letters and digits, e.g. `view`.
        schema:
          type: string
    post:
      operationId: postPlatformCall
      tags: [Upstreams]
      summary: A call by one of the platform's own SDKs, whose `apiUrl` is `/v1/{upstream}`; for upstreams of type `streamone`.
      description: |
        The SDK signs with the id and key that the upstream is configured with, in a session with the session's key besides.
        The call is verified and then made as by `proxy`. Whatever comes of it is `200` with a header and a body as the
        platform writes them: 1 the platform is away, 2 `timestamp` is more than 300 s off, 3 the actor or the signature is
        wrong, 5 no such name, 6 not to be read, 7 a parameter that is unknown or there twice, 8 blocked for a while, 282 an
        unknown session.
      parameters:
        - name: api
          in: query
          required: true
          schema:
            type: string
            const: "3"
        - name: format
          in: query
          required: true
          schema:
            type: string
            const: json
        - name: account
          in: query
          description: Accounts, with commas between; excludes `customer`.
          schema:
            type: string
        - name: customer
          in: query
          schema:
            type: string
        - name: timezone
          in: query
          description: Zone of the dates, e.g. `Europe/Amsterdam`; else the actor's own.
          schema:
            type: string
        - name: authentication_type
          in: query
          description: Without it, `user`.
          schema:
            type: string
            enum: [application, user]
        - name: timestamp
          in: query
          required: true
          description: UNIX time in whole seconds.
          schema:
            type: integer
        - name: user
          in: query
          description: Id of the user that signs.
          schema:
            type: string
        - name: application
          in: query
          description: Id of the application that signs.
          schema:
            type: string
        - name: session
          in: query
          description: Id of a session that `session/create` was answered with here.
          schema:
            type: string
        - name: signature
          in: query
          required: true
          description: HMAC-SHA1 of path, query and body, in lower-case hexadecimal digits.
          schema:
            type: string
            pattern: "^[0-9a-f]{40}$"
        - $ref: "#/components/parameters/prefer"
        - $ref: "#/components/parameters/requestId"
      requestBody:
        description: The arguments as texts; without a body there are none.
        content:
          application/x-www-form-urlencoded:
            schema:
              type: object
              additionalProperties:
                type: string
            example:
              itemid: "4711"
      security: []
      responses:
        "200": *answered
        "403":
          $ref: "#/components/responses/Forbidden"
        "404":
          description: "`unknown-upstream` or `not-found`: no such upstream, or one of another type."
          content:
            application/problem+json:
              schema:
                $ref: "#/components/schemas/Problem"
        "405":
          $ref: "#/components/responses/MethodNotAllowed"
  /v1/{upstream}/tokens/{token}:
    parameters:
      - $ref: "#/components/parameters/upstream"
      - name: token
        in: path
        required: true
        description: The name of a permission.
        schema:
          type: string
    get:
      operationId: getToken
      tags: [Upstreams]
      summary: Has the actor of an upstream of type `streamone`, or a session's user, a permission?
      description: "In the scope that the query names. A failure is an error, and never `false`."
      parameters:
        - $ref: "#/components/parameters/account"
        - $ref: "#/components/parameters/accounts"
        - $ref: "#/components/parameters/customer"
        - $ref: "#/components/parameters/session"
        - $ref: "#/components/parameters/prefer"
        - $ref: "#/components/parameters/requestId"
      security:
        - key: [read]
      responses:
        "200":
          description: The answer.
          headers:
            X-Request-Id:
              $ref: "#/components/headers/X-Request-Id"
          content:
            application/json:
              schema:
                type: object
                required: [hasToken]
                properties:
                  hasToken:
                    type: boolean
        "400":
          $ref: "#/components/responses/BadRequest"
        "401":
          $ref: "#/components/responses/Unauthorized"
        "403":
          $ref: "#/components/responses/Forbidden"
        "404":
          $ref: "#/components/responses/NotFound"
        "405":
          $ref: "#/components/responses/MethodNotAllowed"
        "406":
          $ref: "#/components/responses/NotAcceptable"
        "409": *noSession
        "429": *blocked
        "502": *unanswered
        "504": *late
        "429":
          $ref: "#/components/responses/RateLimited"
  /v1/{upstream}/roles:
    parameters:
      - $ref: "#/components/parameters/upstream"
    get:
      operationId: getRoles
      tags: [Upstreams]
      summary: The roles of the actor of an upstream of type `streamone`, or of a session's user.
      parameters:
        - $ref: "#/components/parameters/account"
        - $ref: "#/components/parameters/accounts"
        - $ref: "#/components/parameters/customer"
        - $ref: "#/components/parameters/session"
        - $ref: "#/components/parameters/prefer"
        - $ref: "#/components/parameters/requestId"
      security:
        - key: [read]
      responses:
        "200":
          description: The roles, as the platform gives them.
          headers:
            X-Request-Id:
              $ref: "#/components/headers/X-Request-Id"
          content:
            application/json:
              schema:
                type: object
                required: [roles]
                properties:
                  roles:
                    type: array
                    items:
                      type: object
        "400":
          $ref: "#/components/responses/BadRequest"
        "401":
          $ref: "#/components/responses/Unauthorized"
        "403":
          $ref: "#/components/responses/Forbidden"
        "404":
          $ref: "#/components/responses/NotFound"
        "405":
          $ref: "#/components/responses/MethodNotAllowed"
        "406":
          $ref: "#/components/responses/NotAcceptable"
        "409": *noSession
        "429": *blocked
        "502": *unanswered
        "504": *late
        "429":
          $ref: "#/components/responses/RateLimited"
components:
  securitySchemes:
    key:
      type: http
      scheme: bearer
      description: |
        An API key, required as soon as one is configured; the scopes are listed with each operation and do not include
        each other. A dry run requires `read`. A key may be good for some upstreams only: others are then `403`, their
        messages `404`, and lists leave them out.
  parameters:
    upstream:
      name: upstream
      in: path
      required: true
      description: The name of a configured upstream.
      schema:
        $ref: "#/components/schemas/UpstreamName"
      example: samsara
    kind:
      name: kind
      in: path
      required: true
      description: One of the upstream's kinds, which `GET /v1/upstreams/{name}` lists.
      schema:
        type: string
      example: event
    userId:
      name: userId
      in: path
      required: true
      description: A user of the identity provider; compared without regard to case.
      schema:
        type: string
        minLength: 1
        maxLength: 128
    name:
      name: name
      in: path
      required: true
      description: The name of a configured upstream.
      schema:
        $ref: "#/components/schemas/UpstreamName"
      example: samsara
    id:
      name: id
      in: path
      required: true
      description: The message.
      schema:
        $ref: "#/components/schemas/MessageID"
    dryRun:
      name: dryRun
      in: query
      description: With `true`, checks the payloads and shows the requests that would be made of them; stores nothing.
      schema:
        type: boolean
        default: false
    include:
      name: include
      in: query
      description: What to show of messages besides.
      style: form
      explode: false
      schema:
        type: array
        items:
          type: string
          enum: [payload, attempts]
    account:
      name: account
      in: query
      description: The account that it is about; excludes `accounts` and `customer`. Without any the default account.
      schema:
        type: string
    accounts:
      name: accounts
      in: query
      description: Several accounts with commas between; empty for none, not even the default account.
      schema:
        type: string
    customer:
      name: customer
      in: query
      description: The customer that it is about.
      schema:
        type: string
    session:
      name: Postern-Session
      in: header
      description: The `id` of a session; else the configured actor itself calls.
      schema:
        type: string
    prefer:
      name: Prefer
      in: header
      description: |
        Preferences (RFC 7240), joined by commas; others are ignored. `Preference-Applied` says which were understood. Of
        a preference that is given twice the first one counts.

        * `handling=lenient`: of many, stores the good ones and lists the others in `rejected`.
        * `return=minimal`: leaves `ids` out of the answer to many.
        * `wait=N`: holds the answer until the messages are settled, at most N seconds, at most 60. Then it is `200`,
          or `502` for a single message that the upstream refused; if the time is over before, `202` as usual.
      schema:
        type: string
      example: handling=lenient, wait=10
    contentEncoding:
      name: Content-Encoding
      in: header
      description: How the body is compressed, if it is. What it inflates to counts against the limits.
      schema:
        type: string
        enum: [gzip, x-gzip, identity]
    requestId:
      name: X-Request-Id
      in: header
      description: |
        Returned with the response and written to the log, if it consists of 1 to 128 visible ASCII characters. Any other
        value is replaced by a fresh id.
      schema:
        type: string
  headers:
    X-Request-Id:
      description: The request's own, or a fresh one.
      required: true
      schema:
        type: string
    Preference-Applied:
      description: The preferences that were followed (RFC 7240).
      schema:
        type: string
    Location:
      description: Where a single message can be seen.
      schema:
        type: string
        format: uri-reference
    Retry-After:
      description: Seconds until it is worth trying again.
      schema:
        type: integer
    Allow:
      description: The methods that the path takes.
      required: true
      schema:
        type: string
  responses:
    Accepted:
      description: On disk. A receipt for the one message, or one for all.
      headers:
        X-Request-Id:
          $ref: "#/components/headers/X-Request-Id"
        Location:
          $ref: "#/components/headers/Location"
        Preference-Applied:
          $ref: "#/components/headers/Preference-Applied"
      content:
        application/json:
          schema:
            oneOf:
              - $ref: "#/components/schemas/Receipt"
              - $ref: "#/components/schemas/Receipts"
          examples:
            one:
              value:
                id: 00697znkr0001
                upstream: samsara
                kind: event
                state: queued
            many:
              value:
                accepted: 2
                ids: [00697znkr0001, 00697znkr0081]
    SettledOrDryRun:
      description: |
        With `Prefer: wait`: settled within that time. With `dryRun=true`: what would be sent.
      headers:
        X-Request-Id:
          $ref: "#/components/headers/X-Request-Id"
        Preference-Applied:
          $ref: "#/components/headers/Preference-Applied"
      content:
        application/json:
          schema:
            anyOf:
              - $ref: "#/components/schemas/Message"
              - $ref: "#/components/schemas/Notice"
              - $ref: "#/components/schemas/Settled"
              - $ref: "#/components/schemas/DryRun"
    Message:
      description: The message as it stands now.
      headers:
        X-Request-Id:
          $ref: "#/components/headers/X-Request-Id"
      content:
        application/json:
          schema:
            $ref: "#/components/schemas/Message"
    RetryPreview:
      description: With `dryRun`, how many messages would be queued again.
      headers:
        X-Request-Id:
          $ref: "#/components/headers/X-Request-Id"
      content:
        application/json:
          schema:
            type: object
            required: [retried, dryRun]
            properties:
              retried:
                type: integer
              dryRun:
                const: true
    Retried:
      description: Queued again.
      headers:
        X-Request-Id:
          $ref: "#/components/headers/X-Request-Id"
      content:
        application/json:
          schema:
            type: object
            required: [retried]
            properties:
              retried:
                type: integer
                minimum: 0
    Steered:
      description: The upstream's worker has been told.
      headers:
        X-Request-Id:
          $ref: "#/components/headers/X-Request-Id"
      content:
        application/json:
          schema:
            type: object
            required: [upstream, action, queued]
            properties:
              upstream:
                $ref: "#/components/schemas/UpstreamName"
              action:
                type: string
                enum: [flush, pause, resume]
              queued:
                description: Messages that are queued for it.
                type: integer
    BadRequest:
      description: |
        Not understood: `invalid-json` with the byte `offset`, or `bad-request` for an unknown parameter, a value out of
        range, bad gzip or bad framing.
      content:
        application/problem+json:
          schema:
            $ref: "#/components/schemas/Problem"
          example:
            type: urn:postern:problem:invalid-json
            title: Invalid JSON
            status: 400
            detail: "The body is not acceptable JSON: unexpected end at byte 13."
            instance: /v1/samsara/event
            requestId: 4d1f0c6e8f7b42c5
            offset: 13
    Unauthorized:
      description: "`unauthorized`: an API key is required, and none was sent, or one that is unknown or has expired."
      headers:
        WWW-Authenticate:
          required: true
          description: "`Bearer`, with `error=\"invalid_token\"` if a key was sent (RFC 6750)."
          schema:
            type: string
      content:
        application/problem+json:
          schema:
            $ref: "#/components/schemas/Problem"
    RateLimited:
      description: |
        `rate-limited`: more requests or messages than the key may send. Every response to a limited key says how many are
        left, in `RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers).
      headers:
        Retry-After:
          $ref: "#/components/headers/Retry-After"
        RateLimit:
          schema:
            type: string
          example: '"requests";r=0;t=1'
        RateLimit-Policy:
          schema:
            type: string
          example: '"requests";q=100;w=1'
      content:
        application/problem+json:
          schema:
            $ref: "#/components/schemas/Problem"
    Forbidden:
      description: |
        `forbidden`: the key lacks a scope or is not good for the upstream; the name in `Host` is not one of the gateway's, or a web page of another origin asked for more than
        reading. See `server.hosts` and `server.corsOrigins`.
      content:
        application/problem+json:
          schema:
            $ref: "#/components/schemas/Problem"
    NotFound:
      description: "`not-found`, `unknown-upstream` or `unknown-kind`; the last two say what there is."
      content:
        application/problem+json:
          schema:
            $ref: "#/components/schemas/Problem"
    MethodNotAllowed:
      description: "`method-not-allowed`."
      headers:
        Allow:
          $ref: "#/components/headers/Allow"
      content:
        application/problem+json:
          schema:
            $ref: "#/components/schemas/Problem"
    NotAcceptable:
      description: "`not-acceptable`: `Accept` excludes JSON."
      content:
        application/problem+json:
          schema:
            $ref: "#/components/schemas/Problem"
    Conflict:
      description: |
        `conflict` with what is stored, e.g. a message that is settled already or being sent right now; or
        `unknown-session`: something has to be handed in first.
      headers:
        Retry-After:
          $ref: "#/components/headers/Retry-After"
      content:
        application/problem+json:
          schema:
            $ref: "#/components/schemas/Problem"
    PayloadTooLarge:
      description: "`payload-too-large`: the body, what it inflates to, or the number of messages in it."
      content:
        application/problem+json:
          schema:
            $ref: "#/components/schemas/Problem"
    UnsupportedMediaType:
      description: "`unsupported-media-type`: `Content-Type` or `Content-Encoding`."
      headers:
        Accept-Post:
          description: The types that are taken.
          schema:
            type: string
        Accept-Encoding:
          description: The codings that are taken.
          schema:
            type: string
      content:
        application/problem+json:
          schema:
            $ref: "#/components/schemas/Problem"
    InvalidPayload:
      description: |
        `invalid-payload`: what is wrong with the bad payloads. At most 100 faults are shown, the rest are counted in
        `errorsOmitted`. Nothing was stored.
      content:
        application/problem+json:
          schema:
            $ref: "#/components/schemas/Problem"
          example:
            type: urn:postern:problem:invalid-payload
            title: Invalid payload
            status: 422
            detail: >-
              1 of 2 payloads break the rules of their upstream; nothing was stored. See errors, or ask with Prefer:
              handling=lenient to store the good ones.
            instance: /v1/samsara/event
            requestId: 4d1f0c6e8f7b42c5
            errors:
              - index: 1
                pointer: /eventName
                detail: must be a non-blank string
    HeaderTooLarge:
      description: "`header-too-large`: request line and headers together have more than 16 KiB."
      content:
        application/problem+json:
          schema:
            $ref: "#/components/schemas/Problem"
    Internal:
      description: "`internal`: the store failed. The log says more."
      content:
        application/problem+json:
          schema:
            $ref: "#/components/schemas/Problem"
    DeliveryFailed:
      description: |
        `delivery-failed`, only with `Prefer: wait` and a single message: the upstream refused it. It is kept as failed,
        under `messageId`.
      headers:
        Preference-Applied:
          $ref: "#/components/headers/Preference-Applied"
      content:
        application/problem+json:
          schema:
            $ref: "#/components/schemas/Problem"
    Unavailable:
      description: "`outbox-full`, `overloaded`, `shutting-down` or `store-lost`: nothing was stored; send it again. `store-failed`: the same, unless the detail says that the outcome is unknown."
      headers:
        Retry-After:
          $ref: "#/components/headers/Retry-After"
      content:
        application/problem+json:
          schema:
            $ref: "#/components/schemas/Problem"
    DiskFull:
      description: "`disk-full`. Nothing was stored; deliveries go on and may make room."
      headers:
        Retry-After:
          $ref: "#/components/headers/Retry-After"
      content:
        application/problem+json:
          schema:
            $ref: "#/components/schemas/Problem"
  schemas:
    UpstreamName:
      type: string
      pattern: "^[a-z][a-z0-9-]{0,30}$"
    MessageID:
      description: Opaque; sorts by acceptance.
      type: string
      pattern: "^[0-7][0-9a-hjkmnp-tv-z]{12}$"
    Time:
      type: string
      format: date-time
    State:
      description: |
        `queued`, then `delivered`; or `failed` (refused by the upstream: a dead letter), `cancelled` (by a caller),
        `dropped` (evicted from a full queue), `expired` (too old).
      type: string
      enum: [queued, delivered, failed, cancelled, dropped, expired]
    Payload:
      description: A payload as the upstream's own API describes it; here an event of Samsara.
      type: object
      examples:
        - timestamp: 1433004485870
          sourceId: 3aw4sedrtcyvgbuhjkn
          eventName: session.started
    Envelope:
      type: object
      additionalProperties: false
      required: [upstream, kind, payload]
      properties:
        upstream:
          $ref: "#/components/schemas/UpstreamName"
        kind:
          type: string
        payload:
          $ref: "#/components/schemas/Payload"
        key:
          description: The caller's own, 1 to 255 bytes without control characters; messages can be listed by it.
          type: [string, "null"]
          minLength: 1
          maxLength: 255
          pattern: "^[^\\x00-\\x1f\\x7f-\\x9f]*$"
        notBefore:
          description: >-
            The time before which the message is not sent. Until then it holds up no other message. Then it takes its
            place in its lane: in the order of acceptance among the messages that are due.
          type: [string, "null"]
          format: date-time
        expiresAt:
          description: Not to be sent after; later than `notBefore`.
          type: [string, "null"]
          format: date-time
    Receipt:
      type: object
      required: [id, upstream, kind, state]
      properties:
        id:
          $ref: "#/components/schemas/MessageID"
        upstream:
          $ref: "#/components/schemas/UpstreamName"
        kind:
          type: string
        state:
          const: queued
        evicted:
          $ref: "#/components/schemas/Evicted"
        durableCredentials:
          description: |
            Only there, and false, when a credential came along and the gateway has no key to encrypt it: it is kept in
            memory, and does not outlive the gateway's run.
          const: false
        needsToken:
          description: |
            Only there, and true, when a token came along that the upstream had refused before: the message waits for
            another one.
          const: true
    Receipts:
      type: object
      required: [accepted]
      properties:
        accepted:
          description: How many messages were stored.
          type: integer
          minimum: 0
        ids:
          description: In the order of the request; left out with `return=minimal`.
          type: array
          items:
            $ref: "#/components/schemas/MessageID"
        evicted:
          $ref: "#/components/schemas/Evicted"
        durableCredentials:
          description: |
            Only there, and false, when a credential came along and the gateway has no key to encrypt it: it is kept in
            memory, and does not outlive the gateway's run.
          const: false
        needsToken:
          description: |
            Only there, and true, when a token came along that the upstream had refused before: the message waits for
            another one.
          const: true
        rejected:
          description: With `handling=lenient`, what was not stored.
          type: array
          items:
            type: object
            required: [index, errors]
            properties:
              index:
                description: Its place in the request, from 0.
                type: integer
              errors:
                description: At most 100 in the whole response.
                type: array
                items:
                  $ref: "#/components/schemas/Fault"
              errorsOmitted:
                description: How many more there are. Absent if there are none.
                type: integer
                minimum: 1
    Evicted:
      description: What had to make room, in queues with `whenFull` set to `dropOldest`.
      type: array
      items:
        $ref: "#/components/schemas/MessageID"
    Settled:
      description: The answer to many messages that were waited for.
      type: object
      required: [accepted, messages]
      properties:
        accepted:
          type: integer
        messages:
          type: array
          items:
            type: object
            required: [id, state]
            properties:
              id:
                $ref: "#/components/schemas/MessageID"
              state:
                $ref: "#/components/schemas/State"
              lastError:
                $ref: "#/components/schemas/Error"
              result:
                description: What the upstream answered, where that is kept.
    Notice:
      description: A message that was waited for, where no receipts are kept.
      type: object
      required: [id, upstream, kind, state, result]
      properties:
        id:
          $ref: "#/components/schemas/MessageID"
        upstream:
          $ref: "#/components/schemas/UpstreamName"
        kind:
          type: string
        state:
          $ref: "#/components/schemas/State"
        result:
          description: What the upstream answered, where that is kept.
    DryRun:
      type: object
      required: [dryRun, accepted, requests]
      properties:
        dryRun:
          const: true
        accepted:
          description: How many messages would be stored.
          type: integer
        requests:
          description: What would be sent, with secrets masked.
          type: array
          items:
            type: [object, "null"]
            properties:
              upstream:
                $ref: "#/components/schemas/UpstreamName"
              messages:
                description: How many messages the request would carry.
                type: integer
              method:
                type: string
              url:
                type: string
              headers:
                type: object
                additionalProperties:
                  type: string
              body:
                description: Before compression.
                type: string
              unsent:
                description: Why nothing would be sent.
                type: string
              waitingFor:
                $ref: "#/components/schemas/WaitingFor"
    WaitingFor:
      type: string
      enum: [retry, order, circuit, token, credentials, pause, schedule]
    Message:
      type: object
      required:
        - id
        - upstream
        - kind
        - state
        - key
        - attempts
        - createdAt
        - nextAttemptAt
        - settledAt
        - waitingFor
        - lastError
        - result
      properties:
        id:
          $ref: "#/components/schemas/MessageID"
        upstream:
          $ref: "#/components/schemas/UpstreamName"
        kind:
          type: string
        state:
          $ref: "#/components/schemas/State"
        key:
          type: [string, "null"]
        attempts:
          description: |
            Sends that count against the message. One that met an outage does not; one with a doubtful answer does once a
            success elsewhere shows that the message was its cause.
          type: integer
        createdAt:
          $ref: "#/components/schemas/Time"
        nextAttemptAt:
          type: [string, "null"]
          format: date-time
        settledAt:
          type: [string, "null"]
          format: date-time
        waitingFor:
          description: What a queued message waits for; null when it is about to be sent, is being sent, or is settled.
          oneOf:
            - $ref: "#/components/schemas/WaitingFor"
            - type: "null"
        lastError:
          oneOf:
            - $ref: "#/components/schemas/Error"
            - type: "null"
        result:
          description: |
            What the upstream answered, where that is kept, of refusals too; as JSON if it is that, else as a string.
        payload:
          description: With `include=payload`. Null once it is kept no more, as that of a delivered message.
        attemptLog:
          description: With `include=attempts`, the requests that carried the message, oldest first.
          type: array
          items:
            $ref: "#/components/schemas/Attempt"
      examples:
        - id: 00697znkr0001
          upstream: samsara
          kind: event
          state: queued
          key: null
          attempts: 0
          createdAt: "2026-01-31T12:00:00.000Z"
          nextAttemptAt: "2026-01-31T12:00:08.000Z"
          settledAt: null
          waitingFor: circuit
          lastError:
            class: unreachable
            status: null
            detail: Couldn't connect to server
            at: "2026-01-31T12:00:04.117Z"
          result: null
    AttemptOutcome:
      type: string
      enum:
        - delivered
        - proceed
        - sorted
        - retry
        - backed-off
        - suspect
        - unauthorized
        - held
        - parked
        - split
        - rejected
        - cancelled
        - unsent
        - expired
        - unknown
    Attempt:
      type: object
      required: [batch, startedAt, endedAt, outcome, status, detail, messages]
      properties:
        batch:
          type: string
        startedAt:
          $ref: "#/components/schemas/Time"
        endedAt:
          description: Null while it is under way.
          type: [string, "null"]
          format: date-time
        outcome:
          description: |
            How the request ended; null while it is open. `unknown`: the gateway was killed before the answer came.
          oneOf:
            - $ref: "#/components/schemas/AttemptOutcome"
            - type: "null"
        status:
          description: The upstream's HTTP status.
          type: [integer, "null"]
        detail:
          type: [string, "null"]
        messages:
          description: How many messages the request carried.
          type: integer
    Error:
      type: object
      required: [class, status, detail, at]
      properties:
        class:
          type: string
          enum: [unreachable, timeout, interrupted, garbled, busy, failing, unauthorized, misconfigured, refused, damaged]
        status:
          description: The upstream's HTTP status, if it answered.
          type: [integer, "null"]
        detail:
          type: string
        at:
          $ref: "#/components/schemas/Time"
    Flushed:
      type: object
      required: [upstream, action, queued, delivered, failed, remaining]
      properties:
        upstream:
          $ref: "#/components/schemas/UpstreamName"
        action:
          const: flush
        queued:
          type: integer
          description: Messages that were queued when it began.
        delivered:
          type: integer
        failed:
          type: integer
        remaining:
          type: integer
          description: Messages it covers that are still queued, e.g. because the upstream is down.
    Upstream:
      type: object
      required:
        - name
        - type
        - health
        - queued
        - queuedBytes
        - oldestQueuedSeconds
        - inFlight
        - circuit
        - token
        - lastSuccessAt
        - lastError
        - kinds
      properties:
        name:
          $ref: "#/components/schemas/UpstreamName"
        type:
          type: string
        health:
          type: string
          description: |
            `degraded`: failures, or one path or kind waits while others are delivered. `misconfigured`: the URL is wrong,
            or something in front of the upstream answers. `disabled`, in the list only: messages are queued for an upstream
            that is disabled or no longer configured; they wait until it is enabled again.
          enum: [up, degraded, down, unauthorized, misconfigured, paused, disabled]
        queued:
          type: integer
        queuedBytes:
          type: integer
        oldestQueuedSeconds:
          type: number
        inFlight:
          description: Requests under way.
          type: integer
        circuit:
          type: object
          required: [state, reopensAt]
          properties:
            state:
              type: string
              enum: [closed, open, half-open]
            reopensAt:
              description: When it is tried again.
              type: [string, "null"]
              format: date-time
        token:
          description: Null for upstreams that want none.
          type: [object, "null"]
          required: [valid, expiresAt]
          properties:
            valid:
              type: boolean
            expiresAt:
              type: [string, "null"]
              format: date-time
        lastSuccessAt:
          type: [string, "null"]
          format: date-time
        lastError:
          oneOf:
            - $ref: "#/components/schemas/Error"
            - type: "null"
        kinds:
          type: array
          items:
            type: string
      examples:
        - name: samsara
          type: samsara
          health: up
          queued: 0
          queuedBytes: 0
          oldestQueuedSeconds: 0
          inFlight: 0
          circuit: {state: closed, reopensAt: null}
          token: null
          lastSuccessAt: "2026-01-31T12:00:00.431Z"
          lastError: null
          kinds: [event]
    Key:
      type: object
      required: [name, scopes, upstreams, expiresAt, lastUsedAt]
      properties:
        name:
          type: string
        scopes:
          type: array
          items:
            type: string
            enum: [write, read, admin]
        upstreams:
          type: array
          description: Names of upstreams, or `*` alone for all of them.
          items:
            type: string
        expiresAt:
          oneOf:
            - $ref: "#/components/schemas/Time"
            - type: "null"
        lastUsedAt:
          description: Since the start of the gateway.
          oneOf:
            - $ref: "#/components/schemas/Time"
            - type: "null"
    Fault:
      type: object
      required: [pointer, detail]
      properties:
        index:
          description: The payload's place among many, from 0.
          type: integer
        pointer:
          description: The member, as a JSON Pointer (RFC 6901); empty for the payload itself.
          type: string
        detail:
          description: The rule that it breaks.
          type: string
    Problem:
      description: An error (RFC 9457).
      type: object
      required: [type, title, status, detail, instance, requestId]
      properties:
        type:
          type: string
          enum:
            - urn:postern:problem:bad-request
            - urn:postern:problem:conflict
            - urn:postern:problem:delivery-failed
            - urn:postern:problem:disk-full
            - urn:postern:problem:forbidden
            - urn:postern:problem:header-too-large
            - urn:postern:problem:idempotency-mismatch
            - urn:postern:problem:internal
            - urn:postern:problem:invalid-json
            - urn:postern:problem:invalid-payload
            - urn:postern:problem:method-not-allowed
            - urn:postern:problem:not-acceptable
            - urn:postern:problem:not-found
            - urn:postern:problem:outbox-full
            - urn:postern:problem:overloaded
            - urn:postern:problem:payload-too-large
            - urn:postern:problem:rate-limited
            - urn:postern:problem:shutting-down
            - urn:postern:problem:store-failed
            - urn:postern:problem:store-lost
            - urn:postern:problem:store-unavailable
            - urn:postern:problem:unauthorized
            - urn:postern:problem:unknown-kind
            - urn:postern:problem:unknown-session
            - urn:postern:problem:unknown-upstream
            - urn:postern:problem:unsupported-media-type
        title:
          type: string
        status:
          type: integer
        detail:
          description: What is wrong with this request, and what to do.
          type: string
        instance:
          description: The request's path.
          type: string
        requestId:
          type: string
        errors:
          description: Of `invalid-payload` and `conflict`. At most 100.
          type: array
          items:
            $ref: "#/components/schemas/Fault"
        errorsOmitted:
          description: How many more `errors` there are. Absent if there are none.
          type: integer
          minimum: 1
        offset:
          description: Of `invalid-json`, the byte where reading ended.
          type: integer
        messageId:
          description: Of `delivery-failed`.
          $ref: "#/components/schemas/MessageID"
        upstreamStatus:
          description: Of `delivery-failed`, what the upstream answered.
          type: integer
        lastError:
          description: Of `delivery-failed`.
          $ref: "#/components/schemas/Error"
        result:
          description: Of `delivery-failed`, the upstream's answer to what it refused, where that is kept.
      additionalProperties:
        description: Codes of the upstream's own, e.g. `seerCode`.
    Registration:
      type: object
      required:
        - userId
        - deviceId
        - applicationIsRegisteredForNotifications
        - userIsRegisteredWithAppServices
        - deviceIsRegisteredWithAppServices
        - userIsConnectedToDevice
        - registered
        - notificationPreferencesHaveBeenUpdated
        - needsToken
      properties:
        userId:
          type: string
        deviceId:
          type: string
        applicationIsRegisteredForNotifications:
          description: A push token was handed in.
          type: boolean
        userIsRegisteredWithAppServices:
          type: boolean
        deviceIsRegisteredWithAppServices:
          type: boolean
        userIsConnectedToDevice:
          type: boolean
        registered:
          description: All four.
          type: boolean
        notificationPreferencesHaveBeenUpdated:
          description: The device's stored preferences have reached AppServices.
          type: boolean
        needsToken:
          description: Something waits for a fresh token of the user.
          type: boolean
    TokenReceipt:
      type: object
      required: [userId, provider, expiresAt]
      properties:
        userId:
          type: string
        provider:
          enum: [pi, mi]
        expiresAt:
          description: As far as was said.
          oneOf:
            - $ref: "#/components/schemas/Time"
            - type: "null"
        durableCredentials:
          description: Only there, and false, when the gateway has no key to encrypt it; it does not outlive the run.
          const: false
    Session:
      type: object
      required: [sessionCode, visitorCode, state, startedAt, queuedOfVisitor, upstream, device, open]
      properties:
        sessionCode:
          type: string
        visitorCode:
          type: string
        state:
          type: string
          description: "`ended` when its end was accepted; `refused` when the upstream will not take its start."
          enum: [open, ended, refused]
        startedAt:
          $ref: "#/components/schemas/Time"
        queuedOfVisitor:
          type: integer
          description: Actions of the visitor that wait, in this session and others.
        upstream:
          type: object
          required: [isStarted, sessionCode, nextSessionCode, refusal]
          properties:
            isStarted:
              type: boolean
              description: Has the upstream taken its start?
            sessionCode:
              type: string
              description: Under which code it took, or will take, the session.
            nextSessionCode:
              type: [string, "null"]
              description: The code that is to take its place, which is dead upstream.
            refusal:
              type: [string, "null"]
        device:
          type: object
          description: The device block, as requests spell it.
          additionalProperties:
            type: string
        open:
          type: array
          description: Screens and events whose end was not accepted yet, oldest first, 200 at most.
          items:
            type: object
            required: [id, kind, timestamp, code]
            properties:
              id:
                $ref: "#/components/schemas/MessageID"
              kind:
                type: string
                enum: [screen_start, event]
              timestamp:
                $ref: "#/components/schemas/Time"
              pageTitle:
                type: string
              path:
                type: string
              code:
                type: [string, "null"]
                description: Under which the upstream knows it; null as long as it does not.
    Notification:
      type: object
      properties:
        alert:
          description: When `aps.alert` is a string.
          type: string
        alertDict:
          description: When it is an object or an array; as it came.
          type: [object, array]
        badge:
          type: integer
        sound:
          type: string
        contentAvailable:
          type: integer
        customPayload:
          description: Every other member of the payload.
          type: object
    Endpoints:
      type: object
      required: [endpoints]
      properties:
        endpoints:
          type: array
          items:
            type: object
            required: [name, path, url, kind, isBatch, isPreset]
            properties:
              name:
                type: string
                description: As the SDK or the configuration calls it.
              path:
                type: string
              url:
                type: string
                description: Without the api key.
              kind:
                type: [string, "null"]
                description: What goes there; null for the token.
              isBatch:
                type: boolean
              isPreset:
                type: boolean
    PersonalSession:
      type: object
      required: [id, user, expiresAt]
      properties:
        id:
          type: string
          description: For the header `Postern-Session`.
        user:
          type: string
          description: The platform's id of the person.
        expiresAt:
          $ref: "#/components/schemas/Time"
          description: Each answer in the session moves it.
        durableCredentials:
          const: false
          description: Without an encryption key the session's key is kept in memory, and a restart ends the session.

"""#
}
