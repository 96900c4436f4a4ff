extension PostgresError {
    static let lockTimeout = "55P03"
    static let notNull = "23502"
    static let uniqueViolation = "23505"

    /// The transaction lost against another one, and may succeed if it is run again.
    var isConflict: Bool { ["40001", "40P01", Self.lockTimeout].contains(state) }
    /// The server has become a standby.
    var isReadOnly: Bool { state == "25006" }
    /// Another connection, or the same a little later, may succeed.
    var isOfConnection: Bool { isConnectionLost || isReadOnly }
}

extension StoreError {
    init(postgres error: any Error) {
        switch error {
        case let error as StoreError: self = error
        case let error as PostgresError where error.isOfConnection: self = .unavailable(detail: error.message)
        case let error as PostgresError where error.isConflict: self = .conflict(detail: "\(error)")
        case let error as PostgresError where error.state == "53100": self = .full(detail: "\(error)")
        case let error as PostgresError where error.state == "42501": self = .unsuitable(detail: "\(error)")
        default: self = .failed(detail: "\(error)")
        }
    }
}
