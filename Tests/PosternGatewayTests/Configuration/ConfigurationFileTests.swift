import Glibc
import PosternGatewayTestKit
import PosternHTTP
import Testing

@testable import PosternGateway

@Suite struct ConfigurationFileTests {
    /// As with `--config /dev/stdin` behind a pipe, and `--config <(…)` in a shell.
    @Test func pipe_isLoadedSeveralTimes_butNotReloaded() throws {
        let text = Array(#"{"server": {"port": 7}}"#.utf8)
        var ends: [Int32] = [-1, -1]
        try #require(pipe(&ends) == 0)
        defer { close(ends[0]) }
        let written = write(ends[1], text, text.count)
        close(ends[1])
        try #require(written == text.count)
        let path = "/dev/fd/\(ends[0])"
        let file = ConfigurationFile(path)
        for _ in 0..<2 {
            let loader = ConfigurationLoader(types: [], environment: [:], file: file, secretsDirectory: nil)
            #expect(try loader.load().configuration.server.http.port == 7)
        }
        #expect(
            file.problemOfReload?.description
                == "\(path) is not a file that can be read again; restart the gateway to change its configuration")
    }

    @Test func file_isReadAgain_alsoIfItIsMissingAtFirst() throws {
        let scratch = try ScratchConfiguration(nil)
        let file = ConfigurationFile(scratch.file)
        let loader = ConfigurationLoader(types: [], environment: [:], file: file, secretsDirectory: nil)
        #expect(throws: ConfigurationProblems.self) { try loader.load() }
        for port in [7, 8] {
            try scratch.write(#"{"server": {"port": \#(port)}}"#, to: "config.json")
            #expect(try loader.load().configuration.server.http.port == port)
        }
        #expect(file.problemOfReload == nil)
    }

    /// Opening a pipe without a writer never ends.
    @Test(.timeLimit(.minutes(10))) func fileThatBecomesAPipe_isRefused() throws {
        let scratch = try ScratchConfiguration()
        let file = ConfigurationFile(scratch.file)
        try #require(unlink(scratch.file) == 0 && mkfifo(scratch.file, 0o600) == 0)
        let loader = ConfigurationLoader(types: [], environment: [:], file: file, secretsDirectory: nil)
        let expected = ConfigurationProblems([.init(scratch.file, "is a pipe; expected a regular file")])
        #expect(throws: expected) { try loader.load() }
    }
}
