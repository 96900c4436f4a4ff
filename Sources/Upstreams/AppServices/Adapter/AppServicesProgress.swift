import PosternCore
import PosternUpstream

/// The progress of a message's sequence, stored with the message.
struct AppServicesProgress: Equatable {
    /// The last response to a step. Steps that an older version has done have neither value.
    struct Mark: Equatable {
        var status: Int?
        var at: Timestamp?
    }

    /// Steps that are over, whatever followed from them.
    private(set) var marks: [Step: Mark] = [:]
    /// Whether the sequence was restarted, because something that had existed was not found.
    private(set) var isSecondRound = false
    /// Whether the group was looked up and is missing.
    var lacksGroup = false
    /// Why E was rejected. F follows all the same, and the message fails after it.
    var disconnectRefusal: String?
    /// The step of the last request, if it is one of app monitoring: `Message.mayHaveArrived` is about it.
    var sent: Step?
    /// The attempts that had counted against the message before its present step.
    var attempts = 0

    init() {}

    /// Letters of steps that an older version has done, `2` for the second round, `0` for a missing group; `*` and
    /// `attempts`; a colon and the letter of `sent`; `#` and the marks, each a letter, the status, `@`, and
    /// milliseconds; `!` and a reason.
    init(_ stored: [UInt8]?) {
        let text = String(decoding: stored ?? [], as: UTF8.self)
        let parts = text.split(separator: "!", maxSplits: 1, omittingEmptySubsequences: false)
        if parts.count > 1 { disconnectRefusal = String(parts[1]) }
        let head = (parts.first ?? "").split(separator: "#", maxSplits: 1, omittingEmptySubsequences: false)
        let flags = (head.first ?? "").split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
        let words = (flags.first ?? "").split(separator: "*", maxSplits: 1, omittingEmptySubsequences: false)
        if words.count > 1 { attempts = Int(words[1]) ?? 0 }
        for letter in words.first ?? "" {
            switch letter {
            case "2": isSecondRound = true
            case "0": lacksGroup = true
            default: if let step = Step(letter: letter) { marks[step] = Mark() }
            }
        }
        if flags.count > 1 { sent = flags[1].first.flatMap(Step.init(letter:)) }
        guard head.count > 1 else { return }
        for text in head[1].split(separator: ",") {
            guard let step = text.first.flatMap(Step.init(letter:)) else { continue }
            let numbers = text.dropFirst().split(separator: "@", omittingEmptySubsequences: false)
            marks[step] = Mark(
                status: numbers.first.flatMap { Int($0) },
                at: numbers.last.flatMap { Int64($0) }.map(Timestamp.init(milliseconds:)))
        }
    }

    var stored: [UInt8] {
        var text = (isSecondRound ? "2" : "") + (lacksGroup ? "0" : "")
        if attempts > 0 { text += "*\(attempts)" }
        if let sent { text += ":\(sent.letter)" }
        let marks = marks.sorted { $0.key.letter < $1.key.letter }.map { step, mark in
            "\(step.letter)\(mark.status.map(String.init) ?? "")@\(mark.at.map { "\($0.milliseconds)" } ?? "")"
        }
        if !marks.isEmpty { text += "#" + marks.joined(separator: ",") }
        if let disconnectRefusal { text += "!" + disconnectRefusal }
        return Array(text.utf8)
    }

    /// The steps that are not necessary any more.
    var done: Set<Step> {
        var done = Set(marks.keys)
        if lacksGroup { done.remove(.findGroup) }
        if disconnectRefusal != nil { done.remove(.disconnect) }
        return done
    }

    func with(_ change: (inout Self) -> Void) -> Self {
        var next = self
        change(&next)
        return next
    }

    func marking(_ step: Step, _ mark: Mark) -> Self { with { $0.marks[step] = mark } }

    /// Restarts the sequence, once.
    static let secondRound = Self().with { $0.isSecondRound = true }

    // MARK: Results

    /// The steps of a sequence that has ended; `failed` is the one that it ended with.
    func results(of kind: AppServicesKind, failed: Step? = nil) -> [StepResult] {
        if kind.isStep, let step = kind.steps.first {
            // Without a response to the step itself, the last one to what precedes it.
            let mark = marks[failed ?? step] ?? marks.values.max { $0.at ?? .never < $1.at ?? .never }
            return [
                StepResult(
                    step.rawValue, event: step.event, status: mark?.status,
                    outcome: failed != nil ? .failed : mark == nil ? .skipped : .done, at: mark?.at)
            ]
        }
        return kind.steps.map { step in
            let mark = marks[step]
            let hasFailed = step == failed || (step == .disconnect && disconnectRefusal != nil)
            return StepResult(
                step.rawValue, event: step.event, status: mark?.status,
                outcome: hasFailed ? .failed : mark == nil ? .skipped : .done, at: mark?.at)
        }
    }
}
