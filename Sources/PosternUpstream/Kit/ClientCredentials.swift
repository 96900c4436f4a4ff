import Foundation
package import PosternCore

/// A token for the credentials of a client (RFC 6749, section 4.4).
package struct ClientCredentials: TokenSource {
    package let tokenRequest: UpstreamRequest
    /// When the token of a response, which is read at that time, expires; nil if the response does not say.
    private let expiry: @Sendable (JSONValue, Timestamp) -> Timestamp?

    /// How long before its expiry a token is renewed, or a tenth of its lifetime if that is less.
    private static let longestLead = Duration.seconds(60)
    /// How long a token is used if its expiry is not known.
    private static let lifeWithoutDate = Duration.seconds(300)

    /// Where the client's credentials are in a request (RFC 6749, section 2.3.1).
    package enum Authentication: String, CaseIterable, Sendable {
        /// In the header `Authorization`.
        case basic
        /// In the form, for servers that accept nothing else.
        case post
    }

    /// - Parameters:
    ///   - id, secret: As they are put into the header or the form: RFC 6749, section 2.3.1, encodes them first, older
    ///     servers do not.
    ///   - headers: Of the request, besides those that it always has.
    package init(
        url: String, id: String, secret: String, sentBy authentication: Authentication = .basic, body: String,
        headers: [(name: String, value: String)] = [],
        expiry: @escaping @Sendable (JSONValue, Timestamp) -> Timestamp?
    ) {
        var (all, form) = ([(name: String, value: String)](), body)
        switch authentication {
        case .basic: all.append(("Authorization", "Basic \(Data("\(id):\(secret)".utf8).base64EncodedString())"))
        case .post: form += "&client_id=\(id)&client_secret=\(secret)"
        }
        all.append(("Content-Type", "application/x-www-form-urlencoded"))
        tokenRequest = UpstreamRequest(
            url: url, headers: all + headers, body: Array(form.utf8), statusDecides: { !(200...299).contains($0) })
        self.expiry = expiry
    }

    package func token(from response: UpstreamResponse, now: Timestamp) throws(Token.Failure) -> Token {
        guard (200...299).contains(response.status) else {
            throw Token.Failure(
                credentialsRefused: [400, 401, 403].contains(response.status),
                detail: response.outline(for: " for the token request"))
        }
        let read = JSONParser.ofThisThread.parse(response.body) { body -> (value: String, expiresAt: Timestamp?)? in
            guard let value = body["access_token"], value.isFilledString, let text = value.string,
                Self.isSendable(text)
            else { return nil }
            return (text, expiry(body, now))
        }
        guard case .success(let found?) = read else {
            throw Token.Failure(
                credentialsRefused: false, detail: "the response to the token request contains no usable access_token")
        }
        guard let expiresAt = found.expiresAt else {
            let end = now + Self.lifeWithoutDate
            return Token(value: found.value, renewAt: end, expiresAt: end)
        }
        let lead = min(Self.longestLead, max(.zero, expiresAt - now) / 10)
        return Token(value: found.value, renewAt: expiresAt + (.zero - lead), expiresAt: expiresAt)
    }

    /// It is used in a header as it is.
    private static func isSendable(_ token: String) -> Bool { token.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F } }
}
