public import PosternCore

/// What an attempt changes in the store, all in one transaction.
public struct Settlement: Sendable {
    public var batch: BatchID
    /// The bounded word for the attempt's outcome: `delivered`, `retry`, `split`, `rejected` …
    public var outcome: String
    public var status: Int?
    public var detail: String?
    public var endedAt: Timestamp
    /// May the messages have arrived although no answer says so?
    public var isAmbiguous = false

    public var delivered: [Message] = []
    /// The upstream's answer, kept with what was delivered.
    public var result: [UInt8]?
    public var ended: [Ended] = []
    public var waiting: Waiting?
    /// Messages that stand where they stood, though the upstream may have seen them.
    public var wereTried: [MessageID] = []
    /// Messages that go on with a sequence, and what they have reached.
    public var progressed: [(id: MessageID, progress: [UInt8])] = []
    /// Messages whose lane, with its group, has to stop until somebody releases it.
    public var parked: [Message] = []
    public var circuit: CircuitRecord?

    public struct Ended: Sendable {
        public let message: Message
        /// `failed`, `cancelled` or `expired`.
        public let state: MessageState
        public let error: AttemptError?
        /// The upstream's answer, kept with the message.
        public let result: [UInt8]?
        /// May this last attempt have taken effect, although it ended the message?
        public let wasTried: Bool

        public init(
            _ message: Message, as state: MessageState, error: AttemptError?, result: [UInt8]? = nil,
            wasTried: Bool = false
        ) {
            self.message = message
            self.state = state
            self.error = error
            self.result = result
            self.wasTried = wasTried
        }
    }

    /// Messages that are sent again later.
    public struct Waiting: Sendable {
        public let messages: [Message]
        /// Nil leaves it to the upstream's circuit.
        public let nextAttemptAt: Timestamp?
        /// Does the attempt count against them?
        public let counts: Bool
        public let error: AttemptError?
        /// May the upstream have seen them? Not after an answer that clearly took nothing.
        public let wasTried: Bool

        public init(
            _ messages: [Message], nextAttemptAt: Timestamp?, counts: Bool, error: AttemptError?, wasTried: Bool = true
        ) {
            self.wasTried = wasTried
            self.messages = messages
            self.nextAttemptAt = nextAttemptAt
            self.counts = counts
            self.error = error
        }
    }

    public init(batch: BatchID, outcome: String, status: Int? = nil, detail: String? = nil, endedAt: Timestamp) {
        self.batch = batch
        self.outcome = outcome
        self.status = status
        self.detail = detail
        self.endedAt = endedAt
    }
}

/// A request that is about to go out.
public struct Departure: Sendable {
    public let batch: BatchID
    public let startedAt: Timestamp
    /// Not empty, ascending.
    public let ids: [MessageID]

    public init(batch: BatchID, startedAt: Timestamp, ids: [MessageID]) {
        self.batch = batch
        self.startedAt = startedAt
        self.ids = ids
    }
}
