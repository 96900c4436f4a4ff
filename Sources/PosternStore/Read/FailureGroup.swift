public import PosternCore

/// Failed messages of one upstream whose errors differ in numbers and ids only.
public struct FailureGroup: Sendable, Equatable {
    public let id: ID
    /// The class of the error; nil, like the status and the detail, if the stored error is not valid.
    public let errorClass: AttemptError.Class?
    public let status: Int?
    /// The text that the errors have in common; see `ErrorPattern`.
    public let detail: String?
    public internal(set) var count: Int
    /// The message that failed last.
    public internal(set) var sample: MessageID
    /// When the first and the last of these errors occurred.
    public internal(set) var firstAt: Timestamp
    public internal(set) var lastAt: Timestamp
    /// How many of them occurred in each minute of the hour that ends with the minute of `lastAt`, the oldest first.
    public internal(set) var perMinute: [UInt32]

    /// One that failed at that time, and nothing else yet.
    init(_ message: MessageID, _ error: AttemptError?, at moment: Timestamp) {
        (id, sample, firstAt, lastAt) = (ID(error), message, moment, moment)
        (errorClass, status, detail) = (error?.errorClass, error?.status, error.map { ErrorPattern.of($0.detail) })
        count = 1
        perMinute = [UInt32](repeating: 0, count: 59) + [1]
    }

    /// Counts another message with that error.
    mutating func add(_ message: MessageID, at moment: Timestamp) {
        count += 1
        firstAt = min(firstAt, moment)
        let later = Int(moment.minute - lastAt.minute)
        if later > 0 {
            let gone = min(later, perMinute.count)
            perMinute.removeFirst(gone)
            perMinute += [UInt32](repeating: 0, count: gone)
        }
        let minute = perMinute.count - 1 + min(later, 0)
        if minute >= 0 { perMinute[minute] += 1 }
        if moment > lastAt { (lastAt, sample) = (moment, message) }
    }

    /// Identifies a group by class, status, and text of its errors, so it is the same in every store.
    public struct ID: Hashable, Sendable, CustomStringConvertible {
        let rawValue: UInt64

        init(_ error: AttemptError?) {
            // FNV-1a: unlike `Hasher`, the same in every process.
            var hash: UInt64 = 0xCBF2_9CE4_8422_2325
            func add(_ bytes: some Sequence<UInt8>) {
                for byte in bytes { hash = (hash ^ UInt64(byte)) &* 0x100_0000_01B3 }
            }
            if let error {
                add("\(error.errorClass.rawValue) \(error.status ?? 0) ".utf8)
                add(ErrorPattern.of(error.detail).utf8)
            }
            rawValue = hash
        }

        /// 16 hexadecimal digits.
        public var description: String {
            let digits = String(rawValue, radix: 16)
            return String(repeating: "0", count: 16 - digits.utf8.count) + digits
        }

        /// Nil if `text` does not have the form of `description`.
        public init?(_ text: String) {
            guard text.utf8.count == 16, text.utf8.allSatisfy({ $0.hexadecimalValue != nil }),
                let value = UInt64(text, radix: 16)
            else { return nil }
            rawValue = value
        }
    }
}

extension Timestamp {
    /// The number of whole minutes since 1970.
    fileprivate var minute: Int64 { Int64((Double(milliseconds) / 60_000).rounded(.down)) }
}

/// The failed messages of a page, in groups.
public struct FailurePage: Sendable, Equatable {
    /// Those with the most messages first.
    public var groups: [FailureGroup] = []
    /// The number of failed messages that are in the groups.
    public var examined = 0
    /// Older messages follow after this one; nil at the end.
    public var next: MessageID?
}

enum ErrorPattern {
    /// The text of an error with `*` in place of numbers and ids, by which messages that failed for the same reason
    /// are recognized: `/items/17/id: unknown user 4711-ab` and `/items/3/id: unknown user 08f2` have the same pattern,
    /// `/items/*/id: unknown user *`.
    ///
    /// A number or id is a run of letters, digits, `-` and `_` with a digit in it. The status in `HTTP 422` is kept.
    static func of(_ detail: String) -> String {
        var pattern: [UInt8] = []
        var run: [UInt8] = []
        func isDigit(_ byte: UInt8) -> Bool { (0x30...0x39).contains(byte) }
        func endRun() {
            let isStatus = run.count == 3 && run.allSatisfy(isDigit) && pattern.suffix(5) == Array("HTTP ".utf8)[...]
            pattern += run.contains(where: isDigit) && !isStatus ? [UInt8(ascii: "*")] : run
            run.removeAll(keepingCapacity: true)
        }
        for byte in detail.utf8 {
            switch byte {
            case 0x30...0x39, 0x41...0x5A, 0x61...0x7A, UInt8(ascii: "-"), UInt8(ascii: "_"): run.append(byte)
            default:
                endRun()
                pattern.append(byte)
            }
        }
        endRun()
        return String(decoding: pattern, as: UTF8.self)
    }
}
