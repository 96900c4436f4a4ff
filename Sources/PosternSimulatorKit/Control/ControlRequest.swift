internal import Foundation

/// Values that `/control` reads and shows as members of a JSON object, by the names of the properties.
///
/// A member that may be missing is an optional. Members of any JSON have the type `JSONTree`.
package protocol ControlMembers: Codable, Sendable {
    /// The properties of type `JSONTree`.
    static var free: Set<String> { get }
    /// The fault of the values, beginning with a member's name; nil if there is none.
    var problem: String? { get }
}

extension ControlMembers {
    package static var free: Set<String> { [] }
    package var problem: String? { nil }

    /// The members as `GET /control` shows them.
    package var shown: [JSONTree.Member] {
        (tree(of: self).members ?? []).map { member in
            let text = Self.free.contains(member.name) ? member.value.string : nil
            return text.flatMap { JSONTree.read($0.utf8) }.map { .init(name: member.name, value: $0.value) } ?? member
        }
    }
}

/// The commands of a `POST /control`, which take effect once. Every property is an optional.
package protocol ControlCommands: ControlMembers {
    associatedtype CodingKeys: CodingKey, CaseIterable
}

/// A `POST /control`: the resulting settings, and commands.
package struct ControlRequest<Settings: ControlMembers, Commands: ControlCommands> {
    package let settings: Settings
    package let commands: Commands
    /// The members of the body.
    package let names: Set<String>

    package init(_ body: [UInt8], changing settings: Settings) throws(ControlProblem) {
        guard let document = JSONTree.read(body), !document.hasTrailingBytes, let given = document.value.members else {
            throw ControlProblem("the body is not a JSON object")
        }
        let current = settings.shown
        let settingNames = Set(current.map(\.name))
        let known = settingNames.union(Commands.CodingKeys.allCases.map(\.stringValue))
        if let unknown = given.first(where: { !known.contains($0.name) }) {
            let names = known.sorted().joined(separator: ", ")
            throw ControlProblem("unknown member \(quoted(unknown.name.prefix(100))); known are \(names)")
        }
        names = Set(given.map(\.name))
        self.settings = try decoded(given.filter { settingNames.contains($0.name) }, over: current)
        commands = try decoded(given.filter { !settingNames.contains($0.name) })
    }
}

/// Why a `POST /control` is rejected. It changes nothing.
package struct ControlProblem: Error, Equatable, CustomStringConvertible {
    package let description: String

    package init(_ description: String) { self.description = description }

    /// - Parameter member: Named if the error names none.
    fileprivate init(_ error: DecodingError, in member: String) {
        switch error {
        case .keyNotFound(let key, let context): self.init("\(name(of: context.codingPath + [key])): is missing")
        case .typeMismatch(_, let context), .valueNotFound(_, let context), .dataCorrupted(let context):
            let isElsewhere = context.codingPath.isEmpty
            self.init(
                isElsewhere
                    ? "\(member): is not a number of the right kind"
                    : "\(name(of: context.codingPath)): \(context.debugDescription)")
        @unknown default: self.init("\(error)")
        }
    }
}

/// For example `users[0].psk`.
private func name(of path: [any CodingKey]) -> String {
    path.reduce("") { name, key in
        if let index = key.intValue { return "\(name)[\(index)]" }
        return name + (name.isEmpty ? "" : ".") + key.stringValue
    }
}

/// The value with the members `given`, and those of `current` for the rest.
private func decoded<Value: ControlMembers>(
    _ given: [JSONTree.Member], over current: [JSONTree.Member] = []
) throws(ControlProblem) -> Value {
    let object = JSONTree.object(of: (current + given).map(Value.travelling))
    let value: Value
    do {
        value = try JSONDecoder().decode(Value.self, from: Data(object.canonical.utf8))
    } catch let error as DecodingError {
        // For a number that does not fit its type, Foundation does not report the path.
        if case .dataCorrupted(let context) = error, context.codingPath.isEmpty, given.count > 1 {
            for member in given { let _: Value = try decoded([member], over: current) }
        }
        throw ControlProblem(error, in: given.first?.name ?? "")
    } catch {
        throw ControlProblem("\(error)")
    }
    if let unknown = firstUnknown(in: object, tree(of: value), at: "") {
        throw ControlProblem("\(unknown): there is no such member")
    }
    if let problem = value.problem { throw ControlProblem(problem) }
    return value
}

extension ControlMembers {
    /// A member of type `JSONTree` as a string of its text, so that numbers keep their spelling.
    fileprivate static func travelling(_ member: JSONTree.Member) -> JSONTree.Member {
        free.contains(member.name) ? .init(name: member.name, value: .string(member.value.canonical)) : member
    }
}

/// The first member that was given and not read: encoding the value does not produce it.
private func firstUnknown(in given: JSONTree, _ read: JSONTree, at path: String) -> String? {
    switch (given, read) {
    case (.object(let members), .object):
        for member in members where member.value != .null {
            let path = path.isEmpty ? member.name : "\(path).\(member.name)"
            guard let value = read[member.name] else { return path }
            if let unknown = firstUnknown(in: member.value, value, at: path) { return unknown }
        }
        return nil
    case (.array(let given), .array(let read)):
        return zip(given, read).enumerated().lazy
            .compactMap { index, pair in firstUnknown(in: pair.0, pair.1, at: "\(path)[\(index)]") }.first
    default: return nil
    }
}

/// `value` as JSON.
package func tree(of value: some Encodable) -> JSONTree {
    let text = try? JSONEncoder().encode(value)
    return text.flatMap { JSONTree.read($0) }?.value ?? .null
}
