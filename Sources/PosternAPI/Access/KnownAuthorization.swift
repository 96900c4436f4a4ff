import Glibc
import PosternHTTP

/// The value of `Authorization` that the latest caller of a connection was identified by, and the digest of the key in
/// it: most connections present one key with all of their requests, and comparing it costs a fraction of the digest.
///
/// It only saves the digest: the key is looked up with each request. Remembered are the bytes and not a cheaper digest
/// of them, because only equal bytes prove the same key. They are overwritten when the connection ends, presents another
/// key that is valid, or its key is no longer valid. Of an idle connection they can be the only copy: the buffer that the
/// head was read into is used for later requests.
final class KnownAuthorization: Sendable {
    // Constant, and owned by this object.
    nonisolated(unsafe) private let bytes: UnsafeMutableBufferPointer<UInt8>
    let digest: KeyDigest

    init(_ authorization: UnsafeBufferPointer<UInt8>, _ digest: KeyDigest) {
        bytes = .allocate(capacity: authorization.count)
        _ = bytes.initialize(from: authorization)
        self.digest = digest
    }

    deinit {
        explicit_bzero(bytes.baseAddress!, bytes.count)
        bytes.deallocate()
    }

    /// Compares all bytes, whichever of them differ.
    func equals(_ authorization: UnsafeBufferPointer<UInt8>) -> Bool {
        guard authorization.count == bytes.count else { return false }
        var difference: UInt8 = 0
        for index in 0..<bytes.count { difference |= bytes[index] ^ authorization[index] }
        return difference == 0
    }
}
