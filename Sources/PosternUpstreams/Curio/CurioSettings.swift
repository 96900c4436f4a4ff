import PosternCore

/// What the configuration says about one application, checked.
struct CurioSettings: Sendable {
    let requests: CurioRequests
    /// Requests for one item carry no time, so what happened longer ago goes by batch.
    let onlineMaxAge: Duration
    /// How long screens and events collect; nil when each goes alone.
    let dispatchPeriod: Duration?
    let maxCachedActivityCount: Int
    let sessionTimeout: Duration
    let admission: CurioAdmission

    /// The largest batch that an SDK sends.
    static let mostRecords = 250
    /// How often an item may meet a dead session before it goes by batch, which needs none alive.
    static let mostRounds = 5

    /// What is allowed, but hardly wanted.
    var warning: String? {
        dispatchPeriod == sessionTimeout
            ? "dispatchPeriodMinutes is sessionTimeoutMinutes: sessions may die between two batches" : nil
    }

    /// How long a session is remembered after its last action.
    var idleRetention: Duration { sessionTimeout * 24 }
    /// How long it is remembered after its end, so that its code is not taken twice.
    var endedRetention: Duration { sessionTimeout * 2 }
    /// Its row is renewed when it was not for so long.
    var renewal: Duration { sessionTimeout * 4 }
}
