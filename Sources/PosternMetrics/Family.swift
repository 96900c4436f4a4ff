import Synchronization

/// The series of one metric, one for each combination of label values. Any thread. Callers keep the series that they
/// use often.
public final class Family<Series: Sendable>: Sendable {
    let labels: [String]
    private let make: @Sendable () -> Series
    private let series = Mutex<[[String]: Series]>([:])

    init(labels: [String], make: @escaping @Sendable () -> Series) {
        self.labels = labels
        self.make = make
    }

    /// The series with these label values, in the order of the labels; created on first use.
    public func callAsFunction(_ values: String...) -> Series {
        precondition(values.count == labels.count, "one value for each label")
        return series.withLock { known in
            if let found = known[values] { return found }
            let fresh = make()
            known[values] = fresh
            return fresh
        }
    }

    var all: [(values: [String], series: Series)] {
        series.withLock { known in known.map { ($0.key, $0.value) } }
            .sorted { $0.values.lexicographicallyPrecedes($1.values) }
    }
}
