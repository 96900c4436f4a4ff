import PosternCore

/// What a simulator does wrong, and when: a list of rules with a text form.
///
/// The text is a list separated by commas. Each rule is `fault[@path][:when]`:
///
/// - `status=503`, with a `Retry-After` as `status=503/30` (seconds) or as a date so many seconds ahead:
///   `/30imf`, `/30rfc850`, `/30asctime`; `cut=429/30` is the same without the end of its body;
/// - `reset-before`, `reset-after` (taken, the answer lost), `hang` (not taken, no answer), `hang-after`;
/// - `mute` is `hang` on connections that were open when the faults were set, and nothing on later ones;
/// - `delay=20ms` before an answer that is whole, `drip=50ms` between the bytes of the answer (units `ms`, `s`);
/// - `garbage` and `truncate` spoil the answer to a request that was taken;
/// - `pass` is not a fault: it ends the list for this request, e.g. inside a script;
/// - `poison=eventName:bad[:500|413|400|401|403|404|array]` refuses every request with an item that has this member;
///   `poison=/object/id:bad` names it by a JSON Pointer.
///
/// `@path` is the beginning of the paths meant. `when` is a probability (`:0.1`) or a number of requests (`:x3`);
/// without it, every request. Numbered rules make scripts: `status=503:x2,pass:x1,reset-before:x1`. Of the rules that
/// apply to a request the first wins; delays add up on the way to it. Commas, colons, at signs, slashes and per cent
/// signs inside a path, member or value are written as `%2C` and so on.
public struct Faults: Sendable, Equatable {
    /// In their order: the first one that applies wins.
    var rules: [Rule] = []
    /// Checked in each request that no rule keeps from the simulator.
    public var poisons: [Poison] = []
    /// The text from which they were read, without the blanks around its rules.
    var text = ""

    public init() {}

    var isEmpty: Bool { rules.isEmpty && poisons.isEmpty }

    /// One fault, the paths that it affects, and how often.
    struct Rule: Sendable, Equatable {
        var fault: Fault
        /// The beginning of the paths that are affected; empty means all.
        var path: String
        /// Which of the requests to these paths are affected.
        var when: When
    }

    /// What goes wrong; the text form is described at `Faults`.
    enum Fault: Sendable, Equatable {
        case status(Int, retryAfter: RetryAfter?)
        case cut(Int, retryAfter: RetryAfter?)
        case resetBefore, resetAfter, hang, hangAfter, mute, garbage, truncate, pass
        case delay(Duration)
        case drip(Duration)
    }

    /// Which requests a rule affects, counted by the player.
    enum When: Sendable, Equatable {
        case always
        /// 0 to 1.
        case probability(Double)
        /// This many requests, and then none.
        case next(Int)
    }

    /// A `Retry-After` header.
    public struct RetryAfter: Sendable, Equatable {
        /// The forms of RFC 9110, sections 5.6.7 and 10.2.3.
        public enum Form: String, Sendable, CaseIterable {
            case seconds = ""
            case imf, rfc850, asctime
        }
        public var seconds: Int
        public var form: Form

        public init(seconds: Int, form: Form = .seconds) {
            self.seconds = seconds
            self.form = form
        }
    }

    /// Refuses requests with an item whose member `field`, top-level or a JSON Pointer, has `value`, as a string or as
    /// a literal.
    public struct Poison: Sendable, Equatable {
        /// How the request is refused. The raw value is the text form.
        public enum Answer: String, Sendable, CaseIterable {
            case failure = "500"
            case tooLarge = "413"
            case refusal = "400"
            /// As if the credentials or the URL were wrong.
            case unauthorized = "401"
            case forbidden = "403"
            case absent = "404"
            /// The upstream's own way of naming the items, if it has one.
            case naming = "array"
        }
        /// A member of the item, or a JSON Pointer (RFC 6901), which begins with a slash.
        public var field: String
        public var value: String
        public var answer: Answer

        public init(field: String, value: String, answer: Answer = .failure) {
            self.field = field
            self.value = value
            self.answer = answer
        }
    }
}

/// What to do with one request.
struct FaultDecision: Sendable, Equatable {
    /// Before anything is answered: the sum over all rules that apply.
    public var delay: Duration = .zero
    /// Neither `delay`, nor `mute`, which is `hang` on the connections that it means.
    var action = Faults.Fault.pass
}

/// Plays `Faults` over a sequence of requests. The same seed and the same requests give the same decisions.
struct FaultPlayer: Sendable {
    let faults: Faults
    private var left: [Int]
    private var random: SplitMix64

    public init(_ faults: Faults, seed: UInt64) {
        self.faults = faults
        left = faults.rules.map { if case .next(let count) = $0.when { count } else { 0 } }
        random = SplitMix64(state: seed)
    }

    /// Decides about the next request, and counts it. `isOnOld`: whether its connection is older than the faults.
    mutating func decide(path: some StringProtocol, isOnOld: Bool = false) -> FaultDecision {
        var decision = FaultDecision()
        for (index, rule) in faults.rules.enumerated()
        where (rule.path.isEmpty || path.hasPrefix(rule.path)) && (isOnOld || rule.fault != .mute)
            && applies(rule.when, index)
        {
            switch rule.fault {
            case .delay(let delay):
                decision.delay += delay
                continue
            case .mute: decision.action = .hang
            case .status, .cut, .resetBefore, .resetAfter, .hang, .hangAfter, .garbage, .truncate, .drip, .pass:
                decision.action = rule.fault
            }
            return decision
        }
        return decision
    }

    private mutating func applies(_ when: Faults.When, _ index: Int) -> Bool {
        switch when {
        case .always: return true
        case .probability(let chance): return random.fraction() < chance
        case .next:
            guard left[index] > 0 else { return false }
            left[index] -= 1
            return true
        }
    }
}
