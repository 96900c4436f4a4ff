import Testing

@testable import PosternCompression

@Suite struct GzipTests {
    private let text = Array(String(repeating: "{\"actor\":{\"id\":\"a\"},\"n\":12345}\n", count: 300).utf8)
    private let noise = (0..<100_000).map { _ in UInt8.random(in: .min ... .max) }

    @Test(arguments: 0...9) func text_comesBack_atEveryLevel(level: Int) throws {
        for sample in [[], [7], text, noise] {
            #expect(try Gzip.decompress(Gzip.compress(sample, level: level), maxBytes: 1 << 20) == sample)
        }
    }

    @Test func compressed_isGzip_andSmaller() {
        let compressed = Gzip.compress(text)
        #expect(compressed.starts(with: [0x1F, 0x8B, 8]))
        #expect(compressed.count < text.count / 10)
    }

    @Test func members_areJoined() throws {
        let two = Gzip.compress(text) + Gzip.compress([]) + Gzip.compress(noise)
        #expect(try Gzip.decompress(two, maxBytes: 1 << 20) == text + noise)
    }

    @Test func everyCut_isTruncated() {
        let compressed = Gzip.compress(Array(text.prefix(200)))
        for length in 0..<compressed.count {
            #expect(throws: GzipError.truncated) {
                try Gzip.decompress(Array(compressed.prefix(length)), maxBytes: 1 << 20)
            }
        }
    }

    @Test func tail_isRefused() {
        for tail in [[UInt8(0)], [0x1F], [0x1F, 0x8B], Array("tail".utf8), [0x1F, 0x00, 0x00]] {
            #expect { try Gzip.decompress(Gzip.compress(text) + tail, maxBytes: 1 << 20) } throws: { error in
                // The beginning of a member is a truncated member.
                error as? GzipError
                    == (tail.starts(with: [0x1F]) && tail != [0x1F, 0, 0] ? .truncated : .trailingBytes)
            }
        }
    }

    @Test func damage_isFound() {
        var compressed = Gzip.compress(noise)
        compressed[compressed.count / 2] ^= 1
        #expect(throws: GzipError.damaged) { try Gzip.decompress(compressed, maxBytes: 1 << 20) }
        #expect(throws: GzipError.damaged) { try Gzip.decompress(Array("hello, world".utf8), maxBytes: 1 << 20) }
    }

    @Test func output_isBounded() throws {
        let compressed = Gzip.compress(noise)
        #expect(try Gzip.decompress(compressed, maxBytes: noise.count).count == noise.count)
        #expect(throws: GzipError.tooLarge(maxBytes: noise.count - 1)) {
            try Gzip.decompress(compressed, maxBytes: noise.count - 1)
        }
    }

    @Test func bomb_isRefused_byItsRatio() throws {
        let bomb = Gzip.compress([UInt8](repeating: 0, count: 50 << 20))
        #expect(throws: GzipError.ratioTooHigh(maxRatio: 200)) { try Gzip.decompress(bomb, maxBytes: 1 << 30) }
        let small = Gzip.compress([UInt8](repeating: 0, count: Gzip.ratioFreeBytes))
        #expect(try Gzip.decompress(small, maxBytes: 1 << 20).count == Gzip.ratioFreeBytes)
    }

    @Test func bombOfManyMembers_isRefused() {
        let bomb = Gzip.compress([UInt8](repeating: 0, count: 1 << 20))
        let members = (0..<20).flatMap { _ in bomb }
        #expect(throws: GzipError.self) { try Gzip.decompress(members, maxBytes: 8 << 20) }
        #expect(throws: GzipError.tooLarge(maxBytes: 8 << 20)) {
            try Gzip.decompress(members, maxBytes: 8 << 20, maxRatio: 100_000)
        }
    }
}
