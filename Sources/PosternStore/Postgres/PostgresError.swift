import CPostgres
import PosternUpstream

/// An error that PostgreSQL or libpq reports. No text of it contains a value of a row, or a secret of the options.
struct PostgresError: Error, Sendable, Equatable, CustomStringConvertible {
    /// The SQLSTATE (appendix "PostgreSQL Error Codes" of its manual); empty if the server did not report the error.
    var state = ""
    var message: String
    /// The constraint that was violated; empty if it was another error.
    var constraint = ""
    /// The table in question, if there is one.
    var table = ""
    /// Whether the connection is lost. Whether the statement took effect is not known then.
    var isConnectionLost = false

    var description: String { state.isEmpty ? message : "\(message) (SQLSTATE \(state))" }
}

extension PostgresError {
    /// The error of a result.
    init(result: OpaquePointer, masking mask: SecretMask) {
        func field(_ code: Int32) -> String { PQresultErrorField(result, code).map { String(cString: $0) } ?? "" }
        // The primary message alone: the detail may quote a row.
        let message = field(POSTERN_PG_MESSAGE)
        state = field(POSTERN_PG_STATE)
        constraint = field(POSTERN_PG_CONSTRAINT)
        table = field(POSTERN_PG_TABLE)
        self.message = mask.masked(message.isEmpty ? Self.line(PQresultErrorMessage(result)) : message)
    }

    /// The loss of a connection, or the failure to connect.
    init(connection: OpaquePointer?, masking mask: SecretMask) {
        message = mask.masked(Self.line(PQerrorMessage(connection)))
        isConnectionLost = true
    }

    /// The text of libpq, which may have several lines, on one.
    static func line(_ text: UnsafePointer<CChar>?) -> String {
        let lines = (text.map { String(cString: $0) } ?? "").split(whereSeparator: \.isNewline)
        return lines.map { $0.drop(while: \.isWhitespace) }.joined(separator: " ")
    }
}
