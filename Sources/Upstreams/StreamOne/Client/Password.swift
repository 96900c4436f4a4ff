import CCrypt
import Crypto
import Foundation
import Glibc
import PosternCore

/// What is computed from a password (the specification's 5.1). Neither it nor its MD5 is ever stored or shown.
enum Password {
    /// The MD5 as hexadecimal digits. It is as sensitive as the password, so it is sent only if the platform requests
    /// it.
    static func oldHash(of password: String) -> String {
        Insecure.MD5.hash(data: Array(password.utf8)).hexadecimal
    }

    /// 80 characters; nil if the salt is not valid. Takes a quarter of a second at the usual cost of 12.
    static func response(to challenge: String, password: String, salt: String) -> String? {
        guard let hash = bcrypt(oldHash(of: password), salt: salt) else { return nil }
        let mask = sha256(sha256(hash) + challenge)
        return Data(zip(mask.utf8, hash.utf8).map { $0 ^ $1 }).base64EncodedString()
    }

    /// What the platform keeps of a password, as 64 hexadecimal digits; nil if the salt is not valid. Takes as long.
    static func newHash(of password: String, salt: String) -> String? {
        bcrypt(oldHash(of: password), salt: salt).map(sha256)
    }

    private static func sha256(_ text: String) -> String { SHA256.hash(data: Array(text.utf8)).hexadecimal }

    /// Hashing takes twice as long for each step; beyond this it would take hours.
    private static let costs = 4...16

    /// `$2y$12$` and 22 characters of bcrypt's alphabet; also `2a` and `2b`, also other costs.
    static func isSalt(_ text: String) -> Bool {
        let bytes = Array(text.utf8)
        guard bytes.count == 29, ["$2a$", "$2b$", "$2y$"].contains(text.prefix(4)), bytes[6] == UInt8(ascii: "$"),
            bytes[4...5].allSatisfy(\.isDigit),
            costs.contains(Int(bytes[4] - 48) * 10 + Int(bytes[5] - 48))
        else { return false }
        return bytes[7...].allSatisfy { $0.isAlphanumeric || "./".utf8.contains($0) }
    }

    /// 60 characters in crypt form, as libxcrypt writes them: the last character of the salt may differ from `salt`.
    private static func bcrypt(_ text: String, salt: String) -> String? {
        guard isSalt(salt) else { return nil }
        let workspace = UnsafeMutablePointer<crypt_data>.allocate(capacity: 1)
        workspace.initialize(to: crypt_data())
        defer {
            // Remains of the password must not outlive its use.
            explicit_bzero(workspace, MemoryLayout<crypt_data>.size)
            workspace.deallocate()
        }
        guard let hash = crypt_r(text, salt, workspace).map({ String(cString: $0) }), hash.utf8.count == 60 else {
            return nil
        }
        return hash
    }
}
