import Foundation
import Logging
import PosternAPI
import PosternCore
import PosternDelivery
import PosternGatewayTestKit
import PosternHTTP
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternGateway

@Suite struct ReloadPlanTests {
    private let digest = String(repeating: "ab", count: 32)
    private let old = #"{"upstreams": {"post": {}, "push": {"type": "post", "delivery": {"maxInFlight": 2}}}}"#

    private func plan(to new: String) throws -> ReloadPlan { try configuration(old).changes(to: configuration(new)) }

    @Test func plan_isEmpty_whenNothingChanged() throws {
        let plan = try plan(to: old)
        #expect(plan.isEmpty)
        #expect(plan.upstreams.isEmpty && !plan.changesKeys && !plan.changesLogLevel)
        #expect(try plan.configuration == configuration(old))
    }

    @Test func upstreamAnswers_changeWhileRunning() throws {
        let plan = try plan(to: String(old.dropLast()) + #", "log": {"upstreamAnswers": true}}"#)
        #expect(plan.live == ["log.upstreamAnswers"])
        #expect(plan.configuration.log.upstreamAnswers)
        #expect(plan.upstreams.map(\.description) == ["post", "push"] && plan.replaced.isEmpty)
    }

    @Test func keysAndLogLevel_changeWhileRunning() throws {
        let plan = try plan(
            to: """
                {"auth": {"keys": [{"name": "a", "sha256": "\(digest)", "scopes": ["read"]}]},
                 "log": {"level": "debug"},
                 "upstreams": {"post": {}, "push": {"type": "post", "delivery": {"maxInFlight": 2}}}}
                """)
        #expect(plan.live == ["auth.keys", "log.level"])
        #expect(plan.needsRestart.isEmpty)
        #expect(plan.changesKeys && plan.changesLogLevel)
        #expect(plan.configuration.auth.keys.map(\.name) == ["a"])
        #expect(plan.configuration.log.level == .debug)
    }

    @Test func globalDelivery_reachesTheUpstreamsThatInheritIt() throws {
        let plan = try plan(
            to: """
                {"delivery": {"maxInFlight": 9},
                 "upstreams": {"post": {}, "push": {"type": "post", "delivery": {"maxInFlight": 2}}}}
                """)
        #expect(plan.live == ["delivery.maxInFlight"])
        #expect(plan.upstreams.map(\.description) == ["post"] && plan.replaced.isEmpty)
        #expect(plan.configuration.upstreams.map(\.delivery.maxInFlight) == [9, 2])
    }

    @Test func settingsAndOverrides_changeForTheirUpstreamAlone() throws {
        let plan = try plan(
            to: """
                {"upstreams": {"post": {},
                               "push": {"type": "post", "apiKey": "new", "delivery": {"maxInFlight": 3}}}}
                """)
        #expect(plan.live == ["upstreams.push.apiKey", "upstreams.push.delivery.maxInFlight"])
        #expect(plan.upstreams.map(\.description) == ["push"] && plan.replaced == plan.upstreams)
        #expect(plan.configuration.upstreams[1].values["apiKey"] == .text("new"))
    }

    @Test func authorities_changeForTheirUpstreamAlone() throws {
        let folder = ScratchFolder()
        let file = try TestAuthority("ours", in: folder).certificate
        let plan = try plan(
            to:
                #"{"upstreams": {"post": {"caFile": "\#(file)"}, "push": {"type": "post", "delivery": {"maxInFlight": 2}}}}"#
        )
        #expect(plan.live == ["upstreams.post.caFile"])
        #expect(plan.upstreams.map(\.description) == ["post"] && plan.replaced == plan.upstreams)
        #expect(plan.configuration.upstreams.map(\.connection.caFile) == [file, ""])
    }

    /// What waits because of the former certificate is sent at once.
    @Test func clientCertificate_isReplaced_ifItsFileHasAnotherOne() throws {
        let folder = ScratchFolder()
        let authority = try TestAuthority("ours", in: folder)
        let (own, next) = (try authority.issue("own"), try authority.issue("next"))
        let text =
            #"{"upstreams": {"post": {"clientCertificateFile": "\#(own.certificate)", "clientKeyFile": "\#(own.key)"}}}"#
        let before = try configuration(text)
        #expect(before.changes(to: try configuration(text)).isEmpty)
        for (from, to) in [(next.certificate, own.certificate), (next.key, own.key)] {
            try Data(contentsOf: URL(filePath: from)).write(to: URL(filePath: to))
        }
        let plan = before.changes(to: try configuration(text))
        #expect(plan.live == ["upstreams.post.clientCertificateFile"])
        #expect(plan.replaced.map(\.description) == ["post"])
    }

    @Test func kinds_change_ifTheFileOfASchemaDoes() throws {
        let folder = ScratchFolder()
        let file = folder.file("order.json")
        let scratch = try ScratchConfiguration(
            #"{"upstreams": {"shop": {"type": "webhook", "kinds": {"order": {"schema": "\#(file)"}}}, "webhook": {}}}"#)
        func loaded(_ schema: String) throws -> GatewayConfiguration {
            try Data(schema.utf8).write(to: URL(filePath: file))
            return try ConfigurationLoader(
                types: UpstreamRegistry.all, environment: [:], file: scratch.file, secretsDirectory: nil
            ).load().configuration
        }
        let before = try loaded("true")
        #expect(before.changes(to: try loaded("true")).isEmpty)
        let plan = before.changes(to: try loaded("false"))
        #expect(plan.live == ["upstreams.shop.kinds"] && plan.replaced.map(\.description) == ["shop"])
    }

    @Test func proxyAndAddresses_changeForTheirUpstreamAlone() throws {
        let plan = try plan(
            to: """
                {"upstreams": {"post": {"proxyURL": "http://proxy:1", "resolve": ["a:1:127.0.0.1"]},
                               "push": {"type": "post", "delivery": {"maxInFlight": 2}}}}
                """)
        #expect(plan.live == ["upstreams.post.proxyURL", "upstreams.post.resolve"])
        #expect(plan.upstreams.map(\.description) == ["post"] && plan.replaced == plan.upstreams)
    }

    @Test func caps_changeWhileRunning() throws {
        let new = """
            {"outbox": {"maxBytes": 5},
             "upstreams": {"post": {"queue": {"maxMessages": 7, "whenFull": "dropOldest"}},
                           "push": {"type": "post", "delivery": {"maxInFlight": 2}}}}
            """
        let plan = try plan(to: new)
        #expect(
            plan.live == ["outbox.maxBytes", "upstreams.post.queue.maxMessages", "upstreams.post.queue.whenFull"])
        #expect(plan.needsRestart.isEmpty && plan.upstreams.isEmpty)
        #expect(try plan.configuration == configuration(new))
    }

    @Test func logLevel_changesForItsUpstreamAlone() throws {
        let plan = try plan(
            to: """
                {"upstreams": {"post": {"log": {"level": "debug"}}, "push": {"type": "post", "delivery": {"maxInFlight": 2}}}}
                """)
        #expect(plan.live == ["upstreams.post.log.level"])
        #expect(plan.upstreams.map(\.description) == ["post"] && plan.replaced.isEmpty)
        #expect(plan.configuration.upstreams.map(\.logLevel) == [.debug, nil])
        #expect(plan.configuration.upstreams[0].deliverySettings.logLevel == .debug)
    }

    @Test func otherSettings_waitForARestart_andStayAsTheyAre() throws {
        let plan = try plan(
            to: """
                {"server": {"port": 9, "admin": {"host": "::1"}, "tls": {"certificateFile": "/dev/null", "keyFile": "/dev/null"}},
                 "outbox": {"path": "b", "encryptionKey": "\(digest)"}, "log": {"format": "json"},
                 "upstreams": {"post": {"queue": {"maxBytes": 1}, "url": "http://b"},
                               "push": {"type": "post", "delivery": {"maxInFlight": 2}}}}
                """)
        #expect(
            plan.needsRestart == [
                "server.port", "server.admin.host", "server.tls.certificateFile", "server.tls.keyFile", "outbox.path",
                "outbox.encryptionKey", "log.format",
            ])
        #expect(plan.live == ["upstreams.post.url", "upstreams.post.queue.maxBytes"])
        var expected = try configuration(
            #"{"upstreams": {"post": {"queue": {"maxBytes": 1}, "url": "http://b"}, "push": {"type": "post", "delivery": {"maxInFlight": 2}}}}"#
        )
        expected.log.format = .text
        #expect(plan.configuration == expected)
    }

    /// The store has no key before the next start.
    @Test func upstreamThatStoresCredentials_waitsForARestart_withTheFirstKey() throws {
        func load(_ upstreams: String, _ rest: String = "") throws -> GatewayConfiguration {
            let scratch = try ScratchConfiguration("{\(rest)\"upstreams\": {\(upstreams)}}")
            return try scratch.loader(types: [.post, .vault]).load().configuration
        }
        let (key, off) = (ScratchConfiguration.encryption + ",", #""off": {"type": "vault", "enabled": false}"#)
        let on = #""new": {"type": "vault"}, "off": {"type": "vault"}"#
        let plan = try load(off).changes(to: load(on, key))
        #expect(plan.needsRestart == ["outbox.encryptionKey", "upstreams.new", "upstreams.off"])
        #expect(plan.live.isEmpty && plan.added.isEmpty)
        #expect(plan.configuration.upstreams == (try load(off).upstreams))
        #expect(try load(off, key).changes(to: load(on, key)).added.map(\.description) == ["new", "off"])
    }

    /// The new host takes effect at the next start, and until then the old one is open to everyone who can reach it.
    @Test func lastKey_isKept_whileTheRunningHostIsExposed() throws {
        let keys = #""auth": {"keys": [{"name": "a", "sha256": "\#(digest)", "scopes": ["read"]}]}"#
        var exposed = try configuration("{\(keys)}")
        exposed.server.http.host = "0.0.0.0"
        let closed = try configuration("{}")
        let plan = exposed.changes(to: closed)
        #expect(!plan.changesKeys && plan.needsRestart.contains("auth.keys") && !plan.live.contains("auth.keys"))
        #expect(plan.configuration.auth == exposed.auth)
        // As before, a gateway that only this machine can reach takes it at once.
        #expect(try configuration("{\(keys)}").changes(to: closed).changesKeys)
    }

    @Test func upstreams_areAddedAndRemoved_whileRunning() throws {
        let new =
            #"{"upstreams": {"new": {"type": "post", "queue": {"maxBytes": 1}}, "off": {"type": "post", "enabled": false}, "post": {}}}"#
        let plan = try plan(to: new)
        #expect(plan.needsRestart.isEmpty)
        #expect(plan.live == ["upstreams.push", "upstreams.new", "upstreams.off"])
        #expect(
            plan.added.map(\.description) == ["new"] && plan.removed.map(\.description) == ["push"]
                && plan.upstreams.isEmpty)
        #expect(try plan.configuration == configuration(new))
        let back = try configuration(new).changes(to: configuration(old))
        #expect(back.added.map(\.description) == ["push"] && back.removed.map(\.description) == ["new"])
        #expect(try back.configuration == configuration(old))
    }

    @Test func upstream_isDisabledAndEnabled_whileRunning() throws {
        let disabled =
            #"{"upstreams": {"post": {"enabled": false}, "push": {"type": "post", "delivery": {"maxInFlight": 2}}}}"#
        let off = try plan(to: disabled)
        #expect(off.live == ["upstreams.post.enabled"] && off.needsRestart.isEmpty)
        #expect(off.removed.map(\.description) == ["post"] && off.added.isEmpty && off.upstreams.isEmpty)
        #expect(try off.configuration == configuration(disabled))
        let capped = old.replacing(#""post": {}"#, with: #""post": {"queue": {"maxMessages": 7}}"#)
        let on = try configuration(disabled).changes(to: configuration(capped))
        #expect(
            on.added.map(\.description) == ["post"] && on.removed.isEmpty && on.upstreams.isEmpty
                && on.needsRestart.isEmpty)
        #expect(try on.configuration == configuration(capped))
    }

    @Test func upstreamOfAnotherType_waitsForARestart() throws {
        var new = try configuration(old)
        new.upstreams[0] = .init(name: new.upstreams[0].name, type: .trap)
        let plan = try configuration(old).changes(to: new)
        #expect(plan.needsRestart == ["upstreams.post.type"])
        #expect(plan.live.isEmpty && plan.upstreams.isEmpty)
        #expect(try plan.configuration == configuration(old))
    }
}
