import AppServicesAdapter
import CurioAdapter
import PosternCore
import PosternTestKit
import PosternUpstream
import SamsaraAdapter
import SeerAdapter
import StreamOneAdapter
import Testing

@testable import PosternAPI

/// The worst bodies of 4 MB: how long a response is must not depend on how wrong the request is. `WorstRequests` measures
/// what they cost.
@Suite(.serialized, .timeLimit(.minutes(10))) struct WorstBodyTests {
    private static let size = 4 << 20

    /// `start`, then `part` with its number until the body is full, then `end`.
    private static func body(_ start: String, _ part: (Int) -> String, end: String, most: Int = .max) -> [UInt8] {
        var body = Array(start.utf8)
        var number = 0
        while body.count < size - 200, number < most {
            if number > 0 { body.append(UInt8(ascii: ",")) }
            body.append(contentsOf: part(number).utf8)
            number += 1
        }
        return body + Array(end.utf8)
    }

    private static func members(_ count: Int) -> String { (0..<count).map { #""m\#($0)":0"# }.joined(separator: ",") }

    static let bodies: [(name: String, path: String, body: [UInt8])] = [
        ("one envelope of unknown members", "/v1/messages", body("{", { #""a\#($0)":0"# }, end: "}")),
        (
            "many envelopes of unknown members", "/v1/messages",
            body("[", { _ in "{\(members(40))}" }, end: "]", most: 10_000)
        ),
        (
            "a member name of 3 MB", "/v1/messages",
            Array((#"{""# + String(repeating: "n", count: 3 << 20) + #"":0}"#).utf8)
        ),
        (
            "one call with bad arguments", "/v1/streamone/call",
            body(#"{"command":"item","action":"edit","arguments":{"#, { #""a\#($0)":{}"# }, end: "}}")
        ),
        (
            "one call with empty accounts", "/v1/streamone/call",
            body(#"{"command":"item","action":"edit","accounts":["#, { _ in #""""# }, end: "]}")
        ),
        ("one call with unknown members", "/v1/streamone/call", body("{", { #""a\#($0)":0"# }, end: "}")),
        ("tags that are no strings", "/v1/curio/user_tags", body(#"{"userTags":{"#, { #""t\#($0)":0"# }, end: "}}")),
        (
            "many payloads of unknown members", "/v1/curio/event",
            body("[", { _ in "{\(members(40))}" }, end: "]", most: 10_000)
        ),
        ("one payload of unknown members", "/v1/curio/session_start", body("{", { #""a\#($0)":0"# }, end: "}")),
        ("many empty payloads", "/v1/samsara/event", body("[", { _ in "{}" }, end: "]", most: 10_000)),
        ("numbers", "/v1/samsara/event", body("[", { _ in "0" }, end: "]")),
    ]

    private func withGateway(_ body: (TestGateway) throws -> Void) throws {
        var setup = Setup()
        setup.upstreams = try [UpstreamType.curio, .samsara, .streamone].map { type in
            try type.make(try #require(UpstreamName(type.name)))
        }
        setup.limits = RequestLimits()
        let gateway = try TestGateway(setup)
        defer { gateway.stop() }
        try body(gateway)
    }

    @Test func responses_areShort_howeverMuchIsWrong() throws {
        try withGateway { gateway in
            for (name, path, body) in Self.bodies {
                let answer = try gateway.client.ask("POST", path, body)
                #expect((400..<500).contains(answer.status), "\(name): \(answer.status)")
                #expect(answer.body.count < 100 << 10, "\(name): \(answer.body.count) bytes")
                guard answer.status == 422 else { continue }
                #expect(answer.json["errors"].array.count <= 100, "\(name)")
                #expect(
                    answer.json["errorsOmitted"].int ?? 0 > 1000 || answer.json["errors"].array.count < 20, "\(name)")
            }
            #expect(gateway.context.memory.bytesInUse == 0)
        }
    }

    @Test func lenientRequest_listsEveryIndex_butNotEveryFault() throws {
        try withGateway { gateway in
            let answer = try gateway.client.ask(
                "POST", "/v1/curio/event", Self.body("[", { _ in "{\(Self.members(40))}" }, end: "]", most: 5000),
                headers: [("Prefer", "handling=lenient")])
            #expect(answer.status == 202)
            let rejected = answer.json["rejected"].array
            #expect(rejected.count == 5000)
            #expect(rejected.reduce(0) { $0 + $1["errors"].array.count } == 100)
            #expect(rejected.last?["errorsOmitted"].int == 45)
            #expect(answer.body.count < 1 << 20)
        }
    }
}
