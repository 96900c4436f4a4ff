import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import AppServicesAdapter

/// What a sequence that has ended says of its steps, and how its progress is stored.
@Suite struct AppServicesStepTests {
    private typealias Items = AppServicesItems
    private typealias Harness = AppServicesHarness

    /// The steps as `step outcome status`, in order.
    private static func spelled(_ steps: [StepResult]?) -> [String] {
        (steps ?? []).map { "\($0.step) \($0.outcome) \($0.status ?? 0)" }
    }

    private static let missing = Harness.error(404, "entity_not_found")

    @Test func registration_hasAResultForEachStep_withTheFrameworksEvent() throws {
        var harness = try Harness()
        let id = try harness.post("register", Items.registration(Items.u1, Items.lists))
        _ = try harness.steps(id) { request in
            request.step == "registerUser"
                ? Harness.error(400, "duplicate_unique_property_exists") : Harness.usual(request)
        }
        let at = harness.now
        #expect(
            harness.results[id] == [
                .init("registerDevice", event: "kPN_DeviceRegistrationRequest", status: 200, outcome: .done, at: at),
                .init("registerUser", event: "kPN_UserRegistrationRequest", status: 400, outcome: .done, at: at),
                .init("connect", event: "kPN_UserDeviceConnectionRequest", status: 200, outcome: .done, at: at),
                .init("savePreferences", event: "kPN_DeviceEntityUpdateRequest", status: 200, outcome: .done, at: at),
            ])
    }

    @Test func stepsThatAreNotNecessary_areSkipped() throws {
        var harness = try Harness()
        let register = try harness.post("register", Items.registration())
        _ = try harness.steps(register)
        #expect(
            Self.spelled(harness.results[register]) == [
                "registerDevice done 200", "registerUser done 200", "connect done 200", "savePreferences skipped 0",
            ])
        #expect(harness.results[register]?.last?.at == nil)
        let group = try harness.post("group_add", Items.group())
        _ = try harness.steps(group)
        #expect(
            Self.spelled(harness.results[group]) == [
                "findGroup done 200", "createGroup skipped 0", "addToGroup done 200",
            ])
    }

    @Test func missingGroup_isALookUpThatIsDone() throws {
        var harness = try Harness()
        let id = try harness.post("group_add", Items.group())
        _ = try harness.steps(id) { $0.step == "findGroup" ? Self.missing : Harness.usual($0) }
        #expect(
            Self.spelled(harness.results[id]) == ["findGroup done 404", "createGroup done 200", "addToGroup done 200"])
    }

    @Test func rejectedStep_isTheFailedOne_andThoseAfterItAreSkipped() throws {
        var harness = try Harness()
        let id = try harness.post("register", Items.registration(Items.u1, Items.lists))
        _ = try harness.steps(id) {
            $0.step == "registerUser" ? Harness.error(400, "illegal_argument") : Harness.usual($0)
        }
        #expect(
            Self.spelled(harness.results[id]) == [
                "registerDevice done 200", "registerUser failed 400", "connect skipped 0", "savePreferences skipped 0",
            ])
    }

    @Test func rejectedDisconnect_isTheFailedOne_thoughBlankingFollows() throws {
        var harness = try Harness()
        let id = try harness.post("unregister", Items.item())
        _ = try harness.steps(id) {
            $0.step == "disconnect" ? Harness.error(403, "forbidden_service_operation") : Harness.usual($0)
        }
        #expect(Self.spelled(harness.results[id]) == ["disconnect failed 403", "blankToken done 200"])
    }

    @Test func blankingThatAnotherUsersRegistrationPrevents_isSkipped() throws {
        var harness = try Harness()
        _ = try harness.steps(try harness.post("register", Items.registration()))
        let unregister = try harness.post("unregister", Items.item())
        _ = try harness.post("register", Items.registration("20981743", token: "another"))
        _ = try harness.steps(unregister)
        #expect(harness.ended[unregister]?.state == .delivered)
        #expect(Self.spelled(harness.results[unregister]) == ["disconnect done 200", "blankToken skipped 0"])
    }

    @Test func resumedSequence_hasTheTimesOfItsSteps() throws {
        var harness = try Harness()
        let id = try harness.post("register", Items.registration())
        let start = harness.now
        _ = try harness.steps(id) { $0.step == "connect" ? Harness.response(503, "") : Harness.usual($0) }
        harness.now = start + .seconds(60)
        _ = try harness.steps(id)
        #expect(harness.results[id]?.map(\.at) == [start, start, start + .seconds(60), nil])
    }

    @Test func page_thatIsTakenForNoAnswer_failsItsStep() throws {
        var harness = try Harness()
        let id = try harness.post("group_add", Items.group())
        for _ in 0..<4 { _ = try harness.steps(id) { _ in Harness.response(200, "<html>") } }
        #expect(harness.ended[id]?.state == .failed)
        #expect(
            Self.spelled(harness.results[id]) == [
                "findGroup failed 200", "createGroup skipped 0", "addToGroup skipped 0",
            ]
        )
    }

    @Test func pagesOfEarlierSteps_doNotCountAgainstALaterOne() throws {
        var harness = try Harness()
        let id = try harness.post("register", Items.registration(Items.u1, Items.lists))
        var pages: [String: Int] = [:]
        for _ in 0..<16 where harness.isOpen(id) {
            _ = try harness.steps(id) { request in
                pages[request.step ?? "", default: 0] += 1
                return pages[request.step ?? ""]! <= 3 ? Harness.response(200, "<html>") : Harness.usual(request)
            }
        }
        #expect(harness.ended[id]?.state == .delivered)
        #expect(pages == ["registerDevice": 4, "registerUser": 4, "connect": 4, "savePreferences": 4])
    }

    @Test func pagesInsteadOfTheDisconnect_failIt_andBlankingFollows() throws {
        var harness = try Harness()
        let id = try harness.post("unregister", Items.item())
        var steps: [String] = []
        for _ in 0..<8 where harness.isOpen(id) {
            steps += try harness.steps(id) {
                $0.step == "disconnect" ? Harness.response(200, "<html>") : Harness.usual($0)
            }
        }
        #expect(steps == ["disconnect", "disconnect", "disconnect", "disconnect", "blankToken"])
        #expect(harness.ended[id]?.state == .failed)
        #expect(Self.spelled(harness.results[id]) == ["disconnect failed 200", "blankToken done 200"])
    }

    @Test func replacedRegistration_hasNoResult() throws {
        var harness = try Harness()
        let first = try harness.post("register", Items.registration())
        _ = try harness.post("register", Items.registration())
        _ = try harness.steps(first)
        #expect(harness.ended[first]?.state == .cancelled)
        #expect(harness.results[first] == [])
    }

    // MARK: Progress

    private static let mark = AppServicesProgress.Mark(status: 200, at: Timestamp(milliseconds: 1_412_080_000_123))

    @Test func progress_isReadAsItWasWritten() {
        var progress = AppServicesProgress.secondRound.marking(.registerDevice, Self.mark)
            .marking(.connect, .init(status: nil, at: nil))
        #expect(AppServicesProgress(progress.stored) == progress)
        progress = progress.marking(.findGroup, Self.mark).marking(.disconnect, Self.mark).with {
            ($0.lacksGroup, $0.disconnectRefusal) = (true, "why! 2 0 A#A1@2,:K")
        }
        #expect(AppServicesProgress(progress.stored) == progress)
        progress = progress.with { ($0.sent, $0.attempts) = (.uploadMetrics, 20) }
        #expect(AppServicesProgress(progress.stored) == progress)
        #expect(AppServicesProgress(nil) == AppServicesProgress())
        #expect(Set(Step.allCases.map(\.letter)).count == Step.allCases.count)
    }

    @Test func progressOfAnOlderVersion_keepsTheStepsThatAreDone() {
        let registration = AppServicesProgress(Array("AB2".utf8))
        #expect(registration.done == [.registerDevice, .registerUser] && registration.isSecondRound)
        #expect(Self.spelled(registration.results(of: .register)).first == "registerDevice done 0")
        #expect(AppServicesProgress(Array("F0!why".utf8)).disconnectRefusal == "why")
        #expect(AppServicesProgress(Array(":L".utf8)).sent == .uploadMetrics)
    }

    @Test func refusedDisconnectAndMissingGroup_areNotDone() {
        #expect(AppServicesProgress().marking(.findGroup, Self.mark).with { $0.lacksGroup = true }.done == [])
        #expect(AppServicesProgress().marking(.disconnect, Self.mark).with { $0.disconnectRefusal = "why" }.done == [])
    }
}
