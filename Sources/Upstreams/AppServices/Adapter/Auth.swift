import PosternCore
import PosternUpstream

/// The identity provider that issued a user's token (section 3.1).
enum Provider: String, CaseIterable, Sendable {
    case pi, mi
}

/// The member `auth` of an item, or the body with which a caller hands in a token: `{"provider"?, "token",
/// "expiresAt"?, "expiresIn"?}`.
struct Auth {
    let provider: Provider
    /// The token without the word `Bearer`.
    let token: String
    let expiresAt: Timestamp?

    func credential(of owner: String) -> Credential {
        Credential(owner: owner, value: Array(token.utf8), note: provider.rawValue, expiresAt: expiresAt)
    }

    /// Nil if a fault was added to `faults`.
    init?(
        _ value: JSONValue?, byDefault provider: Provider, now: Timestamp, at pointer: String,
        _ faults: inout AppServicesFaults
    ) {
        guard let value, value.kind == .object else {
            faults.add(pointer, "must be an object with the user's token", code: 1)
            return nil
        }
        let before = faults.found.count
        self.provider = Self.provider(value["provider"], byDefault: provider, at: pointer, &faults)
        token = Self.token(value["token"], of: self.provider, at: pointer, &faults)
        expiresAt = Self.expiry(value, now: now, at: pointer, &faults)
        guard faults.found.count == before else { return nil }
    }

    private static func provider(
        _ value: JSONValue?, byDefault: Provider, at pointer: String, _ faults: inout AppServicesFaults
    ) -> Provider {
        guard let value else { return byDefault }
        if let provider = value.string.flatMap(Provider.init(rawValue:)) { return provider }
        faults.add(pointer + "/provider", "must be pi or mi", code: 1)
        return byDefault
    }

    private static let longest = 8192
    /// Texts that apps send for a missing token. The last one is what a header has that ends with a blank.
    private static let printedNothings: Set<String> = ["(null)", "null", "nil", "Bearer"]

    /// Whether a token can be sent: visible ASCII without spaces, and not a text that stands for a missing one.
    static func isToken(_ token: String) -> Bool {
        (1...longest).contains(token.utf8.count) && token.utf8.allSatisfy { (0x21...0x7E).contains($0) }
            && !printedNothings.contains(token)
    }

    private static func token(
        _ value: JSONValue?, of provider: Provider, at pointer: String, _ faults: inout AppServicesFaults
    ) -> String {
        var token = value?.string ?? ""
        if token.lowercased().hasPrefix("bearer ") {
            guard provider == .pi else {
                faults.add(pointer + "/token", "must come without the word Bearer from the provider mi", code: 1)
                return ""
            }
            token.removeFirst("bearer ".count)
        }
        if !isToken(token) {
            faults.add(
                pointer + "/token", "must be the user's token: 1 to \(longest) characters of ASCII without spaces",
                code: 1)
        }
        return token
    }

    /// Pi reports the lifetime in seconds, as a string (section 3.3).
    private static func expiry(
        _ value: JSONValue, now: Timestamp, at pointer: String, _ faults: inout AppServicesFaults
    ) -> Timestamp? {
        var expiry: Timestamp?
        if let at = value["expiresAt"] {
            expiry = at.string.flatMap { Timestamp(rfc3339: $0) }
            if expiry == nil { faults.add(pointer + "/expiresAt", "must be a time in the form of RFC 3339", code: 1) }
        }
        if let life = value["expiresIn"] {
            let seconds = life.integer ?? life.string.flatMap { Int64($0) }
            guard let seconds, (0...315_360_000).contains(seconds) else {
                faults.add(pointer + "/expiresIn", "must be a number of seconds, 0 to 315360000", code: 1)
                return nil
            }
            expiry = min(expiry ?? .never, now + .seconds(seconds))
        }
        return expiry
    }
}
