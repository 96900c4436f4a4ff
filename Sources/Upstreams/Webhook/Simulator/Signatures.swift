internal import Crypto
internal import Foundation
import PosternSimulatorKit

/// The check of a signed request by the receiver (Standard Webhooks 1.0.0, "Verifying signatures").
struct Signatures {
    /// How far the clocks of sender and receiver may be apart.
    private static let toleranceSeconds: Int64 = 300

    let secrets: [String]
    let nowSeconds: Int64

    /// Whether the request may be processed, and its violations. A request that is not signed is processed if no secret
    /// is known; of a signed one, only the form is checked then.
    func judge(_ request: SimulatedRequest) -> (isAccepted: Bool, violations: [String]) {
        let names = ["webhook-id", "webhook-timestamp", "webhook-signature"]
        let given = names.filter { request.header($0) != nil }
        if given.isEmpty { return (secrets.isEmpty, secrets.isEmpty ? [] : ["a request that is not signed"]) }
        guard let id = request.header(names[0]), let timestamp = request.header(names[1]),
            let signature = request.header(names[2])
        else { return (false, ["a signed request without some of its three headers"]) }
        var violations: [String] = []
        if id.isEmpty || id.contains(".") || id.contains(",") {
            violations.append("a webhook-id that cannot be signed")
        }
        let seconds = Int64(timestamp)
        if seconds.map({ String($0) == timestamp && abs($0 - nowSeconds) <= Self.toleranceSeconds }) != true {
            violations.append("a webhook-timestamp that is not the time of the request")
        }
        let codes = signature.split(separator: " ", omittingEmptySubsequences: false).map { part in
            part.hasPrefix("v1,") ? base64Decoded(part.dropFirst(3)) : nil
        }
        if codes.contains(where: { $0?.count != 32 }) { violations.append("a webhook-signature of another form") }
        if !secrets.isEmpty, !isSigned("\(id).\(timestamp).", request.body, by: codes.compactMap(\.self)) {
            violations.append("a signature that does not match")
        }
        return (violations.isEmpty, violations)
    }

    private func isSigned(_ head: String, _ body: [UInt8], by codes: [[UInt8]]) -> Bool {
        secrets.compactMap(Self.key).contains { key in
            codes.contains { code in
                HMAC<SHA256>.isValidAuthenticationCode(
                    Data(code), authenticating: Data(head.utf8) + body, using: SymmetricKey(data: key))
            }
        }
    }

    /// Nil for a text that is not a secret.
    static func key(of secret: String) -> [UInt8]? {
        guard secret.hasPrefix("whsec_"), let key = base64Decoded(secret.dropFirst(6)),
            (24...64).contains(key.count)
        else { return nil }
        return key
    }
}
