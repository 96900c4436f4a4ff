import PosternCore
import PosternUpstream

/// The rules for items (specification, section 9).
struct Rules: Sendable {
    /// Size limits are unknown; this is the assumption in the specification's section 14.
    static let maxBytes = 65_536

    let provider: Provider
    let takesMonitoring: Bool
    /// The same for `metrics` and `crash`.
    var maxMonitoringBytes = Self.maxBytes

    /// The token that was part of the item; nil for monitoring. Throws all faults.
    func check(
        _ payload: JSONValue, as kind: AppServicesKind, now: Timestamp, maxFaults: Int = PayloadErrors.most
    ) throws(InvalidPayload) -> Auth? {
        var faults = AppServicesFaults(atMost: maxFaults)
        var auth: Auth?
        if payload.kind != .object {
            faults.add("", "must be an object", code: kind.code)
        } else if payload.bytes.count > (kind.isMonitoring ? maxMonitoringBytes : Self.maxBytes) {
            faults.add("", "must be at most \(Self.maxBytes) bytes", code: kind.code)
        } else if kind.isMonitoring {
            check(monitoring: payload, as: kind, &faults)
        } else {
            check(item: payload, of: kind, &faults)
            auth = Auth(payload["auth"], byDefault: provider, now: now, at: "/auth", &faults)
        }
        guard let code = faults.firstCode else { return auth }
        throw InvalidPayload(faults.found, codes: ["appServicesCode": code])
    }

    private func check(item: JSONValue, of kind: AppServicesKind, _ faults: inout AppServicesFaults) {
        let user = item["userId"]
        // Null, or none where it may be missing: the user whose token it is.
        let isOmitted = kind.mayOmitUser && user == nil || kind.mayBeOfAnyUser && user?.kind == .null
        if !isOmitted, !(user?.string.map(Self.isUser) ?? false) {
            faults.add(
                "/userId",
                "must be 1 to 128 characters of letters, digits and _ . ' + -, or an email address, but not a UUID or me",
                code: 7)
        }
        if kind.isOfDevice {
            if !(item["deviceId"]?.string.map(Self.isUUID) ?? false) {
                faults.add("/deviceId", "must be a UUID", code: kind.silences ? 8 : 9)
            }
        } else if kind != .user, !(item["group"]?.string.map(Self.isGroup) ?? false) {
            faults.add("/group", "Invalid group name.", code: kind.code)
        }
        if kind == .register || kind == .reregister || kind == .device {
            if !(item["deviceToken"]?.string.map(Self.isDeviceToken) ?? false) {
                faults.add(
                    "/deviceToken", "must be 64 to 200 hexadecimal digits, an even number of them, and nothing else",
                    code: 9)
            }
            for name in ["deviceModel", "devicePlatform", "deviceOSVersion"] {
                guard let value = item[named: name], !value.isFilledString else { continue }
                faults.add("/" + name, "must be a non-empty string where it is present", code: 9)
            }
        }
        let needsNotifier = kind == .device || kind == .unregisterDevice
        if needsNotifier || kind == .register || kind == .reregister || kind == .unregister,
            !(item["notifier"].map { $0.string.map(Self.isNotifier) ?? false } ?? !needsNotifier)
        {
            faults.add("/notifier", "must be 1 to 64 letters, digits, _ and -", code: 9)
        }
        if kind == .preferences {
            check(change: item["preferences"], &faults)
        } else if kind == .register || kind == .reregister, let lists = item["preferences"] {
            check(lists: lists, at: "/preferences", &faults)
        }
    }

    /// The lists as a whole, or changes to them, or null.
    private func check(change value: JSONValue?, _ faults: inout AppServicesFaults) {
        guard let value else {
            return faults.add("/preferences", "must be an object with lists or changes of them, or null", code: 1)
        }
        guard value.kind != .null else { return }
        guard value.kind == .object, PreferencesChange.isEdit(value) else {
            return check(lists: value, at: "/preferences", &faults)
        }
        for (key, lists) in value.members {
            let pointer = "/preferences" + JSONPointer.member(key)
            if key.equals("add") || key.equals("remove") {
                check(lists: lists, at: pointer, isRemoval: key.equals("remove"), &faults)
            } else {
                faults.add(pointer, "is neither add nor remove", code: 1)
            }
        }
    }

    /// `isRemoval`: whether the lists are arrays of types, without exceptions.
    private func check(
        lists value: JSONValue, at place: String, isRemoval: Bool = false, _ faults: inout AppServicesFaults
    ) {
        guard value.kind == .object else {
            return faults.add(place, "must be an object with whitelist, blacklist or both", code: 1)
        }
        for (key, list) in value.members {
            let pointer = place + JSONPointer.member(key)
            if !key.equals("whitelist"), !key.equals("blacklist") {
                faults.add(pointer, "is neither whitelist nor blacklist", code: 1)
            } else if isRemoval {
                guard list.kind != .array || !list.elements.allSatisfy(\.isFilledString) else { continue }
                faults.add(pointer, "must be an array of non-empty strings", code: 1)
            } else {
                check(list: list, at: pointer, &faults)
            }
        }
    }

    private func check(list: JSONValue, at place: String, _ faults: inout AppServicesFaults) {
        guard list.kind == .object else { return faults.add(place, "must be an object", code: 1) }
        for (type, exceptions) in list.members {
            let pointer = place + JSONPointer.member(type)
            if type.rawString.isEmpty {
                faults.add(pointer, "must have a name that is not empty", code: 1)
            } else if exceptions.kind != .array || !exceptions.elements.allSatisfy(\.isFilledString) {
                faults.add(pointer, "must be an array of non-empty strings", code: 1)
            }
        }
    }

    private func check(monitoring item: JSONValue, as kind: AppServicesKind, _ faults: inout AppServicesFaults) {
        guard takesMonitoring else {
            return faults.add("", "is not accepted: the setting monitoring.enabled is not true", code: 1)
        }
        if kind == .crash {
            let name = item["name"]
            if let name, !(name.string.map(Self.isCrashFile) ?? false) {
                faults.add("/name", "must be a UUID and .crash", code: 1)
            }
            if name == nil || item["deviceId"] != nil, !(item["deviceId"]?.string.map(Self.isUUID) ?? false) {
                faults.add("/deviceId", "must be a UUID", code: 1)
            }
            if item["text"]?.isFilledString != true { faults.add("/text", "must be a non-empty string", code: 1) }
        }
        let session = item["sessionMetrics"]
        if session?.isFilledObject != true, kind == .metrics || session != nil {
            faults.add("/sessionMetrics", "must be an object that is not empty", code: 1)
        }
        for name in kind == .metrics ? ["logs", "metrics"] : [] {
            guard let list = item[named: name] else { continue }
            if list.kind != .array || !list.elements.allSatisfy({ $0.kind == .object }) {
                faults.add("/" + name, "must be an array of objects", code: 1)
            }
        }
    }

    // MARK: Forms

    /// Usergrid finds users by these patterns, treats a UUID as an entity's id, and reserves `me`.
    static func isUser(_ text: String) -> Bool {
        guard (1...128).contains(text.utf8.count), !isUUID(text), !["me", ".", ".."].contains(text.lowercased()) else {
            return false
        }
        let parts = text.split(separator: "@", omittingEmptySubsequences: false)
        guard parts[0].utf8.allSatisfy({ $0.isAlphanumeric || "_.'+-".utf8.contains($0) }) else { return false }
        if parts.count == 1 { return true }
        let labels = parts[1].split(separator: ".", omittingEmptySubsequences: false)
        return parts.count == 2 && !parts[0].isEmpty && labels.count > 1
            && labels.allSatisfy { !$0.isEmpty && $0.utf8.allSatisfy { $0.isAlphanumeric || $0 == UInt8(ascii: "-") } }
    }

    static func isUUID(_ text: String) -> Bool {
        let groups = text.split(separator: "-", omittingEmptySubsequences: false)
        return groups.map(\.utf8.count) == [8, 4, 4, 4, 12] && groups.allSatisfy { $0.utf8.allSatisfy(isHexDigit) }
    }

    /// The name of a crash log (section 4.11).
    static func isCrashFile(_ name: String) -> Bool {
        name.hasSuffix(".crash") && isUUID(String(name.dropLast(".crash".count)))
    }

    static func isGroup(_ text: String) -> Bool {
        (1...128).contains(text.utf8.count) && text.utf8.allSatisfy { $0.isAlphanumeric || $0 == UInt8(ascii: "-") }
    }

    static func isNotifier(_ text: String) -> Bool {
        (1...64).contains(text.utf8.count) && text.utf8.allSatisfy { $0.isAlphanumeric || "_-".utf8.contains($0) }
    }

    private static func isDeviceToken(_ text: String) -> Bool {
        (64...200).contains(text.utf8.count) && text.utf8.count.isMultiple(of: 2) && text.utf8.allSatisfy(isHexDigit)
    }

    private static func isHexDigit(_ byte: UInt8) -> Bool { byte.hexadecimalValue != nil }
}

/// Collects faults, with the framework's code for the first.
struct AppServicesFaults {
    private(set) var found: PayloadErrors
    private(set) var firstCode: Int?

    init(atMost limit: Int = PayloadErrors.most) { found = PayloadErrors(atMost: limit) }

    // No autoclosures, as `PayloadErrors.add` has: items are small, and Swift 6.3.1 crashes on those of
    // `Auth.init` when it optimizes.
    mutating func add(_ pointer: String, _ detail: String, code: Int) {
        firstCode = firstCode ?? code
        found.add(pointer, detail)
    }
}
