import PosternCore
import PosternScenarios

/// What the app has done: a row of the SDK's table.
struct CurioSDKRow {
    /// The raw values are the types of records.
    enum Kind: Int {
        case start = 0
        case end = 1
        case screen = 2
        case screenEnd = 3
        case event = 4
        case eventEnd = 7

        /// The kind of its message; nil for an end, which has no mark.
        var messageKind: String? {
            switch self {
            case .start: "session_start"
            case .screen: "screen_start"
            case .event: "event"
            case .end, .screenEnd, .eventEnd: nil
            }
        }
    }
    let number: Int
    let kind: Kind
    /// That of the app, which another one may have replaced.
    let session: String
    let time: Int64
    let entry: Expectations.Entry?
    /// The title of the screen, or the key of the event, and its value.
    let text: String
    let value: String
    /// Of an end: the row of its start.
    let opens: Int?
    var isOffline = false
    /// Nil if it is not known.
    var code: String?
}

/// The requests of Curio's SDKs, with their paths (sections 4 and 5 of the specification).
struct CurioSDKForm {
    let client: CurioSDKModel.Client
    let visitor: String

    init(_ client: CurioSDKModel.Client, visitor: String) { (self.client, self.visitor) = (client, visitor) }

    private typealias Parameters = [(name: String, value: String)]

    func online(_ row: CurioSDKRow, in session: String) -> (String, String) {
        switch row.kind {
        case .start: start(session, model: row.text)
        case .end: ("/visit/end", text(common(session)))
        case .screen: ("/hit/create", text(common(session) + texts(row)))
        case .screenEnd: ("/hit/end", text(common(session) + texts(row) + [("hitCode", row.code ?? "UNKNOWN")]))
        case .event: ("/event/create", text(common(session) + texts(row)))
        case .eventEnd:
            (
                "/event/end",
                text(
                    common(session) + texts(row) + [("eventDuration", "7"), ("eventCode", row.code ?? "UNKNOWN")])
            )
        }
    }

    func start(_ session: String, model: String) -> (String, String) {
        ("/visit/create", text([("apiKey", Self.key)] + common(session) + device(model)))
    }

    func read(_ notification: String, in session: String) -> (String, String) {
        ("/visitor/setPushData", text(common(session) + [("pushToken", "t"), ("pushId", notification)]))
    }

    func batch(_ rows: [CurioSDKRow], in session: String) -> (String, String) {
        ("/batch/create", text(common(session) + [("data", data(rows))]))
    }

    func offline(_ rows: [CurioSDKRow]) -> (String, String) {
        let common = common("").filter { $0.name != "sessionCode" }
        // The device block has the mark of one session's start, if there is one.
        let model = rows.first { $0.kind == .start }?.text ?? "iPhone"
        return ("/offline/create", text([("apiKey", Self.key)] + common + device(model) + [("data", data(rows))]))
    }

    // MARK: Parts

    private static let key = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"

    private func common(_ session: String) -> Parameters {
        [
            ("sessionCode", session), ("sessionTimeout", "30"), ("visitorCode", visitor), ("trackingCode", "GW7DEM01"),
        ]
    }

    private func device(_ model: String) -> Parameters {
        [
            ("screenWidth", "750"), ("screenHeight", "1334"), ("lang", "tr-TR"), ("simOperator", ""),
            ("simOpCountry", "286"), ("networkOpName", "TURKCELL"), ("connType", "wifi"), ("brand", "Apple"),
            ("model", model), ("osType", client == .iOS ? "iOS" : "Android"), ("osVer", "9.2.1"),
            ("curioSdkVer", "1.2.4"), ("appVer", "2.4.0"),
        ]
    }

    /// Encoded once. On ends, iOS leaves them empty.
    private func texts(_ row: CurioSDKRow) -> Parameters {
        let isLeftOut = client == .iOS && row.opens != nil
        let names = row.kind == .screen || row.kind == .screenEnd ? ("pageTitle", "path") : ("eventKey", "eventValue")
        return [(names.0, isLeftOut ? "" : encoded(row.text)), (names.1, isLeftOut ? "" : encoded(row.value))]
    }

    /// Newest first.
    private func data(_ rows: [CurioSDKRow]) -> String {
        func quoted(_ text: String) -> String { client == .iOS ? "\"\(text)\"" : text }
        let records = rows.reversed().map { row in
            var members = [
                #""type":\#(row.kind.rawValue)"#, #""timestamp":\#(quoted("\(row.time)"))"#,
                #""sessionCode":"\#(row.session)""#,
            ]
            if row.kind != .start, row.kind != .end {
                members += texts(row).map { #""\#($0.name)":"\#($0.value)""# }
                // An online start that failed has none: empty on iOS, left out by Android.
                let name = row.kind == .screen || row.kind == .screenEnd ? "hitCode" : "eventCode"
                let missing = row.opens == nil ? "" : "UNKNOWN"
                if row.code != nil || client == .iOS { members.append(#""\#(name)":"\#(row.code ?? missing)""#) }
            }
            if row.kind == .eventEnd { members.append(#""eventDuration":\#(quoted("7"))"#) }
            return "{\(members.joined(separator: ","))}"
        }
        return "[\(records.joined(separator: ","))]"
    }

    private func text(_ parameters: Parameters) -> String {
        parameters.map { "\($0.name)=\(encoded($0.value))" }.joined(separator: "&")
    }

    private func encoded(_ text: String) -> String {
        text.utf8.map { byte in
            let isBare = byte.isUnreserved
            return isBare
                ? String(UnicodeScalar(byte)) : byte == 0x20 ? "+" : "%" + hexadecimal(Int(byte), 2).uppercased()
        }.joined()
    }
}
