internal import CCurl
import Glibc
import PosternCore
import PosternThreads

/// Owns one `CURL *` and the buffer for its error text. Reused for one transfer after the other.
final class EasyHandle {
    let curl: UnsafeMutableRawPointer
    private let errorText: UnsafeMutablePointer<CChar>

    /// Nil if there is not enough memory.
    init?() {
        guard let curl = curl_easy_init() else { return nil }
        self.curl = curl
        errorText = .allocate(capacity: Int(CURL_ERROR_SIZE))
        errorText.pointee = 0
    }

    deinit {
        curl_easy_cleanup(curl)
        errorText.deallocate()
    }

    /// Resets the handle to libcurl's defaults. Connections belong to their pool and are kept.
    func reset() {
        curl_easy_reset(curl)
        _ = postern_curl_set_pointer(curl, CURLOPT_SHARE, nil)
        errorText.pointee = 0
        _ = postern_curl_set_pointer(curl, CURLOPT_ERRORBUFFER, errorText)
    }

    /// Uses the connections of `pool`, which the caller keeps until the handle is reset.
    func share(_ pool: ConnectionPool) {
        _ = postern_curl_set_pointer(curl, CURLOPT_SHARE, pool.share)
    }

    func set(_ option: CURLoption, _ value: Int) { _ = postern_curl_set_long(curl, option, value) }
    func set(_ option: CURLoption, _ value: String) -> CURLcode { postern_curl_set_string(curl, option, value) }

    /// The error, as libcurl describes it.
    func detail(of code: CURLcode) -> String {
        if lacksThread { return SystemLimitError.thread("that resolves the name", EAGAIN).description }
        return errorText.pointee == 0 ? String(cString: curl_easy_strerror(code)) : String(cString: errorText)
    }

    /// Whether it failed because no thread could be started. libcurl has no code of its own for that.
    var lacksThread: Bool { String(cString: errorText) == Self.noResolver }

    /// Why the peer rejected the client's certificate, or that there was none, by an alert of TLS (RFC 8446, section 6.2).
    /// Nil if it did not. The handshake then failed, so that the peer has processed nothing.
    var refusalOfCertificate: String? {
        let text = String(cString: errorText)
        guard let alert = text.firstRange(of: " alert ") else { return nil }
        let reason = text[alert.upperBound...].prefix { $0 != "," }
        return ["certificate", "unknown ca", "access denied"].contains(where: reason.contains) ? String(reason) : nil
    }

    /// The part of connecting that has not ended: the name, the address, the tunnel, or the handshake.
    func phase(throughProxy hasProxy: Bool) -> String {
        var (connections, tunnelStatus) = (0, 0)
        _ = postern_curl_get_long(curl, CURLINFO_HTTP_CONNECTCODE, &tunnelStatus)
        var lookupMicroseconds: curl_off_t = 0
        _ = postern_curl_get_long(curl, CURLINFO_NUM_CONNECTS, &connections)
        _ = postern_curl_get_offset(curl, CURLINFO_NAMELOOKUP_TIME_T, &lookupMicroseconds)
        // libcurl counts a connection before its handshake. A lookup takes a microsecond at least.
        guard connections > 0 else { return lookupMicroseconds > 0 ? "TCP" : "DNS" }
        return hasProxy && !(200...299).contains(tunnelStatus) ? "proxy" : "TLS"
    }

    /// Each name is resolved on a thread of its own.
    private static let noResolver = "getaddrinfo() thread failed to start"

    var status: Int {
        var status = 0
        _ = postern_curl_get_long(curl, CURLINFO_RESPONSE_CODE, &status)
        return status
    }

    /// The number of bytes of request heads and bodies that were passed to the system, over all connections that the
    /// transfer used, without those of a TLS handshake.
    var bytesSent: Int {
        var head = 0
        _ = postern_curl_get_long(curl, CURLINFO_REQUEST_SIZE, &head)
        return head + bodyBytesSent
    }

    /// The part of `bytesSent` that bodies are.
    var bodyBytesSent: Int {
        var body: curl_off_t = 0
        _ = postern_curl_get_offset(curl, CURLINFO_SIZE_UPLOAD_T, &body)
        return Int(body)
    }
}
