import PosternCore
import PosternDelivery
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternAPI

/// Reading many messages: the order of lists, filters by time and error, and groups of failures.
@Suite struct ListTests {
    private func listed(_ query: String, _ gateway: TestGateway) throws -> [String] {
        let answer = try gateway.client.get("/v1/messages?\(query)")
        #expect(answer.status == 200, "\(answer.text)")
        return answer.json["messages"].array.compactMap { $0["id"].string }
    }

    // MARK: Order

    @Test func list_isNewestFirst_pageByPage() throws {
        try withPausedGateway { gateway in
            let ids = try (0..<7).map { number in
                number.isMultiple(of: 2)
                    ? try gateway.accept() : try gateway.accept("/v1/plain/thing", #"{"a":\#(number)}"#)
            }
            var (seen, pages, next) = ([String](), 0, String?("/v1/messages?limit=3&order=newest"))
            while let path = next, pages < 10 {
                let page = try gateway.client.get(path).json
                seen += page["messages"].array.compactMap { $0["id"].string }
                next = page["next"].string.map { "/v1/messages?limit=3&order=newest&cursor=\($0)" }
                pages += 1
            }
            #expect(seen == ids.reversed() && pages == 3)
            #expect(try listed("order=oldest", gateway) == ids)
        }
    }

    @Test func cursorOfTheOtherOrder_isRefused() throws {
        try withPausedGateway { gateway in
            for _ in 0..<3 { _ = try gateway.accept() }
            for (order, other) in [("oldest", "newest"), ("newest", "oldest")] {
                let page = try gateway.client.get("/v1/messages?limit=1&order=\(order)")
                let cursor = try #require(page.json["next"].string)
                #expect(try listed("order=\(order)&cursor=\(cursor)", gateway).count == 2)
                let answer = try gateway.client.get("/v1/messages?order=\(other)&cursor=\(cursor)")
                answer.problem(400, "bad-request")
                #expect(answer.json["detail"].string?.contains("other order") == true, "\(answer.text)")
            }
        }
    }

    /// A cursor does not have to be one that a list returned.
    @Test(arguments: ["7zzzzzzzzzzzz", "0000000000000", "newest.7zzzzzzzzzzzz", "newest.0000000000000"])
    func cursor_mayBeAnyID(cursor: String) throws {
        try withPausedGateway { gateway in
            _ = try gateway.accept()
            let order = cursor.hasPrefix("newest") ? "newest" : "oldest"
            #expect(try listed("order=\(order)&cursor=\(cursor)", gateway).count <= 1)
        }
    }

    // MARK: Errors of a query

    @Test func everythingThatIsWrongWithAQuery_isReportedAtOnce() throws {
        try withPausedGateway { gateway in
            let answer = try gateway.client.get(
                "/v1/messages?limit=0&state=lost&createdAfter=yesterday&errorClass=odd&errorText=&group=x&order=up"
                    + "&waitingFor=rain"
                    + "&cursor=y&include=all&upstream=absent&colour=red&kind=a&kind=b")
            answer.problem(400, "bad-request")
            let errors = answer.json["errors"].array
            #expect(
                errors.compactMap { $0["parameter"].string }.sorted() == [
                    "colour", "createdAfter", "cursor", "errorClass", "errorText", "group", "include", "kind", "limit",
                    "order", "state", "waitingFor",
                ])
            #expect(errors.allSatisfy { $0["detail"].string?.isEmpty == false })
            let limit = errors.first { $0["parameter"].string == "limit" }
            #expect(limit?["detail"].string == "must be a number from 1 to 1000")
            #expect(answer.json["detail"].string == "The query has 12 errors. See `errors`.")
        }
    }

    @Test(arguments: [
        ("/v1/upstreams/picky/lanes?limit=0&state=odd&x=1", ["limit", "state", "x"]),
        ("/v1/upstreams/picky/failures?cursor=x&createdBefore=y&limit=1", ["createdBefore", "cursor", "limit"]),
        ("/v1/stream?type=a&type=b&colour=red", ["colour", "type", "type"]),
        ("/v1/messages/0000000000101?include=all&x", ["include", "x"]),
        ("/v1/upstreams?a=1&b=2&a=3", ["a", "b"]),
    ])
    func otherRoutes_reportThemToo(path: String, parameters: [String]) throws {
        try withPausedGateway { gateway in
            let answer = try gateway.client.get(path)
            answer.problem(400, "bad-request")
            #expect(answer.json["errors"].array.compactMap { $0["parameter"].string }.sorted() == parameters)
        }
    }

    @Test func queryOfAWrite_isCheckedBeforeTheBody() throws {
        try withPausedGateway { gateway in
            let answer = try gateway.client.post("/v1/picky/event?dryRun=maybe&x=1", "no JSON")
            answer.problem(400, "bad-request")
            #expect(answer.json["errors"].array.compactMap { $0["parameter"].string } == ["x", "dryRun"])
        }
    }

    @Test func errorsOfAQuery_areCounted_beyondAHundred() throws {
        try withPausedGateway { gateway in
            let names = (0..<130).map { "p\($0)=1" }.joined(separator: "&")
            let answer = try gateway.client.get("/v1/messages?\(names)")
            answer.problem(400, "bad-request")
            #expect(answer.json["errors"].array.count == 100 && answer.json["errorsOmitted"].int == 30)
        }
    }

    // MARK: Filters

    /// Three messages that failed for two reasons, a minute apart; one queued.
    private func withFailures(
        _ body: (TestGateway, _ failed: [String], _ queued: String, ManualTime) throws -> Void
    ) throws {
        let time = ManualTime()
        var setup = Setup(upstreams: [TalkativeUpstream()], time: time)
        setup.delivery.batchMaxMessages = 1
        setup.results = ["item 17 is unknown", "item 4 is unknown", "Too old"].map { .status(410, $0) }
        try withGateway(setup) { gateway in
            var failed: [String] = []
            for _ in 0..<3 {
                let id = try gateway.accept("/v1/talkative/thing", "{}")
                try gateway.waitForState("failed", of: id)
                failed.append(id)
                time.advance(by: .seconds(60))
            }
            _ = try gateway.client.post("/v1/upstreams/talkative/pause")
            try #require(try eventually { try gateway.upstream("talkative")["health"].string == "paused" })
            try body(gateway, failed, gateway.accept("/v1/talkative/thing", "{}"), time)
        }
    }

    @Test func list_isFiltered_byErrorAndTime() throws {
        try withFailures { gateway, failed, queued, time in
            let second = try #require(try gateway.message(failed[1])["createdAt"].string)
            #expect(try listed("errorClass=refused", gateway) == failed)
            #expect(try listed("errorClass=timeout", gateway) == [])
            #expect(try listed("errorText=ITEM", gateway) == Array(failed[..<2]))
            #expect(try listed("errorText=item%2017%20is", gateway) == [failed[0]])
            #expect(try listed("createdAfter=\(second)", gateway) == failed[1...] + [queued])
            #expect(try listed("createdBefore=\(second)", gateway) == [failed[0]])
            #expect(try listed("createdBefore=\(second)&order=newest&state=queued", gateway) == [])
            #expect(
                try listed("createdAfter=2026-01-01T01:01:00%2B01:00&createdBefore=2026-01-01T00:01:01Z", gateway).count
                    == 1)
        }
    }

    @Test func list_isFiltered_byWhatMessagesWaitFor() throws {
        try withGateway { gateway in
            func accept(_ number: Int) throws -> String {
                try gateway.accept("/v1/picky/event", #"{"n":\#(number),"lane":7}"#)
            }
            let first = try accept(1)
            // From here on, each message is sent in a request of its own.
            try gateway.waitForOpenRequest()
            let lane = [first, try accept(2), try accept(3)]
            let later = try gateway.accept(
                "/v1/messages",
                #"{"upstream":"plain","kind":"thing","payload":{},"notBefore":"2100-01-01T00:00:00Z"}"#)
            #expect(try listed("waitingFor=order", gateway) == Array(lane[1...]))
            #expect(try listed("waitingFor=order&upstream=plain", gateway) == [])
            #expect(try listed("waitingFor=schedule", gateway) == [later])
            #expect(try listed("waitingFor=order&state=queued&order=newest", gateway) == lane[1...].reversed())
            #expect(try listed("waitingFor=order&state=delivered", gateway) == [])
            let page = try gateway.client.get("/v1/messages?waitingFor=order&limit=1")
            #expect(page.json["messages"].array.map { $0["id"].string } == [lane[1]])
            #expect(page.json["messages"].array.map { $0["waitingFor"].string } == ["order"])
            let cursor = try #require(page.json["next"].string)
            #expect(try listed("waitingFor=order&limit=1&cursor=\(cursor)", gateway) == [lane[2]])
            #expect(try listed("waitingFor=pause", gateway) == [])
            _ = try gateway.client.post("/v1/upstreams/plain/pause")
            try gateway.waitFor("pause", of: later)
            #expect(try listed("waitingFor=pause", gateway) == [later])
            #expect(try listed("waitingFor=schedule", gateway) == [])
        }
    }

    /// As a page of rows does, it ends when it has examined many messages, whether or not they are listed.
    @Test(arguments: ["order", "pause"]) func waits_areExamined_pageByPage(reason: String) throws {
        try withPausedGateway { gateway in
            var ids: [String] = []
            for _ in 0..<3 {
                let many = Array(repeating: #"{"n":1}"#, count: 1000).joined(separator: ",")
                ids += try gateway.client.post("/v1/picky/event", "[\(many)]").json["ids"].strings
            }
            let page = try gateway.client.get("/v1/messages?waitingFor=\(reason)&limit=1000")
            let isListed = reason == "pause"
            #expect(page.json["messages"].array.count == (isListed ? 1000 : 0))
            #expect(page.json["next"].string == ids[(isListed ? 1000 : MessageHandler.maxWaitsPerPage) - 1])
            let next = try #require(page.json["next"].string)
            let rest = try gateway.client.get("/v1/messages?waitingFor=\(reason)&limit=1000&cursor=\(next)")
            #expect(rest.json["next"].string == (isListed ? ids[1999] : nil))
        }
    }

    @Test func failures_areGrouped_andAGroupIsSentAgain() throws {
        try withFailures { gateway, failed, queued, time in
            let answer = try gateway.client.get("/v1/upstreams/talkative/failures")
            #expect(answer.status == 200 && answer.json.keys == ["failures", "examined", "next"])
            let groups = answer.json["failures"].array
            #expect(answer.json["examined"].int == 3 && !answer.json["next"].isThere)
            #expect(groups.map { $0["count"].int } == [2, 1])
            let group = try #require(groups.first)
            #expect(
                group.keys == ["id", "class", "status", "detail", "count", "sample", "firstAt", "lastAt", "perMinute"])
            #expect(group["class"].string == "refused" && group["status"].int == 410)
            #expect(group["detail"].string == "item * is unknown")
            #expect(group["sample"].string == failed[1])
            #expect(group["firstAt"].string != group["lastAt"].string)
            let id = try #require(group["id"].string)
            #expect(try listed("group=\(id)", gateway) == Array(failed[..<2]))

            let filter = #""upstream":"talkative","group":"\#(id)""#
            let preview = try gateway.client.post("/v1/messages/retry", "{\(filter),\"dryRun\":true}")
            #expect(preview.json["retried"].int == 2)
            #expect(try gateway.client.post("/v1/messages/retry", "{\(filter)}").json["retried"].int == 2)
            #expect(try listed("state=failed", gateway) == [failed[2]])
            #expect(try gateway.client.get("/v1/upstreams/talkative/failures").json["examined"].int == 1)
            // They have not failed since; the error is that of the attempt before.
            #expect(try listed("group=\(id)&state=queued", gateway) == Array(failed[..<2]))
        }
    }

    @Test func bulkRequests_takeTheFiltersOfLists() throws {
        try withFailures { gateway, failed, queued, time in
            func count(_ action: String, _ members: String) throws -> Int? {
                let name = action == "retry" ? "retried" : "cancelled"
                return try gateway.client.post("/v1/messages/\(action)", "{\(members),\"dryRun\":true}").json[name].int
            }
            let second = try #require(try gateway.message(failed[1])["createdAt"].string)
            let upstream = #""upstream":"talkative""#
            #expect(try count("retry", upstream) == 3)
            #expect(try count("retry", upstream + #","errorText":"too old""#) == 1)
            #expect(try count("retry", upstream + #","errorClass":"timeout""#) == 0)
            #expect(try count("retry", upstream + #","createdBefore":"\#(second)""#) == 1)
            #expect(try count("retry", upstream + #","key":"none""#) == 0)
            #expect(try count("cancel", upstream + #","createdAfter":"\#(second)""#) == 1)
            #expect(try count("cancel", upstream + #","createdBefore":"\#(second)""#) == 0)
            // With ids, the filter applies to them.
            let ids = failed.map { "\"\($0)\"" }.joined(separator: ",")
            #expect(try count("retry", #""ids":[\#(ids)],"errorText":"item""#) == 2)
            let refused = try gateway.client.post(
                "/v1/messages/retry", "{\(upstream),\"createdAfter\":7,\"errorClass\":\"odd\",\"group\":\"x\"}")
            refused.problem(422, "invalid-payload")
            #expect(
                refused.json["errors"].array.compactMap { $0["pointer"].string } == [
                    "/createdAfter", "/errorClass", "/group",
                ])
        }
    }
}

/// An upstream that rejects every message with the text of the response.
private struct TalkativeUpstream: PlainAtHeart {
    let plain = PlainUpstream("talkative")
    func judge(_ response: UpstreamResponse, to batch: Batch, in context: PlanContext) -> Decision {
        Decision(.reject(reason: String(decoding: response.body, as: UTF8.self)))
    }
}
