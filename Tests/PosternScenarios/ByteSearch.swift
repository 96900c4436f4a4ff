import Glibc

/// Searches byte by byte. The searches of the standard library compare characters, which takes many times as long and would
/// be most of the cost of checking a response.
extension String {
    package func firstBytes(of other: String) -> Range<Index>? {
        var (text, other) = (self, other)
        let offset = text.withUTF8 { text in other.withUTF8 { position(of: $0, in: text) } }
        return offset.map {
            let start = utf8.index(utf8.startIndex, offsetBy: $0)
            return start..<utf8.index(start, offsetBy: other.utf8.count)
        }
    }

    package func hasBytes(of other: String) -> Bool {
        var (text, other) = (self, other)
        return text.withUTF8 { text in other.withUTF8 { position(of: $0, in: text) } } != nil
    }
}

extension [UInt8] {
    package func hasBytes(of text: String) -> Bool {
        var text = text
        return withUnsafeBufferPointer { bytes in text.withUTF8 { position(of: $0, in: bytes) } } != nil
    }
}

private func position(of part: UnsafeBufferPointer<UInt8>, in bytes: UnsafeBufferPointer<UInt8>) -> Int? {
    guard let first = part.first, let start = bytes.baseAddress else { return nil }
    var next = start
    while let found = memchr(next, Int32(first), start + bytes.count - next) {
        let candidate = UnsafePointer(found.assumingMemoryBound(to: UInt8.self))
        guard start + bytes.count - candidate >= part.count else { return nil }
        if memcmp(candidate, part.baseAddress!, part.count) == 0 { return candidate - start }
        next = candidate + 1
    }
    return nil
}
