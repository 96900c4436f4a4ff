import Foundation
package import PosternCore
package import PosternScenarios

/// Seer's SDK: reports that are made at once, and a queue that it sends in batches. Any refusal leaves a report in the queue
/// (the specification's "Queue semantics in the SDK, and in the gateway").
package struct SeerSDKModel: SDKModel {
    private struct Report {
        let entry: Expectations.Entry
        let text: String
        var state = State.pending
        var kind: String { entry.kind }
    }
    private enum State { case pending, failed, sent }
    private let bundleBytes: Int
    private let reportsInvalid: Bool
    private var token: (text: String, seconds: Int)?
    private var queue: [Report] = []
    /// Reports that are to be made at once, and those that are being made, by their requests.
    private var direct: [Report] = []
    private var reporting: [Int: Report] = [:]
    /// The requests of a pass through the queue.
    private var batches: Set<Int> = []
    private var wantsPass = false
    /// The request for a token, and whether one has just been answered.
    private var fetch: Int?
    private var hasFetched = false
    private var requests = 0

    package init(_ device: SDKDevice) {
        // The SDK always has the first one.
        bundleBytes = device.random.pick([102_400, 1024])
        reportsInvalid = device.reportsInvalid
    }

    package var isEmpty: Bool {
        queue.isEmpty && direct.isEmpty && reporting.isEmpty && batches.isEmpty && fetch == nil
    }

    package mutating func use(_ stage: Stage, poison: Double) {
        // Without a token, an app can only queue; and what is queued of a third kind is never sent.
        let isDirect = token != nil && stage.random.chance(0.5)
        let kind = stage.random.pick(["activity", "tincan"] + (isDirect ? ["instrumentation"] : []))
        let isInvalid = reportsInvalid && stage.random.chance(0.05)
        let entry = stage.beginOfSDK(kind, lane: kind, isPoison: isInvalid || stage.random.chance(poison))
        let id = kind == "tincan" ? #","id":"\#(entry.mark)""# : ""
        let more = entry.isPoison && !isInvalid ? #","poison":"clear""# : ""
        let text =
            isInvalid ? #"{"verb":1,"object":{"id":"\#(entry.mark)"}\#(id)}"# : reportText(kind, entry.mark, id + more)
        entry.payload = text
        (entry.isRejected, entry.isExempt, entry.isKnownAgain) = (isInvalid, isInvalid, kind == "tincan")
        let report = Report(entry: entry, text: text)
        if isDirect { direct.append(report) } else { queue.append(report) }
    }

    package mutating func calls(at now: Timestamp, timerFired: Bool) -> [SDKCall] {
        if timerFired, batches.isEmpty, !queue.isEmpty { wantsPass = true }
        guard fetch == nil, wantsPass || !direct.isEmpty else { return [] }
        // Without a date in the future, it fetches a token before each pass and each report.
        let isUsable = token.map { Int(now.milliseconds / 1000) <= $0.seconds } ?? false
        guard isUsable || hasFetched else { return [tokenCall()] }
        hasFetched = false
        var calls = direct.map { report in
            let call = self.call("/\(path(of: report.kind))", report.text, [report.entry])
            reporting[call.number] = report
            return call
        }
        direct = []
        if wantsPass, token != nil { calls += pass() }
        wantsPass = false
        return calls
    }

    private mutating func tokenCall() -> SDKCall {
        requests += 1
        fetch = requests
        let credentials = Data("simulated-client:simulated-secret".utf8).base64EncodedString()
        var call = SDKCall(
            requests, "/oauth/access_token",
            headers: [
                ("Authorization", "Basic \(credentials)"), ("Content-Type", "application/x-www-form-urlencoded"),
            ], body: "grant_type=client_credentials")
        call.timeout = .seconds(10)
        return call
    }

    private mutating func call(_ path: String, _ body: String, _ entries: [Expectations.Entry]) -> SDKCall {
        requests += 1
        // If the token could not be fetched, a report is sent without one.
        var headers = [(name: "Accept", value: "application/json"), (name: "Content-Type", value: "application/json")]
        if let token { headers.append(("Authorization", "Bearer \(token.text)")) }
        var call = SDKCall(requests, path, headers: headers, body: body, entries)
        call.timeout = .seconds(10)
        return call
    }

    private func path(of kind: String) -> String {
        switch kind {
        case "activity": "sactivity"
        case "instrumentation": "sinstrumentation"
        default: kind
        }
    }

    /// All batches at once, of what has failed before what has not been sent yet.
    private mutating func pass() -> [SDKCall] {
        var calls: [SDKCall] = []
        for kind in ["activity", "tincan"] {
            let reports = queue.filter { $0.kind == kind }
            for batch in bundles(of: reports.filter { $0.state == .failed } + reports.filter { $0.state == .pending }) {
                let body = #"{"activities":[\#(batch.map(\.text).joined(separator: ","))]}"#
                let call = self.call("/\(path(of: kind))/batch", body, batch.map(\.entry))
                batches.insert(call.number)
                calls.append(call)
            }
        }
        return calls
    }

    private func bundles(of reports: [Report]) -> [[Report]] {
        var bundles: [[Report]] = []
        var size = 0
        for report in reports {
            let bytes = report.text.utf8.count + 1
            if bundles.isEmpty || size + bytes > bundleBytes {
                bundles.append([])
                size = 17
            }
            size += bytes
            bundles[bundles.count - 1].append(report)
        }
        return bundles
    }

    package mutating func take(_ reply: SDKReply?, to call: SDKCall) -> SDKVerdict {
        if call.number == fetch { return takeToken(reply) }
        let isAccepted = reply.map { 200..<300 ~= $0.status } ?? false
        if let report = reporting.removeValue(forKey: call.number) {
            // One of the third kind stays in the queue, and is never sent.
            if !isAccepted, report.kind != "instrumentation" {
                queue.append(Report(entry: report.entry, text: report.text, state: .failed))
            }
        } else {
            batches.remove(call.number)
            for index in queue.indices where call.entries.contains(where: { $0 === queue[index].entry }) {
                queue[index].state = isAccepted ? .sent : .failed
            }
            if batches.isEmpty { queue.removeAll { $0.state == .sent } }
        }
        let hasToken = call.headers.contains { $0.name == "Authorization" }
        switch reply?.status {
        case _ where isAccepted: return .accepted
        case nil, 503: return .kept
        case 401 where !hasToken: return .kept
        case let status?: return .unexpected("\(status) \(reply?.text ?? "")")
        }
    }

    /// It does not look at the status. Without another token, it does not use the expired one either.
    private mutating func takeToken(_ reply: SDKReply?) -> SDKVerdict {
        (fetch, hasFetched, token) = (nil, true, nil)
        guard let reply else { return .kept }
        let object = try? JSONSerialization.jsonObject(with: Data(reply.text.utf8)) as? [String: Any]
        guard let text = object?["access_token"] as? String else {
            return reply.status == 503 ? .kept : .unexpected("\(reply.status) \(reply.text)")
        }
        // It prints the date, and cuts the last three characters.
        let date = object?["expiration_date"].map { "\($0)" } ?? ""
        guard date.count > 3, let seconds = Int(date.dropLast(3)) else { return .unexpected("the date \(date)") }
        token = (text, seconds)
        return .kept
    }
}
