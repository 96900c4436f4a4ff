import Glibc
public import PosternCore
import PosternUpstream

/// `postern outbox import`: posts the messages of an export to a gateway.
///
/// Every request has an `Idempotency-Key` that is derived from its lines, so an import that was interrupted is continued
/// by running it again with the same file.
public struct OutboxImport: Sendable {
    private let address: GatewayAddress
    private let file: String
    private let state: MessageState
    /// How long to try without success.
    private let patience: Duration

    public init(
        _ file: String, to address: GatewayAddress, state: MessageState = .queued, patience: Duration = .seconds(300)
    ) {
        (self.file, self.address, self.state, self.patience) = (file, address, state, patience)
    }

    /// Throws if the rest of the file was not imported.
    public func run(_ progress: Progress) async throws(CommandFailure) -> ImportReport {
        let client = try GatewayClient(address)
        defer { client.close() }
        let lines = try LineFile(file)
        var (report, request, number) = (ImportReport(), ImportRequest(), 0)
        while let line = try lines.next() {
            number += 1
            guard !line.allSatisfy({ $0 == UInt8(ascii: " ") || $0 == UInt8(ascii: "\r") }) else { continue }
            switch ImportLine(line, state: state) {
            case .skipped: report.skipped += 1
            case .invalid(let reason): report.rejected.append(.init(line: number, reason: reason))
            case .envelope(let envelope):
                if request.isFull(before: envelope.count) {
                    try await post(request, by: client, &report)
                    request = ImportRequest()
                }
                request.add(envelope, of: number)
            }
            progress.advance()
        }
        if !request.isEmpty { try await post(request, by: client, &report) }
        report.rejected.sort { $0.line < $1.line }
        return report
    }

    private func post(
        _ request: ImportRequest, by client: GatewayClient, _ report: inout ImportReport
    ) async throws(CommandFailure) {
        let response = try await response(to: request, by: client)
        switch response.status {
        case 200..<300:
            guard report.add(response, to: request) else {
                throw stopped(at: request, client, "the response is not valid")
            }
        case 400, 409, 413, 422:
            // One of the messages is the cause. Alone, each gets an answer of its own.
            guard request.lines.count == 1 else {
                for single in request.single { try await post(single, by: client, &report) }
                return
            }
            report.rejected.append(.init(line: request.lines[0], reason: response.reason))
        default: throw stopped(at: request, client, response.problem)
        }
    }

    /// Whether the same request may succeed later.
    static func isTemporary(_ response: UpstreamResponse) -> Bool {
        switch response.status {
        case 425, 429, 500, 502, 503, 504, 507: true
        // The gateway still carries out an earlier try with this key.
        case 409: response.header("Retry-After") != nil
        default: false
        }
    }

    /// Waits while the gateway cannot accept messages.
    private func response(
        to request: ImportRequest, by client: GatewayClient
    ) async throws(CommandFailure) -> UpstreamResponse {
        let start = SystemTime().instant
        while true {
            let wait: Duration
            let problem: String
            do throws(TransferFailure) {
                let response = try await client.post(request)
                guard Self.isTemporary(response) else { return response }
                wait = response.retryAfter(now: SystemTime().now) ?? .seconds(1)
                problem = response.problem
            } catch {
                (wait, problem) = (.seconds(1), "\(client.url) does not respond: \(error.detail)")
            }
            guard SystemTime().instant - start + wait <= patience else { throw stopped(at: request, client, problem) }
            // A cancelled sleep shortens the wait; nothing cancels this task.
            try? await Task.sleep(for: max(wait, .milliseconds(100)))
        }
    }

    private func stopped(at request: ImportRequest, _ client: GatewayClient, _ reason: String) -> CommandFailure {
        CommandFailure(
            CommandFailure.no,
            """
            The import stopped before line \(request.lines.first ?? 0): \(reason). Run the same command again to continue: \
            what is stored is not stored twice as long as the gateway at \(client.url) remembers the requests \
            (outbox.idempotencyRetentionSeconds).
            """)
    }
}

extension GatewayClient {
    fileprivate func post(_ request: ImportRequest) async throws(TransferFailure) -> UpstreamResponse {
        try await ask(
            .post, "/v1/messages",
            headers: [
                ("Content-Type", "application/x-ndjson"), ("Prefer", "handling=lenient, return=minimal"),
                ("Idempotency-Key", request.idempotencyKey),
            ], body: request.body, within: .seconds(60))
    }
}

extension UpstreamResponse {
    /// The first error of a problem document, or its detail.
    fileprivate var reason: String {
        let found = JSONParser.ofThisThread.parse(body) { root -> String? in
            guard root.kind == .object, let errors = root["errors"], errors.kind == .array else { return nil }
            return Self.text(of: errors)
        }
        return ((try? found.get()) ?? nil) ?? problem
    }

    /// The first of some errors, as `/pointer: detail`.
    fileprivate static func text(of errors: JSONValue) -> String? {
        for error in errors.elements {
            let pointer = error["pointer"]?.string ?? ""
            return (pointer.isEmpty ? "" : "\(pointer): ") + (error["detail"]?.string ?? "")
        }
        return nil
    }
}

/// The result of an import.
public struct ImportReport: Sendable, Equatable {
    /// A line whose message was not stored.
    struct Rejection: Sendable, Equatable {
        /// Counted from 1.
        let line: Int
        let reason: String
    }

    /// Messages that were stored.
    var imported = 0
    /// Messages that an earlier run of the same import had stored.
    var repeated = 0
    /// Messages in another state, or without a payload.
    var skipped = 0
    var rejected: [Rejection] = []

    /// Adds the response to a lenient request. Returns false if it is not valid.
    fileprivate mutating func add(_ response: UpstreamResponse, to request: ImportRequest) -> Bool {
        let parsed = JSONParser.ofThisThread.parse(response.body) { root -> (Int, [Rejection])? in
            guard root.kind == .object, let accepted = root["accepted"]?.integer else { return nil }
            guard let rejected = root["rejected"], rejected.kind == .array else { return (Int(accepted), []) }
            return (
                Int(accepted),
                rejected.elements.compactMap { one in
                    guard let index = one["index"]?.integer, request.lines.indices.contains(Int(index)) else {
                        return nil
                    }
                    let reason = one["errors"].flatMap(UpstreamResponse.text) ?? "it was rejected"
                    return Rejection(line: request.lines[Int(index)], reason: reason)
                }
            )
        }
        guard case .success(let found?) = parsed else { return false }
        if response.header("Idempotent-Replay") == "true" { repeated += found.0 } else { imported += found.0 }
        rejected += found.1
        return true
    }

    /// 1 if a message was rejected.
    public var exitCode: Int32 { rejected.isEmpty ? 0 : CommandFailure.no }

    /// The result as text for people.
    public var text: String {
        var counts = ["\(imported) messages imported"]
        if repeated > 0 { counts.append("\(repeated) imported before") }
        if skipped > 0 { counts.append("\(skipped) skipped") }
        if !rejected.isEmpty { counts.append("\(rejected.count) rejected") }
        return ([counts.joined(separator: ", ")] + rejected.map { "line \($0.line): \($0.reason)" })
            .joined(separator: "\n")
    }

    /// The result as JSON for programs.
    public var json: String {
        JSONWriter.object { json in
            json.number("imported", imported)
            json.number("repeated", repeated)
            json.number("skipped", skipped)
            json.raw(
                "rejected",
                JSONWriter.array(
                    rejected.map { rejection in
                        JSONWriter.object { json in
                            json.number("line", rejection.line)
                            json.string("detail", rejection.reason)
                        }
                    }))
        }
    }
}
