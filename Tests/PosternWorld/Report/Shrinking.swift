/// Looks for less that breaks the same promise: fewer callers, devices, faults and actions of the operator, and an earlier end.
enum Shrinking {
    /// Worlds that are tried at most.
    static let maxTries = 60

    static func shrink(_ report: Report) -> Report {
        guard let promise = report.promise else { return report }
        var (best, tries) = (report, 0)
        func accept(_ change: (inout Plan) -> Void) -> Bool {
            guard tries < maxTries else { return false }
            tries += 1
            var plan = best.plan
            change(&plan)
            let found = World(plan).simulate()
            guard found.promise == promise else { return false }
            best = found
            return true
        }
        _ = accept { $0.hours = min($0.hours, report.hours) }
        shorten(\.actions, of: { best.plan }, accept)
        shorten(\.diskFaults, of: { best.plan }, accept)
        shorten(\.faults, of: { best.plan }, accept)
        shorten(\.callers, of: { best.plan }, accept)
        shorten(\.devices, of: { best.plan }, accept)
        while best.plan.hours > 1, accept({ $0.hours /= 2 }) {}
        return best
    }

    /// Leaves out as much of a list as it can: all of it, then halves, and so on down to single elements.
    private static func shorten<Element>(
        _ list: WritableKeyPath<Plan, [Element]>, of plan: () -> Plan, _ accept: ((inout Plan) -> Void) -> Bool
    ) {
        var size = plan()[keyPath: list].count
        while size >= 1 {
            var start = 0
            while start < plan()[keyPath: list].count {
                let part = start..<min(start + size, plan()[keyPath: list].count)
                if !accept({ $0[keyPath: list].removeSubrange(part) }) { start += size }
            }
            size /= 2
        }
    }
}

extension Report {
    /// The promise that was broken, without how.
    var promise: String? { broken.map { String($0.prefix { $0 != ":" }) } }

    /// For people: what was broken, the least that breaks it, and the last steps.
    public var explanation: String {
        guard let broken else { return "no promise was broken" }
        return """
            seed \(plan.seed): \(broken)
            trace \(String(digest, radix: 16)) after \(steps) steps

            \(plan)

            \(lastSteps.joined(separator: "\n"))
            """
    }

    /// The same with the shortest history that was found.
    public var shrunk: Report { broken == nil ? self : Shrinking.shrink(self) }
}
