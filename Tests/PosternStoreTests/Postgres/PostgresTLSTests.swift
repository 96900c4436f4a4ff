import Foundation
import PosternCore
import PosternTestKit
import Testing

@testable import PosternStore

/// A server that has to prove its name.
@Suite struct PostgresTLSTests {
    private let site: Site

    /// A server at two addresses, whose certificate has a name and one of these; and files with its authority and with another
    /// one.
    private struct Site {
        let folder = ScratchFolder()
        let server: PostgresServer
        let authority: String
        let other: String

        init() throws {
            let issuer = try TestAuthority("ca", in: folder)
            authority = issuer.certificate
            other = try TestAuthority("other", in: folder).certificate
            server = try PostgresServer(
                settings: ["listen_addresses=\(PostgresServer.address),\(PostgresTLSTests.unnamed)"],
                certificate: issuer.issue("server", names: "DNS:db.example,IP:\(PostgresServer.address)"))
        }
    }

    private static let site = Result { try Site() }

    init() throws { site = try Self.site.get() }

    private func options(_ host: String, _ parameters: [String], server: PostgresServer? = nil) -> PostgresOptions {
        let schema = (server ?? site.server).schema()
        var options = PostgresOptions(
            url: (["host=\(host) user=postgres dbname=postgres application_name=\(schema)"] + parameters)
                .joined(separator: " "))
        options.schema = schema
        options.acceptsUnsafeServer = true
        return options
    }

    /// By its name, at the address of the test.
    private func named(_ name: String, _ parameters: String...) -> PostgresOptions {
        options(name, ["hostaddr=\(PostgresServer.address)", "sslmode=verify-full"] + parameters)
    }

    private static func parts(of address: String) -> [Int] { address.split(separator: ".").compactMap { Int($0) } }

    /// The address that is not in the certificate.
    private static var unnamed: String {
        let parts = parts(of: PostgresServer.address)
        return "127.\(parts[1] + 64).\(parts[2]).\(parts[3])"
    }

    /// A loopback address in a form that is not known to be one.
    private func elsewhere(_ address: String) -> String {
        let parts = Self.parts(of: address)
        return "127.\(parts[1]).\(parts[2] << 8 | parts[3])"
    }

    /// Why the server is refused, in the words of `postern check --store`.
    private func refusal(_ options: PostgresOptions) -> String {
        do {
            _ = try options.examine()
            return "it is accepted"
        } catch {
            return "\(error)"
        }
    }

    /// The sessions of the store that are encrypted, and those that are not.
    private func sessions(_ options: PostgresOptions) throws -> [Bool: Int64] {
        let sql = SQL(postgres: try PostgresConnection(PostgresOptions(url: site.server.url)))
        let found = try sql.all(
            """
            SELECT ssl, count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = ? GROUP BY ssl
            """, options.schema
        ) { ($0[0] as Bool, $0[1] as Int64) }
        return Dictionary(uniqueKeysWithValues: found)
    }

    /// More than a record of TLS, in both directions.
    @Test func store_isKept_onAServerThatProvesItsName() throws {
        let options = named("db.example", "sslrootcert=\(site.authority)")
        #expect(try options.examine().problems == [])
        let store = try TestStore { $0.engine = .postgres(options) }
        let queue = try store.register()
        let payload = "{\"text\":\"\(String(repeating: "x", count: 300_000))\"}"
        let ids = try store.append((0..<5).map { _ in store.message(payload, to: queue) }).ids
        let messages = try store.claim(queue, bytes: 1 << 24).messages
        #expect(messages.map(\.id) == ids)
        #expect(messages.allSatisfy { $0.payload == Array(payload.utf8) })
        try store.deliver(messages, of: queue)
        #expect(try store.isBalanced())
        let sessions = try sessions(options)
        #expect(sessions[true] ?? 0 >= 2 && sessions[false] == nil)
    }

    @Test func certificateOfAnotherAuthority_isRefused() {
        let reason = refusal(named("db.example", "sslrootcert=\(site.other)"))
        #expect(reason.contains("certificate verify failed"), "\(reason)")
    }

    @Test func certificateForAnotherName_isRefused() {
        let reason = refusal(named("db2.example", "sslrootcert=\(site.authority)"))
        #expect(reason.contains(#"does not match host name "db2.example""#), "\(reason)")
    }

    @Test func server_isRefused_ifNoAuthorityIsNamed() {
        let file = site.folder.file("none.crt")
        let reason = refusal(named("db.example", "sslrootcert=\(file)"))
        #expect(reason.contains("root certificate file \"\(file)\" does not exist"), "\(reason)")
    }

    @Test func serverWithoutTLS_isRefused() throws {
        let server = try PostgresServer.shared()
        let proxy = try server.proxy()
        let parameters = ["port=\(proxy.port)", "sslmode=verify-full", "sslrootcert=\(site.authority)"]
        let reason = refusal(options("127.0.0.1", parameters, server: server))
        #expect(reason.contains("server does not support SSL, but SSL was required"), "\(reason)")
    }

    /// Without `sslmode` in the URL.
    @Test func serverElsewhere_hasToProveItsName_byDefault() throws {
        let reason = refusal(options(elsewhere(Self.unnamed), ["sslrootcert=\(site.authority)"]))
        #expect(reason.contains(#"does not match host name "\#(elsewhere(Self.unnamed))""#), "\(reason)")
        let proven = options(elsewhere(PostgresServer.address), ["sslrootcert=\(site.authority)"])
        let store = try TestStore { $0.engine = .postgres(proven) }
        try store.append("{}", to: store.register())
        let sessions = try sessions(proven)
        #expect(sessions[true] ?? 0 >= 2 && sessions[false] == nil)
        // This one is known to be here, so no certificate is looked at.
        let here = options(PostgresServer.address, ["sslrootcert=\(site.folder.file("none.crt"))"])
        #expect(try here.examine().problems == [])
    }

    /// It waits, and its reason is what `/readyz` reports.
    @Test func gateway_waits_andSaysThatTheCertificateIsNotTrusted() throws {
        let options = named("db.example", "sslrootcert=\(site.other)")
        var reasons: [String] = []
        let lease = try SharedStore().wait(options, isCancelled: { reasons.contains { $0.contains("certificate") } }) {
            reasons += [$0].compactMap(\.self)
        }
        #expect(lease == nil)
        #expect(reasons.last?.contains("certificate verify failed") == true, "\(reasons)")
    }
}
