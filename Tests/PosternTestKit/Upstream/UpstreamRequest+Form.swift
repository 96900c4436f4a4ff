import Foundation
import PosternCore
public import PosternUpstream

/// The names and values of a form or a query, decoded.
public func formPairs(_ text: some StringProtocol) -> [String: String] {
    var pairs: [String: String] = [:]
    for pair in text.split(separator: "&") {
        let halves = pair.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false).map(formDecoded)
        pairs[halves[0]] = halves.count == 2 ? halves[1] : ""
    }
    return pairs
}

/// Undoes the encoding of a form's text, once.
public func formDecoded(_ text: some StringProtocol) -> String {
    text.replacingOccurrences(of: "+", with: " ").removingPercentEncoding ?? ""
}

/// Encodes a form's text: ASCII letters, digits and `bare` stay, and a space becomes a plus sign.
public func formEncoded(_ text: String, bare: String) -> String {
    let ascii = CharacterSet(charactersIn: "\0"..."\u{7F}")
    let kept = CharacterSet.alphanumerics.intersection(ascii).union(CharacterSet(charactersIn: bare + " "))
    return (text.addingPercentEncoding(withAllowedCharacters: kept) ?? "").replacingOccurrences(of: " ", with: "+")
}

extension UpstreamRequest {
    public var text: String { String(decoding: body, as: UTF8.self) }
    /// The body as a form.
    public var form: [String: String] { formPairs(text) }
}
