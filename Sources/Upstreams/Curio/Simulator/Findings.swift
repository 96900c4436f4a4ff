import PosternSimulatorKit

/// The findings about a request while it is read.
struct Findings {
    /// One sentence each, without repetition; never a value of the request.
    private(set) var violations: [String] = []
    /// Rejects the request as unusable: 400.
    private(set) var isRefused = false

    /// Records something that a gateway must never do, although the server accepts it.
    mutating func record(_ sentence: String) {
        if !violations.contains(sentence) { violations.append(sentence) }
    }

    mutating func refuse(_ sentence: String) {
        record(sentence)
        isRefused = true
    }
}
