import PosternCore

/// Names of kinds that an operator chooses. A kind is part of paths and labels.
package enum KindName {
    /// Why `name` cannot be a kind; nil if it can.
    package static func problem(with name: String) -> String? {
        (1...64).contains(name.utf8.count) && name.utf8.allSatisfy { $0.isAlphanumeric || "-_.".utf8.contains($0) }
            ? nil : "cannot be a kind: 1 to 64 letters, digits, '-', '_' and '.' can"
    }
}
