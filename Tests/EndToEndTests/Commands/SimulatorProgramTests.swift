import Foundation
import Glibc
import PosternTestKit
import Testing

/// `postern-simulate`, next to `postern`.
@Suite struct SimulatorProgramTests {
    private let folder = ScratchFolder()

    private func configuration() throws -> String {
        let file = folder.path + "/postern.json"
        let text =
            #"{"server":{"port":0},"outbox":{"path":"\#(folder.path)/postern.sqlite"},"upstreams":{"samsara":{}}}"#
        try text.write(toFile: file, atomically: true, encoding: .utf8)
        return file
    }

    @Test(arguments: ["simulate", "serve"]) func missingProgram_isReported_withItsPath(command: String) async throws {
        let program = folder.path + "/postern"
        try FileManager.default.copyItem(atPath: Binary.path, toPath: program)
        let arguments = command == "serve" ? ["--config", try configuration(), "--simulate"] : ["--port", "0"]
        let ended = try await ChildProcess([program, command] + arguments).end()
        #expect(ended.exitCode == 69)
        #expect(ended.errors.contains("\(program)-simulate, which cannot be run: No such file or directory"))
    }

    @Test func simulators_end_whenTheGatewayIsKilled() async throws {
        let gateway = try Binary.start(["serve", "--config", try configuration(), "--simulate"])
        let line = try await gateway.line(of: .errors) {
            $0.contains("simulator started") && $0.contains("type=samsara")
        }
        let port = try #require(line.split(separator: ":").last.flatMap { UInt16($0) })
        #expect(try HTTPClient(port: port).get("/received").status == 200)
        gateway.signal(SIGKILL)
        _ = try await gateway.end()
        #expect(eventually { (try? HTTPClient(port: port).get("/received")) == nil })
    }
}
