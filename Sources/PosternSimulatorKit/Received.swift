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
    private var batches: [SimulatedResult.Items] = []

    private static let keptViolations = 100

    init(keep: SimulatorHost.Keep) { self.keep = keep }

    var distinctItems: Int? { keep == .counts ? nil : seen.count }

    mutating func record(_ judged: SimulatedResult?, answeredWith answer: String) {
        requests += 1
        answers[answer, default: 0] += 1
        guard let judged else { return }
        violationCount += judged.violations.count
        violations += judged.violations.prefix(Self.keptViolations - violations.count)
        guard let status = judged.answer?.status, (200...299).contains(status) else { return }
        acceptedRequests += 1
        items += judged.items.ranges.count
        if keep != .counts { seen.formUnion(judged.items.identities) }
        if keep == .texts, !judged.items.ranges.isEmpty { batches.append(judged.items) }
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
            forEachText(from: page.offset, limit: page.limit) { item, _ in
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
    func lines(orderField: String, field: String) -> [UInt8] {
        var lines: [UInt8] = []
        forEachText(from: 0, limit: .max) { item, orderKey in
            lines.append(contentsOf: (orderKey ?? member(orderField, of: item)?.text ?? "").utf8)
            lines.append(UInt8(ascii: "\t"))
            lines.append(contentsOf: (found(field, in: item)?.text ?? "").utf8)
            lines.append(UInt8(ascii: "\n"))
        }
        return lines
    }

    private func forEachText(
        from offset: Int, limit: Int, _ body: (_ item: UnsafeBufferPointer<UInt8>, _ orderKey: String?) -> Void
    ) {
        var (skip, left) = (offset, limit)
        for batch in batches where left > 0 {
            let ranges = batch.ranges.dropFirst(skip).prefix(left)
            skip = max(0, skip - batch.ranges.count)
            left -= ranges.count
            batch.text.withUnsafeBufferPointer { text in
                for range in ranges { body(.init(rebasing: text[range]), batch.orderKey) }
            }
        }
    }
}
