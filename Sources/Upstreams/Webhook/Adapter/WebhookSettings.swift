import Foundation
import Glibc
import PosternCore
import PosternUpstream

struct WebhookSettings: SettingsSection {
    var url = Self.exampleURL
    var query: [String: Secret] = [:]
    var kinds = ["event": Endpoint()]
    var batch = Batching.none
    var wrapIn = "items"
    var orderBy = Pointer.none
    var auth = Authentication()
    var verifiesAtStart = true
    var headers: [String: Secret] = [:]
    var signingSecrets: [Secret] = []
    var successStatuses: [Int] = []
    var retryStatuses: [Int] = []
    var rejectStatuses: [Int] = []

    /// No such host exists (RFC 2606).
    private static let exampleURL = BaseURL(known: "https://webhook.example")

    /// How several messages become one body.
    enum Batching: String, CaseIterable { case none, array, ndjson, wrapped }

    struct Authentication: Equatable {
        enum Scheme: String, CaseIterable { case none, basic, bearer, oauth2 }

        var scheme = Scheme.none
        var username = ""
        var password = Secret("")
        var token = Secret("")
        var tokenURL = ""
        var clientID = ""
        var clientSecret = Secret("")
        var scope = ""
        var parameters: [String: String] = [:]
        var clientAuthentication = ClientCredentials.Authentication.basic
    }

    static let fields: [SettingField<Self>] = [
        .address(
            "url", \.url, mayHaveQuery: true, "URL of the API, which may have a query; the default must be replaced."),
        .secretQuery(
            "query", \.query, "Parameters that are appended to the query of each request, e.g. a key or signature."),
        .kinds("kinds", \.kinds),
        .choice("batch", \.batch, "How several messages become one body; none: a request for each message."),
        .text("wrapIn", \.wrapIn, rule: .nonEmpty, "The member that holds the array of a wrapped batch."),
        SettingField(
            "orderBy", .text, \.orderBy,
            "JSON Pointer to a member; messages with equal values of it keep their order. Empty: no order."
        ) {
            .text($0.text)
        } decode: { value throws(Setting.Mismatch) in
            guard let text = value.text else { return nil }
            guard let pointer = Pointer(text) else { throw Setting.Mismatch(Pointer.form) }
            return pointer
        },
        .choice("auth.type", \.auth.scheme, "How requests are authenticated."),
        .text(
            "auth.username", \.auth.username, rule: noColon, simulated: "simulated-user",
            "User name for basic; without a colon."),
        .secret("auth.password", \.auth.password, simulated: "simulated-password", "Password for basic."),
        .secret("auth.token", \.auth.token, simulated: "simulated-token", "Token for bearer.", problem: tokenProblem),
        .spelledURL(
            "auth.tokenURL", \.auth.tokenURL, isAddress: true,
            "Where oauth2 gets its token for client credentials (RFC 6749, section 4.4); may have a query."),
        .text(
            "auth.clientId", \.auth.clientID, rule: .printable, simulated: "simulated-client", "Client id for oauth2."),
        .secret("auth.clientSecret", \.auth.clientSecret, simulated: "simulated-secret", "Client secret for oauth2."),
        .text("auth.scope", \.auth.scope, rule: .printable, "Scopes for oauth2, separated by blanks; empty: none."),
        .strings(
            "auth.parameters", \.auth.parameters, rule: furtherParameters,
            "Further parameters of the token request of oauth2, e.g. `audience` or `resource`. They are not secrets."),
        .choice(
            "auth.clientAuthentication", \.auth.clientAuthentication,
            "How oauth2 sends id and secret (RFC 6749, section 2.3.1): in the header Authorization, or in the form."),
        .bool(
            "verifyAtStart", \.verifiesAtStart,
            "Whether oauth2 gets a token at the start and after a change of these settings, to verify the credentials before the first message."
        ),
        .secretHeaders("headers", \.headers, besides: ownHeaders, "Further headers of every request."),
        .signingSecrets("signingSecrets", \.signingSecrets),
        .integers(
            "successStatuses", 200...499, \.successStatuses,
            "Statuses that mean success; empty: 200 to 299. Another status of that range then stops the upstream."),
        .integers(
            "retryStatuses", 200...599, \.retryStatuses,
            "Statuses after which the same messages are sent again later, as after 503; they never fail."),
        .integers(
            "rejectStatuses", 200...599, \.rejectStatuses,
            "Statuses that reject the message; it fails at once, and a batch is halved to find it."),
    ]

    /// Names that the type sets, in addition to those of any upstream.
    private static let ownHeaders: Set<String> = [
        "idempotency-key", "webhook-id", "webhook-timestamp", "webhook-signature",
    ]

    /// RFC 7617, section 2: the first colon ends the user name.
    private static let noColon = Setting.Rule<String>("must not contain a colon or a control character") {
        !$0.contains(":") && isPrintable($0)
    }

    private static let ownParameters = ["client_id", "client_secret", "grant_type", "scope"]

    private static let furtherParameters = Setting.Rule<[String: String]> { parameters in
        let own = ownParameters.filter { parameters[$0] != nil }.map { "\($0) is set by Postern itself" }
        let texts = parameters.flatMap { [$0.key, $0.value] }
        return (parameters[""] == nil ? [] : ["must not contain an empty name"])
            + (texts.allSatisfy(isPrintable) ? [] : ["must not contain a control character"]) + own
    }

    private static let tokenProblem: @Sendable (String) -> String? = { token in
        token.utf8.allSatisfy { (0x21...0x7E).contains($0) } ? nil : "must be ASCII without white space"
    }

    var conflicts: [(property: PartialKeyPath<Self>, detail: String)] { headerConflicts + statusConflicts }

    /// A status has one meaning.
    private var statusConflicts: [(property: PartialKeyPath<Self>, detail: String)] {
        let lists: [PartialKeyPath<Self>] = [\Self.successStatuses, \.retryStatuses, \.rejectStatuses]
        return lists.indices.flatMap { later in
            lists[..<later].compactMap { earlier in
                guard let one = self[keyPath: lists[later]] as? [Int], let other = self[keyPath: earlier] as? [Int],
                    case let shared = Set(one).intersection(other).sorted(), !shared.isEmpty
                else { return nil }
                let names = shared.map(String.init).joined(separator: ", ")
                return (lists[later], "must not contain \(names), which \(Self.name(of: earlier)) contains, too")
            }
        }
    }

    private var headerConflicts: [(property: PartialKeyPath<Self>, detail: String)] {
        guard auth.scheme != .none, headers.keys.contains(where: { $0.lowercased() == "authorization" }) else {
            return []
        }
        return [(\.headers, "must not contain Authorization, which auth.type \(auth.scheme.rawValue) sets")]
    }

    /// Settings that have to be filled in before anything can be sent.
    var unset: [String] {
        let required: Set<String> =
            switch auth.scheme {
            case .none: []
            case .basic: ["auth.username", "auth.password"]
            case .bearer: ["auth.token"]
            case .oauth2: ["auth.clientId", "auth.clientSecret"]
            }
        return (url.text == Self.exampleURL.text ? ["url"] : [])
            + (auth.scheme == .oauth2 && auth.tokenURL.isEmpty ? ["auth.tokenURL"] : [])
            + missing.filter(required.contains)
    }
}

extension WebhookSettings {
    /// Where the messages of a kind go.
    struct Target: Sendable {
        let method: UpstreamRequest.Method
        let url: String
        /// The name of the endpoint, which shows no value of the query.
        var name: String
    }

    /// By kind, except fan-outs. Kinds with the same method and URL share an endpoint, others do not.
    var targets: [String: Target] {
        var targets = kinds.filter(\.value.fanOut.isEmpty).mapValues { endpoint in
            let url = address(of: endpoint)
            return Target(
                method: endpoint.method, url: url, name: "\(endpoint.method.rawValue) \(URLQuery.masked(url))")
        }
        for (_, alike) in Dictionary(grouping: targets, by: \.value.name) where Set(alike.map(\.value.url)).count > 1 {
            for kind in alike.map(\.key) { targets[kind]?.name += " (\(kind))" }
        }
        return targets
    }

    private func address(of endpoint: Endpoint) -> String {
        let further = query.sorted { $0.key < $1.key }.map {
            "\(PercentEncoding.encode($0.key))=\(PercentEncoding.encode($0.value.value))"
        }
        let parts = ([url.query.value, endpoint.query.value] + further).filter { !$0.isEmpty }
        // Slashes at the end of the URL are sent as they are written, unless a path with a slash follows.
        let base = endpoint.path.hasPrefix("/") ? url.text : url.spelled
        return base + endpoint.path + (parts.isEmpty ? "" : "?" + parts.joined(separator: "&"))
    }
}

/// A kind as it is configured.
struct Endpoint: Sendable, Equatable {
    /// Appended to the URL of the upstream; empty, or with a slash at its beginning.
    var path = ""
    /// What follows the question mark in `path` as it is configured.
    var query = Secret("")
    var method = UpstreamRequest.Method.post
    /// The file with the schema of payloads; empty if there is none.
    var schemaFile = ""
    /// What that file contains.
    var schema: PayloadSchema?

    var rate = Traits.Rate()
    /// The kinds that get its payloads, as they are configured; empty if it is a kind that is sent.
    var fanOut: [String] = []

    private static let methods: [UpstreamRequest.Method] = [.post, .put, .patch]
    private static let mostLegs = 16
    private static let names = ["path", "method", "schema", "maxRequestsPerSecond", "maxMessagesPerSecond", "fanOut"]

    /// What its members are, by name.
    fileprivate static let members: [String: Setting.Kind] = [
        "path": .text, "method": .choice(methods.map(\.rawValue)), "schema": .text, "fanOut": .list,
        "maxRequestsPerSecond": .number(0...100_000), "maxMessagesPerSecond": .number(0...1_000_000),
    ]

    fileprivate var written: [String: SettingValue] {
        var members: [String: SettingValue] =
            fanOut.isEmpty
            ? ["path": .text(path + (query.isEmpty ? "" : "?\(query.value)")), "method": .text(method.rawValue)]
            : ["fanOut": .list(fanOut)]
        if !schemaFile.isEmpty { members["schema"] = .text(schemaFile) }
        if rate.requests > 0 { members["maxRequestsPerSecond"] = .number(rate.requests) }
        if rate.messages > 0 { members["maxMessagesPerSecond"] = .number(rate.messages) }
        return members
    }

    fileprivate init(written: [String: SettingValue]) {
        let (path, query) = URLQuery.split(written["path"]?.text ?? "")
        (self.path, self.query) = (path, Secret(query))
        method = (written["method"]?.text).flatMap(UpstreamRequest.Method.init) ?? .post
        rate = Traits.Rate(
            requests: written["maxRequestsPerSecond"]?.number ?? 0,
            messages: written["maxMessagesPerSecond"]?.number ?? 0)
        fanOut = written["fanOut"]?.list ?? []
        schemaFile = written["schema"]?.text ?? ""
        schema = schemaFile.isEmpty ? nil : try? Self.readSchema(schemaFile).get()
    }

    /// Reads a regular file, because a device may be endless and a pipe can be read only once.
    private static func readSchema(_ file: String) -> Result<PayloadSchema, PayloadSchema.Refusal> {
        var status = stat()
        guard stat(file, &status) == 0, status.st_mode & S_IFMT == S_IFREG, status.st_size <= PayloadSchema.largestFile,
            let text = FileManager.default.contents(atPath: file)
        else {
            let limit = PayloadSchema.largestFile
            return .failure(.init(problems: ["cannot be read: expected a file of at most \(limit) bytes"]))
        }
        do throws(PayloadSchema.Refusal) { return .success(try PayloadSchema(Array(text))) } catch {
            return .failure(error)
        }
    }

    init() {}

    fileprivate static func problems(with kind: String, _ written: [String: SettingValue]) -> [String] {
        var problems = [KindName.problem(with: kind).map { "'\(kind)' \($0)" }].compactMap(\.self)
        for name in written.keys.sorted() where !names.contains(name) {
            problems.append("'\(kind)' has a member '\(name)'; allowed are \(names.joined(separator: ", "))")
        }
        if let legs = written["fanOut"]?.list {
            if !(1...mostLegs).contains(legs.count) {
                problems.append("the fanOut of '\(kind)' must name 1 to \(mostLegs) kinds")
            }
            for name in names where written[name] != nil && !["fanOut", "schema"].contains(name) {
                problems.append("'\(kind)' has a fanOut, so it cannot have a \(name)")
            }
        }
        if let path = written["path"]?.text, !path.isEmpty {
            if !path.utf8.allSatisfy({ (0x21...0x7E).contains($0) }) || path.contains("#") {
                problems.append("the path of '\(kind)' must be ASCII without white space and fragment")
            } else if !path.hasPrefix("/"), !path.hasPrefix("?") {
                problems.append("the path of '\(kind)' must begin with a slash or a question mark")
            }
        }
        if let method = written["method"]?.text, !methods.contains(where: { $0.rawValue == method }) {
            let allowed = methods.map(\.rawValue).joined(separator: ", ")
            problems.append("the method of '\(kind)' must be one of \(allowed)")
        }
        if let file = written["schema"]?.text, !file.isEmpty, case .failure(let refusal) = readSchema(file) {
            problems += refusal.problems.prefix(10).map { "the schema \(file) of '\(kind)': \($0)" }
        }
        return problems
    }
}

extension SettingField<WebhookSettings> {
    fileprivate static func kinds(_ name: String, _ property: Property<[String: Endpoint]>) -> Self {
        Self(
            name, .objects(Endpoint.members), property, containsURLs: true,
            "The kinds of messages. Each may have a `path`, which is appended to the URL, a `method`: POST, PUT or PATCH, a `schema`: a file with the JSON Schema of its payloads, and `maxRequestsPerSecond` (0 to 100000) and `maxMessagesPerSecond` (0 to 1000000), as in `delivery`. A kind with a `fanOut`, 1 to 16 kinds of this or, as `upstream/kind`, of other upstreams, is stored as a message of each of these."
        ) {
            .objects($0.mapValues(\.written))
        } decode: { value throws(Setting.Mismatch) in
            guard let kinds = value.objects else { return nil }
            let problems = kinds.sorted { $0.key < $1.key }.flatMap { Endpoint.problems(with: $0, $1) }
            guard problems.isEmpty else { throw Setting.Mismatch(details: problems) }
            guard !kinds.isEmpty else { throw Setting.Mismatch("at least one kind is required") }
            return kinds.mapValues(Endpoint.init(written:))
        }
    }

    /// Names and values, which are encoded when they are sent.
    fileprivate static func secretQuery(
        _ name: String, _ property: Property<[String: Secret]>, _ summary: String
    ) -> Self {
        Self(name, .strings, property, secret: true, summary) {
            .strings($0.mapValues(\.value))
        } decode: { value throws(Setting.Mismatch) in
            guard let query = value.strings else { return nil }
            guard !query.keys.contains("") else { throw Setting.Mismatch("must not contain an empty name") }
            return query.mapValues { Secret($0) }
        }
    }

    fileprivate static func signingSecrets(_ name: String, _ property: Property<[Secret]>) -> Self {
        Self(
            name, .list, property, secret: true,
            "Secrets of Standard Webhooks, each `whsec_` and 24 to 64 bytes in base64. If there are any, requests are signed with each."
        ) {
            .list($0.map(\.value))
        } decode: { value throws(Setting.Mismatch) in
            guard let texts = value.list else { return nil }
            for (index, text) in texts.enumerated() where Signer.key(of: text) == nil {
                throw Setting.Mismatch("secret \(index + 1) must be whsec_ followed by 24 to 64 bytes in Base64")
            }
            return texts.map { Secret($0) }
        }
    }
}
