/// Names of kinds that an operator chooses. A kind is part of paths and labels.
package enum KindName {
    /// Why `name` cannot be a kind; nil if it can.
    package static func problem(with name: String) -> String? {
        let isFit = name.utf8.allSatisfy { byte in
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"):
                true
            default: "-_.".utf8.contains(byte)
            }
        }
        return isFit && (1...64).contains(name.utf8.count)
            ? nil : "cannot be a kind: 1 to 64 letters, digits, '-', '_' and '.' can"
    }
}
