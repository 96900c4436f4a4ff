import Foundation
public import PosternCore
import PosternProcess
import PosternUpstream

/// What `postern upstreams`, `failures`, `operations`, and `replay` ask of a running gateway, whose answers they show as text for people or
/// as the JSON of the API.
public struct UpstreamConsole: Sendable {
    private let address: GatewayAddress

    public init(_ address: GatewayAddress) { self.address = address }

    /// What to do with one upstream.
    public enum Action: String, Sendable, CaseIterable {
        case pause, resume, flush, probe
    }

    /// The health and the backlog of each upstream.
    public func upstreams(asJSON: Bool) async throws(CommandFailure) -> String {
        let answer = try await asking { (client) async throws(CommandFailure) in
            try await client.result(.get, "/v1/upstreams")
        }
        guard !asJSON else { return answer.text }
        var table = TextTable([
            "UPSTREAM", "TYPE", "HEALTH", "PAUSED BY", .number("QUEUED"), .number("EMPTY IN S"), .number("IN FLIGHT"),
            "CIRCUIT", "REOPENS", "LAST ERROR",
        ])
        for upstream in answer.objects("upstreams") {
            table.add([
                upstream["name"], upstream["type"], upstream["health"], upstream["pausedBy", "key"], upstream["queued"],
                upstream["drainSeconds"], upstream["inFlight"], upstream["circuit", "state"],
                upstream["circuit", "reopensAt"], upstream["lastError", "detail"],
            ])
        }
        return table.text
    }

    /// Does it, and says what the result is.
    ///
    /// - Parameter wait: How long to wait for the end of a flush, in seconds.
    /// - Returns: The result, and the exit code: 1 if a probe found that the upstream does not work.
    public func perform(
        _ action: Action, on name: UpstreamName, wait: Int, asJSON: Bool
    ) async throws(CommandFailure) -> (text: String, exitCode: Int32) {
        let headers = action == .flush ? [("Prefer", "wait=\(wait)")] : []
        let answer = try await asking { (client) async throws(CommandFailure) in
            try await client.result(.post, "/v1/upstreams/\(name)/\(action.rawValue)", headers)
        }
        let object = answer.object
        let exitCode = action == .probe && object["outcome"] != "ok" ? CommandFailure.no : 0
        guard !asJSON else { return (answer.text, exitCode) }
        let text =
            switch action {
            case .pause: "\(name) is paused; \(object["queued"]) queued."
            case .resume: "\(name) is resumed; \(object["queued"]) queued."
            case .flush where answer.status == 202: "\(name) is being flushed; \(object["queued"]) were queued."
            case .flush:
                "\(name) is flushed: \(object["sent"]) sent, \(object["delivered"]) delivered, \(object["failed"]) failed, "
                    + "\(object["remaining"]) remaining."
            case .probe:
                "\(name): \(object["outcome"])"
                    + (object["detail"] == "-" ? "" : ", \(object["detail"].printable())")
                    + " (\(object["durationMs"]) ms)."
            }
        return (text, exitCode)
    }

    /// The failed messages of an upstream, or of each, grouped by their errors.
    ///
    /// - Parameter cursor: `next` of an earlier page.
    public func failures(
        of name: UpstreamName?, after cursor: MessageID?, asJSON: Bool
    ) async throws(CommandFailure) -> String {
        let pages = try await asking { (client) async throws(CommandFailure) -> [(name: String, answer: Answer)] in
            var names = name.map { ["\($0)"] } ?? []
            if name == nil {
                names = try await client.result(.get, "/v1/upstreams").objects("upstreams").map { $0["name"] }
            }
            var pages: [(name: String, answer: Answer)] = []
            for name in names {
                let query = cursor.map { "?cursor=\($0)" } ?? ""
                pages.append((name, try await client.result(.get, "/v1/upstreams/\(name)/failures\(query)")))
            }
            return pages
        }
        guard !asJSON else {
            return JSONWriter.object { json in
                json.raw(
                    "upstreams",
                    JSONWriter.array(
                        pages.map { "{\"name\":\(JSONEscapes.quoted($0.name)),\($0.answer.text.dropFirst())" }))
            }
        }
        var table = TextTable(["UPSTREAM", .number("COUNT"), "CLASS", "STATUS", "LAST", "SAMPLE", "GROUP", "DETAIL"])
        for (name, answer) in pages {
            for group in answer.objects("failures") {
                table.add([
                    name, group["count"], group["class"], group["status"], group["lastAt"], group["sample"],
                    group["id"],
                    group["detail"],
                ])
            }
        }
        let more = pages.compactMap { name, answer in
            answer.object["next"] == "-"
                ? nil : "Older ones: postern failures \(name) --cursor \(answer.object["next"])"
        }
        return ([table.text] + more).joined(separator: "\n")
    }

    /// The operations that are running, and the last that have ended; stops the one called `id` before.
    public func operations(stopping id: String?, asJSON: Bool) async throws(CommandFailure) -> String {
        let answer = try await asking { (client) async throws(CommandFailure) in
            if let id { _ = try await client.result(.delete, "/v1/operations/\(id)") }
            return try await client.result(.get, "/v1/operations")
        }
        guard !asJSON else { return answer.text }
        var table = TextTable([
            "OPERATION", "ACTION", "UPSTREAM", "BY", "STARTED", "FINISHED", .number("MATCHED"), .number("DONE"),
            .number("SKIPPED"), "STOPPED",
        ])
        for operation in answer.objects("operations") {
            table.add([
                operation["id"], operation["action"], operation["upstream"], operation["by"], operation["startedAt"],
                operation["finishedAt"], operation["matched"], operation["done"], operation["skippedCount"],
                operation["stopped"],
            ])
        }
        return table.text
    }

    /// Begins a replay, or counts its messages. `members`: of the request, as far as they have values.
    public func replay(
        _ members: [(name: String, value: String?)], isPreview: Bool, asJSON: Bool
    ) async throws(CommandFailure) -> String {
        let body = JSONWriter.object { json in
            for case (let name, let value?) in members { json.string(name, value) }
            json.flag("dryRun", isPreview)
        }
        let answer = try await asking { (client) async throws(CommandFailure) in
            try await client.result(
                .post, "/v1/messages/replay", [("Content-Type", "application/json")], body: Array(body.utf8))
        }
        guard !asJSON else { return answer.text }
        let object = answer.object
        if isPreview {
            return
                "\(object["replayed"]) messages with \(object["bytes"]) bytes would be queued again; the payloads of "
                + "\(object["withoutPayload"]) are not kept."
        }
        guard answer.status == 202 else {
            return
                "The replay \(object["id"]) was begun before: \(object["done"]) of \(object["matched"]) messages are queued "
                + "again."
        }
        return "\(object["matched"]) messages are being replayed. See: postern operations; stop it with --stop "
            + "\(object["operation"])."
    }

    private func asking<Value>(
        _ body: (GatewayClient) async throws(CommandFailure) -> Value
    ) async throws(CommandFailure) -> Value {
        let client = try GatewayClient(address)
        defer { client.close() }
        return try await body(client)
    }

    /// A response of the API.
    fileprivate struct Answer: Sendable {
        let status: Int
        let body: [UInt8]

        var text: String {
            var text = String(decoding: body, as: UTF8.self)
            while text.last == "\n" { text.removeLast() }
            return text
        }
        var object: Members { Members(members: read) }
        func objects(_ name: String) -> [Members] {
            (read[name] as? [[String: Any]] ?? []).map(Members.init)
        }

        private var read: [String: Any] {
            (try? JSONSerialization.jsonObject(with: Data(body))) as? [String: Any] ?? [:]
        }
    }

    /// The members of an object as text; `-` for null and for what is absent.
    fileprivate struct Members {
        let members: [String: Any]

        subscript(_ path: String...) -> String {
            let value = path.reduce(members as Any?) { object, name in (object as? [String: Any])?[name] }
            return value as? String ?? (value as? NSNumber)?.stringValue ?? "-"
        }
    }
}

extension GatewayClient {
    /// A flush may take this much longer than the time for which the gateway waits.
    private static let patience = Duration.seconds(90)

    /// Throws the problem of a response that is not a success.
    fileprivate func result(
        _ method: UpstreamRequest.Method, _ path: String, _ headers: [(String, String)] = [], body: [UInt8] = []
    ) async throws(CommandFailure) -> UpstreamConsole.Answer {
        let response: UpstreamResponse
        do throws(TransferFailure) {
            response = try await ask(method, path, headers: headers, body: body, within: Self.patience)
        } catch {
            throw CommandFailure(CommandFailure.no, "\(url) does not respond: \(error.detail)")
        }
        guard (200..<300).contains(response.status) else {
            throw CommandFailure(CommandFailure.no, "The gateway at \(url) responded: \(response.problem)")
        }
        return UpstreamConsole.Answer(status: response.status, body: response.body)
    }
}
