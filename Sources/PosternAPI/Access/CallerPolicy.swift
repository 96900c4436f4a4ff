import Glibc
import PosternCore
import PosternEvents
import PosternHTTP

/// Keeps web pages from using a visitor's browser to reach the gateway: neither by a name that they have pointed at it
/// (DNS rebinding), nor by requests to another origin. A caller that is not a browser notices nothing of this.
public struct CallerPolicy: Sendable {
    /// The names in `Host` that are accepted besides `localhost` and IP addresses, in lower case and without port.
    private let hosts: Set<String>
    /// The origins that may do more than read, besides the gateway's own, in lower case.
    private let origins: Set<String>
    private let servesTLS: Bool

    /// - Parameters:
    ///   - hosts: Host names without port.
    ///   - origins: `scheme://host`, with the port unless it is the scheme's default.
    ///   - servesTLS: Whether the gateway itself ends TLS; if so, only `https` origins can be its own.
    public init(hosts: [String] = [], origins: [String] = [], servesTLS: Bool = false) {
        self.hosts = Set(hosts.map { $0.lowercased() })
        self.origins = Set(origins.map { $0.lowercased() })
        self.servesTLS = servesTLS
    }

    /// Nil if the request may be answered. Headers that a request does not have cost one comparison each.
    ///
    /// - Parameter checksHost: Whether the name in `Host` matters; see `Gatekeeper.checksHost`.
    func refusal(of head: RequestHead, checksHost: Bool) -> Problem? {
        // HTTP/1.0 requires no `Host`, and no browser leaves it out.
        if checksHost, let host = head.header("Host"), !acceptsHost(host) {
            return Self.forbidden(
                "The name in Host is not one of this gateway's. Use an IP address or localhost, or list the name in "
                    + "server.hosts.")
        }
        guard head.method != "GET", head.method != "HEAD" else { return nil }
        let isForeign =
            if let origin = head.header("Origin") {
                !acceptsOrigin(origin, host: head.header("Host") ?? "")
            } else {
                head.header("Sec-Fetch-Site").map { $0 == "cross-site" || $0 == "same-site" } ?? false
            }
        guard isForeign else { return nil }
        return Self.forbidden(
            "The request comes from a web page of another origin; nothing was changed. To accept it, list the origin "
                + "in server.corsOrigins.")
    }

    /// Whether the request comes from this machine, and not from a web page that has pointed its name there.
    func isOfThisMachine(_ head: RequestHead) -> Bool {
        head.peer.isLoopback && head.header("Host").map(acceptsHost) ?? true
    }

    /// No cache keeps a response, no browser takes it for another type than it has, and a page of a listed origin may read
    /// it.
    func commonHeaders(for head: RequestHead?) -> [(name: String, value: String)] {
        let forPages = head.map { responseHeaders(for: $0) } ?? []
        return forPages.isEmpty ? Self.forAll : Self.forAll + forPages
    }

    private static let forAll = [
        (name: "Cache-Control", value: "no-store"), (name: "X-Content-Type-Options", value: "nosniff"),
    ]

    // MARK: Cross-origin resource sharing (Fetch, section 3.2)

    /// The response to the preflight request that a browser sends for a page of a listed origin. It is the same for
    /// every path, so it does not reveal which paths exist. Nil for a request that does not ask, or of another origin.
    func preflight(_ head: RequestHead) -> HTTPResponse? {
        guard head.method == "OPTIONS", head.header("Access-Control-Request-Method") != nil, isListed(head) else {
            return nil
        }
        var headers = [
            (name: "Access-Control-Allow-Methods", value: "GET, HEAD, POST, PUT, DELETE"),
            (name: "Access-Control-Allow-Headers", value: Self.requestHeaders(for: head)),
            (name: "Access-Control-Max-Age", value: "600"),
        ]
        if head.header("Access-Control-Request-Private-Network") != nil {
            headers.append(("Access-Control-Allow-Private-Network", "true"))
        }
        return HTTPResponse(status: 204, headers: headers)
    }

    private static let requestHeaders =
        "Authorization, Content-Encoding, Content-Type, Idempotency-Key, If-None-Match, Last-Event-ID, Postern-Session, "
        + "Prefer, Traceparent, X-Request-Id"

    /// `requestHeaders`, and the attributes of a CloudEvent that the page asks for, as many as fit into the head of a
    /// response (`HTTPServerSettings.connectionMemory`): 28 with names as long as CloudEvents recommends at most.
    private static func requestHeaders(for head: RequestHead) -> String {
        let asked = head.header("Access-Control-Request-Headers")?.lowercased() ?? ""
        var permitted = requestHeaders
        for attribute in asked.split(whereSeparator: { $0 == "," || $0 == " " }) where attribute.hasPrefix("ce-") {
            guard permitted.utf8.count + attribute.utf8.count < requestHeaders.utf8.count + maxAttributeBytes else {
                break
            }
            permitted += ", " + attribute
        }
        return permitted
    }

    private static let maxAttributeBytes = 700

    private static let responseHeaders =
        "Age, ETag, Idempotent-Replay, Location, Preference-Applied, RateLimit, RateLimit-Policy, Retry-After, X-Cache, X-Request-Id"

    /// The headers that let a page of a listed origin read the response; empty without listed origins.
    func responseHeaders(for head: RequestHead) -> [(name: String, value: String)] {
        guard !origins.isEmpty else { return [] }
        guard let origin = head.header("Origin"), isListed(head) else { return [("Vary", "Origin")] }
        return [
            ("Vary", "Origin"), ("Access-Control-Allow-Origin", origin),
            ("Access-Control-Expose-Headers", Self.responseHeaders),
        ]
    }

    private func isListed(_ head: RequestHead) -> Bool {
        !origins.isEmpty && head.header("Origin").map { origins.contains($0.lowercased()) } == true
    }

    private static func forbidden(_ detail: String) -> Problem {
        Problem(slug: .forbidden, status: 403, detail: detail)
    }

    /// Whether `host`, with or without a port, is `localhost`, an IP address or a configured name.
    func acceptsHost(_ host: String) -> Bool {
        var host = host
        let isUsual = host.withUTF8 { bytes in
            let name = withoutPort(bytes)
            return isLocalhost(name) || isIPv4(name) || isIPv6Literal(name)
        }
        if isUsual { return true }
        guard !hosts.isEmpty else { return false }
        return hosts.contains(host.withUTF8 { String(decoding: withoutPort($0), as: UTF8.self) }.lowercased())
    }

    /// Whether `origin` is listed, or that of a page which the gateway served under the name in `host`.
    func acceptsOrigin(_ origin: String, host: String) -> Bool {
        let (origin, host) = (origin.lowercased(), host.lowercased())
        if origins.contains(origin) { return true }
        let schemes = [("https://", ":443")] + (servesTLS ? [] : [("http://", ":80")])
        return schemes.contains { scheme, port in
            origin == scheme + (host.hasSuffix(port) ? String(host.dropLast(port.count)) : host)
        }
    }
}

private func withoutPort(_ host: UnsafeBufferPointer<UInt8>) -> UnsafeBufferPointer<UInt8> {
    // The colons of an IPv6 address are inside brackets.
    guard let colon = host.lastIndex(of: UInt8(ascii: ":")), host.last != UInt8(ascii: "]") else { return host }
    return UnsafeBufferPointer(rebasing: host[..<colon])
}

private func isLocalhost(_ name: UnsafeBufferPointer<UInt8>) -> Bool {
    name.count == 9 && String(decoding: name, as: UTF8.self).lowercased() == "localhost"
}

/// Four numbers of at most 255, as clients write them: no octal, no shorter form.
private func isIPv4(_ text: UnsafeBufferPointer<UInt8>) -> Bool {
    var (parts, digits, value) = (0, 0, 0)
    for byte in text {
        if byte == UInt8(ascii: "."), digits > 0 {
            (parts, digits, value) = (parts + 1, 0, 0)
        } else {
            guard (0x30...0x39).contains(byte), digits < 3 else { return false }
            (digits, value) = (digits + 1, value * 10 + Int(byte - 0x30))
            guard value <= 255 else { return false }
        }
    }
    return parts == 3 && digits > 0
}

private func isIPv6Literal(_ text: UnsafeBufferPointer<UInt8>) -> Bool {
    guard text.count > 2, text.first == UInt8(ascii: "["), text.last == UInt8(ascii: "]") else { return false }
    var address = in6_addr()
    let inside = String(decoding: text.dropFirst().dropLast(), as: UTF8.self)
    return inside.withCString { inet_pton(AF_INET6, $0, &address) } == 1
}
