import PosternConformance
import PosternCore
import PosternSimulatorKit
import PosternTestKit

@testable import CurioSimulator

/// Sends requests to a simulator of its own. They are valid unless a test changes them.
struct CurioClient: SimulatorClient {
    typealias V = CurioVectors
    typealias Parameters = [(name: String, value: String)]

    static let other = "7d551000-a21d-11e4-8123-03ab5c7d9e1f"
    static let codes = ["6f9619ff-8b86-4d01-b42d-00cf4fc964ff", "7d444840-9dc0-41d1-b245-5ffdce74fad2"]
    static let stranger = "8B3A9001-51C3-4F0B-9A77-3E0D6C5B4A01"

    /// A time shortly after those in the vectors.
    let time = ManualTime()
    let simulator: CurioSimulator

    init(seed: UInt64 = 1) {
        simulator = CurioSimulator(seed: seed, time: time)
        control(#"{"apiKey":"\#(V.apiKey)","trackingCode":"\#(V.trackingCode)"}"#)
    }

    static let requestHeaders: [(name: String, value: String)] = [
        ("User-Agent", "IOS CurioSDK v1.2.4"), ("Content-Type", "application/x-www-form-urlencoded"),
    ]
    /// With those that the transport adds.
    static let headers = requestHeaders + [("Host", "127.0.0.1"), ("Content-Length", "1")]

    func post(
        _ path: String, _ body: String, method: String = "POST", query: String? = nil,
        headers: [(name: String, value: String)] = headers, isLost: Bool = false, poisons: [Faults.Poison] = []
    ) -> SimulatedResult {
        simulator.judge(
            SimulatedRequest(
                method: method, path: path, query: query, headers: headers, body: Array(body.utf8),
                isAnswerLost: isLost),
            poisons: poisons)
    }

    func post(_ example: V.Example) -> SimulatedResult { post("/api/v2" + example.suffix, example.body) }

    func send(_ suffix: String, _ parameters: Parameters, isLost: Bool = false) -> SimulatedResult {
        post("/api/v2" + suffix, Self.form(parameters), isLost: isLost)
    }

    // MARK: Requests

    static func form(_ parameters: Parameters) -> String {
        parameters.map { "\(enc($0.name))=\(enc($0.value))" }.joined(separator: "&")
    }

    static func enc(_ text: String) -> String { formEncoded(text, bare: "-._~") }

    static func common(_ session: String = V.session, visitor: String = V.visitor, timeout: String = "30")
        -> Parameters
    {
        [
            ("sessionCode", session), ("sessionTimeout", timeout), ("visitorCode", visitor),
            ("trackingCode", V.trackingCode),
        ]
    }

    static func three(_ session: String = V.session) -> Parameters {
        common(session).filter { $0.0 != "sessionTimeout" }
    }

    static func device(model: String = "iPhone") -> Parameters {
        [
            ("screenWidth", "750"), ("screenHeight", "1334"), ("lang", "tr-TR"), ("simOperator", ""),
            ("simOpCountry", "286"), ("networkOpName", "TURKCELL"), ("connType", "wifi"), ("brand", "Apple"),
            ("model", model), ("osType", "iOS"), ("osVer", "9.2.1"), ("curioSdkVer", "1.2.4"), ("appVer", "2.4.0"),
        ]
    }

    static func screen(_ title: String = "Ana sayfa", _ path: String = "/home") -> Parameters {
        [("pageTitle", enc(title)), ("path", enc(path))]
    }

    static func event(_ key: String = "Buton", _ value: String = "1") -> Parameters {
        [("eventKey", enc(key)), ("eventValue", enc(value))]
    }

    func start(
        _ session: String = V.session, visitor: String = V.visitor, model: String = "iPhone", timeout: String = "30",
        isLost: Bool = false
    ) -> SimulatedResult {
        send(
            "/visit/create",
            [("apiKey", V.apiKey)] + Self.common(session, visitor: visitor, timeout: timeout)
                + Self.device(model: model), isLost: isLost)
    }

    func end(_ session: String = V.session, visitor: String = V.visitor) -> SimulatedResult {
        send("/visit/end", Self.common(session, visitor: visitor))
    }

    func screenStart(_ session: String = V.session, visitor: String = V.visitor, isLost: Bool = false)
        -> SimulatedResult
    {
        send("/hit/create", Self.common(session, visitor: visitor) + Self.screen(), isLost: isLost)
    }

    func screenEnd(
        _ code: String, _ session: String = V.session, visitor: String = V.visitor, title: String = "Ana sayfa"
    ) -> SimulatedResult {
        send("/hit/end", Self.common(session, visitor: visitor) + Self.screen(title) + [("hitCode", code)])
    }

    func pdr(_ records: [String], _ session: String = V.session, visitor: String = V.visitor) -> SimulatedResult {
        send("/batch/create", Self.common(session, visitor: visitor) + [("data", Self.data(records))])
    }

    func ocr(
        _ records: [String], visitor: String = V.visitor, model: String = "iPhone", timeout: String = "30",
        isLost: Bool = false
    ) -> SimulatedResult {
        send(
            "/offline/create",
            [
                ("apiKey", V.apiKey), ("sessionTimeout", timeout), ("visitorCode", visitor),
                ("trackingCode", V.trackingCode),
            ] + Self.device(model: model) + [("data", Self.data(records))], isLost: isLost)
    }

    // MARK: Records

    static func data(_ records: [String]) -> String { "[\(records.joined(separator: ","))]" }

    static func record(_ type: Int, _ session: String = V.session, at second: Int = 0, fields: Parameters = [])
        -> String
    {
        let more = fields.map { ",\"\($0.name)\":\"\($0.value)\"" }.joined()
        return
            #"{"type":\#(type),"timestamp":"\#(1_421_920_800_000 + second * 1000)","sessionCode":"\#(session)"\#(more)}"#
    }

    static func open(_ code: String, _ session: String = V.session, at second: Int = 1, title: String = "Ana sayfa")
        -> String
    {
        record(2, session, at: second, fields: screen(title) + [("hitCode", code)])
    }

    static func close(_ code: String, _ session: String = V.session, at second: Int = 2, title: String = "Ana sayfa")
        -> String
    {
        record(3, session, at: second, fields: screen(title) + [("hitCode", code)])
    }
}

extension SimulatedResult {
    /// The value in a response such as `{"hitCode":"e3b0"}`.
    var code: String? {
        guard let body = answer?.body else { return nil }
        return body.withUnsafeBufferPointer { body in
            (member("hitCode", of: body) ?? member("eventCode", of: body) ?? member("sessionCode", of: body))?.text
        }
    }

    /// Status, and violations if there are any: `200`, `401 a session code of another visitor`.
    var summary: String {
        ([status.map { "\($0)" } ?? "silence"] + violations).joined(separator: " | ")
    }
}
