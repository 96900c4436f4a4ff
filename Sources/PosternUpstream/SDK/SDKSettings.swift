public import PosternCore

/// The settings `sdk` that all types have.
public struct SDKSettings: Sendable, Equatable {
    /// What becomes of an item that breaks the rules of its kind.
    public enum InvalidItems: String, Sendable, CaseIterable {
        /// It is stored as failed.
        case deadLetter
        /// The request is refused, and nothing of it is stored.
        case refuse
    }

    /// The name of the setting.
    package static let prefixName = "sdk.prefix"

    public var isEnabled = false
    /// Empty: `/sdk/<name>`.
    public var prefix = ""
    public var whenInvalid: InvalidItems
    /// After decompression.
    public var maxBodyBytes: Int
    /// 0: no limit.
    public var requestsPerSecondPerAddress = 0

    /// The path below which the endpoints of an upstream are.
    public func prefix(of name: UpstreamName) -> String { prefix.isEmpty ? "/sdk/\(name)" : prefix }

    public init(whenInvalid: InvalidItems = .refuse, maxBodyBytes: Int = 4 << 20) {
        self.whenInvalid = whenInvalid
        self.maxBodyBytes = maxBodyBytes
    }
}

extension SettingField {
    /// The settings that all types have.
    public static func sdk(
        isEnabled: Property<Bool>, prefix: Property<String>, maxBodyBytes: Property<Int>,
        requestsPerSecondPerAddress: Property<Int>
    ) -> [Self] {
        [
            .bool("sdk.enabled", isEnabled, "Whether the endpoints for the platform's SDKs are served."),
            .text(
                SDKSettings.prefixName, prefix, rule: isPrefix, secret: true,
                "Path below which they are, such as /sdk/mobile; empty: /sdk/ and the upstream's name."),
            .integer(
                "sdk.maxBodyBytes", 1024...1_073_741_824, maxBodyBytes,
                "Largest request body, after decompression, in the place of server.maxBodyBytes."),
            .integer(
                "sdk.requestsPerSecondPerAddress", 0...1_000_000, requestsPerSecondPerAddress,
                "Requests that an address may send in a second; 0: no limit."),
        ]
    }

    /// For a type whose items can be invalid.
    public static func whenInvalid(_ property: Property<SDKSettings.InvalidItems>) -> Self {
        .choice(
            "sdk.whenInvalid", property,
            "What becomes of an item that breaks a rule: deadLetter stores it as failed, refuse stores nothing of the request."
        )
    }
}

private let isPrefix = Setting.Rule<String>(
    "must be empty, or begin with / and have no / at its end, no empty segment, and no character besides A-Z a-z 0-9 - . _ ~"
) { text in
    text.isEmpty
        || text.hasPrefix("/")
            && text.dropFirst().split(separator: "/", omittingEmptySubsequences: false)
                .allSatisfy { segment in
                    !segment.isEmpty && segment != "." && segment != ".."
                        && segment.utf8.allSatisfy { byte in
                            switch byte {
                            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                                UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "."),
                                UInt8(ascii: "_"), UInt8(ascii: "~"):
                                true
                            default: false
                            }
                        }
                }
}
