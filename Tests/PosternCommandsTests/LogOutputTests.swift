import Glibc
import Testing

@testable import PosternProcess

/// Where the log goes need not be read, and the program must go on.
@Suite(.timeLimit(.minutes(10))) struct LogOutputTests {
    private let pipe = Pipe()
    private let output: LogOutput
    init() { output = LogOutput(to: pipe.writing) }

    private func write(_ line: String) { output.write(line + "\n") { "\($0) lost\n" } }

    @Test func linesThatAreNotRead_areDropped_andCounted() {
        for number in 0..<20_000 { write("line \(number)") }
        let kept = pipe.read().split(separator: "\n").map(String.init)
        #expect(kept.count > 1000 && kept.count < 20_000)
        #expect(kept == (0..<kept.count).map { "line \($0)" })
        write("next")
        write("last")
        #expect(pipe.read() == "\(20_000 - kept.count) lost\nnext\nlast\n")
    }

    @Test func lineThatIsCutOff_isEnded() {
        write(String(repeating: "x", count: 1 << 20))
        #expect(pipe.read().allSatisfy { $0 == "x" })
        write("next")
        #expect(pipe.read() == "\n1 lost\nnext\n")
    }

    @Test func linesAreDropped_whenTheReaderHasGone() {
        pipe.close()
        for number in 0..<100 { write("line \(number)") }
    }

    private final class Pipe {
        private var reading: Int32
        let writing: Int32

        init() {
            signal(SIGPIPE, SIG_IGN)
            var ends: [Int32] = [-1, -1]
            precondition(Glibc.pipe(&ends) == 0)
            (reading, writing) = (ends[0], ends[1])
        }

        deinit {
            close()
            Glibc.close(writing)
        }

        func close() {
            if reading >= 0 { Glibc.close(reading) }
            reading = -1
        }

        /// What has arrived.
        func read() -> String {
            var bytes: [UInt8] = []
            var part = [UInt8](repeating: 0, count: 1 << 16)
            var ready = pollfd(fd: reading, events: Int16(POLLIN), revents: 0)
            while poll(&ready, 1, 0) > 0 {
                let count = Glibc.read(reading, &part, part.count)
                bytes += part.prefix(max(0, count))
            }
            return String(decoding: bytes, as: UTF8.self)
        }
    }
}
