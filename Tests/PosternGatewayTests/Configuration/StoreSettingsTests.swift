import PosternCore
import PosternGatewayTestKit
import PosternStore
import PosternTestKit
import Testing

@testable import PosternGateway

/// What the store is kept in.
@Suite struct StoreSettingsTests {
    private static let url = "postgres://gateway:hunter2hunter2@db1,db2/orders"

    @Test(arguments: [
        (
            #"{"outbox": {"engine": "postgres"}}"#,
            #"outbox.postgres.url is empty; outbox.engine needs it, which is "postgres""#
        ),
        (
            #"{"outbox": {"postgres": {"url": "mysql://hunter2"}}}"#,
            "outbox.postgres.url is ***; expected postgres://user@host:port/name, or keyword=value as libpq has them"
        ),
        (
            #"{"outbox": {"postgres": {"schema": "Pg; DROP"}}}"#,
            #"outbox.postgres.schema is "Pg; DROP"; expected 1 to 50 of a-z, 0-9 and '_', and no digit first; not pg_…"#
        ),
        (
            #"{"outbox": {"postgres": {"node": "a b"}}}"#,
            #"outbox.postgres.node is "a b"; expected at most 63 of letters, digits, '.', '_' and '-'"#
        ),
        (
            #"{"outbox": {"postgres": {"leaseSeconds": 2}}}"#, "outbox.postgres.leaseSeconds is 2; allowed 3 to 60"
        ),
        (
            #"{"outbox": {"postgres": {"migrate": "sometimes"}}}"#,
            #"outbox.postgres.migrate is "sometimes"; allowed auto, never"#
        ),
    ])
    func setting_isRefused(file: String, problem: String) throws {
        #expect(try problems(in: file) == [problem])
    }

    @Test func database_isNamed_withItsDefaults() throws {
        let outbox = try configuration(
            #"{"outbox": {"engine": "postgres", "postgres": {"url": "\#(Self.url)"}}}"#
        ).outbox
        #expect(outbox.kind == .postgres && outbox.postgres.url == Self.url)
        #expect(outbox.postgres.schema == "postern" && outbox.postgres.migrate == .auto)
        #expect(
            [outbox.postgres.leaseSeconds, outbox.postgres.pollSeconds, outbox.postgres.commitTimeoutSeconds]
                == [10, 0.02, 5])
        #expect(!outbox.postgres.nodeName.isEmpty)
        #expect(!"\(outbox.postgres)".contains("hunter2"))
    }

    @Test func password_isReadFromAVariable_orASecretFile() throws {
        let text = #"{"outbox": {"engine": "postgres", "postgres": {"url": "postgres://db/orders"}}}"#
        let variable = ["POSTERN_OUTBOX_POSTGRES_PASSWORD": "from the variable"]
        #expect(try configuration(text, environment: variable).outbox.postgres.password == "from the variable")
        let scratch = try ScratchConfiguration(text, secrets: ["outbox-postgres-password": "from the file\n"])
        #expect(try scratch.load().outbox.postgres.password == "from the file")
    }

    @Test func sqlite_isTheDefault() throws {
        let outbox = try configuration(#"{"outbox": {"postgres": {"url": "\#(Self.url)"}}}"#).outbox
        #expect(outbox.kind == .sqlite)
    }

    @Test func changeOfTheEngine_needsARestart() throws {
        let plan = try configuration("{}").changes(
            to: configuration(#"{"outbox": {"engine": "postgres", "postgres": {"url": "\#(Self.url)"}}}"#))
        #expect(plan.needsRestart == ["outbox.engine", "outbox.postgres.url"] && plan.live.isEmpty)
        #expect(plan.configuration.outbox.kind == .sqlite)
    }
}
