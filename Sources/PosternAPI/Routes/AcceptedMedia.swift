/// Whether a client accepts `mediaType`, by the value of its `Accept` header (RFC 9110, section 12.5.1). Without one, or
/// with an empty one, it accepts anything.
///
/// Of the ranges that include it the most specific one counts: `*/*, application/json;q=0` does not accept JSON.
func accepts(_ mediaType: String, _ accept: String?) -> Bool {
    guard let accept, accept != "*/*", accept != mediaType, accept.contains(where: { $0 != " " && $0 != "\t" })
    else { return true }
    let ranges = ["*/*", mediaType.prefix { $0 != "/" } + "/*", mediaType]
    var best = (rank: 0, quality: 0.0)
    for range in accept.split(separator: ",") {
        let parts = range.split(separator: ";").map { $0.filter { $0 != " " && $0 != "\t" }.lowercased() }
        let rank = ranges.firstIndex(of: parts.first ?? "").map { $0 + 1 } ?? 0
        let weight = parts.dropFirst().first { $0.hasPrefix("q=") }
        let quality = weight.map { Double($0.dropFirst(2)) ?? 0 } ?? 1
        if rank > best.rank || rank == best.rank && quality > best.quality { best = (rank, quality) }
    }
    return best.rank > 0 && best.quality > 0
}
