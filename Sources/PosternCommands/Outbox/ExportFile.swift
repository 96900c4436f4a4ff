import Glibc
public import PosternCore
import PosternStore
import PosternUpstream

/// The file of an export, which can be continued after an interruption.
public final class ExportFile {
    private let path: String
    private let file: UnsafeMutablePointer<FILE>
    /// The last message of an earlier run; nil if there is none.
    public let last: MessageID?

    /// Creates the file, accessible only to its owner. With `isContinued`, an existing file is continued after its last
    /// complete line.
    public init(_ path: String, isContinued: Bool) throws(CommandFailure) {
        let descriptor: Int32
        do throws(OwnFile.Refusal) {
            descriptor = try OwnFile.open(path, isNew: !isContinued)
        } catch {
            let advice = !isContinued && access(path, F_OK) == 0 ? "; add --resume to continue an export" : ""
            throw CommandFailure(CommandFailure.no, "Cannot write \(path): \(error.detail)\(advice).")
        }
        guard let file = fdopen(descriptor, "r+") else { throw Self.failure(path) }
        self.path = path
        self.file = file
        guard isContinued else {
            last = nil
            return
        }
        let (end, line, rest) = try Self.lastLine(of: file, path)
        last = line.flatMap(Self.id)
        guard line == nil || last != nil, rest.elementsEqual(Self.start.prefix(rest.count)) else {
            throw CommandFailure(CommandFailure.no, "\(path) does not end with a message of an export.")
        }
        guard ftruncate(descriptor, end) == 0, fseek(file, Int(end), SEEK_SET) == 0 else { throw Self.failure(path) }
    }

    deinit { fclose(file) }

    public func write(_ line: String) throws(CommandFailure) {
        guard fputs(line + "\n", file) >= 0 else { throw Self.failure(path) }
    }

    /// Throws if what was written is not on the disk.
    public func finish() throws(CommandFailure) {
        guard fflush(file) == 0, fsync(fileno(file)) == 0 else { throw Self.failure(path) }
    }

    private static func failure(_ path: String) -> CommandFailure {
        CommandFailure(CommandFailure.no, "Cannot write \(path): \(String(cString: strerror(errno))).")
    }

    /// What every line of an export begins with.
    private static let start = Array(#"{"id":"#.utf8)

    /// The end of the last complete line, that line, and the beginning of what follows it.
    private static func lastLine(
        of file: UnsafeMutablePointer<FILE>, _ path: String
    ) throws(CommandFailure) -> (end: Int, line: [UInt8]?, rest: [UInt8]) {
        var (end, last, rest) = (0, [UInt8]?.none, [UInt8]())
        var (line, capacity) = (UnsafeMutablePointer<CChar>?.none, 0)
        defer { free(line) }
        while true {
            let count = getline(&line, &capacity, file)
            guard count > 0, let text = line else { break }
            let bytes = UnsafeRawBufferPointer(start: text, count: count)
            guard bytes.last == UInt8(ascii: "\n") else {
                rest = Array(bytes.prefix(start.count))
                break
            }
            end += count
            last = [UInt8](bytes.dropLast())
        }
        guard ferror(file) == 0 else { throw failure(path) }
        return (end, last, rest)
    }

    private static func id(in line: [UInt8]) -> MessageID? {
        let parsed = JSONParser.ofThisThread.parse(line) { root in
            root.kind == .object ? root["id"]?.string.flatMap { MessageID($0) } : nil
        }
        return (try? parsed.get()) ?? nil
    }
}
