import PosternCore

extension StoreReader {
    /// The maximum number of groups of one page.
    static let groupsPerPage = 1000

    /// Groups the failed messages that match by their errors, newest message first. Like a page of a list, it ends when
    /// many rows were examined.
    func failures(
        of number: UpstreamNumber, _ filter: MessageFilter, before cursor: MessageID?
    ) throws -> FailurePage {
        var filter = filter
        filter.state = .failed
        var page = FailurePage()
        var groups: [FailureGroup.ID: FailureGroup] = [:]
        var rows = 0
        let ids = try range(in: .ended, of: number, filter).after(cursor, .newest)
        try walk(.ended, of: number, ids, .newest, payload: false) { row in
            rows += 1
            if matches(row, filter) {
                rows += Self.rowsPerError
                page.examined += 1
                let error = error(in: row)
                let (message, moment): (MessageID, Timestamp) = (row[0], error?.at ?? row[7])
                let group = FailureGroup.ID(error)
                if groups[group]?.add(message, at: moment) == nil {
                    groups[group] = FailureGroup(message, error, at: moment)
                }
            }
            guard rows >= Self.rowsPerPage || groups.count == Self.groupsPerPage else { return true }
            page.next = row[0]
            return false
        }
        page.groups = groups.values.sorted { ($0.count, $0.lastAt, $0.sample) > ($1.count, $1.lastAt, $1.sample) }
        return page
    }
}
