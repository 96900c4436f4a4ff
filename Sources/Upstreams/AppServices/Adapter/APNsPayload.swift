import PosternCore
import PosternUpstream

/// Interprets a notification's payload as the framework does (section 7).
enum APNsPayload {
    /// A JSON text with `alert` or `alertDict`, `badge`, `sound`, `contentAvailable` and `customPayload`; what the
    /// payload does not contain is absent. The members of its reception follow, and the payload itself.
    static func read(
        _ payload: JSONValue, received: NotificationReception
    ) -> Result<String, InvalidPayload> {
        var faults = PayloadErrors()
        guard payload.kind == .object, let aps = payload["aps"], aps.kind == .object else {
            let pointer = payload.kind == .object ? "/aps" : ""
            return .failure(InvalidPayload([PayloadError(pointer, "must be an object")]))
        }
        var json = JSONWriter()
        if let alert = aps["alert"] { json.raw(alert.kind == .string ? "alert" : "alertDict", text(alert)) }
        if let badge = aps["badge"] { json.number("badge", integer(badge, "/aps/badge", &faults)) }
        if let sound = aps["sound"] {
            if sound.kind != .string { faults.add("/aps/sound", "must be a string") }
            json.raw("sound", text(sound))
        }
        if let content = aps["content-available"] {
            json.number("contentAvailable", integer(content, "/aps/content-available", &faults))
        }
        let custom = payload.members.filter { !$0.key.equals("aps") }.map { "\(text($0.key)):\(text($0.value))" }
        if !custom.isEmpty { json.raw("customPayload", "{" + custom.joined(separator: ",") + "}") }
        received.write(to: &json)
        json.raw("incomingNotification", text(payload))
        return faults.isEmpty ? .success(json.finished) : .failure(InvalidPayload(faults))
    }

    private static func text(_ value: JSONValue) -> String { String(decoding: value.bytes, as: UTF8.self) }

    /// Strings are converted as the framework does: to the number that they begin with, or else 0.
    private static func integer(_ value: JSONValue, _ pointer: String, _ faults: inout PayloadErrors) -> Int {
        if let number = value.integer { return Int(number) }
        if let string = value.string { return leadingInteger(of: string) }
        if value.kind == .number, let number = DecimalLiteral(value).truncated { return Int(number) }
        faults.add(pointer, "must be an integer, or a string of one")
        return 0
    }

    /// Worked values: `5` and ` 5 apples` give 5, `-2` gives -2, `many` gives 0; too large ones the largest there is.
    private static func leadingInteger(of text: String) -> Int {
        var rest = text.unicodeScalars.drop(while: \.properties.isWhitespace)
        let sign = rest.first == "-" ? -1 : 1
        if rest.first == "-" || rest.first == "+" { rest.removeFirst() }
        let digits = Substring(rest.prefix { ("0"..."9").contains($0) })
        return digits.isEmpty ? 0 : sign * (Int(digits) ?? .max)
    }
}
