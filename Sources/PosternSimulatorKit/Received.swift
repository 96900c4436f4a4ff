import PosternCore

/// The items that a simulator accepted and its responses. A value; `SimulatedUpstream` guards it.
struct Received: Sendable {
    let keep: SimulatorHost.Keep
    private(set) var requests = 0
    /// Requests with a 2xx response, including those whose response was lost on purpose.
    private(set) var acceptedRequests = 0
    private(set) var items = 0
    private(set) var violationCount = 0
    /// The first ones; more are only counted.
    private(set) var violations: [String] = []
    /// The number of responses by status, or by the fault that replaced a response.
    private(set) var answers: [String: Int] = [:]
    private var seen: Set<UInt64> = []
    private var entries: [Entry] = []

    /// The items of a request that were accepted, or those that it was rejected for.
    private struct Entry: Sendable {
        let items: SimulatedResult.Items
        let isAccepted: Bool
        /// The status, or the fault that replaced the response.
        let answer: String
        let instant: MonotonicInstant
    }

    private static let keptViolations = 100

    init(keep: SimulatorHost.Keep) { self.keep = keep }

    var distinctItems: Int? { keep == .counts ? nil : seen.count }

    mutating func record(_ judged: SimulatedResult?, answeredWith answer: String, at instant: MonotonicInstant) {
        requests += 1
        answers[answer, default: 0] += 1
        guard let judged else { return }
        violationCount += judged.violations.count
        violations += judged.violations.prefix(Self.keptViolations - violations.count)
        if keep == .texts, !judged.rejected.ranges.isEmpty {
            entries.append(Entry(items: judged.rejected, isAccepted: false, answer: answer, instant: instant))
        }
        guard let status = judged.answer?.status, (200...299).contains(status) else { return }
        acceptedRequests += 1
        items += judged.items.ranges.count
        if keep != .counts { seen.formUnion(judged.items.identities) }
        if keep == .texts, !judged.items.ranges.isEmpty {
            entries.append(Entry(items: judged.items, isAccepted: true, answer: answer, instant: instant))
        }
    }

    /// The counts, and with `page` the texts of those items in the order of arrival.
    func json(upstream: String, page: (offset: Int, limit: Int)?) -> [UInt8] {
        let counts = answers.sorted { $0.key < $1.key }.map { "\(quoted($0.key)):\($0.value)" }
        var text = """
            {"upstream":\(quoted(upstream)),"requests":\(requests),"acceptedRequests":\(acceptedRequests),\
            "events":\(items),"distinctEvents":\(distinctItems.map(String.init) ?? "null"),\
            "duplicates":\(distinctItems.map { String(items - $0) } ?? "null"),\
            "answers":{\(counts.joined(separator: ","))},"violationCount":\(violationCount),\
            "violations":[\(violations.map { quoted($0) }.joined(separator: ","))],"keep":"\(keep.rawValue)"
            """.utf8.map { $0 }
        if let page {
            text += Array(",\"texts\":[".utf8)
            var isFirst = true
            forEachAccepted(from: page.offset, limit: page.limit) { item in
                if !isFirst { text.append(UInt8(ascii: ",")) }
                isFirst = false
                text.append(contentsOf: item)
            }
            text.append(UInt8(ascii: "]"))
        }
        text.append(UInt8(ascii: "}"))
        return text
    }

    /// A line for each item in the order of arrival: its order key or its value of `orderField`, a tab, its value of
    /// `field`. A missing member is shown as an empty value.
    ///
    /// With `log`, the items that requests were rejected for are there, too, and each line has three more columns:
    /// `accepted` or `rejected`, the response, and the nanoseconds of the monotonic clock.
    func lines(orderField: String, field: String, log: Bool = false) -> [UInt8] {
        var lines: [UInt8] = []
        for entry in entries where log || entry.isAccepted {
            let verdict = entry.isAccepted ? "accepted" : "rejected"
            let end = log ? "\t\(verdict)\t\(entry.answer)\t\(entry.instant.nanoseconds)\n" : "\n"
            entry.items.text.withUnsafeBufferPointer { text in
                for range in entry.items.ranges {
                    let item = UnsafeBufferPointer(rebasing: text[range])
                    let key = entry.items.orderKey ?? member(orderField, of: item)?.text ?? ""
                    lines.append(contentsOf: "\(key)\t\(found(field, in: item)?.text ?? "")\(end)".utf8)
                }
            }
        }
        return lines
    }

    private func forEachAccepted(from offset: Int, limit: Int, _ body: (UnsafeBufferPointer<UInt8>) -> Void) {
        var (skip, left) = (offset, limit)
        for entry in entries where entry.isAccepted && left > 0 {
            let ranges = entry.items.ranges.dropFirst(skip).prefix(left)
            skip = max(0, skip - entry.items.ranges.count)
            left -= ranges.count
            entry.items.text.withUnsafeBufferPointer { text in
                for range in ranges { body(.init(rebasing: text[range])) }
            }
        }
    }
}
