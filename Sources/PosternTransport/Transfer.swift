internal import CCurl
import PosternCore
import PosternUpstream

/// One request in flight. Owns its easy handle, its header list, and the part of the response that has arrived.
///
/// A `CurlLoop` retains it until the handle is removed from the multi handle, so libcurl may point into it.
final class Transfer: @unchecked Sendable {
    // @unchecked: belongs to the submitter until it is in the loop's inbox, from then on to the loop's thread.
    private let request: UpstreamRequest
    let options: TransferOptions
    private let completion: @Sendable (TransferResult) -> Void

    private var handle: EasyHandle?
    /// The connections that it may use; nil before it has started and after it has ended.
    private(set) var pool: ConnectionPool?
    private var headerList: UnsafeMutablePointer<curl_slist>?
    private var addressList: UnsafeMutablePointer<curl_slist>?
    private var head = AnswerHead()
    private var body: [UInt8] = []
    private var bodyBytesSeen = 0
    private var isCut = false
    private var wasSentBefore = false
    /// What `handle.bytesSent` was when the request was sent first: the size of the `CONNECT` requests before it. Nil if it
    /// was not sent.
    private var bytesBeforeRequest: Int?
    /// As in `CurlLoop.Settings`.
    private var mayStillSend: (@Sendable () -> Bool)?
    private var wasForbidden = false

    init(
        _ request: UpstreamRequest, _ options: TransferOptions,
        _ completion: @escaping @Sendable (TransferResult) -> Void
    ) {
        self.request = request
        self.options = options
        self.completion = completion
    }

    func complete(_ result: TransferResult) { completion(result) }

    /// How much of the request was passed to the system. What asks a proxy for a tunnel is no part of it.
    var bytesSent: Int {
        guard let handle, let bytesBeforeRequest else { return 0 }
        return handle.bytesSent - bytesBeforeRequest
    }
    /// Whether all of the request was passed to the system.
    var isSent: Bool {
        guard let handle, bytesBeforeRequest != nil else { return false }
        return handle.bodyBytesSent >= request.body.count
    }
    /// Nil before the transfer has started and after it has ended.
    var curl: UnsafeMutableRawPointer? { handle?.curl }

    /// Returns the handle and frees the lists. Called only when the handle is in no multi handle.
    @discardableResult func release() -> EasyHandle? {
        defer {
            handle?.reset()
            handle = nil
            pool = nil
            curl_slist_free_all(headerList)
            curl_slist_free_all(addressList)
            (headerList, addressList) = (nil, nil)
        }
        return handle
    }

    /// Whether it makes a connection of its own, and sends nothing on it.
    var onlyConnects: Bool { request.onlyConnects }

    /// Sets `handle` up. Returns why the request cannot be sent, or nil.
    func prepare(_ handle: EasyHandle, on pool: ConnectionPool, _ settings: CurlLoop.Settings) -> String? {
        self.handle = handle
        self.pool = pool
        mayStillSend = settings.mayStillSend
        handle.reset()
        handle.share(pool)
        if request.url.utf8.contains(where: { $0 < 0x20 }) { return "the URL contains a control character" }
        if let name = request.headers.first(where: { !isSendable($0) })?.name {
            return
                "header \(name.debugDescription) cannot be sent: it contains a character that is not allowed in headers"
        }
        guard handle.set(CURLOPT_URL, request.url) == CURLE_OK,
            handle.set(CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK,
            setProxy(handle),
            handle.set(CURLOPT_USERAGENT, settings.userAgent) == CURLE_OK,
            setTrust(handle)
        else { return "libcurl is out of memory" }
        setRules(handle)
        setAddresses(handle)
        setBody(handle)
        setHeaders(handle)
        setCallbacks(handle)
        return nil
    }

    private func setRules(_ handle: EasyHandle) {
        handle.set(CURLOPT_NOSIGNAL, 1)
        // A name lookup that hangs must not block the thread when its transfer ends.
        handle.set(CURLOPT_QUICK_EXIT, 1)
        handle.set(CURLOPT_FOLLOWLOCATION, 0)
        // Over TLS, too: docs/design.md, section 8. libcurl believes a response that claims to be HTTP/2, and would then
        // send other requests on its connection, unless they ask for HTTP/1.1.
        handle.set(CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1)
        handle.set(CURLOPT_HTTP09_ALLOWED, 0)
        handle.set(CURLOPT_HTTP_CONTENT_DECODING, 0)
        handle.set(CURLOPT_PATH_AS_IS, 1)
        handle.set(CURLOPT_TCP_KEEPALIVE, 1)
        if onlyConnects { handle.set(CURLOPT_CONNECT_ONLY, 1) }
        // Zero would mean libcurl's default.
        handle.set(CURLOPT_CONNECTTIMEOUT_MS, Int(max(1, options.connectTimeout.wholeMilliseconds)))
        handle.set(CURLOPT_TIMEOUT_MS, Int(max(1, options.requestTimeout.wholeMilliseconds)))
    }

    /// Returns false if libcurl has no memory.
    private func setProxy(_ handle: EasyHandle) -> Bool {
        // Without one, and none from the environment.
        guard let proxy = options.proxy else { return handle.set(CURLOPT_PROXY, "") == CURLE_OK }
        handle.set(CURLOPT_HTTPPROXYTUNNEL, 1)
        // The response to CONNECT is not that of the upstream.
        handle.set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1)
        // Of the variable NO_PROXY, too, nothing is taken.
        guard handle.set(CURLOPT_PROXY, proxy.url) == CURLE_OK, handle.set(CURLOPT_NOPROXY, "") == CURLE_OK else {
            return false
        }
        // libcurl decodes both.
        return proxy.username.isEmpty
            || handle.set(CURLOPT_PROXYUSERNAME, PercentEncoding.encode(proxy.username)) == CURLE_OK
                && handle.set(CURLOPT_PROXYPASSWORD, PercentEncoding.encode(proxy.password)) == CURLE_OK
    }

    private func setAddresses(_ handle: EasyHandle) {
        for entry in options.resolve { addressList = curl_slist_append(addressList, entry) }
        if addressList != nil { _ = postern_curl_set_list(handle.curl, CURLOPT_RESOLVE, addressList) }
    }

    /// Returns false if libcurl has no memory.
    private func setTrust(_ handle: EasyHandle) -> Bool {
        handle.set(CURLOPT_SSLVERSION, Int(CURL_SSLVERSION_TLSv1_2))  // or later
        var isVerified = true
        var code = CURLE_OK
        switch options.trust {
        case .system: break
        case .authorities(let file):
            code = handle.set(CURLOPT_CAINFO, file)
            // The system's directory of authorities, which has a separate default.
            _ = postern_curl_set_pointer(handle.curl, CURLOPT_CAPATH, nil)
            // Otherwise libcurl would not notice for a day that the file was replaced.
            handle.set(CURLOPT_CA_CACHE_TIMEOUT, 0)
        case .publicKey(let sha256):
            isVerified = false
            code = handle.set(CURLOPT_PINNEDPUBLICKEY, "sha256//\(sha256)")
        case .any: isVerified = false
        }
        if code == CURLE_OK, let own = options.clientCertificate {
            code = handle.set(CURLOPT_SSLCERT, own.certificateFile)
            if code == CURLE_OK { code = handle.set(CURLOPT_SSLKEY, own.keyFile) }
            // A session that is resumed has the certificate with which it began, also after the files were replaced.
            handle.set(CURLOPT_SSL_SESSIONID_CACHE, 0)
        }
        handle.set(CURLOPT_SSL_VERIFYPEER, isVerified ? 1 : 0)
        handle.set(CURLOPT_SSL_VERIFYHOST, isVerified ? 2 : 0)
        return code == CURLE_OK
    }

    /// Every body, and POST and PUT without one, is sent as post data, which results in `Content-Length` and never in
    /// chunks.
    private func setBody(_ handle: EasyHandle) {
        let method = request.method
        if !request.body.isEmpty || method == .post || method == .put {
            handle.set(CURLOPT_POST, 1)
            _ = postern_curl_set_offset(handle.curl, CURLOPT_POSTFIELDSIZE_LARGE, curl_off_t(request.body.count))
            // libcurl does not copy the body: the array is constant and owned by this object, so its elements do not
            // move. An empty array may have no address, and libcurl would then call a read function.
            let bytes = request.body.withUnsafeBufferPointer { $0.baseAddress }
            _ = postern_curl_set_pointer(handle.curl, CURLOPT_POSTFIELDS, bytes ?? Self.nothing.utf8Start)
            if method != .post { _ = handle.set(CURLOPT_CUSTOMREQUEST, method.rawValue) }
        } else {
            handle.set(CURLOPT_HTTPGET, 1)
            if method != .get { _ = handle.set(CURLOPT_CUSTOMREQUEST, method.rawValue) }
        }
    }

    private static let nothing: StaticString = ""

    private func setHeaders(_ handle: EasyHandle) {
        // A name with a colon and nothing after it removes a header that libcurl adds.
        var removed: Set = ["expect", "accept", "content-type"]
        for (name, value) in request.headers {
            let key = name.lowercased()
            if Self.framing.contains(key) { continue }
            removed.remove(key)
            headerList = curl_slist_append(headerList, value.isEmpty ? "\(name);" : "\(name): \(value)")
        }
        for name in removed { headerList = curl_slist_append(headerList, "\(name):") }
        _ = postern_curl_set_list(handle.curl, CURLOPT_HTTPHEADER, headerList)
    }

    /// The transfer determines how the body is sent.
    private static let framing: Set = ["content-length", "transfer-encoding", "expect"]

    private func setCallbacks(_ handle: EasyHandle) {
        let context = Unmanaged.passUnretained(self).toOpaque()  // the loop's `active` holds us
        _ = postern_curl_set_callback(handle.curl, CURLOPT_HEADERFUNCTION, headerLineArrived)
        _ = postern_curl_set_pointer(handle.curl, CURLOPT_HEADERDATA, context)
        _ = postern_curl_set_callback(handle.curl, CURLOPT_WRITEFUNCTION, bodyPartArrived)
        _ = postern_curl_set_pointer(handle.curl, CURLOPT_WRITEDATA, context)
        _ = postern_curl_set_prerequest(handle.curl, requestComesNext, context)
    }

    /// The result, once libcurl has finished with the handle.
    ///
    /// A response that is larger than `maxResponseBytes` is cut, because its status is what matters. A little more is
    /// read and discarded, so that the connection can be kept; if there is much more, the connection is closed.
    func result(of code: CURLcode) -> TransferResult {
        guard let handle else { preconditionFailure("a transfer without handle is not under way") }
        let bytesSent = bytesSent
        // libcurl says then that the name could not be resolved.
        let code = code != CURLE_OK && bytesSent == 0 && handle.lacksThread ? CURLE_OUT_OF_MEMORY : code
        func failure(_ code: CURLcode, _ detail: String) -> TransferResult {
            .failure(TransferFailure(code, bytesSent: bytesSent, detail: detail))
        }
        if onlyConnects {
            return code == CURLE_OK
                ? .success(UpstreamResponse(status: 0))
                : failure(code, "\(handle.phase(throughProxy: options.proxy != nil)): \(handle.detail(of: code))")
        }
        // With TLS 1.3, the client's handshake is over before the server has seen its certificate.
        if code != CURLE_OK, !head.isComplete, let reason = handle.refusalOfCertificate {
            let detail = "The upstream rejected the client certificate: \(reason)"
            return .failure(TransferFailure(.unreachable, mayHaveArrived: false, detail: detail))
        }
        // libcurl has no memory for a line of more than 100 KiB.
        if head.isTooLarge || code == CURLE_OUT_OF_MEMORY && bytesSent > 0 && !head.isComplete {
            return failure(CURLE_WEIRD_SERVER_REPLY, "The response's header lines are too long")
        }
        if wasForbidden { return .failure(.cancelled(mayHaveArrived: bytesSent > 0, because: Self.mayNotBeSent)) }
        if wasSentBefore { return failure(CURLE_GOT_NOTHING, "A kept connection ended before the response") }
        // The response is complete even if its end is missing.
        guard code == CURLE_OK || isCut || head.hasTooManyTrailers else {
            return decidedResponse.map { .success($0) } ?? failure(code, handle.detail(of: code))
        }
        // libcurl accepts a connection that ends inside the header lines.
        guard head.isComplete else { return failure(CURLE_PARTIAL_FILE, "The response ends inside its header lines") }
        return .success(response(handle))
    }

    private func response(_ handle: EasyHandle) -> UpstreamResponse {
        UpstreamResponse(status: handle.status, headers: head.headers, body: body)
    }

    /// The response as far as it has arrived, if its header is complete and its status says what it means.
    var decidedResponse: UpstreamResponse? {
        guard let handle, head.isComplete, handle.status >= 200, request.statusDecides(handle.status) else {
            return nil
        }
        return response(handle)
    }

    /// Whether no other request may be sent on the connections that were open during this one: the peer may be mute on
    /// all of them, or is the wrong one (421: RFC 9110, section 15.5.20).
    func discreditsConnections(_ code: CURLcode) -> Bool {
        code == CURLE_OPERATION_TIMEDOUT || head.isComplete && handle?.status == 421
    }

    /// Returns false to end the transfer instead of sending the request.
    ///
    /// If a kept connection ends without a byte of a response, libcurl sends the request again on another one. The
    /// upstream may have processed the first one, and repeating a POST or PATCH is not harmless (RFC 9110, section
    /// 9.2.2): the submitter has to decide, and to count. Other methods may be repeated, and so may any request of which
    /// nothing was sent.
    fileprivate func maySend() -> Bool {
        wasForbidden = mayStillSend?() == false
        guard !wasForbidden else { return false }
        // On another connection, a tunnel was asked for, so that the count says nothing.
        let isRepeated = options.proxy == nil ? bytesSent > 0 : bytesBeforeRequest != nil
        wasSentBefore = [.post, .patch].contains(request.method) && isRepeated
        if bytesBeforeRequest == nil { bytesBeforeRequest = handle?.bytesSent }
        return !wasSentBefore
    }

    static let mayNotBeSent = "this gateway may not own the store any more"

    fileprivate func takeHeaderLine(_ line: UnsafeBufferPointer<UInt8>) -> Bool { head.take(line) }

    /// Returns false to end the transfer.
    fileprivate func takeBodyPart(_ part: UnsafeBufferPointer<UInt8>) -> Bool {
        body.append(contentsOf: part.prefix(request.maxResponseBytes - body.count))
        bodyBytesSeen += part.count
        isCut = bodyBytesSeen > request.maxResponseBytes + Self.readBeyondLimit
        return !isCut
    }

    private static let readBeyondLimit = 1 << 16
}

private typealias CurlCallback =
    @convention(c) (
        UnsafeMutablePointer<CChar>?, Int, Int, UnsafeMutableRawPointer?
    ) -> Int

private let headerLineArrived: CurlCallback = { bytes, _, count, context in
    guard let bytes, let context else { return 0 }
    return bytes.withMemoryRebound(to: UInt8.self, capacity: count) { bytes in
        let line = UnsafeBufferPointer(start: bytes, count: count)
        return Unmanaged<Transfer>.fromOpaque(context).takeUnretainedValue().takeHeaderLine(line) ? count : 0
    }
}

private let bodyPartArrived: CurlCallback = { bytes, _, count, context in
    guard let bytes, let context else { return 0 }
    return bytes.withMemoryRebound(to: UInt8.self, capacity: max(count, 1)) { bytes in
        let part = UnsafeBufferPointer(start: bytes, count: count)
        return Unmanaged<Transfer>.fromOpaque(context).takeUnretainedValue().takeBodyPart(part) ? count : 0
    }
}

private let requestComesNext:
    @convention(c) (
        UnsafeMutableRawPointer?, UnsafeMutablePointer<CChar>?, UnsafeMutablePointer<CChar>?, Int32, Int32
    ) -> Int32 = { context, _, _, _, _ in
        guard let context else { return CURL_PREREQFUNC_ABORT }
        return Unmanaged<Transfer>.fromOpaque(context).takeUnretainedValue().maySend()
            ? CURL_PREREQFUNC_OK : CURL_PREREQFUNC_ABORT
    }

/// RFC 9110, section 5: a name is a token; a value has no control characters, so that it cannot start a line.
private func isSendable(_ header: (name: String, value: String)) -> Bool {
    !header.name.isEmpty
        && header.name.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7f && !"\"(),/:;<=>?@[\\]{}".utf8.contains($0) }
        && header.value.utf8.allSatisfy { $0 >= 0x20 && $0 != 0x7f || $0 == 0x09 }
}
