import PosternCore
import Testing

@Suite struct MessageIDTests {
    static let numbers: [Int64] = [
        0, 1, 31, 32, 255, 256, 0x0123_4567_89AB_CDEF, .max - 1, .max, 1 << 60, (1 << 60) - 1,
    ]

    @Test(arguments: numbers) func text_givesTheNumberBack(number: Int64) {
        let id = MessageID(rawValue: number)
        #expect(id.description.utf8.count == 13)
        #expect(MessageID(id.description) == id)
    }

    @Test func texts_sortAsTheNumbersDo() {
        let sorted = (Self.numbers + (0..<1000).map { _ in Int64.random(in: 0...(.max)) }).sorted()
        let texts = sorted.map { MessageID(rawValue: $0).description }
        #expect(texts == texts.sorted())
    }

    @Test func parts_areSequenceAndUpstream() {
        let id = MessageID(sequence: (1 << 55) - 1, upstream: UpstreamNumber(rawValue: 200))
        #expect(id.sequence == (1 << 55) - 1)
        #expect(id.upstream == UpstreamNumber(rawValue: 200))
        #expect(id.rawValue > 0)
        #expect(MessageID(sequence: 1, upstream: UpstreamNumber(rawValue: 255)) < MessageID(rawValue: 2 << 8))
    }

    @Test func knownNumber_hasAKnownText() {
        #expect(MessageID(sequence: 1, upstream: UpstreamNumber(rawValue: 1)).description == "0000000000081")
        #expect(MessageID(rawValue: .max).description == "7zzzzzzzzzzzz")
    }

    @Test(arguments: [
        "", "0", "000000000000", "00000000000000", "8000000000000", "zzzzzzzzzzzzz", "000000000000i", "000000000000l",
        "000000000000o", "000000000000u", "000000000000A", "000000000000-", " 000000000000", "00000000000é",
        "００００００００００００0",
    ])
    func junk_isNoID(text: String) {
        #expect(MessageID(text) == nil)
    }
}
