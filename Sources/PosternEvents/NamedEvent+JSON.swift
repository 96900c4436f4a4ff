package import PosternCore
package import PosternUpstream

extension NamedEvent {
    /// The member `sdk` of an event and of a receipt: the words of the SDK's response objects.
    ///
    /// - Parameter ids: The messages concerned; `requestIds` to the SDK.
    package func json(_ ids: [MessageID]) -> String {
        JSONWriter.object { json in
            json.raw("events", JSONWriter.array(names.map(JSONEscapes.quoted)))
            json.string("requestType", requestType)
            if let kind {
                json.string("kind", kind.description)
                json.raw("requestIds", JSONWriter.array(ids.map { "\"\($0)\"" }))
            }
            if let isSuccess { json.flag("success", isSuccess) }
            if let isQueued { json.flag("queued", isQueued) }
            guard isSuccess != nil else { return }
            guard let failure else { return json.raw("error", "null") }
            json.object("error") { json in
                json.number("code", failure.code)
                json.string("name", failure.name)
            }
        }
    }
}
