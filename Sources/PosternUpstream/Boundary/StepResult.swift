public import PosternCore

/// How a step of a message's sequence ended. The steps are shown as the message's `result`, and counted.
public struct StepResult: Sendable, Equatable {
    public enum Outcome: String, Sendable, CaseIterable {
        case done
        /// It was not necessary, or an earlier step failed.
        case skipped
        case failed
    }

    /// One of the upstream's `steps`.
    public let step: String
    /// The event by which the upstream's own clients know the step; nil if they have none for it.
    public let event: String?
    /// The HTTP status of its last response; nil if there was none.
    public let status: Int?
    public let outcome: Outcome
    /// When it ended; nil if it was skipped.
    public let at: Timestamp?

    public init(_ step: String, event: String?, status: Int?, outcome: Outcome, at: Timestamp?) {
        self.step = step
        self.event = event
        self.status = status
        self.outcome = outcome
        self.at = at
    }
}

extension [StepResult] {
    /// What is kept with a message that has ended; nil if its sequence has no steps.
    public var result: [UInt8]? {
        guard !isEmpty else { return nil }
        let steps = map { step in
            JSONWriter.object { json in
                json.string("step", step.step)
                json.string("event", step.event)
                json.number("status", step.status)
                json.string("outcome", step.outcome.rawValue)
                json.time("at", step.at)
            }
        }
        return [UInt8](JSONWriter.object { $0.raw("steps", JSONWriter.array(steps)) }.utf8)
    }
}
