import PosternCore
import PosternUpstream

/// The records of a batch, in the order in which they happened.
struct SDKBatch: Equatable, Sendable {
    /// By what the platform calls them.
    enum Form: String, Sendable {
        /// Of a live session.
        case batch
        case offline
    }

    let records: [SDKRecord]

    /// Nil if `data` is not a JSON array.
    init?(_ request: CurioSDKRequest) {
        let text = Array((request.form["data"] ?? "").utf8)
        let parsed = JSONParser.ofThisThread.parseWithLoneSurrogates(text) { data in
            data.kind == .array ? data.elements.map { SDKRecord($0, session: request.session) } : nil
        }
        guard case .success(let records?) = parsed else { return nil }
        self.records = Self.inOrder(records)
    }

    /// SDKs send the newest first. Records without a time, which are not delivered, come last.
    static func inOrder(_ records: [SDKRecord]) -> [SDKRecord] {
        var timed = records.compactMap { record in record.timestamp.map { (time: $0, record: record) } }
        let pairs = zip(timed, timed.dropFirst())
        if pairs.allSatisfy({ $0.time >= $1.time }) {
            timed.reverse()
        } else if !pairs.allSatisfy({ $0.time <= $1.time }) {
            if timed[0].time > timed[timed.count - 1].time { timed.reverse() }
            timed = timed.enumerated().sorted { ($0.element.time, $0.offset) < ($1.element.time, $1.offset) }
                .map(\.element)
        }
        var ordered: [SDKRecord] = []
        ordered.reserveCapacity(records.count)
        var rest = timed[...]
        while let first = rest.first {
            let moment = rest.prefix { $0.time == first.time }
            if moment.count == 1 { ordered.append(first.record) } else { append(moment.map(\.record), to: &ordered) }
            rest = rest.dropFirst(moment.count)
        }
        return ordered + records.filter { $0.timestamp == nil }
    }

    /// Records of one moment stay as they are, except that a session's start precedes the others of the session and its
    /// end follows them, and that the start of a screen or an event precedes its end.
    private static func append(_ moment: [SDKRecord], to ordered: inout [SDKRecord]) {
        var isAppended = [Bool](repeating: false, count: moment.count)
        var starts: [String: Int] = [:]
        var lasts: [String: Int] = [:]
        var ends: [String: [Int]] = [:]
        var opens: [String: Int] = [:]
        for (index, record) in moment.enumerated() {
            let session = record.session ?? ""
            lasts[session] = index
            switch record.step {
            case .sessionStart: starts[session] = starts[session] ?? index
            case .sessionEnd: ends[session, default: []].append(index)
            case .screenStart, .event: if let name = record.openName { opens[name] = opens[name] ?? index }
            case .screenEnd, .eventEnd, .failedRequest, nil: break
            }
        }
        /// Ends that wait for their start, by its index.
        var waiting: [Int: [Int]] = [:]
        func append(_ index: Int) {
            guard !isAppended[index] else { return }
            isAppended[index] = true
            ordered.append(moment[index])
            waiting.removeValue(forKey: index)?.forEach(append)
        }
        for (index, record) in moment.enumerated() {
            let session = record.session ?? ""
            if let start = starts[session] { append(start) }
            switch record.step {
            case .sessionEnd: break
            case .screenEnd, .eventEnd:
                if let open = record.openName.flatMap({ opens[$0] }), !isAppended[open] {
                    waiting[open, default: []].append(index)
                } else {
                    append(index)
                }
            case .sessionStart, .screenStart, .event, .failedRequest, nil: append(index)
            }
            if lasts[session] == index { ends[session]?.forEach(append) }
        }
    }
}

extension SDKRecord {
    fileprivate var step: Step? { if case .action(let step, _) = content { step } else { nil } }

    /// Equal for the start and the end of the same screen or event.
    fileprivate var openName: String? {
        guard case .action(let step, let values) = content, let code = values.code else { return nil }
        return (step == .screenStart || step == .screenEnd ? "s" : "e") + code
    }
}
