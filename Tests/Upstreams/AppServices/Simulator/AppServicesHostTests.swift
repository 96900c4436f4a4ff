import PosternConformance
import PosternSimulatorKit
import PosternTestKit
import Testing

@testable import AppServicesSimulator

private let u1 = "ffffffff54d00d1e0b07c0de5eed0011"

/// Behind a server, with faults.
@Suite(.timeLimit(.minutes(10))) struct AppServicesHostTests {
    @Test func vectors_areTaken_asTheyStand() throws {
        let simulator = try HostedSimulator(.appservices)
        let vectors = [1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 15].map(vector)
        #expect(
            try vectors.map { try simulator.send($0) } == [
                200, 200, 200, 200, 400, 200, 404, 200, 200, 200, 200, 200, 200,
            ])
        #expect(try simulator.violations() == [])
        #expect(
            try simulator.ask("GET", "/received?field=step").text == """
                \tregister_device\n\(u1)\tregister_user\n\(u1)\tconnect\n\(u1)\tpreferences\n\tregister_device
                \(u1)\tcreate_group\n\(u1)\tadd_user\n\(u1)\tremove_user\n\(u1)\tdisconnect\n\(u1)\tunregister_device
                \tmetrics

                """)
        #expect(try simulator.ask("GET", "/control/state").json["users"].strings == [u1])
        #expect(try simulator.ask("POST", "/control", #"{"x":1}"#).status == 400)
        #expect(try simulator.ask("GET", "/control/other").status == 404)
    }

    @Test func lostAnswers_areNotHeldAgainstTheGateway() throws {
        let simulator = try HostedSimulator(.appservices)
        for fault in ["reset-after", "truncate", "garbage"] {
            _ = try simulator.ask("POST", "/faults", "\(fault):x1")
            _ = try simulator.ask("POST", "/control", #"{"reset":true,"invalidateToken":["PiTok-7f.abc_DEF~123"]}"#)
            _ = try simulator.send(vector(1))
            #expect(try simulator.send(vector(1)) == 401)
        }
        #expect(try simulator.violations() == [])
        _ = try simulator.send(vector(1))
        #expect(try simulator.violations() == ["register_device: a refused token is sent again"])
    }

    @Test func statusOfAFault_isSeenByTheSimulator() throws {
        let simulator = try HostedSimulator(.appservices)
        _ = try simulator.ask("POST", "/faults", "status=404:x1")
        #expect(try simulator.send(vector(8)) == 404)
        #expect(try simulator.send(vector(9)) == 200)
        #expect(try simulator.violations() == [])
    }
}

extension HostedSimulator {
    /// Sends the request of the vector unchanged. Nil if the connection ends without a response.
    fileprivate func send(_ vector: SimulatedRequest) throws -> Int? {
        let client = try HTTPClient(port: port)
        let lines = vector.headers.map { "\($0.name): \($0.value)\r\n" }.joined()
        let target = vector.path + (vector.query.map { "?" + $0 } ?? "")
        client.send(Array("\(vector.method) \(target) HTTP/1.1\r\n\(lines)\r\n".utf8) + vector.body)
        return try? client.answer().status
    }

    fileprivate func violations() throws -> [String] { try received["violations"].strings }
}
