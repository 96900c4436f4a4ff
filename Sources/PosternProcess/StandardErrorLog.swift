import Glibc
public import Logging
import PosternCore
import Synchronization

/// Writes log lines to standard error, as text for people or as one JSON object per line for programs. The common level
/// can change while running; it is that of all loggers that have none of their own.
public struct StandardErrorLog: LogHandler {
    public enum Format: Sendable { case text, json }

    private static let level = Atomic<Int>(2)
    private let label: String
    private let format: Format
    private var ownLevel: Logger.Level?
    public var metadata: Logger.Metadata = [:]

    public init(label: String, format: Format) {
        self.label = label
        self.format = format
    }

    /// Sets the level of all loggers that have none of their own.
    public static func setLevel(_ level: Logger.Level) {
        Self.level.store(Logger.Level.allCases.firstIndex(of: level) ?? 2, ordering: .relaxed)
    }

    public var logLevel: Logger.Level {
        get { ownLevel ?? Logger.Level.allCases[Self.level.load(ordering: .relaxed)] }
        set { ownLevel = newValue }
    }

    public subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { metadata[key] }
        set { metadata[key] = newValue }
    }

    /// Writes one line, unless the level excludes it.
    public func log(event: LogEvent) {
        let all = event.metadata.map { metadata.merging($0) { $1 } } ?? metadata
        LogOutput.standardError.write(line(event.level, "\(event.message)", all)) { lost in
            line(.warning, "log lines were dropped, because they were not read", ["lines": .stringConvertible(lost)])
        }
    }

    private func line(_ level: Logger.Level, _ message: String, _ metadata: Logger.Metadata) -> String {
        let sorted = metadata.sorted { $0.key < $1.key }
        let now = SystemTime().now
        return switch format {
        case .text:
            "\(now) \(level.rawValue) \(message)"
                + sorted.map { " \($0.key)=\(Self.quoted("\($0.value)"))" }.joined() + "\n"
        case .json:
            "{\"time\":\"\(now)\",\"level\":\"\(level.rawValue)\",\"logger\":\(Self.string(label)),"
                + "\"message\":\(Self.string(message))"
                + sorted.map { ",\(Self.string($0.key)):\(Self.json($0.value))" }.joined()
                + "}\n"
        }
    }

    /// A log is read in a terminal.
    private static func string(_ text: String) -> String { JSONEscapes.quoted(text).printableJSON() }

    /// Numbers stay numbers.
    static func json(_ value: Logger.MetadataValue) -> String {
        switch value {
        case .stringConvertible(let number as any BinaryInteger): number.description
        case .stringConvertible(let number as Double) where number.isFinite: number.description
        case .string, .stringConvertible: string("\(value)")
        case .array(let values): "[\(values.map(json).joined(separator: ","))]"
        case .dictionary(let members):
            "{"
                + members.sorted { $0.key < $1.key }
                .map { "\(string($0.key)):\(json($0.value))" }.joined(separator: ",") + "}"
        }
    }

    /// Writes a line for the user who started the program, outside the log.
    public static func say(_ text: String) { writeLine(text, to: STDERR_FILENO) }

    /// Quotes a value unless it is one plain word, so that a line can be parsed.
    ///
    /// Scalar by scalar: a carriage return and a line feed together are a single `Character`, equal to neither.
    static func quoted(_ value: String) -> String {
        let isPlain = value.unicodeScalars.allSatisfy { $0 != " " && $0 != "\"" && $0 != "=" && !$0.isUnprintable }
        return isPlain && !value.isEmpty ? value : JSONEscapes.quoted(value).printable()
    }
}
