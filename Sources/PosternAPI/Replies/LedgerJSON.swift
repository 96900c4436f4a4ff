public import PosternCore
public import PosternStore

/// The message counts of an upstream as the API shows them, and so the command line.
public enum LedgerJSON {
    /// The member `counts`: all messages that were ever accepted, and the state of each.
    static func writeCounts(_ ledger: Ledger, into json: inout JSONWriter) {
        json.object("counts") { counts in
            counts.number("accepted", ledger.accepted)
            for state in MessageState.allCases { counts.number(state.name, ledger.counts[state]) }
        }
    }

    /// The member `kept`: the settled messages that are still stored.
    public static func writeKept(_ ledger: Ledger, into json: inout JSONWriter) {
        json.object("kept") { kept in
            for state in MessageState.settled { kept.number(state.name, ledger.kept[state]) }
        }
    }
}
