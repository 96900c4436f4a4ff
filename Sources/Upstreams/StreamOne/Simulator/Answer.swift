import PosternSimulatorKit

/// The response to a call.
struct Answer {
    var status = Status.ok
    /// JSON.
    var body = "null"
    var isCacheable = false
    /// The number of elements of a list.
    var count: Int?
    /// Seconds; only in a session.
    var sessionTimeout: Int?
    var timezone = ""

    /// A list and the number of its elements.
    static func list(_ elements: [String]) -> Self {
        Self(body: "[\(elements.joined(separator: ","))]", count: elements.count)
    }

    /// As PHP writes it, members in the order of the recorded exchanges.
    var text: String {
        var header = """
            "status":\(status.rawValue),"statusmessage":\(phpQuoted(status.message)),"apiversion":3,\
            "cacheable":\(isCacheable)
            """
        if let count { header += ",\"count\":\(count)" }
        if let sessionTimeout { header += ",\"sessiontimeout\":\(sessionTimeout)" }
        return "{\"header\":{\(header),\"timezone\":\(phpQuoted(timezone))},\"body\":\(body)}"
    }

    /// The arguments of a call, for actions that the simulator knows nothing about.
    static func echo(_ call: Call) -> Self {
        let members = call.arguments.pairs.map { "\(phpQuoted($0.name)):\(phpQuoted($0.value))" }
        return Self(body: "{\(members.joined(separator: ","))}")
    }

    /// `body` as it is given, with a count if it is a list.
    static func given(_ body: JSONTree) -> Self { Self(body: body.canonical, count: body.elements?.count) }

    static func roles(_ roles: [StreamOneSettings.Role]) -> Self {
        .list(
            roles.map { role in
                var text = """
                    {"role":{"id":\(phpQuoted(role.id ?? "")),"name":\(phpQuoted(role.name ?? "")),\
                    "tokens":[\((role.tokens ?? []).map(phpQuoted).joined(separator: ","))]}
                    """
                if let account = role.account {
                    text += ",\"account\":{\"id\":\(phpQuoted(account)),\"name\":\(phpQuoted("Account \(account)"))}"
                }
                if let customer = role.customer {
                    text += """
                        ,"customer":{"id":\(phpQuoted(customer)),"name":\(phpQuoted("Customer \(customer)")),\
                        \(dates)}
                        """
                }
                return text + "}"
            })
    }

    static func user(_ user: StreamOneSettings.User) -> Self {
        Self(
            body: """
                {"id":\(phpQuoted(user.id)),"username":\(user.username.map(phpQuoted) ?? "null"),"active":true,\(dates)}
                """)
    }

    static func applications(_ list: [StreamOneSettings.Application], timezone: String) -> Self {
        .list(
            list.map { application in
                """
                {"id":\(phpQuoted(application.id)),"name":\(phpQuoted(application.name ?? "")),"description":"",\(dates),\
                "active":true,"iplock":null,"timezone":\(phpQuoted(timezone))}
                """
            })
    }

    private static let dates = #""datecreated":"2015-09-28 09:05:57","datemodified":"2015-09-28 09:05:57""#
}

/// `text` as PHP writes JSON strings: slashes escaped, nothing but ASCII.
func phpQuoted(_ text: String) -> String {
    var result = "\""
    for unit in text.utf16 {
        switch unit {
        case 0x22: result += "\\\""
        case 0x5c: result += "\\\\"
        case 0x2f: result += "\\/"
        case 0x08: result += "\\b"
        case 0x0c: result += "\\f"
        case 0x0a: result += "\\n"
        case 0x0d: result += "\\r"
        case 0x09: result += "\\t"
        case 0x20..<0x80: result.unicodeScalars.append(Unicode.Scalar(UInt8(unit)))
        default:
            let hex = String(unit, radix: 16)
            result += "\\u" + String(repeating: "0", count: 4 - hex.count) + hex
        }
    }
    return result + "\""
}
