import PosternConformance
import PosternCore
import PosternTestKit
import PosternUpstream
import Testing

@testable import AppServicesAdapter

/// Section 13 of the specification: every request byte for byte, and the sequences that they make up.
@Suite struct AppServicesVectorTests {
    private typealias Items = AppServicesItems
    private typealias Harness = AppServicesHarness

    private static let duplicate = Harness.error(400, "duplicate_unique_property_exists")
    private static let missing = [
        Harness.error(404, "entity_not_found"), Harness.error(401, "service_resource_not_found"),
        Harness.error(404, "service_resource_not_found"),
    ]

    private func expect(
        _ requests: [UpstreamRequest], are vectors: [Int], _ location: SourceLocation = #_sourceLocation
    ) throws {
        #expect(requests.count == vectors.count, sourceLocation: location)
        for (request, vector) in zip(requests, vectors) {
            let expected = try Fixture.bytes("v\(vector).http")
            #expect(
                String(decoding: request.spelledOut, as: UTF8.self) == String(decoding: expected, as: UTF8.self),
                "V\(vector)", sourceLocation: location)
            #expect(request.spelledOut == expected, "V\(vector)", sourceLocation: location)
        }
    }

    // MARK: V1 to V7

    @Test(arguments: [AppServicesItems.u1Token, "Bearer " + AppServicesItems.u1Token])
    func firstRegistration_withPreferences_isV1toV4(token: String) throws {
        var harness = try Harness()
        let text = Items.registration(push: Items.pushToken.uppercased(), Items.details + Items.lists, token: token)
        let id = try harness.post("register", text)
        try expect(try harness.run(id, answer: Harness.usual), are: [1, 2, 3, 4])
        #expect(harness.ended[id]?.state == .delivered)
    }

    @Test func nextLaunch_withNothingStored_isV1V5V3() throws {
        var harness = try Harness()
        let id = try harness.post("register", Items.registration(Items.u1, Items.details))
        let requests = try harness.run(id) { $0.step == "registerUser" ? Self.duplicate : Harness.usual($0) }
        try expect(requests, are: [1, 5, 3])
        #expect(harness.ended[id]?.state == .delivered)
    }

    @Test func miToken_anotherNotifierAndPreferencesOutsideASCII_areV6V7() throws {
        var harness = try Harness()
        let id = try harness.post(
            "register",
            #"""
            {"userId":"20981743","deviceId":"5D3A1F77-0B1C-4E8E-9F10-62A4C1D7E902","notifier":"apple-distribution",
             "deviceToken":"3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3",
             "preferences":{"whitelist":{"\u00dcbungen 1\/2":["Prüfung „A“","試験"]}},
             "auth":{"provider":"mi","token":"MITOK:00042|a9b8c7d6"}}
            """#)
        let requests = try harness.run(id, answer: Harness.usual)
        try expect([requests[0], requests[3]], are: [6, 7])
        #expect(requests.map(\.step) == ["registerDevice", "registerUser", "connect", "savePreferences"])
    }

    // MARK: Groups

    @Test(arguments: missing.indices)
    func missingGroup_isCreated_V8V9V10(style: Int) throws {
        var harness = try Harness()
        let id = try harness.post("group_add", Items.group())
        let requests = try harness.run(id) { $0.step == "findGroup" ? Self.missing[style] : Harness.usual($0) }
        try expect(requests, are: [8, 9, 10])
        #expect(harness.ended[id]?.state == .delivered)
    }

    @Test func lostRace_countsAsSuccess_V8V9V10() throws {
        var harness = try Harness()
        let id = try harness.post("group_add", Items.group())
        let requests = try harness.run(id) { request in
            switch request.step {
            case "findGroup": Self.missing[0]
            case "createGroup": Self.duplicate
            default: Harness.usual(request)
            }
        }
        try expect(requests, are: [8, 9, 10])
        #expect(harness.ended[id]?.state == .delivered)
    }

    @Test(arguments: missing.indices)
    func onlyExistingGroups_isV8_andNothingMore(style: Int) throws {
        var harness = try Harness(["onlyAddUserToExistingGroups": .bool(true)])
        let id = try harness.post("group_add", Items.group())
        try expect(try harness.run(id) { _ in Self.missing[style] }, are: [8])
        #expect(harness.ended[id]?.state == .failed)
        #expect(harness.ended[id]?.reason.contains("(code 4)") == true)
    }

    @Test func removal_isV8V11() throws {
        var harness = try Harness()
        let id = try harness.post("group_remove", Items.group())
        try expect(try harness.run(id, answer: Harness.usual), are: [8, 11])
        #expect(harness.ended[id]?.state == .delivered)
    }

    // MARK: Unregistration

    @Test func unregistration_isV12V13() throws {
        var harness = try Harness()
        let id = try harness.post("unregister", Items.item())
        try expect(try harness.run(id, answer: Harness.usual), are: [12, 13])
        #expect(harness.ended[id]?.state == .delivered)
    }

    @Test func unregistration_afterAnotherUserRegisteredTheDevice_isV12Only() throws {
        var harness = try Harness()
        let id = try harness.post("unregister", Items.item())
        try harness.post("register", Items.registration("20981743", token: "another"))
        try expect(try harness.run(id, answer: Harness.usual), are: [12])
        #expect(harness.ended[id]?.state == .delivered)
    }

    // MARK: The rest

    @Test func idThatNeedsEncoding_isV14() throws {
        var harness = try Harness()
        let id = try harness.post(
            "reregister",
            #"""
            {"userId":"pat.lee@example.edu","deviceId":"19f0c2a4-6b7d-4f31-8a55-d0e1f2a3b403",
             "deviceToken":"\#(Items.pushToken)","auth":{"provider":"mi","token":"ST-00917-qrstuv"}}
            """#)
        let requests = try harness.run(id, answer: Harness.usual)
        #expect(requests.map(\.step) == ["registerDevice", "connect"])
        try expect([requests[1]], are: [14])
    }

    @Test func metrics_areV15() throws {
        var harness = try Harness(["monitoringEnabled": .bool(true)])
        harness.now = Timestamp(milliseconds: 1_412_080_000_123)
        let id = try harness.post(
            "metrics",
            #"""
            {"sessionMetrics":{"isNetworkChanged":"false","appId":"21493","sdkType":"iOS"},
             "logs":[{"timeStamp":"1412079990000","tag":"sync","logLevel":"E","logMessage":"timeout"}]}
            """#)
        let requests = try harness.run(id) { request in
            request.step == "fetchConfiguration"
                ? Harness.response(
                    200,
                    #"{"instaOpsApplicationId":21493,"orgName":"acme","appName":"campus-dev","fullAppName":"acme_campusdev"}"#
                ) : Harness.response(200, #"{"message":"Successfully sent to queue"}"#)
        }
        #expect(requests.map(\.step) == ["fetchConfiguration", "uploadMetrics"])
        #expect(
            requests[0].url
                == "https://mobileservices.openclasslabs.com/appservices/acme/campus-dev/apm/apigeeMobileConfig")
        try expect([requests[1]], are: [15])
        #expect(harness.ended[id]?.state == .delivered)
    }

    /// The last row of V16: up to the refused step, then nothing, then on from there.
    @Test(arguments: 0..<4)
    func refusedToken_stopsAtItsStep_andANewOneGoesOnFromThere(refusedAt: Int) throws {
        var harness = try Harness()
        let id = try harness.post("register", Items.registration(Items.u1, Items.details + Items.lists))
        var sent = 0
        let before = try harness.run(id) { request in
            defer { sent += 1 }
            return sent == refusedAt ? Harness.error(401, "expired_token") : Harness.usual(request)
        }
        try expect(before, are: Array([1, 2, 3, 4].prefix(refusedAt + 1)))
        #expect(try harness.plan(id) == .park)
        #expect(harness.messages[id]?.attempts == 0)
        harness.hold("a-new-token", of: Items.u1)
        let after = try harness.run(id, answer: Harness.usual)
        #expect(
            after.map(\.step) == before.map(\.step).suffix(1)
                + ["registerUser", "connect", "savePreferences"].dropFirst(refusedAt))
        #expect(after.allSatisfy { $0.headers.contains { $0 == ("Authorization", "Bearer a-new-token") } })
        #expect(harness.ended[id]?.state == .delivered)
    }
}
