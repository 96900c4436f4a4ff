import PosternCore
import PosternStore

/// What `postern outbox audit` shows.
public struct AuditReport: Sendable {
    private let audit: Audit

    init(_ audit: Audit) { self.audit = audit }

    /// 1 if the ledger and the rows of any upstream differ.
    public var exitCode: Int32 { audit.isBalanced ? 0 : CommandFailure.no }

    /// Every message that was ever accepted is counted in one of the columns from QUEUED to EXPIRED. REMOVED is the
    /// number of those that are no longer stored.
    public var text: String {
        var table = TextTable(
            ["UPSTREAM", .number("ACCEPTED")] + MessageState.allCases.map { .number($0.name.uppercased()) }
                + [.number("REMOVED"), "VERDICT"])
        for account in audit.accounts {
            let ledger = account.ledger
            table.add(
                [account.upstream, "\(ledger.accepted)"] + MessageState.allCases.map { "\(ledger.counts[$0])" }
                    + ["\(MessageState.allCases.reduce(0) { $0 + ledger.purged[$1] })"]
                    + [account.findings.isEmpty ? "balanced" : "NOT BALANCED"])
        }
        let findings = audit.accounts.flatMap { account in account.findings.map { "\(account.upstream): \($0)" } }
        return ([table.text] + findings).joined(separator: "\n")
    }

    /// `{"balanced","upstreams":[…]}`, with the findings of each upstream.
    public var json: String {
        JSONWriter.object { json in
            json.flag("balanced", audit.isBalanced)
            json.raw("upstreams", JSONWriter.array(audit.accounts.map(Self.json)))
        }
    }

    private static func json(of account: Audit.Account) -> String {
        let ledger = account.ledger
        return JSONWriter.object { json in
            json.string("name", account.upstream)
            json.flag("balanced", account.findings.isEmpty)
            json.number("accepted", ledger.accepted)
            for state in MessageState.allCases { json.number(state.name, ledger.counts[state]) }
            json.number("queuedBytes", ledger.queuedBytes)
            json.number("ambiguousSends", ledger.ambiguousSends)
            json.object("rows") { rows in
                for state in MessageState.allCases { rows.number(state.name, account.rows[state] ?? 0) }
            }
            json.object("removed") { removed in
                for state in MessageState.allCases { removed.number(state.name, ledger.purged[state]) }
            }
            json.raw("findings", JSONWriter.array(account.findings.map(JSONEscapes.quoted)))
        }
    }
}
