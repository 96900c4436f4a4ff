internal import Foundation
internal import PosternCore
import PosternSimulatorKit

/// The tokens that were issued, the newest thousand of them. A value; its owner guards it.
///
/// A token has 32 characters, including those that a careless client corrupts (`+`, `/`, `==`). Six of them are
/// computed from those before, so that a token of an earlier run of the simulator can be distinguished from one that
/// was never issued.
struct Tokens: Sendable {
    enum TokenState {
        case good
        /// Expired, revoked, or of an earlier run.
        case dead
        /// The token was never issued.
        case unknown
    }

    private struct Issued {
        let text: String
        let expiresAt: Timestamp
        var isRevoked = false
        /// When the gateway got a 401 to a report with it for the first time.
        var refusedAt: MonotonicInstant?
    }

    private var issued: [Issued] = []
    private var random: SplitMix64
    private static let kept = 1000
    /// Reports that the gateway was about to send when the first one was rejected have been sent by then.
    private static let patience = Duration.seconds(5)

    init(seed: UInt64) { random = SplitMix64(state: ~seed) }

    mutating func issue(at now: Timestamp, life: Duration) -> (text: String, expiresAt: Timestamp) {
        // It contains the time, so tokens of the next run are different, whatever the seed.
        let words = [random.next(), random.next() ^ UInt64(bitPattern: now.milliseconds)]
        let body = words.map { Self.letters(of: $0, count: 11) }.joined() + "/+"
        let token = Issued(text: body + Self.check(body) + "==", expiresAt: now + life)
        if issued.count == Self.kept { issued.removeFirst() }
        issued.append(token)
        return (token.text, token.expiresAt)
    }

    func state(of text: String, at now: Timestamp) -> TokenState {
        guard let token = find(text) else { return Self.isOurs(text) ? .dead : .unknown }
        return token.isRevoked || now > token.expiresAt ? .dead : .good
    }

    func validCount(at now: Timestamp) -> Int { issued.count { !$0.isRevoked && now <= $0.expiresAt } }

    func isExpired(_ text: String, at now: Timestamp) -> Bool {
        find(text).map { !$0.isRevoked && now > $0.expiresAt } ?? false
    }

    /// Whether a report with it was rejected so long ago that it must no longer be used.
    func isWorn(_ text: String, at instant: MonotonicInstant) -> Bool {
        find(text)?.refusedAt.map { instant - $0 > Self.patience } ?? false
    }

    /// The newest are looked up most.
    private func find(_ text: String) -> Issued? { issued.last { $0.text == text } }

    /// - Parameter instant: When the gateway knows of it; nil: never.
    mutating func recordRefusal(of text: String, knownAt instant: MonotonicInstant?, revoking: Bool = false) {
        guard let index = issued.lastIndex(where: { $0.text == text }) else { return }
        issued[index].refusedAt = [issued[index].refusedAt, instant].compactMap(\.self).min()
        if revoking { issued[index].isRevoked = true }
    }

    mutating func revokeAll() {
        for index in issued.indices { issued[index].isRevoked = true }
    }

    /// A text that looks like a token, for responses whose token must not be used.
    mutating func decoy() -> String { Self.letters(of: random.next(), count: 11) }

    private static func isOurs(_ text: String) -> Bool {
        guard text.utf8.count == 32, text.hasSuffix("==") else { return false }
        let body = text.utf8.prefix(24)
        return Array(text.utf8.dropFirst(24).prefix(6)) == Array(check(String(decoding: body, as: UTF8.self)).utf8)
    }

    private static func check(_ body: String) -> String {
        letters(of: Array(body.utf8).withUnsafeBufferPointer { digest($0) }, count: 6)
    }

    private static func letters(of word: UInt64, count: Int) -> String {
        String(withUnsafeBytes(of: word) { Data($0).base64EncodedString() }.prefix(count))
    }
}
