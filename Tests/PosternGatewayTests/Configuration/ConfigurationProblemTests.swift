import PosternGatewayTestKit
import PosternHTTP
import Testing

@testable import PosternGateway

@Suite struct ConfigurationProblemTests {
    private static let digest = String(repeating: "ab", count: 32)
    private static func key(_ members: String) -> String {
        "{\"auth\": {\"keys\": [{\(members)}]}, \"upstreams\": {\"post\": {}}}"
    }
    private static let keyStart = "\"name\": \"a\", \"sha256\": \"\(digest)\", \"scopes\": [\"read\"]"

    @Test(arguments: [
        // Ranges and types.
        (#"{"delivery": {"batchMaxMessages": 0}}"#, "delivery.batchMaxMessages is 0; allowed 1 to 10000"),
        (#"{"server": {"port": "x"}}"#, #"server.port is "x"; expected a whole number, 0 to 65535"#),
        (
            #"{"server": {"port": "8080"}}"#,
            #"server.port is "8080"; expected a whole number, 0 to 65535, without quotes"#
        ),
        (#"{"server": {"port": 80.5}}"#, "server.port is 80.5; expected a whole number, 0 to 65535"),
        (#"{"server": {"port": null}}"#, "server.port is null; expected a whole number, 0 to 65535"),
        (
            #"{"server": {"port": 99999999999999999999}}"#,
            "server.port is 99999999999999999999; allowed 0 to 65535"
        ),
        (
            #"{"server": {"idleTimeoutSeconds": true}}"#,
            "server.idleTimeoutSeconds is true; expected a number of seconds, 1 to 86400"
        ),
        (
            #"{"server": {"headerTimeoutSeconds": 0.5}}"#,
            "server.headerTimeoutSeconds is 0.5; allowed 1 to 3600"
        ),
        (#"{"server": {"host": 5}}"#, "server.host is 5; expected text"),
        (#"{"server": {"host": ["a"]}}"#, "server.host is an array; expected text"),
        (
            #"{"server": {"hosts": ["gateway:80"]}}"#,
            "server.hosts is an array; expected host names without scheme, port and path"
        ),
        (
            #"{"server": {"corsOrigins": ["https://app.example/"]}}"#,
            "server.corsOrigins is an array; expected origins such as https://app.example:8443, without a path"
        ),
        (#"{"outbox": {"path": ""}}"#, #"outbox.path is ""; must not be empty"#),
        (#"{"auth": {"allowAnonymous": "yes"}}"#, #"auth.allowAnonymous is "yes"; expected true or false"#),
        (
            #"{"log": {"level": "loud"}}"#,
            #"log.level is "loud"; allowed trace, debug, info, notice, warning, error, critical"#
        ),
        (#"{"log": {"format": 5}}"#, "log.format is 5; allowed text, json"),
        (
            #"{"outbox": {"encryptionKey": "secret"}}"#,
            "outbox.encryptionKey is ***; expected 64 hexadecimal digits (openssl rand -hex 32), or nothing"
        ),
        (#"{"outbox": {"encryptionKey": 12345}}"#, "outbox.encryptionKey is ***; expected text"),
        (
            #"{"outbox": {"previousEncryptionKeys": ["0a", "secret"]}}"#,
            "outbox.previousEncryptionKeys is ***; expected a list of keys of 64 hexadecimal digits each"
        ),
        (
            #"{"outbox": {"previousEncryptionKeys": [""]}}"#,
            "outbox.previousEncryptionKeys is ***; expected a list of keys of 64 hexadecimal digits each"
        ),
        (#"{"server": 5}"#, "server is 5; expected an object"),
        (#"{"upstreams": []}"#, "upstreams is an array; expected an object"),
        // Unknown keys.
        (
            #"{"delivery": {"batchMaxMesages": 1}}"#,
            "delivery.batchMaxMesages is unknown; did you mean delivery.batchMaxMessages?"
        ),
        (#"{"Server": {}}"#, "Server is unknown; did you mean server?"),
        (
            #"{"server": {"tls": {"keyfile": ""}}}"#,
            "server.tls.keyfile is unknown; did you mean server.tls.keyFile?"
        ),
        (
            #"{"server": {"batchMaxBytes": 1}}"#,
            "server.batchMaxBytes is unknown; did you mean delivery.batchMaxBytes?"
        ),
        (
            #"{"upstreams": {"post": {"maxInFlight": 1}}}"#,
            "upstreams.post.maxInFlight is unknown; did you mean upstreams.post.delivery.maxInFlight?"
        ),
        (
            #"{"upstreams": {"post": {"apikey": ""}}}"#,
            "upstreams.post.apikey is unknown; did you mean upstreams.post.apiKey?"
        ),
        (
            #"{"upstreams": {"post": {"queue": {"maxMessage": 1}}}}"#,
            "upstreams.post.queue.maxMessage is unknown; did you mean upstreams.post.queue.maxMessages?"
        ),
        (
            #"{"colour": "red"}"#,
            "colour is unknown; allowed here: server, auth, outbox, delivery, upstreams, cloudevents, callbacks, log"
        ),
        (#"{"log": {"a\nb": 1}}"#, #"log."a\nb" is unknown; allowed here: format, level, upstreamAnswers"#),
        // Relations.
        (
            #"{"delivery": {"retryBaseSeconds": 400}, "upstreams": {"post": {}}}"#,
            "delivery.retryBaseSeconds is 400; must not exceed delivery.retryMaxSeconds, which is 300"
        ),
        (
            #"{"upstreams": {"post": {"delivery": {"retryMaxSeconds": 0.5}}}}"#,
            "delivery.retryBaseSeconds is 1; must not exceed upstreams.post.delivery.retryMaxSeconds, which is 0.5"
        ),
        (
            #"{"server": {"host": "0.0.0.0"}}"#,
            #"server.host is "0.0.0.0", where others can reach it, but auth.keys is empty; add a key "#
                + "(postern keys new), listen on 127.0.0.1, or set auth.allowAnonymous to true"
        ),
        (
            #"{"server": {"tls": {"certificateFile": "/dev/null"}}}"#,
            "server.tls.keyFile is empty; server.tls.certificateFile needs it"
        ),
        (
            #"{"server": {"tls": {"keyFile": "/dev/null"}}}"#,
            "server.tls.certificateFile is empty; server.tls.keyFile needs it"
        ),
        (
            #"{"server": {"tls": {"clientCAFile": "/dev/null"}}}"#,
            "server.tls.certificateFile is empty; server.tls.clientCAFile needs it"
        ),
        (
            #"{"server": {"tls": {"certificateFile": "/dev/null", "keyFile": "/no/such.pem"}}}"#,
            #"server.tls.keyFile is "/no/such.pem"; the file cannot be read: No such file or directory"#
        ),
        // Upstreams.
        (
            #"{"upstreams": {"push": {}}}"#,
            "upstreams.push.type is missing; known types: post, trap"
        ),
        (
            #"{"upstreams": {"pots": {"url": ""}}}"#,
            "upstreams.pots.type is missing; known types: post, trap; or did you mean upstreams.post?"
        ),
        (
            #"{"upstreams": {"a": {"type": "fax", "number": 5}}}"#,
            #"upstreams.a.type is "fax"; known types: post, trap"#
        ),
        (#"{"upstreams": {"a": {"type": 5}}}"#, "upstreams.a.type is 5; expected text"),
        (#"{"upstreams": {"post": true}}"#, "upstreams.post is true; expected an object"),
        (
            #"{"upstreams": {"events": {"type": "post"}}}"#,
            "upstreams.events has a name that the API needs for itself; choose another"
        ),
        (
            #"{"upstreams": {"history": {"type": "post"}}}"#,
            "upstreams.history has a name that the API needs for itself; choose another"
        ),
        (
            #"{"upstreams": {"My_Post": {"type": "post"}}}"#,
            "upstreams.My_Post is not a valid name: 1 to 31 characters a-z, 0-9, -, starting with a letter"
        ),
        (
            #"{"upstreams": {"post": {"log": {"level": "loud"}}}}"#,
            #"upstreams.post.log.level is "loud"; allowed trace, debug, info, notice, warning, error, critical"#
        ),
        (
            #"{"upstreams": {"post": {"queue": {"whenFull": "explode"}}}}"#,
            #"upstreams.post.queue.whenFull is "explode"; allowed reject, dropOldest"#
        ),
        (#"{"upstreams": {"post": {"mode": "slow"}}}"#, #"upstreams.post.mode is "slow"; allowed fast, safe"#),
        // Values that are nearly right.
        (
            #"{"upstreams": {"post": {"mode": "Safe"}}}"#,
            #"upstreams.post.mode is "Safe"; allowed fast, safe; did you mean "safe"?"#
        ),
        (
            #"{"log": {"level": "warn"}}"#,
            #"log.level is "warn"; allowed trace, debug, info, notice, warning, error, critical; "#
                + #"did you mean "warning"?"#
        ),
        (
            #"{"upstreams": {"a": {"type": "posts"}}}"#,
            #"upstreams.a.type is "posts"; known types: post, trap; did you mean "post"?"#
        ),
        (
            key(#""name": "a", "sha256": "\#(digest)", "scopes": ["Read"]"#),
            #"auth.keys[0].scopes[0] is "Read"; allowed write, read, admin; did you mean "read"?"#
        ),
        (
            #"{"delivery": {"retryMaxSeconds": "5m"}}"#,
            #"delivery.retryMaxSeconds is "5m"; expected a number of seconds, 0.01 to 86400"#
        ),
        (
            #"{"server": {"port": "22110"}}"#,
            #"server.port is "22110"; expected a whole number, 0 to 65535, without quotes"#
        ),
        (#"{"server": {"port": "70000"}}"#, #"server.port is "70000"; expected a whole number, 0 to 65535"#),
        (#"{"upstreams": {"post": {"sizeBytes": 10}}}"#, "upstreams.post.sizeBytes is 10; allowed 1 to 9"),
        (#"{"upstreams": {"post": {"share": 1.5}}}"#, "upstreams.post.share is 1.5; allowed 0 to 1"),
        (#"{"upstreams": {"post": {"apiKey": 77}}}"#, "upstreams.post.apiKey is ***; expected text"),
        (
            #"{"upstreams": {"post": {"headers": {"A": 1}}}}"#,
            "upstreams.post.headers is an object; A in it is 1, expected text"
        ),
        (
            #"{"upstreams": {"post": {"actions": "a"}}}"#,
            #"upstreams.post.actions is "a"; expected a list of texts"#
        ),
        (
            #"{"upstreams": {"post": {"url": "ftp://x"}}}"#,
            #"upstreams.post.url is "ftp://x"; expected an http or https URL"#
        ),
        (
            #"{"upstreams": {"post": {"url": "ftp://user:pass@word@h/p?k=v"}}}"#,
            #"upstreams.post.url is "ftp://***@h/p?***"; expected an http or https URL"#
        ),
        (
            #"{"upstreams": {"post": {"url": "user:pass#@h"}}}"#,
            #"upstreams.post.url is "***"; expected an http or https URL"#
        ),
        (
            #"{"upstreams": {"post": {"apiKey": "wrong"}}}"#,
            "upstreams.post.apiKey is ***; expected a key of this API"
        ),
        // Keys.
        (#"{"auth": {"keys": {}}}"#, "auth.keys is an object; expected an array of objects"),
        (#"{"auth": {"keys": ["k"]}}"#, #"auth.keys[0] is "k"; expected an object"#),
        (
            key(#""name": "a b", "sha256": "\#(digest)", "scopes": ["read"]"#),
            #"auth.keys[0].name is "a b"; expected 1 to 64 of letters, digits, '.', '_' and '-'"#
        ),
        (
            key(#""name": "a", "sha256": "the key itself", "scopes": ["read"]"#),
            "auth.keys[0].sha256 is ***; expected 64 hexadecimal digits, as postern keys new prints them"
        ),
        (
            key(#""name": "a", "sha256": "\#(digest)", "scopes": ["write", "root"]"#),
            #"auth.keys[0].scopes[1] is "root"; allowed write, read, admin"#
        ),
        (
            key(#""name": "a", "sha256": "\#(digest)", "scopes": []"#),
            "auth.keys[0].scopes is empty; allowed write, read, admin"
        ),
        (
            key(#""name": "a", "sha256": "\#(digest)", "scopes": "read""#),
            #"auth.keys[0].scopes is "read"; expected a list of texts"#
        ),
        (
            key(keyStart + #", "upstreams": ["pots"]"#),
            #"auth.keys[0].upstreams[0] is "pots", which is not an upstream; did you mean "post"?"#
        ),
        (
            key(keyStart + #", "upstreams": []"#),
            #"auth.keys[0].upstreams is empty; name upstreams, or "*" for all"#
        ),
        (
            key(keyStart + #", "requestsPerSecond": -1"#),
            "auth.keys[0].requestsPerSecond is -1; allowed 0 to 1000000"
        ),
        (key(keyStart + #", "scope": []"#), "auth.keys[0].scope is unknown; did you mean auth.keys[0].scopes?"),
        (
            key(keyStart + #", "colour": []"#),
            "auth.keys[0].colour is unknown; allowed here: name, sha256, scopes, upstreams, requestsPerSecond, messagesPerSecond, burst, "
                + "weight, expiresAt, certificateName"
        ),
        (
            #"{"auth": {"keys": [{\#(keyStart)}, {"name": "a", "sha256": "\#(digest.replacing("a", with: "b"))", "scopes": ["read"]}]}}"#,
            #"auth.keys[1].name is "a", as in auth.keys[0]; names must be unique"#
        ),
        (
            #"{"auth": {"keys": [{\#(keyStart)}, {"name": "b", "sha256": "\#(digest)", "scopes": ["read"]}]}}"#,
            "auth.keys[1].sha256 is that of auth.keys[0]; give each caller its own key"
        ),
    ])
    func problem_namesPathValueAndWhatIsAllowed(file: String, expected: String) throws {
        #expect(try problems(in: file) == [expected])
    }

    @Test func problems_areAllReportedAtOnce() throws {
        let found = try problems(
            in: """
                {"server": {"port": -1, "prot": 1}, "delivery": {"maxInFlight": "many"}, "log": {"level": "loud"},
                 "upstreams": {"a": {"type": "post", "url": "gopher:"}, "b": {"type": "post", "dry": 1}}}
                """,
            environment: ["POSTERN_OUTBOX_MAX_BYTES": "lots", "POSTERN_COLOUR": "red"])
        #expect(
            Set(found) == [
                "server.prot is unknown; did you mean server.port?",
                "POSTERN_COLOUR matches no setting; correct its name, or remove it",
                "server.port is -1; allowed 0 to 65535",
                "outbox.maxBytes is \"lots\" (from POSTERN_OUTBOX_MAX_BYTES); expected a whole number of bytes, 0 to 1125899906842624",
                "delivery.maxInFlight is \"many\"; expected a whole number, 1 to 256",
                "upstreams.b.dry is 1; expected true or false",
                "log.level is \"loud\"; allowed trace, debug, info, notice, warning, error, critical",
                "upstreams.a.url is \"gopher:\"; expected an http or https URL",
            ])
        #expect(found.count == 8)
    }

    @Test func missingMembersOfAKey_areEachNamed() throws {
        #expect(
            try problems(in: Self.key("")) == [
                "auth.keys[0].name is missing", "auth.keys[0].sha256 is missing",
                "auth.keys[0].scopes is missing; allowed write, read, admin",
            ])
    }

    @Test func upstreams_areRefused_beyond255() throws {
        let members = (1...256).map { "\"u\($0)\": {\"type\": \"post\", \"enabled\": false}" }
        #expect(
            try problems(in: "{\"upstreams\": {\(members.joined(separator: ","))}}")
                == ["upstreams has 256 members; allowed 0 to 255"])
        let fewer = members.dropLast().joined(separator: ",")
        #expect(try configuration("{\"upstreams\": {\(fewer)}}").upstreams.count == 255)
    }

    @Test func upstreamWithAProblem_isNotMade() throws {
        #expect(
            try problems(in: #"{"upstreams": {"trap": {"delivery": {"maxInFlight": 0}}}}"#)
                == ["upstreams.trap.delivery.maxInFlight is 0; allowed 1 to 256"])
    }

    @Test(arguments: [
        ("127.0.0.1", true), ("127.255.0.9", true), ("::1", true), ("localhost", true), ("LocalHost", true),
        ("::ffff:127.0.0.1", true), ("0.0.0.0", false), ("128.0.0.1", false), ("::", false), ("10.0.0.1", false),
        ("::ffff:10.0.0.1", false), ("localhost.example", false), ("127.0.0.1.example", false),
    ])
    func host_isLoopback_onlyIfNoOtherMachineReachesIt(host: String, expected: Bool) {
        #expect(isLoopback(host) == expected)
    }

    @Test(arguments: [
        #"{"server": {"host": "0.0.0.0"}, "auth": {"allowAnonymous": true}}"#,
        #"{"server": {"host": "0.0.0.0"}, "auth": {"keys": [{\#(keyStart)}]}}"#,
    ])
    func openHost_isFine_withKeysOrWhenSaidExplicitly(file: String) throws {
        #expect(try configuration(file).server.http.host == "0.0.0.0")
    }

    @Test(arguments: [
        ("", "is not JSON at line 1, column 1: no JSON text"),
        ("{\"a\": 1,\n  \"b\": }", "is not JSON at line 2, column 8: unexpected character"),
        ("{\"é\": 1,,}", "is not JSON at line 1, column 9: unexpected character"),
        ("{\"a\": [1,\n }", "is not JSON at line 2, column 2: unexpected character"),
        ("{}\n# the end", "is not JSON at line 2, column 1: a comment begins with // or /*"),
        (
            "# all of it\nserver:\n  port: 8080\n",
            "is not JSON at line 1, column 1: a comment begins with // or /*; it looks like YAML, and has to be JSON"
        ),
        (
            "---\nlog: {}\n",
            "is not JSON at line 1, column 1: malformed number; it looks like YAML, and has to be JSON"
        ),
        (
            "\n[server]\nport = 8080\n",
            "is not JSON at line 2, column 2: unexpected character; it looks like TOML, and has to be JSON"
        ),
        (
            "log.level = \"info\"\n",
            "is not JSON at line 1, column 1: unexpected character; it looks like TOML, and has to be JSON"
        ),
        ("{\"a\": \"x\n\"}", "is not JSON at line 1, column 9: unescaped control character"),
        ("{\"a\": \"\\x\"}", "is not JSON at line 1, column 8: invalid escape"),
        ("{\"a\": \"\\ud800\"}", "is not JSON at line 1, column 8: lone surrogate"),
        ("{\"a\": 01}", "is not JSON at line 1, column 7: malformed number"),
        ("{\"a\": \"b\"", "is not JSON at line 1, column 10: unexpected end of the text"),
        ("{} {}", "is not JSON at line 1, column 4: more text after the JSON value"),
        ("{\n/ comment\n}", "is not JSON at line 2, column 1: a comment begins with // or /*"),
        ("{\"a\": # comment\n1}", "is not JSON at line 1, column 7: a comment begins with // or /*"),
        ("{ // é\n/* ü */ \"a\": }", "is not JSON at line 2, column 14: unexpected character"),
        ("{\n /* no end */ /*/ }", "is not JSON at line 2, column 15: unterminated comment"),
        ("// a: b\n{,}", "is not JSON at line 2, column 2: unexpected character"),
        ("/*\na: b\n*/ {", "is not JSON at line 3, column 5: unexpected end of the text"),
        (
            "{\"log\": {\"level\": \"info\",\n \"level\": \"debug\"}}",
            "is not JSON at line 2, column 2: duplicate member name \"level\""
        ),
        ("[]", "holds an array; expected an object"),
        (
            String(repeating: "[", count: 70),
            "is not JSON at line 1, column 65: more than 64 nested objects and arrays"
        ),
    ])
    func file_isRefused_withLineAndColumn(text: String, expected: String) throws {
        #expect(try problems(in: text) == ["DIR/config.json \(expected)"])
    }

    @Test func file_isRefused_whenItCannotBeRead() throws {
        #expect(
            try ScratchConfiguration(nil).problems()
                == ["DIR/config.json cannot be read: No such file or directory"])
        let scratch = try ScratchConfiguration("{}")
        let loader = ConfigurationLoader(types: [], environment: [:], file: scratch.directory, secretsDirectory: nil)
        #expect(throws: ConfigurationProblems([.init(scratch.directory, "cannot be read: Is a directory")])) {
            try loader.load()
        }
    }

    @Test(arguments: [
        (
            #"{"upstreams": {"one": {"type": "vault"}, "vault": {}, "off": {"type": "vault", "enabled": false}}}"#,
            "is empty"
        ),
        (#"{"outbox": {"encryptionKey": ""}, "upstreams": {"one": {"type": "vault"}, "vault": {}}}"#, "is empty"),
        (#"{"outbox": {"encryptionKey": "0a"}, "upstreams": {"vault": {}}}"#, "is ***"),
        (#"{"upstreams": {"off": {"type": "vault", "enabled": false}, "post": {}}}"#, nil),
        (#"{\#(ScratchConfiguration.encryption), "upstreams": {"vault": {}}}"#, nil),
    ])
    func upstreamThatStoresCredentials_requiresAnEncryptionKey(text: String, problem: String?) throws {
        let scratch = try ScratchConfiguration(text)
        let found = scratch.loader(types: [.post, .vault]).examine(triesToStart: false).problems.map(\.description)
        #expect(found.count == (problem == nil ? 0 : 1))
        if let problem { #expect(found.first?.hasPrefix("outbox.encryptionKey " + problem) == true) }
        guard problem == "is empty" else { return }
        #expect(
            found == [
                "outbox.encryptionKey is empty; it has to encrypt the credentials that callers hand in for one, vault; "
                    + "make a key (openssl rand -hex 32)"
            ])
    }

    @Test func file_isRefused_beyondOneMebibyte() throws {
        let start = "{\"server\": {\"host\": \"127.0.0.1\""
        let full = start + String(repeating: " ", count: (1 << 20) - start.count - 2) + "}}"
        #expect(try configuration(full) == GatewayConfiguration())
        #expect(
            try problems(in: full + " ")
                == ["DIR/config.json is larger than 1048576 bytes; check that it is the right file"])
    }

    @Test(arguments: [
        ("prot", ["port", "host"], "port"), ("PORT", ["port"], "port"), ("batchMaxWait", ["batchMaxWaitSeconds"], nil),
        ("portt", ["port"], "port"), ("xy", ["port"], nil), ("levle", ["level", "format"], "level"),
    ])
    func nearestName_forgivesOneSlipInThreeCharacters(name: String, candidates: [String], expected: String?) {
        #expect(nearestName(to: name, among: candidates) == expected)
    }

    @Test(.timeLimit(.minutes(10))) func nearestName_isFoundSoon_howeverLongTheNameIs() {
        let candidates = (1000..<3000).map { "batchMaxMessages\($0)" }
        #expect(nearestName(to: String(repeating: "x", count: 1_000_000), among: candidates) == nil)
    }
}
