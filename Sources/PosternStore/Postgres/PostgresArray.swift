/// An array of one dimension, as a parameter of a statement in binary format. All values are copied.
struct PostgresArray {
    /// The object identifier of its type.
    let type: UInt32
    private let elementType: UInt32
    private var count = 0
    private var hasNull = false
    private var elements: [UInt8] = []

    static var bigint: Self { Self(type: PostgresType.bigintArray, elementType: PostgresType.bigint) }
    static var text: Self { Self(type: PostgresType.textArray, elementType: PostgresType.text) }
    static var bytea: Self { Self(type: PostgresType.byteaArray, elementType: PostgresType.bytea) }

    private init(type: UInt32, elementType: UInt32) { (self.type, self.elementType) = (type, elementType) }

    mutating func append(_ value: Int64?) {
        if let value { withUnsafeBytes(of: value.bigEndian) { append(bytes: $0) } } else { appendNull() }
    }

    mutating func append(_ text: String?) {
        guard var stored = text.map(PostgresText.stored) else { return appendNull() }
        stored.withUTF8 { append(bytes: UnsafeRawBufferPointer($0)) }
    }

    mutating func append(bytes: UnsafeRawBufferPointer) {
        count += 1
        elements.put(Int32(bytes.count))
        elements += bytes
    }

    private mutating func appendNull() {
        count += 1
        hasNull = true
        elements.put(Int32(-1))
    }

    /// The binary format: the number of dimensions, whether there are NULLs, the type of the elements, their number, the index
    /// of the first one, and each with its length.
    func append(to bytes: inout [UInt8]) {
        bytes.put(Int32(1))
        bytes.put(Int32(hasNull ? 1 : 0))
        bytes.put(elementType)
        bytes.put(Int32(count))
        bytes.put(Int32(1))
        bytes += elements
    }
}

extension [UInt8] {
    fileprivate mutating func put(_ value: some FixedWidthInteger) {
        Swift.withUnsafeBytes(of: value.bigEndian) { self += $0 }
    }
}
