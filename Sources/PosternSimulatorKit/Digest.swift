/// A 64-bit digest for counting what was seen before; eight bytes a step.
package func digest(_ bytes: UnsafeBufferPointer<UInt8>) -> UInt64 {
    let raw = UnsafeRawBufferPointer(bytes)
    var state: UInt64 = 0x9e37_79b9_7f4a_7c15 ^ UInt64(bytes.count)
    var position = 0
    func mix(_ word: UInt64) {
        let product = (state ^ word).multipliedFullWidth(by: 0xd6e8_feb8_6659_fd93)
        state = product.high ^ product.low
    }
    while position + 8 <= raw.count {
        mix(raw.loadUnaligned(fromByteOffset: position, as: UInt64.self))
        position += 8
    }
    var last: UInt64 = 0
    while position < raw.count {
        last = last << 8 | UInt64(raw[position])
        position += 1
    }
    mix(last)
    mix(0x2545_f491_4f6c_dd1d)
    return state
}
