import Foundation
import PosternCore
import Synchronization

/// Ids as they are stored with an attempt: 8 bytes each, least significant first.
enum MessageIDList {
    static func encode(_ ids: [MessageID]) -> [UInt8] {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(ids.count * 8)
        for id in ids {
            withUnsafeBytes(of: id.rawValue.littleEndian) { bytes.append(contentsOf: $0) }
        }
        return bytes
    }

    static func decode(_ bytes: [UInt8]) -> [MessageID] {
        bytes.withUnsafeBytes { buffer in
            (0..<buffer.count / 8).map { index in
                MessageID(
                    rawValue: Int64(littleEndian: buffer.loadUnaligned(fromByteOffset: index * 8, as: Int64.self)))
            }
        }
    }
}

/// Small records are stored as JSON text: readable with the `sqlite3` shell, and open to new members.
enum JSONRecord {
    static func encode(_ record: some Encodable) -> String {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        guard let data = try? encoder.encode(record) else { return "{}" }
        return String(decoding: data, as: UTF8.self)
    }

    static func decode<Record: Decodable>(_ text: String, as type: Record.Type) -> Record? {
        try? JSONDecoder().decode(type, from: Data(text.utf8))
    }
}

extension [UInt8] {
    var data: Data { Data(self) }
}

/// Kinds by number: a queue row contains the number.
final class KindTable: Sendable {
    private struct Names {
        var numbers: [Kind: Int] = [:]
        var kinds: [Int: Kind] = [:]
    }
    private let names = Mutex(Names())

    func number(of kind: Kind) -> Int { names.withLock { $0.numbers[kind] ?? 0 } }
    func kind(_ number: Int) -> Kind { names.withLock { $0.kinds[number] ?? "unknown" } }

    func learn(_ kind: Kind, number: Int) {
        names.withLock { names in
            names.numbers[kind] = number
            names.kinds[number] = kind
        }
    }
}
