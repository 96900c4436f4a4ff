import PosternTestKit
import Testing

@testable import StreamOneAdapter

/// The vectors of the specification's section 4.1: what is signed, and its signature.
enum StreamOneVectors {
    static let user = StreamOneActor(kind: .user, id: "Cmv8fnKfjF2l")
    static let application = StreamOneActor(kind: .application, id: "9yC-4pQxT_2a")
    static let session = (id: "Hz1kPspd2Bk1", key: "SQKEyak6R2BcwH3qnTakY50SKeABxXcg")

    static func psk(of actor: StreamOneActor) -> String {
        actor.kind == .user ? "abcdefghijklmnopqrstuvwxyzABCDEF" : "ZYXWVUTSRQPONMLKJIHGFEDCBAzyxwvu"
    }

    struct Signed: Decodable, Sendable, CustomTestStringConvertible {
        let name: String
        let path: String
        let parameters: String
        let body: String
        let signature: String
        var text: String { "\(path)?\(parameters)&\(body)" }
        var testDescription: String { name }
    }

    /// Who signs, the call as it is queued, and what goes over the wire.
    struct Vector: Decodable, Sendable, CustomTestStringConvertible {
        private let signer: String
        let account: String?
        let isInSession: Bool
        let call: String
        let signed: Signed
        var testDescription: String { signed.name }
        var actor: StreamOneActor { signer == "user" ? user : application }
        var key: String { psk(of: actor) + (isInSession ? session.key : "") }
    }

    /// P1 to P10, made by PHP at 1450000000.
    static let php = vectors.php
    /// I1 to I8, of the SDK for iOS: parameters sorted; the user `user` with the key `psk`, the application `application`
    /// with `apppsk`.
    static let ios = vectors.ios

    private struct Vectors: Decodable {
        let php: [Vector]
        let ios: [Signed]
    }
    private static let vectors: Vectors = try! Fixture.value("vectors.json")
}
