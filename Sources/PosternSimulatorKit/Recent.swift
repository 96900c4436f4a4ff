/// Values by name. If there are too many, the oldest is removed for the newest.
package struct Recent<Value: Sendable>: Sendable {
    private let limit: Int
    package private(set) var values: [String: Value] = [:]
    private var names: [String] = []
    private var oldest = 0

    package init(limit: Int) { self.limit = limit }

    package subscript(name: String) -> Value? { values[name] }

    package mutating func insert(_ name: String, _ value: Value) {
        guard values.updateValue(value, forKey: name) == nil else { return }
        guard names.count == limit else { return names.append(name) }
        values[names[oldest]] = nil
        names[oldest] = name
        oldest = (oldest + 1) % limit
    }

    /// Changes an existing value.
    package mutating func update(_ name: String, _ change: (inout Value) -> Void) {
        guard let index = values.index(forKey: name) else { return }
        change(&values.values[index])
    }

    package mutating func forEach(_ change: (inout Value) -> Void) {
        for name in names { update(name, change) }
    }
}
