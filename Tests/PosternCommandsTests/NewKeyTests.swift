import Crypto
import PosternAPI
import PosternCore
import PosternGateway
import PosternGatewayTestKit
import PosternTestKit
import PosternUpstream
import Testing

@testable import PosternCommands

@Suite struct NewKeyTests {
    /// Counts up, so that the bytes are 0, 1, 2 …
    private struct Counting: RandomNumberGenerator {
        var state: UInt64 = 0
        mutating func next() -> UInt64 {
            defer { state += 1 }
            return state
        }
    }

    @Test func key_isMadeOf32RandomBytes_andKnownByItsDigest() {
        var random = Counting()
        let key = NewKey(name: "back\"end", scopes: [.write, .read], random: &random)
        #expect(key.key == "postern_003aUlTJC7tjlCTQj2uNU3MFagCXG9LRKRcwGkBIDlf1EaAPf")
        #expect(key.sha256 == SHA256.hash(data: Array(key.key.utf8)).hexadecimal)
        #expect(key.entry == #"{"name":"back\"end","sha256":"\#(key.sha256)","scopes":["write","read"]}"#)
        #expect(key.json == #"{"key":"\#(key.key)","sha256":"\#(key.sha256)","entry":\#(key.entry)}"#)
        #expect(key.text.hasPrefix("key     \(key.key)\nsha256  \(key.sha256)\n"))
    }

    @Test func entry_isTakenByTheConfiguration() throws {
        let key = NewKey(name: "app", scopes: [.write, .admin])
        let loaded = try configuration(#"{"auth": {"keys": [\#(key.entry)]}}"#).auth.keys
        #expect(loaded.map(\.name) == ["app"])
        #expect(loaded.first?.scopes == [.write, .admin])
    }

    @Test func twoKeys_differ() {
        #expect(NewKey(name: "a", scopes: []).key != NewKey(name: "a", scopes: []).key)
    }
}
