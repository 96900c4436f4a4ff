import Testing

/// Expects that the upstream has received all that was answered 202 of a source, whose events are numbered in the order in which they
/// were posted, and in that order. Repeats do not count.
func expectArrival(of accepted: [Int], from source: String, in arrived: [(source: String, value: String)]) {
    let numbers = arrived.filter { $0.source == source }.compactMap { Int($0.value) }
    let missing = Set(accepted).subtracting(numbers)
    #expect(missing.isEmpty, "\(source) lost \(missing.sorted().prefix(20))")
    var seen: Set<Int> = []
    let first = numbers.filter { seen.insert($0).inserted }
    #expect(first == first.sorted(), "\(source) arrived out of order")
}
