/// Entity tags, by which a client finds out whether what it has is current (RFC 9110, section 8.8.3).
enum EntityTag {
    /// Whether an `If-None-Match` header contains `tag`, or `*`. Weak tags are compared like strong ones (RFC 9110,
    /// section 13.1.2).
    static func list(_ header: String?, contains tag: String) -> Bool {
        guard let header else { return false }
        return header.split(separator: ",").contains { element in
            let text = element.filter { $0 != " " && $0 != "\t" }
            return text == "*" || text == tag || text == "W/" + tag
        }
    }
}
