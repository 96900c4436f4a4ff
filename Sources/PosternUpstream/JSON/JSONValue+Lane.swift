public import PosternCore

extension Lane {
    /// The digest of a string's value, however it is escaped.
    public static func digest(of string: JSONValue) -> Lane {
        string.hasEscapes
            ? digest(of: string.stringBytes ?? []) : digest(of: string.rawString)
    }
}
