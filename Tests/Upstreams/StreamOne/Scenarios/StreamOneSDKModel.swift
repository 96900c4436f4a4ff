import Crypto
import Foundation
package import PosternCore
package import PosternScenarios

/// StreamOne's SDK: it signs each call, makes it once, and tells its app what became of it. The app makes one call after the
/// other, so that the calls of an account have an order.
package struct StreamOneSDKModel: SDKModel {
    private struct Edit {
        let account: String
        let entry: Expectations.Entry
    }
    private static let application = "9yC-4pQxT_2a"
    private static let key = SymmetricKey(data: Data("ZYXWVUTSRQPONMLKJIHGFEDCBAzyxwvu".utf8))
    private let accounts: [String]
    private var edits: [Edit] = []
    private var inFlight = false
    private var requests = 0

    package init(_ device: SDKDevice) { accounts = (0..<2).map { "S\(device.number)x\($0)" } }

    package var isEmpty: Bool { edits.isEmpty && !inFlight }

    package mutating func use(_ stage: Stage, poison: Double) {
        for _ in 0..<(stage.random.chance(0.5) ? stage.random.from(2...5) : 1) {
            let account = stage.random.pick(accounts)
            let entry = stage.beginOfSDK("call", lane: account)
            // Unless it is queued.
            entry.isProxied = true
            edits.append(Edit(account: account, entry: entry))
        }
    }

    package mutating func calls(at now: Timestamp, timerFired: Bool) -> [SDKCall] {
        guard !inFlight, let edit = edits.first else { return [] }
        edits.removeFirst()
        (inFlight, requests) = (true, requests + 1)
        let query =
            "api=3&format=json&authentication_type=application&account=\(edit.account)"
            + "&timestamp=\(now.milliseconds / 1000)&application=\(Self.application)"
        let body = "seq=\(edit.entry.mark)"
        let code = HMAC<Insecure.SHA1>.authenticationCode(
            for: Data("/api/item/edit?\(query)&\(body)".utf8), using: Self.key)
        let signature = code.map { hexadecimal(Int($0), 2) }.joined()
        var call = SDKCall(
            requests, "/api/item/edit?\(query)&signature=\(signature)",
            headers: [("Content-Type", "application/x-www-form-urlencoded")], body: body, [edit.entry])
        call.timeout = .seconds(60)
        return [call]
    }

    /// It looks at nothing but the header in the body.
    package mutating func take(_ reply: SDKReply?, to call: SDKCall) -> SDKVerdict {
        inFlight = false
        guard let reply else { return .kept }
        let object = try? JSONSerialization.jsonObject(with: Data(reply.text.utf8)) as? [String: Any]
        guard let header = object?["header"] as? [String: Any], let status = header["status"] as? Int else {
            return reply.status == 503 ? .kept : .unexpected("\(reply.status) \(reply.text)")
        }
        return status == 0 ? .accepted : .kept
    }
}
