import Foundation
import PosternHTTP
import PosternTestKit
import Testing

extension EndToEnd {
    /// No request costs more than 8 times its body in memory (design, section 3.6): measured from outside, with the worst
    /// bodies of the largest size that is accepted. `RequestTiming` measures that none holds a server thread for more than
    /// 50 ms, which takes optimized code, and also with bodies that are small enough to be worked on at once.
    @Suite struct WorstRequests {
        struct Body: CustomTestStringConvertible, Sendable {
            let testDescription: String
            let path: String
            var type = "application/json"
            private let make: @Sendable (_ size: Int) -> [UInt8]

            func bytes(_ size: Int = WorstRequests.size) -> [UInt8] { make(size) }

            /// `unit`, repeated as often as it fits.
            init(
                _ name: String, _ path: String, _ start: String, _ unit: String, _ end: String,
                type: String = "application/json"
            ) {
                testDescription = name
                self.path = path
                self.type = type
                make = { size in
                    let count = (size - start.utf8.count - end.utf8.count) / unit.utf8.count
                    return Array((start + String(repeating: unit, count: count) + end).utf8)
                }
            }

            /// An object with as many different short names as fit.
            init(
                _ name: String, _ path: String, _ start: String, escape: String = "", value: String, _ end: String,
                type: String = "application/json"
            ) {
                testDescription = name
                self.path = path
                self.type = type
                make = { WorstRequests.members(start, escape, value, end, size: $0) }
            }
        }

        fileprivate static let size = 4 << 20
        /// A call that is answered at once is carried out on the server thread if it is not larger.
        fileprivate static let smallSize = 64 << 10
        /// The largest call that StreamOne's queue accepts.
        fileprivate static let deliveredSize = 2 << 20
        private static let event = "/v1/samsara/event"
        private static let calls = "/v1/streamone/call"
        private static let proxy = "/v1/streamone/proxy/item/edit"
        private static let preview = "?dryRun=true"
        private static let lines = "application/x-ndjson"
        private static let events = "/v1/cloudevents"
        private static let one = "application/cloudevents+json"
        private static let batch = "application/cloudevents-batch+json"
        private static let call = #"{"command":"item","action":"edit","#

        static let bodies: [Body] = [
            Body("a list of numbers", event, "[0", ",0", "]"),
            Body("numbers in a payload", event, #"{"data":[0"#, ",0", "]}"),
            Body("lines of numbers", event, "", "0\n", "", type: lines),
            Body("empty objects", event, #"{"data":[{}"#, ",{}", "]}"),
            Body("empty strings", event, #"{"data":[""#, ",\"\"", "]}"),
            Body(
                "deep nesting", event, #"{"data":[0"#,
                "," + String(repeating: "[", count: 62) + "0" + String(repeating: "]", count: 62), "]}"),
            Body("one name all over", event, #"{"data":{"":0"#, #","":0"#, "}}"),
            Body("small objects with a name twice", event, #"{"data":[0"#, #",{"a":0,"a":0}"#, "]}"),
            Body("short names", event, #"{"data":{"#, value: "0", "}}"),
            Body("names with escapes", event, "{", escape: "\\n", value: "0", "}"),
            Body("a long name", "/v1/messages", "{\"", "n", "\":0}"),
            Body("a string of line breaks", event, #"{"sourceId":""#, "\\n", "\"}"),
            Body("a string of escapes", event, #"{"sourceId":""#, "\\u00e9", "\"}"),
            Body("blanks before a value", event, #"{"data":"#, " \n", "0}"),
            Body("lines with a fault at the end", event, "", "0\n", "}", type: lines),
            Body("nesting with a fault at the end", event, #"{"data":[0"#, ",[[[[[[[[0]]]]]]]]", "]]"),
            Body("envelopes of unknown members", "/v1/messages", "[{}", ",{\(sixtyMembers)}", "]"),
            Body("events of unknown members", "/v1/curio/event", "[{}", ",{\(sixtyMembers)}", "]"),
            Body("unknown members of an event", "/v1/curio/session_start", "{", value: "0", "}"),
            Body("unknown members of an envelope", "/v1/messages", "{", value: "0", "}"),
            Body("tags that are not strings", "/v1/curio/user_tags", #"{"userTags":{"#, value: "0", "}}"),
            Body("arguments of a call", "/v1/streamone/call", call + #""arguments":{"#, value: "0", "}}"),
            Body("an argument of numbers", "/v1/streamone/call", call + #""arguments":{"a":[0"#, ",0.1", "]}}"),
            Body("exponents of a call", calls, call + #""arguments":{"a":[0"#, ",1e-300", "]}}"),
            Body("short exponents of a call", calls, call + #""arguments":{"a":[0"#, ",1e-1", "]}}"),
            Body("named exponents of a call", calls, call + #""arguments":{"#, value: "1e0", "}}"),
            Body("a long zero fraction", calls, call + #""arguments":{"a":9007199254740992."#, "0", "}}"),
            Body("zero fractions", calls, call + #""arguments":{"a":[0"#, ",9007199254740992.000", "]}}"),
            Body("a long exponent", calls, call + #""arguments":{"a":1e-"#, "9", "}}"),
            Body("accounts of a call", calls, call + #""accounts":["a""#, #","a""#, "]}"),
            Body("accounts with escapes", calls, call + #""accounts":["a""#, #","\u0061""#, "]}"),
            Body("accounts with escaped commas", calls, call + #""accounts":["a""#, #","\u002c""#, "]}"),
            Body("decimals of a call that is answered at once", proxy, #"{"a":[0"#, ",0.1", "]}"),
            Body("exponents of a call that is answered at once", proxy, #"{"a":[0"#, ",1e-1", "]}"),
            Body("named exponents of a call that is answered at once", proxy, "{", value: "1e0", "}"),
            Body("a zero fraction of a call that is answered at once", proxy, #"{"a":9007199254740992."#, "0", "}"),
            Body(
                "a long coordinate", "/v1/curio/location", #"{"visitorCode":"v","longitude":1,"latitude":1."#, "0", "}"),
            Body("a long exponent of a coordinate", "/v1/curio/location", #"{"latitude":1e-"#, "9", "}"),
            Body(
                "a preview of characters that are escaped", calls + preview, call + #""arguments":{"a":""#, "%", #""}}"#
            ),
            Body("a preview of escapes", calls + preview, call + #""arguments":{"a":""#, #"\u00e9"#, #""}}"#),
            Body("a preview of decimals", calls + preview, call + #""arguments":{"a":[0"#, ",0.1", "]}}"),
            Body("a preview of accounts", calls + preview, call + #""accounts":["a""#, #",",""#, "]}"),
            Body(
                "a preview of control characters", event + preview,
                #"{"timestamp":1,"sourceId":"a","eventName":"b","data":""#, #"\u0001"#, #""}"#),
            Body("a call that is answered at once", "/v1/streamone/proxy/item/edit", "{", value: "0", "}"),
            Body("members of an activity", "/v1/seer/activity", #"{"actor":{"#, value: "0", "}}"),
            Body("a statement's names with escapes", "/v1/seer/tincan", "{", escape: "\\t", value: "0", "}"),
            Body("a statement's extensions", "/v1/seer/tincan", #"{"context":{"extensions":{"#, value: "0", "}}}"),
            Body("unknown preferences", "/v1/appservices/preferences", #"{"preferences":{"#, value: "0", "}}"),
            Body(
                "preferences for many types", "/v1/appservices/preferences", #"{"preferences":{"whitelist":{"#,
                value: "[]", "}}}"),
            Body("names with escapes, of a device", "/v1/appservices/register", "{", escape: "\\b", value: "0", "}"),
            Body("a user's many domains", "/v1/appservices/register", #"{"userId":"a"#, "@a.b", "\"}"),
            Body(
                "many metrics", "/v1/appservices/metrics", #"{"sessionMetrics":{"a":0},"metrics":[{}"#, ",{}", "]}"),
            Body("attributes of a CloudEvent", events, "{", value: "0", "}", type: one),
            Body("attributes with escapes of a CloudEvent", events, "{", escape: "\\n", value: "0", "}", type: one),
            Body("a CloudEvent's long source", events, #"{"source":""#, "a", "\"}", type: one),
            Body("a CloudEvent's long id", events, #"{"id":""#, "\u{E9}", "\"}", type: one),
            Body("CloudEvents that are accepted", events, "[\(cloudEvent)", ",\(cloudEvent)", "]", type: batch),
            Body("CloudEvents without an attribute", events, "[{}", ",{\(sixtyMembers)}", "]", type: batch),
            Body("ids to be retried", "/v1/messages/retry", #"{"ids":["1""#, #","1""#, "]}"),
        ]

        /// Bodies that are accepted, and whose request costs most.
        fileprivate static let delivered: [Body] = [
            Body("characters that a form escapes", calls, call + #""arguments":{"a":""#, "%", #""}}"#),
            Body("characters of two bytes", calls, call + #""arguments":{"a":""#, "\u{E9}", #""}}"#),
            Body("escapes", calls, call + #""arguments":{"a":""#, #"\u00e9"#, #""}}"#),
            Body("decimals", calls, call + #""arguments":{"a":[0"#, ",0.1", "]}}"),
            Body("exponents", calls, call + #""arguments":{"a":[0"#, ",1e-1", "]}}"),
            Body("empty texts", calls, call + #""arguments":{"a":[""#, #"",""#, #""]}}"#),
            Body("decimals of any JSON", "/v1/hook/event", #"{"a":[0"#, ",0.1", "]}"),
            Body("escapes of any JSON", "/v1/hook/event", #"{"a":""#, #"\u0001"#, #""}"#),
        ]

        /// So long that a body holds nearly as many of them as a request may.
        private static let cloudEvent =
            #"{"specversion":"1.0","id":"1","source":"/a","type":"samsara.event","data":{"sourceId":"a","eventName":"#
            + #""\#(String(repeating: "b", count: 320))"}}"#

        /// So many that a body holds fewer than 10 000 objects of them, the most that a request may hold.
        private static let sixtyMembers = (0..<60).map { #""m\#($0)":0"# }.joined(separator: ",")

        private static func members(_ start: String, _ escape: String, _ value: String, _ end: String, size: Int)
            -> [UInt8]
        {
            let digits = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_".utf8)
            let (escape, value) = (Array(escape.utf8), Array(value.utf8))
            var bytes = Array(start.utf8)
            bytes.reserveCapacity(size)
            var number = 0
            while bytes.count + escape.count + value.count + end.utf8.count + 8 < size {
                if number > 0 { bytes.append(UInt8(ascii: ",")) }
                bytes.append(UInt8(ascii: "\""))
                bytes += escape
                // Three characters are enough for a quarter of a million of them.
                for shift in number >> 18 > 0 ? [0, 6, 12, 18] : [0, 6, 12] {
                    bytes.append(digits[number >> shift & 63])
                }
                bytes.append(UInt8(ascii: "\""))
                bytes.append(UInt8(ascii: ":"))
                bytes += value
                number += 1
            }
            return bytes + Array(end.utf8)
        }

        /// Runs `test` with a gateway's process, and what posts such a body to it. Each upstream is paused: what a delivery
        /// costs is measured by `withDelivery`.
        fileprivate static func withGateway(
            for body: Body, _ test: (Measured, (_ bytes: [UInt8]) throws -> Void) throws -> Void
        ) async throws {
            let dead = "http://127.0.0.1:9"
            let upstreams: [String: [String: Any]] = [
                "samsara": ["url": dead], "curio": ["serverURL": dead, "apiKey": "a", "trackingCode": "b"],
                "streamone": ["apiUrl": dead, "id": "a", "psk": "b"],
                "seer": ["baseURL": dead, "clientId": "a", "clientSecret": "b"],
                "appservices": [
                    "baseURL": dead, "organization": "a", "application": "b", "apiKey": "c", "monitoringEnabled": true,
                ],
            ]
            let gateway = try await GatewayDirectory(
                Settings(server: ["port": 0, "workerThreads": 1], upstreams: upstreams)
            )
            .start()
            let client = try gateway.client()
            for name in upstreams.keys { #expect(try client.post("/v1/upstreams/\(name)/pause").status == 202) }
            func post(_ bytes: [UInt8]) throws {
                let answer = try gateway.client().ask("POST", body.path, bytes, headers: [("Content-Type", body.type)])
                #expect(answer.status != 500 && answer.status != 503, "\(answer.status)")
            }
            // The first requests load code and fill caches.
            for _ in 0..<3 { try post(Array(#"{"a":0}"#.utf8)) }
            try test(Measured(pid: gateway.process.pid), post)
            try await gateway.stop()
        }

        /// Runs `test` with the process of a gateway in whose queue is such a message, and what has it sent. The memory that
        /// its acceptance took is that of an earlier process.
        fileprivate static func withDelivery(
            of body: Body, size: Int = deliveredSize, _ test: (Measured, _ deliver: () throws -> Void) throws -> Void
        ) async throws {
            let receiver = Receiver(response: #"{"header":{"status":0,"statusmessage":"OK"},"body":{}}"#)
            let (server, port) = try receiver.serve()
            defer { server.stopAndWait(grace: .zero) }
            let url = "http://127.0.0.1:\(port)"
            let upstreams: [String: [String: Any]] = [
                "streamone": ["apiUrl": url, "id": "a", "psk": "b"], "hook": ["type": "webhook", "url": url],
                "call": ["type": "streamone", "apiUrl": url, "id": "a", "psk": "b"],
                "event": ["type": "webhook", "url": url],
            ]
            let name = body.path.split(separator: "/")[1]
            let directory = try GatewayDirectory(Settings(server: ["port": 0], upstreams: upstreams))
            let gateway = try await directory.start()
            #expect(try gateway.client().post("/v1/upstreams/\(name)/pause").status == 202)
            let answer = try gateway.client().ask(
                "POST", body.path, body.bytes(size), headers: [("Content-Type", body.type)])
            #expect(answer.status == 202, "\(answer)")
            try await gateway.stop()
            let next = try await directory.start()
            let client = try next.client()
            // The first delivery loads code.
            let kind = body.path.split(separator: "/")[2]
            let small = try client.post(
                "/v1/\(kind)/\(kind)", #"{"command":"item","action":"edit"}"#, headers: [("Prefer", "wait=60")])
            #expect(small.status < 300, "\(small)")
            func deliver() throws {
                #expect(try client.post("/v1/upstreams/\(name)/resume").status == 202)
                #expect(try eventually { try client.get("/v1/upstreams/\(name)").json["queued"].int == 0 })
            }
            try test(Measured(pid: next.process.pid), deliver)
            #expect(receiver.longestBody > size / 2)
            try await next.stop()
        }

        @Test(.timeLimit(.minutes(10)), .enabled(if: !Binary.isSanitized), arguments: delivered)
        func delivery_costsLittleMemory(body: Body) async throws {
            try await Self.withDelivery(of: body) { process, deliver in
                let idle = try process.memory(.now)
                try process.resetPeak()
                try deliver()
                let cost = try process.memory(.peak) - idle
                #expect(cost <= 8 * Self.deliveredSize, "\(Double(cost) / Double(Self.deliveredSize)) times the body")
            }
        }

        @Test(.timeLimit(.minutes(10)), .enabled(if: !Binary.isSanitized), arguments: bodies)
        func request_costsLittleMemory(body: Body) async throws {
            try await Self.withGateway(for: body) { process, post in
                let idle = try process.memory(.now)
                try process.resetPeak()
                let bytes = body.bytes()
                try post(bytes)
                let cost = try process.memory(.peak) - idle
                #expect(cost <= 8 * bytes.count, "\(Double(cost) / Double(bytes.count)) times the body")
            }
        }
    }

    @Suite(.enabled(if: Timing.isMeasured)) struct RequestTiming {
        private static let promised = Duration.milliseconds(50)

        /// Each measurement is divided by how slow the processor is just before and after it. One that is within the
        /// promise shows that the code is; the others were disturbed.
        @Test(arguments: WorstRequests.bodies) func request_takesLittleTime(body: WorstRequests.Body) async throws {
            try await WorstRequests.withGateway(for: body) { process, post in
                for size in [WorstRequests.size, WorstRequests.smallSize] {
                    let bytes = body.bytes(size)
                    var times: [Duration] = []
                    repeat {
                        let slowness = Timing.slowness()
                        let before = try process.time(ofThreads: "postern-http")
                        try post(bytes)
                        let time = try process.time(ofThreads: "postern-http") - before
                        times.append(time / max(slowness, Timing.slowness()))
                    } while (times.last ?? .zero) > Self.promised && times.count < 10
                    #expect((times.last ?? .zero) <= Self.promised, "\(size) bytes: \(times)")
                }
            }
        }

        /// From the claim to the settlement.
        @Test(arguments: WorstRequests.delivered) func delivery_takesLittleTime(body: WorstRequests.Body) async throws {
            for size in [WorstRequests.deliveredSize, WorstRequests.smallSize] {
                var times: [Duration] = []
                repeat {
                    try await WorstRequests.withDelivery(of: body, size: size) { process, deliver in
                        let slowness = Timing.slowness()
                        let before = try process.time(ofThreads: "to-")
                        try deliver()
                        let time = try process.time(ofThreads: "to-") - before
                        times.append(time / max(slowness, Timing.slowness()))
                    }
                } while (times.last ?? .zero) > Self.promised && times.count < 10
                #expect((times.last ?? .zero) <= Self.promised, "\(size) bytes: \(times)")
            }
        }
    }
}

extension Measured {
    fileprivate func resetPeak() throws {
        try "5".write(toFile: "/proc/\(pid)/clear_refs", atomically: false, encoding: .utf8)
    }

    /// The processor time of the threads whose names begin like that, which the load of others does not change.
    fileprivate func time(ofThreads prefix: String) throws -> Duration {
        let tasks = "/proc/\(pid)/task"
        var sum = Duration.zero
        for task in try FileManager.default.contentsOfDirectory(atPath: tasks) {
            let name = try String(contentsOfFile: "\(tasks)/\(task)/comm", encoding: .utf8)
            guard name.hasPrefix(prefix) else { continue }
            let times = try String(contentsOfFile: "\(tasks)/\(task)/schedstat", encoding: .utf8)
            guard let nanoseconds = times.split(separator: " ").first.flatMap({ Int64($0) }) else { throw Unreadable() }
            sum += .nanoseconds(nanoseconds)
        }
        return sum
    }
}
