import PosternGatewayTestKit
import Testing

@testable import PosternCommands

@Suite struct StoreLocationTests {
    @Test(arguments: [
        (#""host": "127.0.0.1", "port": 81"#, "http://127.0.0.1:81"),
        (#""host": "::1""#, "http://[::1]:8080"),
        (#""port": 0"#, nil),
    ])
    func gateway_isAskedWhereItListens(server: String, url: String?) throws {
        let scratch = try ScratchConfiguration(#"{"server": {\#(server)}, "outbox": {"path": "/x.sqlite"}}"#)
        let location = try StoreLocation(scratch.loader())
        #expect(location.path == "/x.sqlite")
        #expect(location.gateway?.url == url)
    }

    @Test(arguments: [("0.0.0.0", "http://127.0.0.1:8080"), ("::", "http://[::1]:8080")])
    func gatewayOnAllInterfaces_isAskedOnLoopback(host: String, url: String) throws {
        let scratch = try ScratchConfiguration(
            #"{"server": {"host": "\#(host)"}, "auth": {"allowAnonymous": true}}"#)
        #expect(try StoreLocation(scratch.loader()).gateway?.url == url)
    }

    @Test func storeInPostgreSQL_hasNoFile_andThatSaysWhatToUse() throws {
        let scratch = try ScratchConfiguration(
            #"{"outbox": {"engine": "postgres", "postgres": {"url": "postgres://db/orders", "schema": "orders"}}}"#)
        let location = try StoreLocation(scratch.loader())
        let failure = try #require(throws: CommandFailure.self) { try location.file() }
        #expect(failure.exitCode == 64)
        #expect(failure.description.contains("pg_dump") && failure.description.contains("its schema orders"))
    }

    @Test func namedAddress_wins() throws {
        let scratch = try ScratchConfiguration()
        #expect(try StoreLocation(scratch.loader(), .init(url: "http://a")).gateway?.url == "http://a")
    }

    @Test func configurationWithProblems_isReported_with78() throws {
        let scratch = try ScratchConfiguration(#"{"server": {"port": -1}}"#)
        let failure = try #require(throws: CommandFailure.self) { try StoreLocation(scratch.loader()) }
        #expect(failure.exitCode == 78)
        #expect(failure.description.contains("server.port is -1; allowed 0 to 65535"))
    }
}
