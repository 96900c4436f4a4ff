import PosternCore
package import PosternUpstream

/// One call to the platform, before it is signed.
package struct StreamOneCall: Hashable, Sendable {
    struct Argument: Hashable, Sendable {
        let name: String
        let value: String
        init(_ name: String, _ value: String) {
            self.name = name
            self.value = value
        }

        /// Compared byte by byte: to Swift, `é` and `e` with a combining accent are equal, which the platform may treat
        /// differently.
        package static func == (left: Self, right: Self) -> Bool {
            left.name.utf8.elementsEqual(right.name.utf8) && left.value.utf8.elementsEqual(right.value.utf8)
        }
    }

    package var command: String
    package var action: String
    package var scope: Scope = .none
    /// The name of a zone; nil means the actor's own.
    var timezone: String?
    /// In the order sent.
    var arguments: [Argument] = []

    /// Compared byte by byte, like its arguments. Commands and actions are ASCII.
    package static func == (left: Self, right: Self) -> Bool {
        left.command == right.command && left.action == right.action && left.scope == right.scope
            && left.timezone.map { Array($0.utf8) } == right.timezone.map { Array($0.utf8) }
            && left.arguments == right.arguments
    }

    /// As settings name it.
    var name: String { "\(command)/\(action)" }

    /// The path as it is signed: without the prefix of the configured URL.
    var path: String { "/api/\(name)" }

    /// Commands and actions are used in the path unencoded: `[a-z][a-z0-9]*`.
    static func isName(_ text: some StringProtocol) -> Bool {
        text.utf8.first?.isLowercaseLetter == true && text.utf8.allSatisfy { $0.isLowercaseLetter || $0.isDigit }
    }
}

/// The scope of a call: accounts or a customer.
package enum Scope: Hashable, Sendable {
    case none
    /// At least one, without commas.
    case accounts([String])
    case customer(String)

    /// Compared byte by byte, like arguments.
    package static func == (left: Self, right: Self) -> Bool {
        switch (left, right) {
        case (.none, .none): true
        case (.accounts(let left), .accounts(let right)):
            left.elementsEqual(right) { $0.utf8.elementsEqual($1.utf8) }
        case (.customer(let left), .customer(let right)): left.utf8.elementsEqual(right.utf8)
        case (.none, _), (.accounts, _), (.customer, _): false
        }
    }

    var accounts: [String] {
        if case .accounts(let accounts) = self { accounts } else { [] }
    }

    var customer: String? {
        if case .customer(let customer) = self { customer } else { nil }
    }

    /// The lane of queued calls. A call about several accounts keeps the order of the first one.
    package var lane: String {
        switch self {
        case .none: "none"
        case .accounts(let accounts): "account/\(accounts[0])"
        case .customer(let customer): "customer/\(customer)"
        }
    }
}

// MARK: Reading

extension StreamOneCall {
    /// What is read of a payload. Its texts take several times its memory.
    package enum Extent {
        /// Everything is checked. The call has no arguments, and only the first of its accounts.
        case checked
        /// The call has no arguments.
        case addressed
        /// The call is going to be made.
        case whole
    }

    /// Reads the payload of a queued call.
    ///
    /// - Parameter maxFaults: Further ones are only counted.
    package init(
        _ payload: JSONValue, defaultAccount: String?, maxFaults: Int = PayloadErrors.most, _ extent: Extent = .whole
    ) throws(InvalidPayload) {
        guard payload.bytes.count <= Self.maxBytes else {
            throw InvalidPayload([PayloadError("", "must have at most \(Self.maxBytes) bytes")])
        }
        guard payload.kind == .object else { throw InvalidPayload([PayloadError("", "must be an object")]) }
        var faults = PayloadErrors(atMost: maxFaults)
        let command = Self.name(payload["command"], "/command", &faults)
        let action = Self.name(payload["action"], "/action", &faults)
        let scope = Scope(payload, defaultAccount: defaultAccount, extent, &faults)
        let timezone = Scope.text(payload["timezone"], "/timezone", &faults).flatMap { $0.isEmpty ? nil : $0 }
        var arguments: [Argument] = []
        // What was validated needs no second check.
        if extent != .addressed, let value = payload["arguments"], value.kind != .null {
            arguments = Self.arguments(value, at: "/arguments", isWhole: extent == .whole, &faults)
        }
        for (key, _) in payload.members where !Self.members.contains(where: { key.equals($0) }) {
            faults.add(JSONPointer.member(key), "is none of \(Self.members.map(\.description).joined(separator: ", "))")
        }
        guard faults.isEmpty else { throw InvalidPayload(faults) }
        self.init(command: command, action: action, scope: scope, timezone: timezone, arguments: arguments)
    }

    /// So that a call can be read, encoded, and signed within 50 ms.
    private static let maxBytes = 2 << 20

    private static let members: [StaticString] = [
        "command", "action", "arguments", "account", "accounts", "customer", "timezone",
    ]

    private static func name(_ value: JSONValue?, _ pointer: String, _ faults: inout PayloadErrors) -> String {
        guard let text = value?.string, value?.kind == .string, isName(text) else {
            faults.add(pointer, "must be a name of lower-case letters and digits")
            return ""
        }
        return text
    }

    /// The arguments of an object, as texts in its order (the specification's 3.4).
    static func arguments(
        _ object: JSONValue, at pointer: String, isWhole: Bool = true, _ faults: inout PayloadErrors
    ) -> [Argument] {
        guard object.kind == .object else {
            faults.add(pointer, "must be an object")
            return []
        }
        // Counted no further than necessary.
        guard
            object.members.prefix(StreamOneEncoding.maxPairs + 1).reduce(0, { count, _ in count + 1 })
                <= StreamOneEncoding.maxPairs
        else {
            faults.add(pointer, "must have at most \(StreamOneEncoding.maxPairs) members")
            return []
        }
        var arguments: [Argument] = []
        var growth = 0
        // Growing the array would take twice the memory for a large one.
        if isWhole { arguments.reserveCapacity(object.members.reduce(0) { count, _ in count + 1 }) }
        for (key, value) in object.members {
            let before = growth
            if let fault = StreamOneArgument.fault(of: value, growth: &growth) {
                faults.add(pointer + JSONPointer.member(key) + fault.pointer, fault.detail)
            }
            // A call with a fault is not sent.
            guard isWhole, faults.isEmpty else { continue }
            arguments.append(Argument(key.string ?? "", StreamOneArgument.text(of: value, growth: growth - before)))
        }
        return arguments
    }
}

extension Scope {
    /// Of the scope, and of the time zone: they are parts of the URL, which no server takes if it is much longer. libcurl
    /// takes none of 8 MB.
    private static let maxBytes = 64 << 10

    /// From the members of a payload. An empty text counts as absent; an empty list removes the default account.
    fileprivate init(
        _ payload: JSONValue, defaultAccount: String?, _ extent: StreamOneCall.Extent, _ faults: inout PayloadErrors
    ) {
        let account = Self.text(payload["account"], "/account", &faults)
        let customer = Self.text(payload["customer"], "/customer", &faults)
        var accounts: [String]?
        if let list = payload["accounts"], list.kind != .null {
            if list.kind != .array { faults.add("/accounts", "must be an array of strings") }
            let isTooLong = list.bytes.count > Self.maxBytes
            if isTooLong { faults.add("/accounts", "must have at most \(Self.maxBytes) characters") }
            for (index, element) in list.elements.enumerated() where !isTooLong {
                if !element.isFilledString {
                    faults.add("/accounts/\(index)", "must be a non-empty string")
                } else if element.holds(UInt8(ascii: ",")) {
                    faults.add("/accounts/\(index)", "must have no comma")
                }
            }
            let kept = extent != .checked && faults.isEmpty ? Int.max : 1
            accounts = list.elements.prefix(isTooLong ? 0 : kept).map { $0.string ?? "" }
        }
        let given = RequestedScope(account: account, accounts: accounts, customer: customer)
        for fault in given.faults { faults.add("/\(fault.name)", fault.detail) }
        self = given.scope(defaultAccount: defaultAccount)
    }

    fileprivate static func text(_ value: JSONValue?, _ pointer: String, _ faults: inout PayloadErrors) -> String? {
        guard let value, value.kind != .null else { return nil }
        guard value.kind == .string else {
            faults.add(pointer, "must be a string")
            return nil
        }
        guard value.bytes.count <= maxBytes else {
            faults.add(pointer, "must have at most \(maxBytes) characters")
            return nil
        }
        return value.string
    }

    /// The scope that a caller gives; at most one of these.
    struct RequestedScope {
        private let account: String?
        private let accounts: [String]?
        private let customer: String?
        private(set) var faults: [(name: String, detail: String)] = []

        /// - Parameter accounts: Without commas.
        init(account: String?, accounts: [String]?, customer: String?) {
            self.account = account.flatMap { $0.isEmpty ? nil : $0 }
            self.accounts = accounts
            self.customer = customer.flatMap { $0.isEmpty ? nil : $0 }
            if self.account?.utf8.contains(UInt8(ascii: ",")) ?? false {
                faults.append(("account", "must have no comma"))
            }
            if self.account != nil, accounts != nil { faults.append(("accounts", "excludes account")) }
            if self.customer != nil, self.account != nil || accounts != nil {
                faults.append(("customer", "excludes account and accounts"))
            }
        }

        func scope(defaultAccount: String?) -> Scope {
            if let customer { return .customer(customer) }
            if let account { return .accounts([account]) }
            if let accounts { return accounts.isEmpty ? .none : .accounts(accounts) }
            return defaultAccount.map { .accounts([$0]) } ?? .none
        }
    }
}
