import Testing

@testable import PosternTransport

@Suite struct AnswerHeadTests {
    /// Whether all lines were taken, and the head after the last one that was.
    private func taken(_ lines: [String]) -> (all: Bool, head: AnswerHead) {
        var head = AnswerHead()
        for line in lines {
            let isTaken = Array("\(line)\r\n".utf8).withUnsafeBufferPointer { head.take($0) }
            if !isTaken { return (false, head) }
        }
        return (true, head)
    }

    @Test func lastHead_isKept_withoutInterimResponsesAndTrailers() {
        let (all, head) = taken([
            "HTTP/1.1 103 Early Hints", "Link: x", "", "HTTP/1.1 200 OK", "A: b", "", "Trailer: x",
        ])
        #expect(all)
        #expect(head.isComplete)
        #expect(head.headers.map(\.name) == ["A"])
    }

    /// Whichever line of an interim response is one too many.
    @Test(arguments: 0..<40) func interimResponses_areTooLarge_beyondTheLimit(padding: Int) {
        let interim = ["HTTP/1.1 103 Early Hints", "Link: \(String(repeating: "x", count: padding))", ""]
        let (all, head) = taken(Array([[String]](repeating: interim, count: 3000).joined()))
        #expect(!all)
        #expect(head.isTooLarge)
        #expect(!head.hasTooManyTrailers)
    }

    @Test func trailers_areTooMany_beyondTheLimit() {
        let (all, head) = taken(["HTTP/1.1 200 OK", "A: b", ""] + [String](repeating: "X: y", count: 20_000))
        #expect(!all)
        #expect(head.hasTooManyTrailers)
        #expect(!head.isTooLarge)
        #expect(head.headers.map(\.name) == ["A"])
    }
}
