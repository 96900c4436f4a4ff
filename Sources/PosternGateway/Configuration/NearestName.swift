/// The one of `candidates` that `name` most likely means; nil if none is close.
///
/// Close means at most one mistake in three characters, and at most three: `batchMaxMesages` is 1 away from
/// `batchMaxMessages`, `prot` 1 from `port`. Case is ignored.
package func nearestName(to name: String, among candidates: some Sequence<String>) -> String? {
    let length = name.count
    let allowed = min(3, max(1, length / 3))
    // A name of another length is not close, and comparing a very long one takes long.
    return
        candidates
        .filter { abs($0.count - length) <= allowed }
        .map { (candidate: $0, slips: slips(from: name.lowercased(), to: $0.lowercased())) }
        .filter { $0.slips <= allowed }
        .min { ($0.slips, $0.candidate) < ($1.slips, $1.candidate) }?
        .candidate
}

/// The end of a problem with a value that is not among `candidates`: names the one that it most likely means, which may be
/// shortened (`warn`). Empty if none is close.
func nearestValue(to text: String, among candidates: [String]) -> String {
    let short = text.count < 3 ? nil : candidates.first { $0.lowercased().hasPrefix(text.lowercased()) }
    return (nearestName(to: text, among: candidates) ?? short).map { "; did you mean \"\($0)\"?" } ?? ""
}

/// Characters to insert, remove, replace or swap with their neighbour: the optimal string alignment distance.
private func slips(from left: String, to right: String) -> Int {
    let left = Array(left)
    let right = Array(right)
    var before: [Int] = []
    var last = Array(0...right.count)
    for row in left.indices {
        var current = [row + 1]
        for column in right.indices {
            var least = min(last[column + 1], current[column]) + 1
            least = min(least, last[column] + (left[row] == right[column] ? 0 : 1))
            if row > 0, column > 0, left[row] == right[column - 1], left[row - 1] == right[column] {
                least = min(least, before[column - 1] + 1)
            }
            current.append(least)
        }
        (before, last) = (last, current)
    }
    return last[right.count]
}
