import PosternUpstream

extension CurioKind {
    /// What a message of an SDK may have. The device block is forwarded as it is, devices have any time, and ends need not say
    /// what they close.
    var sdkFields: [CurioField] { Self.sdkFields[self] ?? [] }

    private static let sdkFields = Dictionary(uniqueKeysWithValues: allCases.map { ($0, makeSDKFields($0)) })

    private static func makeSDKFields(_ kind: Self) -> [CurioField] {
        let deviceNames = Set(Device.names.map(\.description))
        let known = kind.fields.map { field in
            var field = field
            if field.rule == .timestamp { field.rule = .anyTime }
            if kind == .sessionStart, deviceNames.contains(field.name.description) {
                (field.rule, field.isRequired) = (.text, false)
            }
            if kind == .screenEnd || kind == .eventEnd, field.substitute != nil {
                (field.substitute, field.isRequired) = (nil, false)
            }
            return field
        }
        let texts = [CurioField("pageTitle", .text, required: false), CurioField("path", .text, required: false)]
        return known + (kind == .screenEnd ? texts : []) + [CurioField("sentIn", .text, required: false)]
    }
}
