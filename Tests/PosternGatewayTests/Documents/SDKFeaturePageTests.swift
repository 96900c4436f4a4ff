import Foundation
import PosternCore
import PosternEvents
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternAPI
@testable import PosternGateway

/// `docs/sdk-features.md` names only what there is.
@Suite struct SDKFeaturePageTests {
    private struct Row: CustomStringConvertible {
        /// The type of the section; nil in the part about all of them.
        let type: String?
        let feature: String
        let offer: String
        let evidence: String
        var isExcused: Bool { offer.hasPrefix("Device-side: ") || offer.hasPrefix("**Not offered.** ") }
        var description: String { "\(type ?? "all"): \(feature)" }
    }

    private static func rows() throws -> [Row] {
        let types = Set(UpstreamRegistry.all.map(\.name))
        var type: String?
        var rows: [Row] = []
        for line in try Page("docs/sdk-features.md").prose {
            if line.hasPrefix("## ") { type = types.first { line.dropFirst(3).lowercased() == $0 } }
            guard line.hasPrefix("| "), !line.hasSuffix("| Postern | shown by |") else { continue }
            let cells = line.dropFirst(2).dropLast(2).components(separatedBy: " | ")
            try #require(cells.count == 3, "\(line)")
            rows.append(Row(type: type, feature: cells[0], offer: cells[1], evidence: cells[2]))
        }
        return rows
    }

    /// The texts in backticks.
    fileprivate static func spans(_ text: some StringProtocol) -> [String] {
        text.components(separatedBy: "`").enumerated().filter { !$0.offset.isMultiple(of: 2) }.map(\.element)
    }

    @Test func everyRow_namesATest_orSaysWhyThereIsNone() throws {
        let rows = try Self.rows()
        #expect(Set(rows.compactMap(\.type)).count == 5)
        for row in rows {
            #expect(!Self.spans(row.evidence).isEmpty || row.isExcused && row.evidence == "–", "\(row)")
            #expect(!row.isExcused || row.offer.count > 40, "\(row) gives no reason")
        }
    }

    @Test func everyTest_exists() throws {
        let tests = try TestNames.all()
        for row in try Self.rows() {
            for name in Self.spans(row.evidence) where !tests.contains(name) {
                Issue.record("\(row): there is no test \(name)")
            }
        }
    }

    @Test func everythingThatIsOffered_exists() throws {
        let product = try Product()
        for row in try Self.rows() {
            #expect(product.missing(in: row.offer, of: row.type) == [], "\(row)")
        }
    }

    /// What a type has of its own is there for a feature of its SDK.
    @Test(arguments: ["seer", "curio", "samsara", "appservices", "streamone"])
    func everyKind_andEveryRouteOfAType_hasARow(type: String) throws {
        let type = try #require(UpstreamRegistry.all.first { $0.name == type })
        let upstream = AnyUpstream(try type.make(try #require(UpstreamName(type.name))))
        let routes = upstream.traits.routes.map { "\($0.method.rawValue) /v1/\(type.name)/\($0.template)" }
        let named = Set(try Self.rows().filter { $0.type == type.name }.flatMap { Self.spans($0.offer) })
        #expect(Set(upstream.kinds.map(\.description) + routes).subtracting(named) == [])
    }

    private static let offers: [(text: String, missing: [String])] = [
        ("Setting `bundleSizeBytes`.", []), ("Setting `queue.maxBytes`.", []),
        ("Settings `log.level`, `url`.", ["url"]),
        ("Settings `apiKey` and `bundleSize`.", ["bundleSize"]), ("Setting `seerCode`.", ["seerCode"]),
        ("Request `POST /v1/seer/tincan`.", []), ("`GET /v1/seer/endpoints`", []),
        ("Request `POST /v1/seer/event`.", ["POST /v1/seer/event"]),
        ("`PUT /v1/seer/endpoints`", ["PUT /v1/seer/endpoints"]),
        ("`GET /v1/upstreams/seer/lanes`, `GET /v1/upstreams/curio/lanes`", ["GET /v1/upstreams/curio/lanes"]),
        ("Metric `postern_attempts_total`.", []), ("Metric `postern_tries_total`.", ["postern_tries_total"]),
        ("Event `SeerTokenFetch`.", []), ("Events `message.queued` and `token`.", ["token"]),
        ("Kind `activity`.", []), ("Kinds `tincan` and `event`.", ["event"]),
        ("The header `Prefer: wait=N` and `seerCode`.", []), ("The member `seerNumber`.", ["seerNumber"]),
    ]

    @Test func inventedName_isFound() throws {
        let product = try Product()
        for offer in Self.offers {
            #expect(product.missing(in: offer.text, of: "seer") == offer.missing, "\(offer.text)")
        }
    }
}

/// The names of what the product offers.
private struct Product {
    private let upstreams: [String: AnyUpstream]
    private let settings: Set<String>
    private let metrics: Set<String>
    /// Members, headers, parameters, and values in the description of the API, and values of settings.
    private let others: Set<String>

    init() throws {
        var upstreams: [String: AnyUpstream] = [:]
        for type in UpstreamRegistry.all {
            upstreams[type.name] = AnyUpstream(try type.make(try #require(UpstreamName(type.name))))
        }
        self.upstreams = upstreams
        let sections = ConfigurationSchema.fixed + ConfigurationSchema.common(at: [])
        let paths = sections.flatMap { section in section.settings.map { section.path + [$0.name] } }
        settings = Set((paths + ConfigurationSchema.lists).map { $0.joined(separator: ".") })
        let sources = try Page.files { $0.hasPrefix("Sources/") && $0.hasSuffix(".swift") }.map {
            String(decoding: try Fixture.bytes(inPackage: $0), as: UTF8.self)
        }
        metrics = Set(sources.flatMap { $0.matches(of: /"(postern_\w+)"/).map { String($0.1) } })
        let api = String(decoding: try Fixture.bytes(inPackage: "openapi/openapi.yaml"), as: UTF8.self)
        func words(_ pattern: Regex<(Substring, Substring)>) -> [String] {
            api.matches(of: pattern).flatMap { $0.1.components(separatedBy: ", ") }
        }
        let choices = (sections.flatMap(\.settings) + UpstreamRegistry.all.flatMap(\.settings)).map { setting in
            if case .choice(let choices) = setting.kind { choices } else { [String]() }
        }
        var others = Set(choices.joined()).union(ProblemSlug.allCases.map(\.rawValue))
        // A key, a word in backticks, an element, and a list in one line.
        others.formUnion(words(/(?m)^ *(?:- )?([\w-]+):/))
        others.formUnion(words(/`([\w-]+)`/))
        others.formUnion(words(/(?m)(?:- |name: )([\w-]+)$/))
        others.formUnion(words(/\[([\w, -]+)\]/))
        self.others = others
    }

    /// The names in `text` that do not exist. A word before names says what they are: settings, metrics, events, or kinds.
    func missing(in text: String, of type: String?) -> [String] {
        let pattern = /(?:\b([Ss]etting|[Mm]etric|[Ee]vent|[Kk]ind)s? )?(`[^`]+`(?:(?:, and |, | and )`[^`]+`)*)/
        return text.matches(of: pattern).flatMap { match in
            SDKFeaturePageTests.spans(match.2).filter { !exists($0, as: match.1?.lowercased(), of: type) }
        }
    }

    private func exists(_ name: String, as what: String?, of type: String?) -> Bool {
        let upstream = type.flatMap { upstreams[$0] }
        return switch what {
        case "setting":
            settings.contains(name)
                || UpstreamRegistry.all.contains { $0.name == type && $0.settings.contains { $0.name == name } }
        case "metric": metrics.contains(name)
        case "event":
            EventType(rawValue: name) != nil || upstream.map { Self.events(of: $0).contains(name) } == true
        case "kind": upstream?.kinds.contains(Kind(name)) == true
        default:
            name.contains(" /") ? isRoute(name, of: upstream) : others.contains(String(name.prefix { $0 != ":" }))
        }
    }

    private static func events(of upstream: AnyUpstream) -> [String] {
        let all: [UpstreamEvent] = [.tokenFetched, .ready, .batchEnded, .flushFinished]
        return (all + upstream.kinds.map(UpstreamEvent.settled)).compactMap(upstream.name)
    }

    /// Whether there is such a request to an upstream whose name is its type.
    private func isRoute(_ name: String, of upstream: AnyUpstream?) -> Bool {
        let routes = Route.common + (upstream?.traits.routes ?? []).map(Route.init)
        return routes.contains { route in
            let template = "\(route.method.rawValue) \(route.template.text)"
            let kinds = template.contains("{kind}") ? ["{kind}"] + (upstream?.kinds.map(\.description) ?? []) : [""]
            return kinds.contains { kind in
                let named = template.replacing("{kind}", with: kind)
                guard let upstream else { return named == name }
                return named.replacing("{upstream}", with: upstream.name.description)
                    .replacing("upstreams/{name}", with: "upstreams/\(upstream.name)") == name
            }
        }
    }
}
