import Logging
import PosternCore
import PosternGateway
import PosternGatewayTestKit
import PosternMetrics
import PosternStore
import PosternTestKit
import PosternThreads
import PosternUpstream
import Testing

@testable import PosternCommands

/// `postern keys rotate-encryption`.
@Suite struct KeyRotationTests {
    private static let old = String(repeating: "0a", count: 32)
    private static let new = String(repeating: "0b", count: 32)

    private func configuration(_ keys: String) throws -> ScratchConfiguration {
        let scratch = try ScratchConfiguration()
        try scratch.write(
            #"{"outbox": {"path": "\#(scratch.directory)/store.sqlite", \#(keys)}}"#, to: "config.json")
        return scratch
    }

    private func open(_ scratch: ScratchConfiguration) throws -> Outbox {
        try Outbox(
            try scratch.load().outbox.located, time: SystemTime(), threads: DedicatedThreads(), metrics: Metrics(),
            logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
    }

    /// Stores a credential that does not expire.
    private func hold(_ outbox: Outbox) throws {
        let queue = try outbox.register(PlainUpstream(), type: "plain", cap: QueueCap())
        let credential = Credential(owner: "u", value: Array("canary".utf8), isKept: true)
        try DedicatedThreads().result {
            outbox.change(of: queue, { _ in ([.hold(credential)], ()) }, completion: $0)
        }
    }

    private func failure(_ scratch: ScratchConfiguration) -> CommandFailure? {
        do throws(CommandFailure) {
            _ = try KeyRotation.run(scratch.loader())
            return nil
        } catch {
            return error
        }
    }

    @Test func credentials_areEncryptedWithTheNewKey_andTheOldOneIsNotNeeded() throws {
        let scratch = try configuration(#""encryptionKey": "\#(Self.old)""#)
        let outbox = try open(scratch)
        try hold(outbox)
        #expect(failure(scratch)?.exitCode == 75)
        outbox.close()
        let path = "\(scratch.directory)/store.sqlite"
        func rotate(_ keys: String) throws -> KeyRotationReport {
            try scratch.write(#"{"outbox": {"path": "\#(path)", \#(keys)}}"#, to: "config.json")
            return try KeyRotation.run(scratch.loader())
        }
        let keys = #""encryptionKey": "\#(Self.new)", "previousEncryptionKeys": ["\#(Self.old)"]"#
        let first = try rotate(keys)
        #expect(KeyRotation.json(first) == #"{"resealed":1,"current":0,"unreadable":0}"#)
        #expect(
            KeyRotation.text(first) == """
                1 encrypted again, 0 had the current key already
                outbox.previousEncryptionKeys can be emptied now
                """)
        #expect(
            KeyRotation.json(try rotate(#""encryptionKey": "\#(Self.new)""#))
                == #"{"resealed":0,"current":1,"unreadable":0}"#)
        let lost = try rotate(#""encryptionKey": "\#(Self.old)""#)
        #expect(lost.unreadable == 1)
        #expect(KeyRotation.text(lost).contains("1 cannot be read with any configured key"))
    }

    @Test func rotation_wantsAKey_andAStore() throws {
        #expect(failure(try configuration(#""maxBytes": 0"#))?.exitCode == 78)
        #expect(failure(try configuration(#""encryptionKey": "\#(Self.old)""#))?.exitCode == 73)
        #expect(failure(try ScratchConfiguration("{"))?.exitCode == 78)
    }
}
