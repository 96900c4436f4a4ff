import Foundation
public import PosternCore
public import PosternGateway
import Testing

/// A directory of its own for one test, with a configuration file and secret files; gone with the last reference.
public final class ScratchConfiguration {
    public let directory: String
    public var file: String { directory + "/config.json" }

    public init(_ text: String? = "{}", secrets: [String: String] = [:]) throws {
        directory = FileManager.default.temporaryDirectory.path + "/postern-\(UUID().uuidString)"
        try FileManager.default.createDirectory(atPath: directory + "/secrets", withIntermediateDirectories: true)
        if let text { try write(text, to: "config.json") }
        for (name, secret) in secrets { try write(secret, to: "secrets/\(name)") }
    }

    deinit { try? FileManager.default.removeItem(atPath: directory) }

    public func write(_ text: String, to name: String) throws {
        try Data(text.utf8).write(to: URL(fileURLWithPath: "\(directory)/\(name)"))
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
        } decode: { value throws(SettingMismatch) in
            guard value.text?.hasPrefix("http") ?? true else { throw SettingMismatch("expected an http or https URL") }
            return value.text
        },
        .text(
            "apiKey", \.apiKey, rule: SettingRule("expected a key of this API") { $0 != "wrong" }, secret: true,
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

/// An upstream for tests that make some but send nothing.
public protocol SilentUpstream: ConfigurableUpstream, BatchingUpstream {}

extension SilentUpstream {
    public static var summary: String { "Takes letters and sends nothing." }
    public var kinds: [Kind] { ["letter"] }
    public var laneRule: LaneRule { .mixed }

    public func admit(_ payload: JSONValue, of kind: Kind, in context: AdmissionContext) throws(InvalidPayload)
        -> Admission
    {
        Admission()
    }
    public func plan(for messages: [Message], in context: PlanContext) -> Plan {
        .settle(count: messages.count, as: .failed, reason: "configuration tests send nothing")
    }
    public func judge(_ response: UpstreamResponse, to batch: Batch, in context: PlanContext) -> Judgement {
        Judgement(.delivered())
    }
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

/// Fails the test that makes one.
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
