import PosternConformance
import PosternCore
import PosternSimulatorKit
import PosternTestKit
import Testing

@testable import StreamOneSimulator

/// Logging in, calls in a session, and its end.
@Suite struct StreamOneSessionTests {
    private static let logins = """
        {"users":[{"id":"\(StreamOneClient.user)","psk":"\(StreamOneClient.userKey)",\
        "username":"jan@example.nl","password":"password","salt":"\(StreamOneClient.quickSalt)"}]}
        """
    private let client = StreamOneClient(Self.logins)

    @Test(arguments: LoginVector.all) func passwordVector_isAccepted(vector: LoginVector) throws {
        let hash = Password.md5(vector.password)
        #expect(Password.bcrypt(hash, salt: vector.salt) == vector.form)
        #expect(StreamOneClient.response(form: vector.form, challenge: vector.challenge) == vector.response)
        let kept = try #require(Password.verifier(password: vector.password, salt: vector.salt))
        func accepts(_ response: String, _ challenge: String) -> Bool {
            Password.accepts(response: response, challenge: challenge, verifier: kept)
        }
        #expect(accepts(vector.response, vector.challenge))
        #expect(!accepts(vector.response, vector.challenge.lowercased()))
        #expect(!accepts("Z" + vector.response.dropFirst(), vector.challenge))
        for response in [
            "", "TgY=", String(vector.response.dropLast(4)), vector.response + "AAAA", "é" + vector.response,
        ] {
            #expect(!accepts(response, vector.challenge))
        }
    }

    @Test func v2hash_isTheMD5() {
        #expect(Password.md5("password") == "5f4dcc3b5aa765d61d8327deb882cf99")
        #expect(Password.md5("test123") == "cc03e747a6afbbcbf8be7668acfebee5")
        #expect(Password.md5("thisisalongpassword") == "6aab4ab53c466fd08635837b9a8f61ff")
        #expect(
            Password.verifier(password: "password", salt: LoginVector.all[0].salt)
                == "4de314adce7b776266d55663fcff376415f776a3623bf0f28d693b5f706061cf")
    }

    @Test(arguments: [
        "", "$2y$12$gmdjitkypwyd4d1mkeefi", "$2y$12$gmdjitkypwyd4d1mkeefivv", "$1$12$gmdjitkypwyd4d1mkeefivx",
        "$2y$99$gmdjitkypwyd4d1mkeefiv", "$2y$1x$gmdjitkypwyd4d1mkeefiv", "$2y$12$gmdjitkypwyd4d1mkeefi\0",
        "$2y$12$gmdjitkypwyd4d1mkeefi-",
    ]) func salt_ofAnotherForm_isRefused(salt: String) {
        #expect(Password.bcrypt("x", salt: salt) == nil)
    }

    @Test func login_leadsToASession() throws {
        let client = StreamOneClient()
        let (judged, challenge) = client.challenge()
        let body = judged.json["body"]
        #expect(body.keys == ["challenge", "salt", "needsv2hash"])
        #expect(challenge.utf8.count == 32)
        #expect(body["salt"].string == LoginVector.all[0].salt)
        #expect(body["needsv2hash"].bool == false)
        #expect(judged.json["header"]["cacheable"].bool == false)
        #expect(judged.json["header"]["sessiontimeout"].isThere == false)
        let created = client.create(challenge: challenge, form: LoginVector.all[0].form)
        #expect(created.apiStatus == 0)
        #expect(created.violations.isEmpty)
        let session = created.json["body"]
        #expect(session.keys == ["id", "key", "timeout", "user"])
        #expect(session["user"].string == StreamOneClient.user)
        #expect(session["timeout"].int == 3600)
        let (id, key) = (try #require(session["id"].string), try #require(session["key"].string))
        #expect((id.utf8.count, key.utf8.count) == (12, 32))
        let viewed = client.call("user/viewme", session: (id, key))
        #expect(viewed.json["body"]["username"].string == "jan@example.nl")
        #expect(viewed.json["header"]["sessiontimeout"].int == 3600)
        #expect(viewed.call?.hasSuffix(#""arguments":{},"session":"\#(id)"}"#) == true)
        #expect(client.call("user/viewme", session: (id, "")).apiStatus == 3)
        let deleted = client.call("session/delete", session: (id, key))
        #expect(deleted.apiStatus == 0)
        #expect(deleted.json["header"]["sessiontimeout"].isThere == false)
        #expect((judged.violations + viewed.violations + deleted.violations).isEmpty)
    }

    @Test func login_showsNoSecret_inReceivedOrControl() throws {
        let (judged, challenge) = client.challenge()
        #expect(judged.call?.contains(#""arguments":{"user":"jan@example.nl","userip":"10.0.0.1"}"#) == true)
        let created = client.create(challenge: challenge)
        #expect(created.call?.contains(#""arguments":{"challenge":"hidden","response":"hidden"}"#) == true)
        let shown = client.control()?.text ?? ""
        let listed = client.control(at: "/control/sessions")?.text ?? ""
        for secret in [
            StreamOneClient.userKey, StreamOneClient.applicationKey, "\"password\"",
            created.json["body"]["key"].string ?? "\"",
        ] {
            #expect(!shown.contains(secret) && !listed.contains(secret))
        }
    }

    @Test func password_thatIsWrong_isRefusedWithoutBlame() {
        let judged = client.create(challenge: client.challenge().text, form: LoginVector.all[1].form)
        #expect(judged.apiStatus == 281)
        #expect(judged.violations.isEmpty)
    }

    @Test func user_thatDoesNotExist_getsTheSameSaltEachTime_andNoSession() {
        let salts = (0..<2).map { _ in client.challenge(user: "absent").judged.json["body"]["salt"].string ?? "" }
        #expect(salts[0] == salts[1])
        #expect(Password.isSalt(salts[0]))
        #expect(client.challenge(user: "nobody2").judged.json["body"]["salt"].string != salts[0])
        let judged = client.create(challenge: client.challenge(user: "absent").text)
        #expect(judged.apiStatus == 281)
        #expect(judged.violations.isEmpty)
    }

    @Test func challenge_worksOnce_inItsTime_forItsApplication() {
        let challenge = client.challenge().text
        #expect(client.create(challenge: challenge).apiStatus == 0)
        let again = client.create(challenge: challenge)
        #expect(again.apiStatus == 281)
        #expect(again.violations == ["a challenge used twice: a login is never repeated"])
        let unknown = client.create(challenge: "x")
        #expect(unknown.apiStatus == 281)
        #expect(unknown.violations == ["a challenge that was never given"])
        let (late, inTime) = (client.challenge().text, client.challenge().text)
        client.time.advance(by: .seconds(60))
        #expect(client.create(challenge: inTime).apiStatus == 0)
        client.time.advance(by: .milliseconds(1))
        let old = client.create(challenge: late)
        #expect(old.apiStatus == 281)
        #expect(old.violations.isEmpty)
    }

    @Test func challengesAndSessions_areOfOneApplication() throws {
        let challenge = client.challenge().text
        let session = try client.login()
        client.control(#"{"applications":[{"id":"b","psk":"b"}]}"#)
        func send(_ name: String, _ parameters: String, _ body: String, key: String) -> SimulatedResult {
            client.signed(
                name,
                "api=3&format=json&authentication_type=application&timestamp=\(client.now)&application=b\(parameters)",
                body, key: key)
        }
        let created = send("session/create", "", "challenge=\(challenge)&response=x", key: "b")
        #expect(created.apiStatus == 281)
        #expect(created.violations == ["a challenge that was never given"])
        #expect(send("item/view", "&session=\(session.id)", "", key: "b" + session.key).apiStatus == 282)
    }

    @Test func v2hash_isWanted_untilItCameOnce() {
        client.control(
            #"{"users":[{"id":"u","username":"jan","password":"password","salt":"$2y$04$gmdjitkypwyd4d1mkeefiv","needsV2Hash":true}]}"#
        )
        let hash = "5f4dcc3b5aa765d61d8327deb882cf99"
        func challenge() -> (Bool?, String) {
            let (judged, text) = client.challenge(user: "jan")
            return (judged.json["body"]["needsv2hash"].bool, text)
        }
        let (needs, first) = challenge()
        #expect(needs == true)
        let without = client.create(challenge: first)
        #expect(without.apiStatus == 280)
        #expect(without.violations == ["no v2hash, though it was asked for"])
        #expect(client.create(challenge: challenge().1, hash: String(hash.reversed())).apiStatus == 281)
        let with = client.create(challenge: challenge().1, hash: hash)
        #expect(with.apiStatus == 0)
        #expect(with.violations.isEmpty)
        #expect(with.call?.contains(#""v2hash":"hidden""#) == true)
        let (needsMore, last) = challenge()
        #expect(needsMore == false)
        let unasked = client.create(challenge: last, hash: hash)
        #expect(unasked.apiStatus == 0)
        #expect(unasked.violations == ["a v2hash that was not asked for"])
    }

    @Test func salt_thatCannotBeUsed_mustEndTheLogin() {
        client.control(#"{"users":[{"id":"u","username":"jan","password":"password","salt":"$2y$12$short"}]}"#)
        let (judged, challenge) = client.challenge(user: "jan")
        #expect(judged.json["body"]["salt"].string == "$2y$12$short")
        let created = client.create(challenge: challenge)
        #expect(created.apiStatus == 281)
        #expect(created.violations == ["a login that went on after a salt that cannot be used"])
    }

    static let arguments: [(name: String, body: String)] = [
        ("session/initialize", ""), ("session/initialize", "user=a"), ("session/initialize", "user=a&userip="),
        ("session/initialize", "user=&userip=1"), ("session/initialize", "user=a&userip=1&x="),
        ("session/create", "challenge=a"), ("session/create", "challenge=a&response="),
        ("session/create", "challenge=a&response=b&v2hash="), ("session/create", "challenge=a&response=b&x=1"),
    ]

    @Test(arguments: arguments) func arguments_areAsWritten(name: String, body: String) {
        let judged = client.call(name, body)
        #expect(judged.apiStatus == 6)
        #expect(judged.violations.count == 1)
    }

    @Test func userAndSession_cannotLogIn() throws {
        let session = try client.login()
        for judged in [
            client.callAsUser("session/initialize", "user=a&userip=1"),
            client.call("session/initialize", "user=a&userip=1", session: session),
            client.call("session/create", "challenge=a&response=1", session: session),
        ] {
            #expect(judged.apiStatus == 4)
            #expect(judged.violations.first?.hasSuffix("an actor other than an application outside a session") == true)
        }
        #expect(client.call("session/view").apiStatus == 5)
    }

    @Test func delete_wantsASession_andNoArguments() throws {
        let outside = client.call("session/delete")
        #expect(outside.apiStatus == 282)
        #expect(outside.violations == ["session/delete outside a session"])
        let judged = client.call("session/delete", "x=1", session: try client.login())
        #expect(judged.apiStatus == 0)
        #expect(judged.violations == ["session/delete with arguments"])
    }

    @Test func session_isRenewedByEachCall_andDiesOtherwise() throws {
        client.control(#"{"sessionTimeoutSeconds":100}"#)
        let session = try client.login()
        for _ in 0..<3 {
            client.time.advance(by: .seconds(100))
            let judged = client.call("item/view", session: session)
            #expect(judged.apiStatus == 0)
            #expect(judged.json["header"]["sessiontimeout"].int == 100)
        }
        client.time.advance(by: .seconds(101))
        let dead = client.call("item/view", session: session)
        #expect(dead.apiStatus == 282)
        #expect(dead.json["header"]["sessiontimeout"].isThere == false)
        #expect(dead.violations.isEmpty)
        client.time.advance(by: .seconds(10))
        let late = client.call("item/view", session: session)
        #expect(late.apiStatus == 282)
        #expect(late.violations == ["a call in a session long after its deadline"])
    }

    @Test func session_isRenewedByRefusalsToo_butNotByForgeries() throws {
        client.control(#"{"sessionTimeoutSeconds":100}"#)
        let session = try client.login()
        client.time.advance(by: .seconds(60))
        client.control(#"{"nextStatus":[120]}"#)
        let refused = client.call("item/view", session: session)
        #expect(refused.apiStatus == 120)
        #expect(refused.json["header"]["sessiontimeout"].int == 100)
        client.time.advance(by: .seconds(60))
        #expect(client.call("item/view", session: (session.id, "x")).apiStatus == 3)
        client.time.advance(by: .seconds(60))
        #expect(client.call("item/view", session: session).apiStatus == 282)
    }

    @Test func session_thatWasDeleted_isNotToBeUsed() throws {
        let session = try client.login()
        #expect(client.call("session/delete", session: session).apiStatus == 0)
        let used = client.call("item/view", session: session)
        #expect(used.apiStatus == 282)
        #expect(used.violations == ["a call in a session that was deleted"])
        let again = client.call("session/delete", session: session)
        #expect(again.apiStatus == 282)
        #expect(again.violations.isEmpty)
        let unknown = client.call("item/view", session: ("unknown", "x"))
        #expect(unknown.apiStatus == 282)
        #expect(unknown.violations.isEmpty)
    }

    @Test func session_mayBeUsed_untilAResponseSaysThatItWasDeleted() throws {
        let session = try client.login()
        _ = client.call("session/delete", session: session, isLost: true)
        for isLost in [true, false] {
            let used = client.call("item/view", session: session, isLost: isLost)
            #expect(used.apiStatus == 282)
            #expect(used.violations.isEmpty)
        }
        let used = client.call("item/view", session: session)
        #expect(used.violations == ["a call in a session that was deleted"])
    }

    @Test func session_isListed_andForgottenOnDemand() throws {
        let session = try client.login()
        client.time.advance(by: .seconds(30))
        #expect(
            client.control(at: "/control/sessions")?.text
                == #"[{"application":"9yC-4pQxT_2a","id":"\#(session.id)","secondsLeft":3570,"user":"Cmv8fnKfjF2l"}]"#)
        #expect(client.control(at: "/control/sessions", method: "DELETE")?.status == 204)
        #expect(client.control(at: "/control/sessions")?.text == "[]")
        let judged = client.call("item/view", session: session)
        #expect(judged.apiStatus == 282)
        #expect(judged.violations.isEmpty)
        #expect(client.control(at: "/control/sessions", method: "PUT")?.status == 405)
        #expect(client.control(at: "/control/other") == nil)
    }

    @Test func logins_thatFail_blockTheirAddressForAWhile() {
        client.control(#"{"failuresUntilRateLimited":3,"rateLimitSeconds":60,"challengeTimeoutSeconds":1000}"#)
        let early = client.challenge().text
        for _ in 0..<3 {
            #expect(
                client.create(challenge: client.challenge().text, form: LoginVector.all[1].form).apiStatus
                    == 281)
        }
        #expect(client.challenge().judged.apiStatus == 8)
        #expect(client.create(challenge: early).apiStatus == 8)
        #expect(client.challenge(address: "10.0.0.2").judged.apiStatus == 0)
        client.time.advance(by: .seconds(60))
        for form in [LoginVector.all[1].form, LoginVector.all[1].form, StreamOneClient.quickForm] {
            _ = client.create(challenge: client.challenge().text, form: form)
        }
        _ = client.create(challenge: client.challenge().text, form: LoginVector.all[1].form)
        #expect(client.create(challenge: client.challenge().text).apiStatus == 0)
    }

    @Test func signatures_thatFail_blockTheirActorForAWhile() {
        client.control(#"{"failuresUntilRateLimited":3}"#)
        func forged() -> Int? {
            client.signed(
                "item/view", "api=3&format=json&authentication_type=user&timestamp=\(client.now)&user=Cmv8fnKfjF2l",
                "", key: "x"
            ).apiStatus
        }
        #expect((0..<2).map { _ in forged() } == [3, 3])
        #expect(client.callAsUser("item/view").apiStatus == 0)
        #expect((0..<4).map { _ in forged() } == [3, 3, 3, 8])
        #expect(client.callAsUser("item/view").apiStatus == 8)
        #expect(client.call("item/view").apiStatus == 0)
        client.time.advance(by: .seconds(60))
        #expect(client.callAsUser("item/view").apiStatus == 0)
    }
}

/// A vector of the specification's section 5.1.
struct LoginVector: Decodable, Sendable, CustomTestStringConvertible {
    let name: String
    let password: String
    let salt: String
    let challenge: String
    let form: String
    let response: String
    var testDescription: String { name }

    static let all: [Self] = {
        struct Vectors: Decodable { let logins: [LoginVector] }
        let vectors: Vectors = try! Fixture.value("vectors.json")
        return vectors.logins
    }()
}
