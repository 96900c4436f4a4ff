import PosternCore
import PosternUpstream

/// The endpoints of requests (the specification's endpoint table).
enum Endpoint: String, CaseIterable, Sendable {
    case visitCreate = "/visit/create"
    case visitEnd = "/visit/end"
    case hitCreate = "/hit/create"
    case hitEnd = "/hit/end"
    case eventCreate = "/event/create"
    case eventEnd = "/event/end"
    case periodic = "/batch/create"
    case offline = "/offline/create"
    case push = "/visitor/setPushData"
    case location = "/location/set"
    case userTags = "/visitor/setUserTag"
    case unregister = "/visitor/unregister"

    /// Whether the body of a success may contain a code that later requests need.
    var givesCode: Bool { [.hitCreate, .eventCreate, .offline].contains(self) }

    /// The endpoint for one item of that kind.
    init(for kind: CurioKind) {
        self =
            switch kind {
            case .sessionStart: .visitCreate
            case .sessionEnd: .visitEnd
            case .screenStart: .hitCreate
            case .screenEnd: .hitEnd
            case .event: .eventCreate
            case .eventEnd: .eventEnd
            case .pushToken, .notificationRead, .customID: .push
            case .location: .location
            case .userTags: .userTags
            case .unregister: .unregister
            }
    }

    /// The endpoint to which `request` went.
    init?(of request: UpstreamRequest) {
        guard let endpoint = Self.allCases.first(where: { request.url.hasSuffix($0.rawValue) }) else { return nil }
        self = endpoint
    }
}

/// One action in a batch.
struct Record: Equatable, Sendable {
    enum Step: Equatable, Sendable {
        case sessionStart, sessionEnd
        case open(Texts, code: String)
        case close(Texts, duration: Int64?, code: String)
    }
    let step: Step
    let timestamp: Int64
    let session: String

    private var type: Int {
        switch step {
        case .sessionStart: 0
        case .sessionEnd: 1
        case .open(let texts, _): texts.subject == .screen ? 2 : 4
        case .close(let texts, _, _): texts.subject == .screen ? 3 : 7
        }
    }

    var json: String {
        JSONWriter.object { json in
            json.number("type", type)
            json.string("timestamp", String(timestamp))
            json.string("sessionCode", session)
            switch step {
            case .sessionStart, .sessionEnd: break
            case .open(let texts, let code): Self.add(texts, duration: nil, code: code, to: &json)
            case .close(let texts, let duration, let code): Self.add(texts, duration: duration, code: code, to: &json)
            }
        }
    }

    private static func add(_ texts: Texts, duration: Int64?, code: String, to json: inout JSONWriter) {
        let names = texts.subject.names
        json.string(names.first, String(decoding: CurioEncoding.encoded(texts.first), as: UTF8.self))
        json.string(names.second, String(decoding: CurioEncoding.encoded(texts.second), as: UTF8.self))
        if let duration { json.string("eventDuration", String(duration)) }
        json.string(names.code, code)
    }
}

extension Texts.Subject {
    var names: (first: String, second: String, code: String) {
        switch self {
        case .screen: ("pageTitle", "path", "hitCode")
        case .event: ("eventKey", "eventValue", "eventCode")
        }
    }
}

/// Builds the requests of one application.
struct Requests: Sendable {
    /// Without a slash at its end.
    let serverURL: String
    let apiKey: String
    let trackingCode: String
    /// Of sessions without a timeout of their own.
    let sessionTimeoutMinutes: Int
    let userAgent: String

    /// How a request identifies its session.
    struct SessionReference: Sendable {
        let visitor: String
        /// The upstream's code for it.
        let session: String
        /// Nil for that of the settings.
        var timeoutMinutes: Int?
    }

    func sessionStart(_ device: Device, at reference: SessionReference) -> UpstreamRequest {
        var form = CurioForm()
        form.add("apiKey", apiKey)
        addCommon(of: reference, to: &form)
        add(device, to: &form)
        return request(.visitCreate, form)
    }

    func sessionEnd(at reference: SessionReference) -> UpstreamRequest {
        var form = CurioForm()
        addCommon(of: reference, to: &form)
        return request(.visitEnd, form)
    }

    func open(_ texts: Texts, at reference: SessionReference) -> UpstreamRequest {
        var form = CurioForm()
        addCommon(of: reference, to: &form)
        add(texts, to: &form)
        return request(texts.subject == .screen ? .hitCreate : .eventCreate, form)
    }

    func close(_ texts: Texts, duration: Int64?, code: String, at reference: SessionReference) -> UpstreamRequest {
        var form = CurioForm()
        addCommon(of: reference, to: &form)
        add(texts, to: &form)
        if let duration { form.add("eventDuration", Int(duration)) }
        form.add(texts.subject.names.code, code)
        return request(texts.subject == .screen ? .hitEnd : .eventEnd, form)
    }

    func direct(_ kind: CurioKind, _ parameters: [Action.Parameter], at reference: SessionReference) -> UpstreamRequest
    {
        var form = CurioForm()
        if kind == .unregister {
            addCommon(of: reference, to: &form)
        } else {
            form.add("visitorCode", reference.visitor)
            form.add("trackingCode", trackingCode)
            form.add("sessionCode", reference.session)
        }
        for parameter in parameters { form.add(parameter.name, parameter.value) }
        return request(Endpoint(for: kind), form)
    }

    func periodic(_ records: [Record], at reference: SessionReference) -> UpstreamRequest {
        var form = CurioForm()
        addCommon(of: reference, to: &form)
        form.add("data", JSONWriter.array(records.map(\.json)))
        return request(.periodic, form)
    }

    func offline(
        _ records: [Record], of visitor: String, _ device: Device, timeoutMinutes: Int? = nil
    ) -> UpstreamRequest {
        var form = CurioForm()
        form.add("apiKey", apiKey)
        form.add("sessionTimeout", timeoutMinutes ?? sessionTimeoutMinutes)
        form.add("visitorCode", visitor)
        form.add("trackingCode", trackingCode)
        add(device, to: &form)
        form.add("data", JSONWriter.array(records.map(\.json)))
        return request(.offline, form)
    }

    /// The request with which a device reads its tags.
    func tags(at reference: SessionReference) -> UpstreamRequest {
        query("/visitor/getVisitorProfileTags", at: reference)
    }

    /// The request with which a device reads which notifications it was sent.
    func pushHistory(_ pushToken: String?, start: String, rows: String, at reference: SessionReference)
        -> UpstreamRequest
    {
        query("/pushHistory/get/\(start)/\(rows)", pushToken, at: reference)
    }

    private func query(_ path: String, _ pushToken: String? = nil, at reference: SessionReference) -> UpstreamRequest {
        var form = CurioForm()
        form.add("visitorCode", reference.visitor)
        form.add("trackingCode", trackingCode)
        if let pushToken { form.add("pushToken", pushToken) }
        form.add("sessionCode", reference.session)
        return UpstreamRequest(url: serverURL + path, headers: headers, body: form.body)
    }

    private var headers: [(name: String, value: String)] {
        [("User-Agent", userAgent), ("Content-Type", "application/x-www-form-urlencoded")]
    }

    private func addCommon(of reference: SessionReference, to form: inout CurioForm) {
        form.add("sessionCode", reference.session)
        form.add("sessionTimeout", reference.timeoutMinutes ?? sessionTimeoutMinutes)
        form.add("visitorCode", reference.visitor)
        form.add("trackingCode", trackingCode)
    }

    private func add(_ device: Device, to form: inout CurioForm) {
        for (name, value) in zip(Device.names, device.values) {
            if let value { form.add("\(name)", value) }
        }
    }

    private func add(_ texts: Texts, to form: inout CurioForm) {
        form.addTwice(texts.subject.names.first, texts.first)
        form.addTwice(texts.subject.names.second, texts.second)
    }

    private func request(_ endpoint: Endpoint, _ form: CurioForm) -> UpstreamRequest {
        UpstreamRequest(
            url: serverURL + endpoint.rawValue, headers: headers, body: form.body, endpoint: endpoint.rawValue,
            statusDecides: { !endpoint.givesCode || !(200...299).contains($0) })
    }
}
