/// Replaces each `%XX` by the byte that it represents. An invalid escape is kept. Nil if the result is not valid UTF-8:
/// with a replacement character, two different texts would become the same.
public func percentDecoded(_ bytes: some Collection<UInt8>) -> String? {
    String(validating: percentUnescaped(Array(bytes)).bytes, as: UTF8.self)
}

/// The same as bytes. `isWhole`: whether no `%` was left as it is.
package func percentUnescaped(_ bytes: [UInt8]) -> (bytes: [UInt8], isWhole: Bool) {
    var decoded: [UInt8] = []
    decoded.reserveCapacity(bytes.count)
    var isWhole = true
    var position = 0
    while position < bytes.count {
        if bytes[position] == UInt8(ascii: "%"), position + 2 < bytes.count,
            let high = bytes[position + 1].hexadecimalValue, let low = bytes[position + 2].hexadecimalValue
        {
            decoded.append(high << 4 | low)
            position += 3
        } else {
            if bytes[position] == UInt8(ascii: "%") { isWhole = false }
            decoded.append(bytes[position])
            position += 1
        }
    }
    return (decoded, isWhole)
}
