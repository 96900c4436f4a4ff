/// Whether a client accepts `mediaType`, by the value of its `Accept` header (RFC 9110, section 12.5.1). Without one, or
/// with an empty one, it accepts anything.
func accepts(_ mediaType: String, _ accept: String?) -> Bool { quality(of: mediaType, in: accept) > 0 }

/// How much a client prefers `mediaType`, from 0 (not acceptable) to 1.
///
/// Of the ranges that include it the most specific one counts: `*/*, application/json;q=0` does not accept JSON. `*`
/// alone, which some clients send, counts as `*/*`.
func quality(of mediaType: String, in accept: String?) -> Double {
    guard let accept, accept != "*/*", accept != mediaType, accept.contains(where: { $0 != " " && $0 != "\t" })
    else { return 1 }
    return quality(among: ["*", "*/*", mediaType.prefix { $0 != "/" } + "/*", mediaType], in: accept)
}

/// Whether a client asked for `coding` by `Accept-Encoding` (RFC 9110, section 12.5.3).
func asks(for coding: String, _ acceptEncoding: String?) -> Bool {
    acceptEncoding.map { quality(among: ["*", coding], in: $0) > 0 } ?? false
}

/// The weight of the most specific of `ranges`, which are in ascending order, in a list of them.
private func quality(among ranges: [String], in list: String) -> Double {
    var best = (rank: 0, quality: 0.0)
    for range in list.split(separator: ",") {
        let parts = range.split(separator: ";").map { $0.filter { $0 != " " && $0 != "\t" }.lowercased() }
        let rank = ranges.firstIndex(of: parts.first ?? "").map { $0 + 1 } ?? 0
        let weight = parts.dropFirst().first { $0.hasPrefix("q=") }
        let quality = weight.map { Double($0.dropFirst(2)) ?? 0 } ?? 1
        if rank > best.rank || rank == best.rank && quality > best.quality { best = (rank, quality) }
    }
    return best.rank > 0 ? best.quality : 0
}
