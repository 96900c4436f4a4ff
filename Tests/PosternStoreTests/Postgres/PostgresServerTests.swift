import Foundation
import PosternTestKit
import Testing

@testable import PosternStore

/// The server and the proxy that other tests rely on.
@Suite struct PostgresServerTests {
    private let server: PostgresServer
    private let proxy: PostgresProxy
    private let schema: String

    init() throws {
        server = try PostgresServer.shared()
        proxy = try server.proxy()
        schema = server.schema()
        let connection = try connect(server.url)
        try connection.execute("CREATE SCHEMA \(schema); CREATE TABLE things (id bigint)")
    }

    private func connect(_ url: String) throws -> PostgresConnection {
        var options = PostgresOptions(url: url)
        options.schema = schema
        return try PostgresConnection(options)
    }

    private let insert = "INSERT INTO things VALUES (1)"

    private func count() throws -> Int64 {
        try connect(server.url).execute("SELECT count(*) FROM things").integer(0, 0)
    }

    @Test func server_ends_andItsFolderIsRemoved_withTheLastReference() throws {
        var server: PostgresServer? = try PostgresServer()
        let folder = try #require(server?.folder)
        let connection = try connect(try #require(server?.url))
        #expect(FileManager.default.fileExists(atPath: folder))
        server = nil
        #expect(throws: PostgresError.self) { try connection.execute("SELECT 1") }
        #expect(!FileManager.default.fileExists(atPath: folder))
    }

    @Test func serverThatDoesNotStart_fails_withItsLog() throws {
        let error = #expect(throws: PostgresServer.Failure.self) { _ = try PostgresServer(settings: ["port=nothing"]) }
        #expect(error?.description.contains("invalid value for parameter \"port\"") == true)
    }

    /// Each number of bytes up to all of a statement, and then up to all of its answer.
    @Test func cut_letsThatManyBytesPass() throws {
        let whole = try connect(proxy.url)
        let (before, answered) = (proxy.forwarded(.toServer), proxy.forwarded(.toClient))
        try whole.execute(insert)
        let size = proxy.forwarded(.toServer) - before
        let answerSize = proxy.forwarded(.toClient) - answered
        whole.close()
        var stored: Int64 = 1
        for (direction, count) in [(.toServer, 0), (.toServer, size - 1), (.toServer, size), (.toClient, 0)]
            + [(.toClient, answerSize - 1)] as [(PostgresProxy.Direction, Int)]
        {
            let connection = try connect(proxy.url)
            proxy.strike(.cut, after: count, direction)
            #expect(throws: PostgresError.self) { try connection.execute(insert) }
            #expect(connection.isLost)
            #expect(proxy.hasStruck)
            if direction == .toClient || count == size { stored += 1 }
            #expect(try eventually { try self.count() == stored })
        }
    }

    @Test func blackHole_toTheServer_deliversLate() throws {
        let connection = try connect(proxy.url)
        connection.patience = .milliseconds(20)
        proxy.strike(.blackHole, after: 10, .toServer)
        #expect(throws: PostgresError.self) { try connection.execute(insert) }
        #expect(try count() == 0)
        // Other connections are not affected.
        try connect(proxy.url).execute(insert)
        #expect(try count() == 1)
        proxy.heal()
        #expect(try eventually { try count() == 2 })
    }

    @Test func blackHole_toTheClient_hidesTheAnswer() throws {
        let connection = try connect(proxy.url)
        connection.patience = .milliseconds(20)
        proxy.strike(.blackHole, after: 0, .toClient)
        let error = #expect(throws: PostgresError.self) { try connection.execute(insert) }
        #expect(error?.message.hasPrefix("no answer") == true)
        #expect(try eventually { try count() == 1 })
    }

    @Test func partition_stallsNewConnections_untilItHeals() throws {
        let connection = try connect(proxy.url)
        connection.patience = .milliseconds(20)
        proxy.partition()
        #expect(throws: PostgresError.self) { try connection.execute("SELECT 1") }
        let options = PostgresOptions(url: proxy.url)
        #expect(throws: PostgresError.self) { try PostgresConnection(options, connectTimeout: .milliseconds(20)) }
        proxy.heal()
        #expect(try connect(proxy.url).execute("SELECT 1").rowCount == 1)
    }

    @Test func refusal_andCut_endWhatThereIs_andWhatComes() throws {
        let connection = try connect(proxy.url)
        proxy.isRefusing = true
        proxy.cutAll()
        #expect(throws: PostgresError.self) { try connection.execute("SELECT 1") }
        #expect(throws: PostgresError.self) { try connect(proxy.url) }
        #expect(eventually { proxy.connections == 0 })
        proxy.heal()
        #expect(try connect(proxy.url).execute("SELECT 1").rowCount == 1)
    }
}
