import Foundation
public import PosternCore
public import PosternGateway
public import PosternTestKit
public import PosternUpstream
import Testing

/// A directory for one test, with a configuration file and secret files; removed with the last reference.
public final class ScratchConfiguration {
    private let folder = ScratchFolder()
    public var directory: String { folder.path }
    public var file: String { folder.file("config.json") }

    /// A key for types that store credentials, as a member of the configuration.
    public static let encryption = #""outbox": {"encryptionKey": "\#(String(repeating: "0a", count: 32))"}"#

    public init(_ text: String? = "{}", secrets: [String: String] = [:]) throws {
        try FileManager.default.createDirectory(atPath: folder.file("secrets"), withIntermediateDirectories: true)
        if let text { try write(text, to: "config.json") }
        for (name, secret) in secrets { try write(secret, to: "secrets/\(name)") }
    }

    public func write(_ text: String, to name: String) throws {
        try text.write(toFile: folder.file(name), atomically: true, encoding: .utf8)
    }

    public func loader(environment: [String: String] = [:], types: [UpstreamType] = [.post, .trap])
        -> ConfigurationLoader
    {
        ConfigurationLoader(
            types: types, environment: environment, file: file, secretsDirectory: directory + "/secrets")
    }

    public func load(environment: [String: String] = [:]) throws -> GatewayConfiguration {
        try loader(environment: environment).load().configuration
    }

    /// Every problem as text, the scratch directory as `DIR`; fails when there is none.
    public func problems(environment: [String: String] = [:], types: [UpstreamType] = [.post, .trap]) -> [String] {
        do throws(ConfigurationProblems) {
            _ = try loader(environment: environment, types: types).load()
            Issue.record("loads without a problem")
            return []
        } catch {
            return error.problems.map { $0.description.replacing(directory, with: "DIR") }
        }
    }
}

public func problems(in text: String, environment: [String: String] = [:]) throws -> [String] {
    try ScratchConfiguration(text).problems(environment: environment)
}

public func configuration(_ text: String, environment: [String: String] = [:]) throws -> GatewayConfiguration {
    try ScratchConfiguration(text).load(environment: environment)
}

extension UpstreamType {
    public static let post = UpstreamType(PostUpstream.self)
    public static let trap = UpstreamType(TrapUpstream.self)
    public static let vault = UpstreamType(VaultUpstream.self)
}

/// A type with a setting of every kind.
public struct PostSettings: SettingsSection {
    public enum Mode: String, Sendable, CaseIterable { case fast, safe }

    public var url = "http://post.example"
    public var apiKey = ""
    public var mode = Mode.fast
    public var isDry = false
    public var size = 5
    public var share = 0.5
    public var headers: [String: String] = [:]
    public var actions: [String] = []

    public init() {}

    public static let fields: [SettingField<Self>] = [
        SettingField("url", .url, \.url, isAddress: true, "Where it is.") {
            .text($0)
        } decode: { value throws(Setting.Mismatch) in
            guard value.text?.hasPrefix("http") ?? true else { throw Setting.Mismatch("expected an http or https URL") }
            return value.text
        },
        .text(
            "apiKey", \.apiKey, rule: Setting.Rule("expected a key of this API") { $0 != "wrong" }, secret: true,
            simulated: "simulated-key", "Opens it."),
        .choice("mode", \.mode, "How it goes."),
        .bool("dry", \.isDry, "Does nothing."),
        .integer("sizeBytes", 1...9, \.size, "How much."),
        .number("share", 0...1, \.share, "Which part."),
        .strings("headers", \.headers, "Sent along."),
        .list("actions", \.actions, "What it may do."),
    ]

    public var conflicts: [(property: PartialKeyPath<Self>, detail: String)] {
        size == 1 && isDry ? [(\.size, "must exceed 1 when dry")] : []
    }
}

/// An upstream for tests that create upstreams and send nothing.
public protocol SilentUpstream: ConfigurableUpstream, PlainAtHeart {}

extension SilentUpstream {
    public static var summary: String { "Takes letters and sends nothing." }
    public var kinds: [Kind] { ["letter"] }
}

public struct PostUpstream: SilentUpstream {
    public static let typeName = "post"
    public let name: UpstreamName
    public let settings: PostSettings

    public init(_ name: UpstreamName, _ settings: PostSettings) {
        self.name = name
        self.settings = settings
    }
}

/// Stores credentials that callers hand in.
public struct VaultUpstream: SilentUpstream {
    public struct Settings: SettingsSection {
        public static let fields: [SettingField<Self>] = []

        public init() {}
    }

    public static let typeName = "vault"
    public static let storesCredentials = true
    public let name: UpstreamName
    public let settings: Settings

    public init(_ name: UpstreamName, _ settings: Settings) {
        self.name = name
        self.settings = settings
    }
}

/// Fails a test that creates an upstream.
public struct TrapUpstream: SilentUpstream {
    public struct Settings: SettingsSection {
        public static let fields: [SettingField<Self>] = []

        public init() {}
    }

    public static let typeName = "trap"
    public let name: UpstreamName
    public let settings: Settings

    public init(_ name: UpstreamName, _ settings: Settings) {
        Issue.record("makes \(name)")
        self.name = name
        self.settings = settings
    }
}
