import PosternCore
import PosternUpstream
import Testing

@Suite struct KindDivisionTests {
    /// `a1`: a message of kind a in lane 1; lane 0 is none.
    private func messages(_ texts: [String]) -> [Message] {
        texts.enumerated().map { index, text in
            let lane = text.dropFirst().wholeMatch(of: #/0/#) == nil ? Lane.digest(Int64(text.dropFirst())!) : .none
            return Message(
                id: MessageID(sequence: Int64(index), upstream: UpstreamNumber(rawValue: 1)),
                kind: Kind(String(text.prefix(1))), lane: lane, acceptedAt: Timestamp(milliseconds: 0), payload: [])
        }
    }

    static let divisions: [(all: String, first: [Int], others: [Int])] = [
        ("", [], []), ("a0", [0], []), ("a0 a1 a1", [0, 1, 2], []), ("a0 b0 a0 b0", [0, 2], [1, 3]),
        ("b0 a0 b0", [0, 2], [1]),
        // The third must not overtake the second.
        ("a1 b1 a1 a2", [0, 3], [1, 2]), ("a1 b2 a1", [0, 2], [1]), ("a1 b1 c1 a1 b2 a3", [0, 5], [1, 2, 3, 4]),
    ]

    @Test(arguments: divisions) func lane_keepsItsOrder(all: String, first: [Int], others: [Int]) {
        let messages = messages(all.split(separator: " ").map(String.init))
        let divided = messages.dividedByKind()
        #expect(divided.ofFirstKind == first.map { messages[$0] })
        #expect(divided.others == others.map { messages[$0] })
    }
}
