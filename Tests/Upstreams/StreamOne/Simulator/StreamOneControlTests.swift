import Logging
import PosternConformance
import PosternCore
import PosternSimulatorKit
import PosternTestKit
import Testing

@testable import StreamOneSimulator

/// `/control`, and the responses of the actions that the simulator knows.
@Suite struct StreamOneControlTests {
    private let client = StreamOneClient()

    // MARK: Settings

    @Test func control_showsEveryMember_asItIsByDefault() {
        let shown = client.control()?.text ?? ""
        #expect(
            shown == """
                {"accounts":[],"answers":{},"applications":[{"id":"9yC-4pQxT_2a","name":"gateway","roles":[]}],\
                "challengeTimeoutSeconds":60,"clockOffsetSeconds":0,"clockSkewToleranceSeconds":300,"customers":[],\
                "failuresUntilRateLimited":10,"items":[],"nextStatus":[],"onlyKnownActions":false,"prefix":"",\
                "rateLimitSeconds":60,"readOnly":false,"seed":1,"sessionTimeoutSeconds":3600,"statusRate":{},\
                "statuses":{},"timezone":"Europe/Amsterdam","users":[{"id":"Cmv8fnKfjF2l","needsV2Hash":false,\
                "roles":[],"salt":"$2y$12$gmdjitkypwyd4d1mkeefiv","username":"jan@example.nl"}]}
                """)
    }

    @Test func control_showsWhatWasSet() {
        let change = #"""
            {"accounts":[{"id":"A1","customer":"C1"},"A2"],"customers":["C1"],"prefix":"/p",
             "sessionTimeoutSeconds":1,"challengeTimeoutSeconds":2,"clockSkewToleranceSeconds":3,
             "clockOffsetSeconds":-4,"failuresUntilRateLimited":5,"rateLimitSeconds":6,
             "statusRate":{"8":0.25,"10":0.5},"nextStatus":[0,-1,1337],"readOnly":true,"onlyKnownActions":true,
             "items":[{"id":"I1","views":1.50}],"answers":{"a/b":[1, 2]},"timezone":"UTC","seed":7}
            """#
        let shown = client.control(change)?.text ?? ""
        for member in [
            #""accounts":[{"customer":"C1","id":"A1"},{"id":"A2"}]"#, #""answers":{"a/b":[1,2]}"#,
            #""challengeTimeoutSeconds":2,"clockOffsetSeconds":-4,"clockSkewToleranceSeconds":3,"customers":["C1"]"#,
            #""failuresUntilRateLimited":5,"items":[{"id":"I1","views":1.50}],"nextStatus":[0,-1,1337]"#,
            #""onlyKnownActions":true,"prefix":"/p","rateLimitSeconds":6,"readOnly":true,"seed":7"#,
            #""sessionTimeoutSeconds":1,"statusRate":{"10":0.5,"8":0.25},"statuses":{},"timezone":"UTC""#,
        ] { #expect(shown.contains(member)) }
    }

    static let refused: [(body: String, problem: String)] = [
        ("", "the body is not a JSON object"), ("[]", "the body is not a JSON object"),
        ("{} x", "the body is not a JSON object"), ("{\"prefix\":\"\u{0}", "the body is not a JSON object"),
        (#"{"readOnly":1}"#, "readOnly: "),
        (#"{"prefix":"p"}"#, "prefix: must be empty, or start with a slash and not end with one"),
        (#"{"prefix":"/p/"}"#, "prefix: must be empty, or start with a slash and not end with one"),
        (#"{"timezone":null}"#, "timezone: "),
        (#"{"sessionTimeoutSeconds":-1}"#, "sessionTimeoutSeconds: must be from 0 to 315360000"),
        (#"{"sessionTimeoutSeconds":1.5}"#, "sessionTimeoutSeconds: "),
        (#"{"clockOffsetSeconds":9999999999}"#, "clockOffsetSeconds: must be from -3153600000 to 3153600000"),
        (#"{"clockOffsetSeconds":99999999999999999999}"#, "clockOffsetSeconds: "),
        (#"{"statusRate":{"x":1}}"#, "statusRate"), (#"{"statusRate":{"-9":1}}"#, "a status: must be from -1 to"),
        (#"{"statusRate":{"8":1.1}}"#, "statusRate: rates must be from 0 to 1, and at most 1 in all"),
        (#"{"statusRate":{"8":0.6,"10":0.6}}"#, "statusRate: rates must be from 0 to 1, and at most 1 in all"),
        (#"{"nextStatus":8}"#, "nextStatus: "), (#"{"nextStatus":[8,"9"]}"#, "nextStatus[1]: "),
        (#"{"nextStatus":[-2]}"#, "a status: must be from -1 to 1000000"),
        (#"{"answers":[]}"#, "answers: must be an object"), (#"{"customers":[1]}"#, "customers[0]: "),
        (#"{"items":{}}"#, "items: must be an array of objects with an id"),
        (#"{"items":[{"title":"a"}]}"#, "items: must be an array of objects with an id"),
        (#"{"accounts":[{"customer":"C"}]}"#, "accounts[0].id: is missing"),
        (#"{"accounts":[""]}"#, "accounts: each must have an id"),
        (#"{"applications":[{"id":"a"}]}"#, "applications: each must have an id and a psk"),
        (#"{"users":[{"psk":"a"}]}"#, "users[0].id: is missing"),
        (#"{"users":[{"id":"a","psk":""}]}"#, "users: each must have an id, and no empty psk"),
        (#"{"users":["a"]}"#, "users[0]: "),
        (#"{"users":[{"id":"a","pin":1}]}"#, "users[0].pin: there is no such member"),
        (#"{"users":[{"id":"a","roles":[{"tokens":[1]}]}]}"#, "users[0].roles[0].tokens[0]: "),
        (#"{"statuses":{}}"#, #"unknown member "statuses"; known are accounts, answers, applications, "#),
    ]

    @Test(arguments: refused) func control_refusesWhatItCannotUse(body: String, problem: String) throws {
        let answer = try #require(client.control(body))
        #expect(answer.status == 400)
        #expect(answer.text.hasPrefix(problem), "\(answer.text)")
    }

    @Test func control_changesAllOrNothing() {
        #expect(client.control(#"{"readOnly":true,"timezone":5}"#)?.status == 400)
        #expect(client.call("item/edit").apiStatus == 0)
        #expect(client.control(method: "PUT")?.status == 405)
    }

    // MARK: Statuses

    @Test func nextStatus_isPlayedOnce_forCallsThatAreSignedWell() {
        client.control(#"{"nextStatus":[10,0,1337]}"#)
        #expect(client.signed("item/edit", "api=3", "", key: "x").apiStatus == 6)
        let first = client.call("item/edit")
        #expect(
            first.text.hasPrefix(
                #"{"header":{"status":10,"statusmessage":"Api in readonly mode","apiversion":3,"cacheable":false,"#))
        #expect(first.items.ranges.isEmpty)
        #expect((0..<3).map { client.call("item/edit", "x=\($0)").apiStatus } == [0, 1337, 0])
        let shown = client.control()?.text ?? ""
        #expect(
            shown.contains(#""nextStatus":[],"#) && shown.contains(#""statuses":{"0":2,"10":1,"1337":1,"6":1},"#))
    }

    @Test func everyStatus_canBeMade() {
        client.control(#"{"nextStatus":[1,282,441]}"#)
        let judged = (0..<3).map { _ in client.call("item/edit") }
        #expect(judged.map(\.apiStatus) == [1, 282, 441])
        #expect(
            judged.map { $0.json["header"]["statusmessage"].string }
                == ["Status 1", "Session not found", "Status 441"])
    }

    @Test func statusRate_isKept_andRepeatsWithTheSeed() {
        func play() -> [Int?] {
            client.control(#"{"statusRate":{"10":0.2,"8":0.1},"seed":3}"#)
            return (0..<500).map { client.call("item/edit", "x=\($0)").apiStatus }
        }
        let first = play()
        #expect((70...130).contains(first.filter { $0 == 10 }.count))
        #expect((25...75).contains(first.filter { $0 == 8 }.count))
        #expect(Set(first) == [0, 8, 10])
        #expect(play() == first)
        client.control(#"{"statusRate":{"1":1}}"#)
        #expect(client.call("item/edit").apiStatus == 1)
    }

    @Test func accountsAndCustomers_areChecked_whenTheyAreGiven() {
        #expect(client.call("item/view", scope: "account=any&").apiStatus == 0)
        client.control(#"{"accounts":["A1",{"id":"A2"}],"customers":["C1"]}"#)
        #expect(client.call("item/view", scope: "account=A1%2CA2&").apiStatus == 0)
        #expect(client.call("item/view", scope: "account=A1%2CA3&").apiStatus == 290)
        #expect(client.call("item/view", scope: "customer=C1&").apiStatus == 0)
        #expect(client.call("item/view", scope: "customer=C2&").apiStatus == 250)
        #expect(client.call("item/view").apiStatus == 0)
    }

    @Test func answers_standInForTheSimulators() {
        client.control(#"{"answers":{"item/view":[{"id" : "é/"},1.0],"user/viewme":null}}"#)
        let judged = client.call("item/view")
        #expect(
            judged.text.hasSuffix(
                #""cacheable":true,"count":2,"timezone":"Europe\/Amsterdam"},"body":[{"id":"é/"},1.0]}"#))
        #expect(client.call("user/viewme").text.hasSuffix(#""body":null}"#))
    }

    // MARK: Actions

    @Test func items_areViewed_byIDAndByPage_whenThereAreSome() {
        #expect(client.call("item/view", "item=I1").json["body"]["item"].string == "I1")
        client.control(#"{"items":[{"id":"I1","title":"a"},{"id":"I2"},{"id":"I3"}]}"#)
        let one = client.call("item/view", "item=I1").json
        #expect(one["body"].description == #"[{"id":"I1","title":"a"}]"#)
        #expect(one["header"]["count"].int == 1)
        let page = client.call("item/view", "limit=1&offset=1").json
        #expect(page["body"].description == #"[{"id":"I2"}]"#)
        #expect(page["header"]["count"].int == 3)
        #expect(client.call("item/view", "item=I9").apiStatus == 120)
        #expect(client.call("item/view", "limit=-1").apiStatus == 6)
    }

    @Test func unknownAction_isInvalid_whenOnlyKnownOnesAre() {
        #expect(client.call("nothing/here").apiStatus == 0)
        client.control(#"{"onlyKnownActions":true,"answers":{"a/b":1}}"#)
        #expect(client.call("nothing/here").apiStatus == 5)
        #expect(client.call("a/b").apiStatus == 0)
        #expect(client.call("api/mytokens").apiStatus == 0)
    }

    @Test func applications_andUsers_areShown() throws {
        let list = client.call("application/view", "application=9yC-4pQxT_2a&limit=3").json
        #expect(list["header"]["count"].int == 1)
        #expect(
            list["body"][0].keys == [
                "id", "name", "description", "datecreated", "datemodified", "active", "iplock", "timezone",
            ])
        #expect(client.call("application/view", "application=x").apiStatus == 260)
        #expect(client.callAsUser("user/viewme").json["body"]["id"].string == StreamOneClient.user)
        #expect(client.call("user/viewme").apiStatus == 4)
    }

    @Test func roles_areTheActors() throws {
        client.control(
            #"""
            {"applications":[{"id":"9yC-4pQxT_2a","psk":"ZYXWVUTSRQPONMLKJIHGFEDCBAzyxwvu",
                              "roles":[{"id":"R1","name":"all","tokens":["a"]}]}],
             "users":[{"id":"Cmv8fnKfjF2l","psk":"abcdefghijklmnopqrstuvwxyzABCDEF","username":"jan@example.nl",
                       "password":"password","salt":"$2y$04$gmdjitkypwyd4d1mkeefiv",
                       "roles":[{"tokens":["b"],"account":"A1"},{"tokens":["c"],"customer":"C1"}]}]}
            """#)
        #expect(
            client.call("application/getmyroles").text.hasSuffix(
                #""body":[{"role":{"id":"R1","name":"all","tokens":["a"]}}]}"#))
        let session = try client.login()
        for judged in [client.call("user/getmyroles", session: session), client.callAsUser("user/getmyroles")] {
            let list = judged.json["body"]
            #expect(judged.json["header"]["count"].int == 2)
            #expect(list[0].keys == ["role", "account"])
            #expect(list[0]["account"].keys == ["id", "name"])
            #expect(list[0]["account"]["id"].string == "A1")
            #expect(list[1]["role"]["tokens"].strings == ["c"])
            #expect(list[1]["customer"].keys == ["id", "name", "datecreated", "datemodified"])
        }
        #expect(client.call("user/getmyroles").apiStatus == 4)
        #expect(client.call("application/getmyroles", session: session).apiStatus == 4)
    }

    /// The specification's two sets of roles (section 6).
    static let tokens: [(roles: String, scope: String, has: Set<String>)] = {
        let accounts = """
            {"tokens":["a","b","c"]},{"tokens":["f","g"],"account":"A1"},{"tokens":["g","h"],"account":"A2"}
            """
        let customers = """
            {"tokens":["z"]},{"tokens":["y","p"],"customer":"C1"},{"tokens":["x","p"],"customer":"C2"},\
            {"tokens":["w","v"],"account":"A1"},{"tokens":["v","u"],"account":"A3"}
            """
        return [
            (accounts, "", ["a", "b", "c"]), (accounts, "account=A1&", ["a", "b", "c", "f", "g"]),
            (accounts, "account=A1%2CA2&", ["a", "b", "c", "g"]),
            (accounts, "account=A1%2CA2%2CA3&", ["a", "b", "c"]), (accounts, "customer=C5&", ["a", "b", "c"]),
            (customers, "customer=C1&", ["z", "y", "p"]), (customers, "account=A1&", ["z", "y", "p", "w", "v"]),
        ]
    }()

    @Test(arguments: tokens) func tokens_areThoseOfTheScope(roles: String, scope: String, has: Set<String>) {
        client.control(
            """
            {"accounts":[{"id":"A1","customer":"C1"},"A2","A3"],
             "applications":[{"id":"9yC-4pQxT_2a","psk":"ZYXWVUTSRQPONMLKJIHGFEDCBAzyxwvu","roles":[\(roles)]}]}
            """)
        let tokens = client.call("api/mytokens", scope: scope).json["body"].strings
        #expect(Set(tokens) == has)
        #expect(tokens.count == has.count)
    }

    // MARK: Bounds

    @Test func recent_letsTheOldestGo() {
        var recent = Recent<Int>(limit: 2)
        for (name, value) in [("a", 1), ("b", 2), ("a", 3), ("c", 4)] { recent.insert(name, value) }
        #expect(recent.values == ["b": 2, "c": 4])
        recent.insert("a", 5)
        recent.update("c") { $0 += 1 }
        recent.update("b") { $0 += 1 }
        #expect(recent.values == ["a": 5, "c": 5])
    }

    // MARK: Behind its server

    @Test(.timeLimit(.minutes(10))) func server_takesPHPsRequestWithoutLength_andShowsIt() throws {
        let host = try SimulatorHost.start([.streamone], port: 0, logger: Logger(label: "test"))
        defer { host.stop() }
        let port = try #require(host.urls["streamone"].flatMap { UInt16($0.split(separator: ":")[2]) })
        let client = try HTTPClient(port: port)
        let parameters =
            "api=3&format=json&authentication_type=user&account=A1&timestamp=\(SystemTime().now.milliseconds / 1000)&user=Cmv8fnKfjF2l"
        func line(_ body: String) -> String {
            let signature = StreamOneClient.signature(
                of: "/api/item/edit?\(parameters)&\(body)", key: StreamOneClient.userKey)
            return """
                POST /api/item/edit?\(parameters)&signature=\(signature) HTTP/1.1\r\nHost: h\r\n\
                Content-Type: application/x-www-form-urlencoded\r\n
                """
        }
        client.send(line("") + "\r\n")
        #expect(try client.answer().json["header"]["status"].int == 0)
        client.send(line("seq=7") + "Content-Length: 5\r\n\r\nseq=7")
        #expect(try client.answer().json["header"]["status"].int == 0)
        #expect(try client.get("/received?field=/arguments/seq").text == "A1\t\nA1\t7\n")
        #expect(try client.get("/received").json["violationCount"].int == 0)
        #expect(try client.post("/control", #"{"clockOffsetSeconds":9999}"#).status == 200)
        client.send(line("") + "Content-Length: 0\r\n\r\n")
        let answer = try client.answer()
        #expect(answer.json["header"]["status"].int == 2)
        #expect(answer.headers.filter { $0.name == "Date" }.count == 1)
    }
}
