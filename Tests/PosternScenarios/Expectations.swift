package import PosternCore

/// What the world knows of each payload that was ever posted. It is told by its mark, `mk17x`, which the upstream gets to
/// see as well.
package final class Expectations {
    package final class Entry {
        package let number: Int
        /// The type of upstream that it goes to.
        package let upstream: String
        /// What the upstream has to get, byte for byte; nil if the gateway changes it on the way.
        package var payload: String?
        /// Set by `ScenarioItem`.
        package var kind = ""
        /// Messages of one keep their order; nil if theirs does not matter.
        package let lane: String?
        package let isPoison: Bool
        /// Whether the upstream can tell that it was delivered.
        package let leavesMark: Bool
        /// Whether something may end it otherwise than by delivery or as poison, or move it in its lane.
        package var isExempt: Bool
        /// Whether the upstream gets it again whenever it has forgotten it: the start of a session.
        package var mayRepeat = false
        /// Whether its upstream takes it once, and from then on says that it exists.
        package var isTakenOnce = false
        /// Whether it is sent once, and ends as soon as it is not known whether that has arrived.
        package var isSentOnce = false
        /// Of that: how many of its requests may have arrived although no answer said so.
        package var unclear = 0
        /// The entry of the message that it is a part of, which arrives by itself.
        package var whole: Entry?
        /// The start of the session that it belongs to, which its upstream has to know.
        package var start: Entry?
        /// Whether it may be kept for a while to be sent together with others, without a time of its own.
        package var mayBeCollected = false
        /// Whether others are refused without it, so that it must not expire and is not cancelled.
        package var isNeeded = false
        /// Whether it is an event, or its request has an `Idempotency-Key`, so that it is stored once however often it is sent.
        package var isKnownAgain = false
        /// Whether it is a call that is answered and never stored.
        package var isProxied = false
        /// Whether the gateway has to refuse it.
        package var isInvalid = false
        /// Whether an SDK has posted it, and whether it was stored as failed then.
        package var isFromSDK = false
        package var isRejected = false
        /// Whether its SDK was told that it is accepted, and has forgotten it.
        package var isForgottenBySDK = false
        /// Whether the disk may have lost it, or what became of it, after syncs that it did not do.
        package var isWaived = false
        /// It is not to be sent before then, and does not expire before then.
        package var notBefore: Timestamp?
        package var expiresAt: Timestamp?
        /// Whether an operator was told that it is cancelled.
        package var isCancelled = false
        /// Whether an operator has asked for its erasure.
        package var isErased = false
        /// Whether it was seen in a state that is final, unless it is queued again.
        package var isSettled = false
        /// Ids it was accepted under: several if the caller repeated a request whose response was lost.
        package var ids: [MessageID] = []
        /// How many messages replays have made of it.
        package var copies = 0
        /// Requests with it that were answered with a refusal, and that were not answered at all.
        package var refusals = 0
        package var unanswered = 0
        /// The number of the caller that has posted it; nil for an operator.
        package var caller: Int?
        /// Whether a request with it has left for its upstream.
        package var wasSent = false
        /// Whether a request with it waits for its response.
        package var isPending = false
        /// When the upstream took it for the first time, counted over all.
        package var firstArrival: Int?
        package var arrivals = 0
        /// How often it arrived although the gateway cannot know that.
        package var unknownOutcomes = 0
        /// Whether an upstream that rejected everything rejected it.
        package var wasRejected = false
        /// Whether it had failed then, and was sent again after an operator had queued it again. Later messages of its lane
        /// may have been delivered meanwhile.
        package var wasRequeued = false
        /// Doubtful answers that it got although nothing is wrong with it.
        package var doubts = 0

        init(_ number: Int, _ upstream: String, lane: String?, isPoison: Bool, leavesMark: Bool, isExempt: Bool) {
            (self.number, self.upstream, self.lane) = (number, upstream, lane)
            (self.isPoison, self.leavesMark, self.isExempt) = (isPoison, leavesMark, isExempt)
        }

        package var mark: String { "mk\(number)x" }
    }

    package private(set) var entries: [Entry] = []
    private var arrivals = 0

    package init() {}

    package func begin(
        _ upstream: String, lane: String?, isPoison: Bool = false, leavesMark: Bool = true, isExempt: Bool = false
    ) -> Entry {
        let entry = Entry(
            entries.count, upstream, lane: lane, isPoison: isPoison, leavesMark: leavesMark, isExempt: isExempt)
        entries.append(entry)
        return entry
    }

    /// Nothing can be said any more of what was posted so far.
    package func waive() { for entry in entries { entry.isWaived = true } }

    package func arrived(_ entry: Entry) {
        arrivals += 1
        entry.arrivals += 1
        if entry.firstArrival == nil { entry.firstArrival = arrivals }
    }

    /// The entries whose marks are in `text`, each once, in order.
    package func entries(in text: [UInt8]) -> [Entry] {
        var found: [Entry] = []
        var index = 0
        while index + 3 < text.count {
            guard text[index] == 0x6D, text[index + 1] == 0x6B else {
                index += 1
                continue
            }
            var number = 0
            var end = index + 2
            while end < text.count, text[end] >= 0x30, text[end] <= 0x39, end < index + 12 {
                number = number * 10 + Int(text[end] - 0x30)
                end += 1
            }
            if end > index + 2, end < text.count, text[end] == 0x78, number < entries.count,
                !found.contains(where: { $0.number == number })
            {
                found.append(entries[number])
            }
            index = end
        }
        return found
    }
}
