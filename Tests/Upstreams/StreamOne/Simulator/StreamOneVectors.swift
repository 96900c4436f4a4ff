import PosternTestKit
import Testing

/// The vectors of the specification's section 4.1: what is signed, and its signature.
enum StreamOneVectors {
    struct Signed: Decodable, Sendable, CustomTestStringConvertible {
        let name: String
        let path: String
        let parameters: String
        let body: String
        let signature: String
        var testDescription: String { name }
    }

    struct Login: Decodable, Sendable, CustomTestStringConvertible {
        let name: String
        let password: String
        let salt: String
        let challenge: String
        let form: String
        let response: String
        var testDescription: String { name }
    }

    /// Made by PHP at 1450000000: parameters in the order that it sends them, `signature` last.
    static let php = vectors.php.map(\.signed)
    /// From the tests of the SDK for iOS: parameters sorted, `signature` among them.
    static let ios = vectors.ios
    /// Section 5.1.
    static let logins = vectors.logins

    private struct Vectors: Decodable {
        struct PHP: Decodable { let signed: Signed }
        let php: [PHP]
        let ios: [Signed]
        let logins: [Login]
    }
    private static let vectors: Vectors = try! Fixture.value("vectors.json")
}
