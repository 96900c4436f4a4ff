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
        #expect(!ended.errors.contains("in use"), "\(ended.errors)")
    }

    @Test func takenPort_isReported_withTheOptionThatChoosesAnother() async throws {
        let socket = boundSocket()
        defer { close(socket) }
        listen(socket, 1)
        let port = port(of: socket)
        let config = try configuration()
        let served = try await Binary.run(["serve", "--config", config, "--simulate", "--simulate-port", "\(port)"])
        #expect(served.exitCode == 69, "\(served.errors)")
        #expect(served.errors.contains("127.0.0.1:\(port)"), "\(served.errors)")
        #expect(served.errors.contains("Choose other ports with --simulate-port."), "\(served.errors)")
        let simulated = try await Binary.run(["simulate", "--port", "\(port)"])
        #expect(simulated.exitCode == 69)
        #expect(simulated.errors.contains("Choose other ports with --port."), "\(simulated.errors)")
        for errors in [served.errors, simulated.errors] { #expect(!errors.contains("server.port"), "\(errors)") }
    }

    /// The first of eleven ports in a row that are free. They are below those that the system chooses for other tests.
    private func freePortsInARow() throws -> UInt16 {
        for _ in 0..<1000 {
            let first = UInt16.random(in: 10_000...30_000)
            let sockets = (first...first + 10).compactMap { boundSocket(at: $0) }
            for socket in sockets { close(socket) }
            if sockets.count == 11 { return first }
        }
        throw CocoaError(.featureUnsupported)
    }

    @Test func ports_canBeChosen() async throws {
        let port = try freePortsInARow()
        let gateway = try Binary.start(
            ["serve", "--config", try configuration(), "--simulate", "--simulate-port", "\(port)"])
        let line = try await gateway.line(of: .errors) { $0.contains("simulator started") }
        // The first type by name is not the first port; each is one of those that follow.
        let chosen = try #require(line.split(separator: ":").last.flatMap { UInt16($0) }, "\(line)")
        #expect((port...port + 10).contains(chosen))
        gateway.signal(SIGTERM)
        _ = try await gateway.end()
        let wrong = try await Binary.run(["serve", "--config", "x", "--simulate-port", "9"])
        #expect(wrong.exitCode == 64)
        #expect(wrong.errors.contains("--simulate-port requires --simulate."), "\(wrong.errors)")
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
