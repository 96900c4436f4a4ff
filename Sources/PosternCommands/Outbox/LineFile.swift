import Glibc

/// A text file, or standard input, that is read line by line.
final class LineFile {
    private let file: UnsafeMutablePointer<FILE>
    private var line: UnsafeMutablePointer<CChar>?
    private var capacity = 0

    /// `-` is standard input.
    init(_ path: String) throws(CommandFailure) {
        guard let file = path == "-" ? fdopen(dup(STDIN_FILENO), "r") : fopen(path, "re") else {
            throw CommandFailure(CommandFailure.no, "Cannot read \(path): \(String(cString: strerror(errno))).")
        }
        self.file = file
    }

    deinit {
        fclose(file)
        free(line)
    }

    /// The next line without its line feed; nil at the end. Throws if the rest cannot be read.
    func next() throws(CommandFailure) -> [UInt8]? {
        let count = getline(&line, &capacity, file)
        guard count > 0, let line else {
            guard ferror(file) == 0 else {
                throw CommandFailure(CommandFailure.no, "Cannot read on: \(String(cString: strerror(errno))).")
            }
            return nil
        }
        var bytes = [UInt8](UnsafeRawBufferPointer(start: line, count: count))
        if bytes.last == UInt8(ascii: "\n") { bytes.removeLast() }
        return bytes
    }
}
