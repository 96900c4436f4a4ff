import PosternConformance
import PosternSimulatorKit
import PosternTestKit
import Testing

@testable import AppServicesSimulator

private typealias V = AppServicesVectors
private let u1 = "ffffffff54d00d1e0b07c0de5eed0011"

/// Behind a server, with faults.
@Suite(.timeLimit(.minutes(10))) struct AppServicesHostTests {
    @Test func vectors_areTaken_asTheyStand() throws {
        let fixture = try HostedSimulator(.appservices)
        let vectors = [V.v1, V.v2, V.v3, V.v4, V.v5, V.v6, V.v8, V.v9, V.v10, V.v11, V.v12, V.v13, V.v15]
        #expect(
            try vectors.map { try fixture.send($0) } == [
                200, 200, 200, 200, 400, 200, 404, 200, 200, 200, 200, 200, 200,
            ])
        #expect(try fixture.violations() == [])
        #expect(
            try fixture.ask("GET", "/received?field=step").text == """
                \tregister_device\n\(u1)\tregister_user\n\(u1)\tconnect\n\(u1)\tpreferences\n\tregister_device
                \(u1)\tcreate_group\n\(u1)\tadd_user\n\(u1)\tremove_user\n\(u1)\tdisconnect\n\(u1)\tunregister_device
                \tmetrics

                """)
        #expect(try fixture.ask("GET", "/control/state").json["users"].strings == [u1])
        #expect(try fixture.ask("POST", "/control", #"{"x":1}"#).status == 400)
        #expect(try fixture.ask("GET", "/control/other").status == 404)
    }

    @Test func lostAnswers_areNotHeldAgainstTheGateway() throws {
        let fixture = try HostedSimulator(.appservices)
        for fault in ["reset-after", "truncate", "garbage"] {
            _ = try fixture.ask("POST", "/faults", "\(fault):x1")
            _ = try fixture.ask("POST", "/control", #"{"reset":true,"invalidateToken":"PiTok-7f.abc_DEF~123"}"#)
            _ = try fixture.send(V.v1)
            #expect(try fixture.send(V.v1) == 401)
        }
        #expect(try fixture.violations() == [])
        _ = try fixture.send(V.v1)
        #expect(try fixture.violations() == ["register_device: a refused token is sent again"])
    }

    @Test func statusOfAFault_isSeenByTheSimulator() throws {
        let fixture = try HostedSimulator(.appservices)
        _ = try fixture.ask("POST", "/faults", "status=404:x1")
        #expect(try fixture.send(V.v8) == 404)
        #expect(try fixture.send(V.v9) == 200)
        #expect(try fixture.violations() == [])
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
