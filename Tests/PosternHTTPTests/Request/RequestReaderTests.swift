import Testing

@testable import PosternHTTP

/// The reader as a value: what the corpus says, however the bytes are cut.
@Suite struct RequestReaderTests {
    /// What the reader makes of bytes that arrive in `parts`: the requests, and the refusal at the end.
    private func read(_ parts: [ArraySlice<UInt8>]) -> (served: [String], refusal: Int?) {
        var reader = RequestReader()
        var served: [String] = []
        var line = ""
        for part in parts {
            let step = part.withUnsafeBufferPointer { input -> RequestReader.Step in
                var position = 0
                while position < input.count {
                    let step = reader.read(input, from: &position) { head in
                        line = "\(head.line.method) \(head.line.target.path)"
                        return .accept(limit: 1 << 20)
                    }
                    guard step == .complete else { return step }
                    served.append("\(line) \(String(decoding: reader.takeBody(), as: UTF8.self))")
                    reader.reset()
                }
                return .more
            }
            if case .refused(let fault) = step { return (served, fault.problem.status) }
        }
        return (served, nil)
    }

    /// The largest `Int` is a length, though of a body that is too large; what follows is not.
    @Test(arguments: [
        ("9223372036854775807", 413), ("9223372036854775808", 400), ("9223372036854775810", 400),
        ("18446744073709551618", 400), ("0000000000000000000000001048577", 413),
    ])
    func length_isReadExactly(length: String, status: Int) {
        let bytes = Array("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: \(length)\r\n\r\n".utf8)
        #expect(read([bytes[...]]).refusal == status)
    }

    @Test(arguments: FramingCorpus.all)
    func outcome_doesNotDependOnHowTheBytesAreCut(framing: FramingCase) {
        let bytes = framing.bytes[...]
        let ends = Set(
            [1, 2, 3, 5, 8, bytes.count / 2, bytes.count - 2, bytes.count - 1].filter { $0 > 0 && $0 < bytes.count })
        let cuts = [[bytes], bytes.indices.map { bytes[$0...$0] }] + ends.map { [bytes[..<$0], bytes[$0...]] }
        for parts in cuts {
            let found = read(parts)
            #expect(found.served == framing.served, "in \(parts.count) parts of \(parts[0].count)")
            #expect(found.refusal == framing.refusal, "in \(parts.count) parts of \(parts[0].count)")
        }
    }

    @Test func droppedBody_isCounted_andNotKept() {
        let text = "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
        var reader = RequestReader()
        let step = Array(text.utf8).withUnsafeBufferPointer { input in
            var position = 0
            return reader.read(input, from: &position) { _ in .discard(limit: 5) }
        }
        #expect(step == .complete)
        #expect(reader.takeBody().isEmpty)
    }

    @Test func rest_isLeft_afterTheRequest() {
        let text = Array("GET / HTTP/1.1\r\nHost: t\r\n\r\nGET /next".utf8)
        var reader = RequestReader()
        var position = 0
        let step = text.withUnsafeBufferPointer { reader.read($0, from: &position) { _ in .accept(limit: 0) } }
        #expect(step == .complete)
        #expect(String(decoding: text[position...], as: UTF8.self) == "GET /next")
    }
}
