internal import CCrypt
internal import Crypto
internal import Glibc
import PosternCore
import PosternSimulatorKit

/// What the platform computes for a login (specification, section 5.1). Hexadecimal digits are lower case.
enum Password {
    /// `v2hash`: hex MD5 of the password.
    static func md5(_ password: String) -> String { Insecure.MD5.hash(data: Array(password.utf8)).hexadecimal }

    /// What the platform keeps of a password: hex SHA-256 of the bcrypt of its MD5. Nil if the salt cannot be used.
    /// Takes about a quarter of a second at cost 12.
    static func verifier(password: String, salt: String) -> String? {
        bcrypt(md5(password), salt: salt).map { sha256($0) }
    }

    /// The crypt form, 60 characters. Nil when the salt is not `$2a$`, `$2b$` or `$2y$`, a cost and 22 characters.
    static func bcrypt(_ text: String, salt: String) -> String? {
        guard isSalt(salt) else { return nil }
        var data: UnsafeMutableRawPointer?
        var size: Int32 = 0
        defer { free(data) }
        guard let form = crypt_ra(text, salt, &data, &size) else { return nil }
        let result = String(cString: form)
        return result.utf8.count == 60 ? result : nil
    }

    /// Costs beyond 16 take minutes, so they are not supported.
    static func isSalt(_ salt: String) -> Bool {
        let bytes = Array(salt.utf8)
        guard bytes.count == 29, ["$2a$", "$2b$", "$2y$"].contains(salt.prefix(4)), bytes[6] == UInt8(ascii: "$"),
            bytes[4...5].allSatisfy(\.isDigit), let cost = Int(salt.dropFirst(4).prefix(2)),
            (4...16).contains(cost)
        else { return false }
        return bytes.dropFirst(7).allSatisfy { $0.isAlphanumeric || "./".utf8.contains($0) }
    }

    /// Takes the crypt form out of `response` with what the platform keeps, and checks it against the same.
    static func accepts(response: String, challenge: String, verifier: String) -> Bool {
        guard let masked = base64Decoded(response), masked.count == 60 else { return false }
        let mask = sha256(verifier + challenge).utf8
        let form = zip(masked, mask).map { $0 ^ $1 }
        return SHA256.hash(data: form).hexadecimal == verifier
    }

    /// Hex HMAC-SHA1.
    static func signature(of text: [UInt8], key: String) -> String {
        HMAC<Insecure.SHA1>.authenticationCode(for: text, using: SymmetricKey(data: Array(key.utf8))).hexadecimal
    }

    private static func sha256(_ text: String) -> String { SHA256.hash(data: Array(text.utf8)).hexadecimal }
}
