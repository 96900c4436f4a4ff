import Foundation
import PosternApp
import PosternCore
import Testing

/// A directory of its own for one test, with a configuration file and secret files; gone with the last reference.
final class ScratchConfiguration {
    let directory: String
    var file: String { directory + "/config.json" }

    init(_ text: String? = "{}", secrets: [String: String] = [:]) throws {
        directory = FileManager.default.temporaryDirectory.path + "/postern-\(UUID().uuidString)"
        try FileManager.default.createDirectory(atPath: directory + "/secrets", withIntermediateDirectories: true)
        if let text { try write(text, to: "config.json") }
        for (name, secret) in secrets { try write(secret, to: "secrets/\(name)") }
    }

    deinit { try? FileManager.default.removeItem(atPath: directory) }

    func write(_ text: String, to name: String) throws {
        try Data(text.utf8).write(to: URL(fileURLWithPath: "\(directory)/\(name)"))
    }

    func loader(environment: [String: String] = [:], types: [UpstreamType] = [.post, .trap]) -> ConfigurationLoader {
        ConfigurationLoader(
            types: types, environment: environment, file: file, secretsDirectory: directory + "/secrets")
    }

    func load(environment: [String: String] = [:]) throws -> GatewayConfiguration {
        try loader(environment: environment).load().configuration
    }

    /// Every problem as text, the scratch directory as `DIR`; fails when there is none.
    func problems(environment: [String: String] = [:], types: [UpstreamType] = [.post, .trap]) -> [String] {
        do throws(ConfigurationProblems) {
            _ = try loader(environment: environment, types: types).load()
            Issue.record("loads without a problem")
            return []
        } catch {
            return error.problems.map { $0.description.replacing(directory, with: "DIR") }
        }
    }
}

func problems(in text: String, environment: [String: String] = [:]) throws -> [String] {
    try ScratchConfiguration(text).problems(environment: environment)
}

func configuration(_ text: String, environment: [String: String] = [:]) throws -> GatewayConfiguration {
    try ScratchConfiguration(text).load(environment: environment)
}

extension UpstreamType {
    /// A type with a setting of every form.
    static let post = UpstreamType(
        name: "post",
        settings: [
            .init("url", .text, default: .text("http://post.example"), "Where it is."),
            .init("apiKey", .text, default: .text(""), secret: true, "Opens it."),
            .init("mode", .choice(["fast", "safe"]), default: .text("fast"), "How it goes."),
            .init("dry", .flag, default: .flag(false), "Does nothing."),
            .init("sizeBytes", .integer(1...9), default: .integer(5), "How much."),
            .init("share", .number(0...1), default: .number(0.5), "Which part."),
            .init("headers", .texts, default: .texts([:]), "Sent along."),
            .init("actions", .list, default: .list([]), "What it may do."),
        ], addressSetting: "url"
    ) { (name, settings) throws(SettingProblems) in
        var problems: [(setting: String, detail: String)] = []
        if !settings.text("url").hasPrefix("http") { problems.append(("url", "expected an http or https URL")) }
        if settings.text("apiKey") == "wrong" { problems.append(("apiKey", "expected a key of this API")) }
        guard problems.isEmpty else { throw SettingProblems(problems) }
        return NamedUpstream(name: name)
    }

    /// Fails the test that makes one.
    static let trap = UpstreamType(name: "trap", settings: [], addressSetting: "") {
        (name, _) throws(SettingProblems) in
        Issue.record("makes \(name)")
        return NamedUpstream(name: name)
    }
}

/// An upstream for tests that make some but send nothing.
struct NamedUpstream: Upstream {
    let name: UpstreamName
    let kinds: [Kind] = ["letter"]
    let laneRule = LaneRule.mixed

    func admit(_ payload: JSONValue, of kind: Kind, in context: AdmissionContext) throws(InvalidPayload) -> Admission {
        Admission()
    }
    func plan(for messages: [Message], in context: PlanContext) -> Plan {
        .settle(count: messages.count, as: .failed, reason: "configuration tests send nothing", changes: [])
    }
    func judge(_ response: UpstreamResponse, to batch: Batch, in context: PlanContext) -> Judgement {
        Judgement(.delivered())
    }
}
