import PosternCore
import Testing

@testable import PosternSimulatorKit

@Suite struct ReceivedTests {
    private func judged(_ items: [String], status: Int = 202, violations: [String] = []) -> SimulatedResult {
        var text: [UInt8] = []
        var ranges: [Range<Int>] = []
        for item in items {
            let start = text.count
            text += Array(item.utf8)
            ranges.append(start..<text.count)
        }
        let identities = items.map { item in Array(item.utf8).withUnsafeBufferPointer { digest($0) } }
        return SimulatedResult(
            answer: SimulatedAnswer(status: status),
            items: SimulatedResult.Items(text: text, ranges: ranges, identities: identities), violations: violations)
    }

    private func filled(_ keep: SimulatorHost.Keep) -> Received {
        var received = Received(keep: keep)
        var refused = judged([], status: 500, violations: ["odd"])
        refused.rejected = judged([#"{"s":"c","n":0}"#]).items
        let steps: [(SimulatedResult?, String)] = [
            (judged([#"{"s":"a","n":1}"#, #"{"s":"b","n":"2"}"#]), "202"), (refused, "500"), (nil, "reset-before"),
            (judged([#"{"s":"a","n":1}"#, #"{"n":3}"#]), "reset-after"),
        ]
        for (index, step) in steps.enumerated() {
            received.record(step.0, answeredWith: step.1, at: MonotonicInstant(nanoseconds: Int64(index)))
        }
        return received
    }

    private func text(_ bytes: [UInt8]) -> String { String(decoding: bytes, as: UTF8.self) }

    @Test func counts_areShown_andTheTextsOfAPage() {
        let counts = """
            {"upstream":"samsara","requests":4,"acceptedRequests":2,"events":4,"distinctEvents":3,"duplicates":1,\
            "answers":{"202":1,"500":1,"reset-after":1,"reset-before":1},"violationCount":1,"violations":["odd"],\
            "keep":"texts"
            """
        let received = filled(.texts)
        #expect(text(received.json(upstream: "samsara", page: nil)) == counts + "}")
        #expect(
            text(received.json(upstream: "samsara", page: (1, 2)))
                == counts + #","texts":[{"s":"b","n":"2"},{"s":"a","n":1}]}"#)
        #expect(text(received.json(upstream: "samsara", page: (3, 9))) == counts + #","texts":[{"n":3}]}"#)
        #expect(text(received.json(upstream: "samsara", page: (9, 9))) == counts + #","texts":[]}"#)
    }

    @Test func lines_giveOrderKeyAndField_inOrderOfArrival() {
        #expect(text(filled(.texts).lines(orderField: "s", field: "n")) == "a\t1\nb\t2\na\t1\n\t3\n")
    }

    @Test func log_hasRejectedItemsToo_withResponsesAndTimes() {
        #expect(
            text(filled(.texts).lines(orderField: "s", field: "n", log: true)) == """
                a\t1\taccepted\t202\t0
                b\t2\taccepted\t202\t0
                c\t0\trejected\t500\t1
                a\t1\taccepted\treset-after\t3
                \t3\taccepted\treset-after\t3

                """)
    }

    @Test func lines_giveTheRequestsOrderKey_whereItHasOne() {
        var received = Received(keep: .texts)
        var keyed = judged([#"{"s":"a","n":1}"#])
        keyed.items.orderKey = "/tincan"
        received.record(keyed, answeredWith: "200", at: .distantPast)
        received.record(judged([#"{"s":"a","n":2}"#]), answeredWith: "200", at: .distantPast)
        #expect(text(received.lines(orderField: "s", field: "n")) == "/tincan\t1\na\t2\n")
    }

    static let pointers: [(pointer: String, found: String?)] = [
        ("a", "1"), ("/a", "1"), ("/b/c/1", "x\n"), ("/b/c/0", #"{"":null}"#), ("/b/c/0/", "null"),
        ("/d~1e/~0", "true"),
        ("/b/c/2", nil), ("/b/c/-1", nil), ("/b/c/01", nil), ("/b/c/+1", nil), ("/a/b", nil), ("/", nil), ("", nil),
        ("/x", nil), ("b/c", "7"),
    ]

    @Test(arguments: pointers) func field_isAMember_orWhatAPointerLeadsTo(pointer: String, expected: String?) {
        let item = #" {"a":1,"b":{"c":[{"":null},"x\n"]},"d\/e":{"~":true},"b/c":7}"#
        #expect(Array(item.utf8).withUnsafeBufferPointer { found(pointer, in: $0)?.text } == expected)
    }

    @Test func texts_areNotKept_whenNotAskedFor() {
        #expect(filled(.digests).distinctItems == 3)
        #expect(filled(.counts).distinctItems == nil)
        #expect(filled(.counts).items == 4)
        #expect(filled(.digests).lines(orderField: "s", field: "n").isEmpty)
    }

    @Test func violations_areOnlyCounted_beyondTheFirstHundred() {
        var received = Received(keep: .counts)
        for _ in 0..<60 {
            received.record(judged([], violations: ["a", "b"]), answeredWith: "202", at: .distantPast)
        }
        #expect(received.violationCount == 120)
        #expect(received.violations.count == 100)
    }

    @Test(arguments: [0, 1, 7, 8, 9, 200]) func digest_changes_withEveryByte(count: Int) {
        var bytes = [UInt8](repeating: 0, count: count)
        var seen: Set<UInt64> = [bytes.withUnsafeBufferPointer { digest($0) }]
        for index in bytes.indices {
            bytes[index] = 1
            seen.insert(bytes.withUnsafeBufferPointer { digest($0) })
        }
        #expect(seen.count == count + 1)
    }
}
