import PosternCore
import PosternUpstream

/// The answer while that of the platform is not there: the entity that the platform would have, with the members that the
/// next steps of the SDK need. Nothing in it is secret.
struct SDKEnvelope {
    let upstream: UpstreamName
    let endpoint: SDKEndpoint
    /// The request's URL without the query.
    let url: String
    let now: Timestamp

    /// `known`: what is stored for the device. `platformID`: the platform's `uuid` of the user or group.
    func answer(
        to request: IncomingCall, method: String, known: SDKDevice = SDKDevice(), platformID: String? = nil
    ) -> SDKAnswer {
        let entity = entity(for: request, known, platformID)
        return .json(
            200, .accepted,
            JSONWriter.object { json in
                json.string("action", method.lowercased())
                json.string("application", id("application", endpoint.application))
                json.raw("params", "{}")
                json.string("path", request.collection)
                json.string("uri", url)
                json.raw("entities", "[\(entity)]")
                json.raw("timestamp", "\(now.milliseconds)")
                json.number("duration", 0)
                json.string("organization", endpoint.organization)
                json.string("applicationName", endpoint.application)
            })
    }

    private func entity(for request: IncomingCall, _ known: SDKDevice, _ platformID: String?) -> String {
        switch request.call {
        case .device, .connect, .preferences, .disconnect, .unregisterDevice:
            entity("device", request.device, in: "devices") { json in
                if let notifier = known.notifier { json.string(notifier + ".notifier.id", known.deviceToken) }
                for (name, value) in known.details { json.string(name, value) }
                if let lists = known.preferences { json.raw("mobileplatform", #"{"preferences":\#(lists)}"#) }
            }
        case .user, .addToGroup, .removeFromGroup:
            entity("user", platformID ?? id("user", request.user), in: "users") { json in
                json.string("username", request.user)
                json.flag("activated", true)
            }
        case .findGroup, .createGroup:
            entity("group", platformID ?? id("group", request.group), in: "groups") { json in
                json.string("path", request.group)
                json.string("title", request.group)
            }
        case .configuration, .metrics, .crash: "{}"
        }
    }

    private func entity(
        _ type: String, _ id: String, in collection: String, _ more: (inout JSONWriter) -> Void
    ) -> String {
        JSONWriter.object { json in
            json.string("uuid", id)
            json.string("type", type)
            json.raw("created", "\(now.milliseconds)")
            json.raw("modified", "\(now.milliseconds)")
            more(&json)
            json.object("metadata") { $0.string("path", "/\(collection)/\(id)") }
        }
    }

    /// The same for a name in each answer.
    private func id(_ type: String, _ name: String) -> String {
        String(decoding: UUIDText.version5("\(upstream)/\(type)/\(name.lowercased())"), as: UTF8.self)
    }
}

/// What is known of a device, for its entity.
struct SDKDevice {
    var notifier: String?
    /// Empty after the end of its registration.
    var deviceToken = ""
    var details: [(name: String, value: String)] = []
    /// The text of both lists.
    var preferences: String?

    init() {}

    /// What was accepted for the device last, and what the request itself says.
    init(_ request: IncomingCall, in state: any UpstreamState) {
        let kind = request.call.kind ?? .device
        let sent = Item(Array(request.payload.utf8), of: kind.kind, in: .named("", group: ""))
        if let item = request.call == .device ? sent : state.registration(of: request.device) {
            notifier = item.notifier
            deviceToken = item.deviceToken
            details = [
                ("deviceModel", item.deviceModel), ("devicePlatform", item.devicePlatform),
                ("deviceOSVersion", item.deviceOSVersion),
            ].compactMap { name, value in value.map { (name, $0) } }
        }
        if request.call == .unregisterDevice { (notifier, deviceToken) = (sent?.notifier, "") }
        if case .replace(let lists)? = sent?.preferences {
            preferences = lists.text
        } else {
            preferences = state.preferences(of: request.device)?.lists
        }
    }
}

extension IncomingCall {
    /// The path of the collection of its entity.
    fileprivate var collection: String {
        switch call {
        case .device, .preferences, .unregisterDevice: "/devices"
        case .connect, .disconnect: "/users/\(user)/devices"
        case .user: "/users"
        case .findGroup, .createGroup: "/groups"
        case .addToGroup, .removeFromGroup: "/groups/\(group)/users"
        case .configuration, .metrics, .crash: "/apm"
        }
    }
}
