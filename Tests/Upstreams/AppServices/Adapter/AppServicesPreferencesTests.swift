import PosternConformance
import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import AppServicesAdapter

/// Changes of preferences: whole lists, single entries, and no change.
@Suite struct AppServicesPreferencesTests {
    private typealias Items = AppServicesItems
    private typealias Harness = AppServicesHarness

    private static func item(_ preferences: String) -> String {
        Items.item(Items.u1, #","preferences":\#(preferences)"#)
    }

    /// A device that is registered and has no preferences.
    private func harness() throws -> Harness {
        var harness = try Harness()
        _ = try harness.steps(try harness.post("register", Items.registration()))
        return harness
    }

    /// The lists that an item sends.
    private static func sent(_ requests: [UpstreamRequest]) -> String? {
        requests.last.flatMap { Requests.lists(ofPreferences: $0.body) }.map { String(decoding: $0, as: UTF8.self) }
    }

    @Test func entries_areAddedToTheLastAcceptedPreferences_andReplaceTheirExceptions() throws {
        var harness = try harness()
        try harness.post("preferences", Self.item(#"{"whitelist":{"a":["x"],"b":[]}}"#))
        let id = try harness.post(
            "preferences", Self.item(#"{"add":{"whitelist":{"a":["y","z"]},"blacklist":{"ä/c":[]}}}"#))
        let requests = try harness.run(id, answer: Harness.usual)
        #expect(Self.sent(requests) == #"{"blacklist":{"ä/c":[]},"whitelist":{"a":["y","z"],"b":[]}}"#)
    }

    @Test func types_areRemoved_andUnknownOnesIgnored() throws {
        var harness = try harness()
        try harness.post("preferences", Self.item(#"{"whitelist":{"a":["x"],"b":[]},"blacklist":{"a":[]}}"#))
        let id = try harness.post("preferences", Self.item(#"{"remove":{"whitelist":["a","none"]}}"#))
        #expect(
            Self.sent(try harness.run(id, answer: Harness.usual)) == #"{"blacklist":{"a":[]},"whitelist":{"b":[]}}"#)
    }

    @Test func typeThatIsAddedAndRemoved_isGone() throws {
        var harness = try harness()
        let id = try harness.post(
            "preferences", Self.item(#"{"remove":{"whitelist":["a"]},"add":{"whitelist":{"a":[],"b":[]}}}"#))
        #expect(Self.sent(try harness.run(id, answer: Harness.usual)) == #"{"blacklist":{},"whitelist":{"b":[]}}"#)
    }

    /// To Swift, the two spellings of a type are equal; nothing is normalized (section 4.4).
    @Test func typesThatDifferInTheirBytes_areDifferentTypes() throws {
        var harness = try harness()
        let (composed, decomposed) = ("caf\u{E9}", "cafe\u{301}")
        func send(_ preferences: String) throws -> [UInt8] {
            let id = try harness.post("preferences", Self.item(preferences))
            return Array(try #require(Self.sent(try harness.run(id, answer: Harness.usual))).utf8)
        }
        #expect(
            try send(#"{"whitelist":{"\#(composed)":["x"],"\#(decomposed)":[]}}"#)
                == Array(#"{"blacklist":{},"whitelist":{"\#(decomposed)":[],"\#(composed)":["x"]}}"#.utf8))
        #expect(
            try send(
                #"{"add":{"whitelist":{"\#(decomposed)":["y"]}},"remove":{"whitelist":["\#(composed)"]}}"#)
                == Array(#"{"blacklist":{},"whitelist":{"\#(decomposed)":["y"]}}"#.utf8))
    }

    @Test func null_sendsTheLastOnesAgain() throws {
        var harness = try harness()
        _ = try harness.steps(try harness.post("preferences", Self.item(#"{"whitelist":{"a":["x"]}}"#)))
        #expect(harness.state.preferences(of: Items.device)?.isSent == true)
        let id = try harness.post("preferences", Self.item("null"))
        #expect(harness.state.preferences(of: Items.device)?.isSent == false)
        #expect(Self.sent(try harness.run(id, answer: Harness.usual)) == #"{"blacklist":{},"whitelist":{"a":["x"]}}"#)
        #expect(harness.state.preferences(of: Items.device)?.isSent == true)
    }

    @Test func null_isRejected_ifThereAreNone() throws {
        var harness = try harness()
        let refusal = #expect(throws: AcceptanceError.self) { try harness.post("preferences", Self.item("null")) }
        #expect(refusal?.reason == .invalidPayload && refusal?.pointer == "/preferences")
    }

    @Test func additions_areRejected_whenTheListsGrowTooLarge() throws {
        var harness = try harness()
        func add(_ type: Int) throws {
            let text = String(repeating: "x", count: 1000)
            try harness.post("preferences", Self.item(#"{"add":{"whitelist":{"\#(type)":["\#(text)"]}}}"#))
        }
        for type in 0..<64 { try add(type) }
        let refusal = #expect(throws: AcceptanceError.self) { try add(64) }
        #expect(refusal?.reason == .invalidPayload)
        try harness.post("preferences", Self.item(#"{"remove":{"whitelist":["0"]}}"#))
        try add(64)
    }

    @Test func dryRun_showsTheChangedPreferences_andNotTheStoredOnes() throws {
        var harness = try harness()
        _ = try harness.steps(try harness.post("preferences", Self.item(#"{"whitelist":{"a":[]}}"#)))
        for (change, expected) in [
            (#"{"add":{"whitelist":{"b":[]}}}"#, #"{"blacklist":{},"whitelist":{"a":[],"b":[]}}"#),
            (#"{"blacklist":{"c":[]}}"#, #"{"blacklist":{"c":[]},"whitelist":{}}"#),
            ("null", #"{"blacklist":{},"whitelist":{"a":[]}}"#),
        ] {
            let (_, message) = try UpstreamFixture.appservices.validate(
                .init("preferences", Self.item(change)), to: AnyUpstream(harness.upstream), at: harness.now,
                sequence: 1 << 54)
            guard case .send(let request, _) = harness.upstream.plan(for: [message], in: harness.context) else {
                Issue.record("nothing is sent")
                continue
            }
            #expect(Self.sent([request]) == expected)
        }
    }

    // MARK: Against a model

    /// A model of preferences, written from the documentation.
    private struct Model {
        var lists: [String: [String: [String]]]?

        mutating func change(_ random: inout SplitMix64) -> String? {
            func number(_ most: UInt64) -> Int { Int(random.next() % most) }
            func entries() -> [String: [String]] {
                Dictionary((0..<number(4)).map { _ in ("t\(number(6))", (0..<number(3)).map { _ in "e\(number(9))" }) })
                { $1 }
            }
            func types() -> [String] { (0..<number(4)).map { _ in "t\(number(6))" } }
            var lists = lists ?? ["whitelist": [:], "blacklist": [:]]
            switch number(8) {
            case 0:
                let whole = ["whitelist": entries(), "blacklist": entries()]
                self.lists = whole
                return Self.text(whole)
            case 1: return self.lists == nil ? nil : "null"
            default:
                var members: [String] = []
                if number(4) > 0 {
                    let added = ["whitelist": entries(), "blacklist": entries()]
                    for (name, list) in added { for (type, exceptions) in list { lists[name]?[type] = exceptions } }
                    members.append(#""add":\#(Self.text(added))"#)
                }
                if number(2) > 0 || members.isEmpty {
                    let removed = ["whitelist": types(), "blacklist": types()]
                    for (name, list) in removed { for type in list { lists[name]?[type] = nil } }
                    members.append(#""remove":\#(Self.object(removed.mapValues(Self.array)))"#)
                }
                self.lists = lists
                return "{" + members.joined(separator: ",") + "}"
            }
        }

        static func text(_ lists: [String: [String: [String]]]) -> String {
            object(lists.mapValues { object($0.mapValues(array)) })
        }
        private static func object(_ members: [String: String]) -> String {
            "{" + members.sorted { $0.key < $1.key }.map { #""\#($0.key)":\#($0.value)"# }.joined(separator: ",") + "}"
        }
        private static func array(_ texts: [String]) -> String {
            "[" + texts.map { #""\#($0)""# }.joined(separator: ",") + "]"
        }
    }

    /// A thousand sequences of whole lists, additions, removals, and repetitions, some of which are delivered in between.
    @Test func randomChanges_leaveTheListsOfTheModel_acceptedAndDelivered() throws {
        for seed in 0..<UInt64(1000) {
            var random = SplitMix64(state: seed)
            var harness = try harness()
            var model = Model()
            var open: [MessageID] = []
            for _ in 0..<(1 + random.next() % 12) {
                guard let change = model.change(&random) else { continue }
                open.append(try harness.post("preferences", Self.item(change)))
                let accepted = harness.state.preferences(of: Items.device)?.lists
                try #require(accepted == model.lists.map(Model.text), "seed \(seed): \(change)")
                if random.next() % 3 == 0 { _ = try harness.run(open.removeFirst(), answer: Harness.usual) }
            }
            for id in open { _ = try harness.run(id, answer: Harness.usual) }
            let delivered = harness.state.value(of: Preferences.deliveredKey(Items.device))
            #expect(
                delivered.map { String(decoding: $0, as: UTF8.self) } == model.lists.map(Model.text), "seed \(seed)")
        }
    }

    // MARK: Many changes in one request

    /// A state whose reads are counted, as the messages of one request see it.
    private struct RequestState: UpstreamState {
        var stored: [UInt8]?
        let reads = SharedValue(0)
        var draft: StateChange.Draft?

        func value(of key: String) -> [UInt8]? {
            reads.set(reads.value + 1)
            return stored
        }
        func values(below key: String, atMost most: Int) -> [(key: String, value: [UInt8])] { [] }
        func queued(inLane name: String, atMost most: Int) -> Int { 0 }
        func isQueued(_ id: MessageID) -> Bool { false }
        func credential(of owner: String) -> HeldCredential? { nil }
        func wasRefused(_ credential: Credential) -> Bool { false }
    }

    private static func change(_ text: String) throws -> PreferencesChange {
        try #require(try JSONParser.ofThisThread.parse(Array(text.utf8)) { PreferencesChange($0) }.get())
    }

    private static func list(_ count: Int) -> String {
        #"{"whitelist":{"# + (0..<count).map { #""type-\#($0)":[]"# }.joined(separator: ",") + "}}"
    }

    /// A bulk of changes costs as much as its changes and the lists together, not their product.
    @Test func manyChangesOfADevice_readAndWriteItsListsOnce() throws {
        var random = SplitMix64(state: 1)
        var alone = EditedPreferences(nil)
        alone.apply(try Self.change(Self.list(1000)), by: MessageID(rawValue: 256), atMost: .max)
        let state = RequestState(stored: try #require(alone.preferences).stored)
        let draft = PreferencesDraft()
        for number in 2..<300 {
            let type = { "\"type-\(Int.random(in: 0..<1200, using: &random)) \u{E9}\\n\"" }
            let change = try Self.change(
                number.isMultiple(of: 50)
                    ? "null"
                    : #"{"add":{"whitelist":{\#(type()):["x","y"]},"blacklist":{\#(type()):[]}},"remove":{"whitelist":[\#(type())]}}"#
            )
            let id = MessageID(rawValue: Int64(number) << 8)
            try draft.apply(change, to: "device", by: id, in: state)
            // Each alone, from the stored text.
            alone = EditedPreferences(Preferences(try #require(alone.preferences).stored))
            #expect(alone.apply(change, by: id, atMost: .max) == .applied)
        }
        #expect(state.reads.value == 1)
        #expect(draft.changes == [.set(key: Preferences.key("device"), value: try #require(alone.preferences).stored)])
    }

    @Test func size_isThatOfTheText_afterEveryChange() throws {
        var random = SplitMix64(state: 2)
        var lists = PreferenceLists()
        for _ in 0..<200 {
            let type = Array(["a", "\u{E9}", "\"", "b/c", "\u{1}", "試"].randomElement(using: &random)!.utf8)
            let changes: PreferenceList.Changes = [type: [nil, "[]", #"["x"]"#].randomElement(using: &random)!]
            let former = lists.text
            let undo = Bool.random(using: &random) ? lists.whitelist.apply(changes) : nil
            if let undo, Bool.random(using: &random) {
                lists.whitelist.apply(undo)
                #expect(lists.text == former)
            }
            lists.blacklist.apply(changes)
            #expect(lists.textBytes == lists.text.utf8.count)
        }
    }

    /// All of a request is one transaction, for which others wait.
    @Test func request_thatChangesListsOfManyBytes_isRejected_fromTheFirstThatIsTooMuch() throws {
        var full = EditedPreferences(nil)
        full.apply(try Self.change(Self.list(4000)), by: MessageID(rawValue: 256), atMost: .max)
        let preferences = try #require(full.preferences)
        let state = RequestState(stored: preferences.stored)
        let fits = PreferencesDraft.maxBytesRead / preferences.lists.utf8.count
        let draft = PreferencesDraft()
        let edit = try Self.change(#"{"add":{"whitelist":{"a":[]}}}"#)
        for device in 0..<fits {
            for number in 2..<4 {
                try draft.apply(edit, to: "\(device)", by: MessageID(rawValue: Int64(number) << 8), in: state)
            }
        }
        let error = #expect(throws: AcceptanceError.self) {
            try draft.apply(edit, to: "another", by: MessageID(rawValue: 1024), in: state)
        }
        #expect(error?.reason == .invalidPayload && error?.detail.contains("2 MiB") == true)
        // Nothing more is read, but what was read can be changed.
        let reads = state.reads.value
        #expect(throws: AcceptanceError.self) {
            try draft.apply(edit, to: "one more", by: MessageID(rawValue: 1024), in: state)
        }
        try draft.apply(edit, to: "0", by: MessageID(rawValue: 1280), in: state)
        #expect(state.reads.value == reads)
        // Whole lists are in the request, and count as its body.
        let other = PreferencesDraft()
        for device in 0...fits {
            try other.apply(.replace(PreferenceLists()), to: "\(device)", by: preferences.revision, in: state)
        }
    }
}
