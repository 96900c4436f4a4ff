import PosternCore
import PosternEvents
import PosternTestKit
import PosternThreads
import PosternUpstream
import Testing

@testable import PosternAPI

/// Streams of keys that are removed, changed, or expire, in virtual time.
@Suite struct RevokedKeyStreamTests {
    private final class Bench {
        let threads = ManualThreads()
        let feed = EventFeed()
        let keys = KeyRing()
        let stream: EventStream
        private let timer: TimerQueue

        init() {
            timer = try! TimerQueue(name: "timer", on: threads)
            stream = EventStream(feed, run: 10, timer: timer, time: threads.time)
        }

        /// Records an event and publishes it.
        func emit() {
            feed.record(Event(.messageQueued, UpstreamName("one")!, ids: [MessageID(rawValue: 1)]))
            threads.advance(by: .seconds(1))
        }

        func listen(as caller: Caller? = nil) -> ManualListener {
            ManualListener(stream, expiresAt: caller?.key.expiresAt) { [keys] in keys.stillAdmits(caller, now: $0) }
        }

        /// A listener for each key, by the key's name.
        func listenWithEachKey() -> [(name: String, listener: ManualListener)] {
            keys.all.map { ($0.key.name, listen(as: $0)) }
        }

        deinit { timer.stop() }
    }

    @Test func removedOrExpiredKey_endsItsStreams() {
        let bench = Bench()
        let expiry = bench.threads.time.now + .seconds(20)
        let keys = [
            APIKey(name: "kept", sha256: KeyText.digest(of: "1"), scopes: [.read]),
            APIKey(name: "expiring", sha256: KeyText.digest(of: "2"), scopes: [.read], expiresAt: expiry),
            APIKey(name: "removed", sha256: KeyText.digest(of: "3"), scopes: [.read]),
        ]
        let anonymous = bench.listen()
        anonymous.read()
        bench.keys.replace(with: keys, at: bench.threads.instant)
        let listeners = bench.listenWithEachKey()
        func whoHasEnded() -> [String] {
            listeners.forEach { $0.listener.read() }
            return listeners.filter(\.listener.hasEnded).map(\.name)
        }
        bench.threads.advance(by: .seconds(16))
        #expect(whoHasEnded().isEmpty)
        anonymous.read()
        #expect(anonymous.hasEnded, "it had no key when none was required")
        bench.threads.advance(by: .seconds(15))
        #expect(whoHasEnded() == ["expiring"])
        bench.keys.replace(with: Array(keys.prefix(2)), at: bench.threads.instant)
        bench.threads.advance(by: .seconds(15))
        #expect(whoHasEnded() == ["expiring", "removed"])
    }

    /// What happens after a key was removed, narrowed, or expired is not told to its listeners, not even until the next
    /// heartbeat.
    @Test func revokedKey_getsNoMoreEvents() {
        let bench = Bench()
        let digests = (1...3).map { KeyText.digest(of: "\($0)") }
        let expiry = bench.threads.time.now + .seconds(2)
        let kept = APIKey(name: "kept", sha256: digests[0], scopes: [.read])
        let narrowed = APIKey(name: "narrowed", sha256: digests[1], scopes: [.read])
        let expiring = APIKey(name: "expiring", sha256: digests[2], scopes: [.read], expiresAt: expiry)
        bench.keys.replace(with: [kept, narrowed, expiring], at: bench.threads.instant)
        let listeners = bench.listenWithEachKey()
        func counts() -> [String: Int] {
            Dictionary(uniqueKeysWithValues: listeners.map { ($0.name, $0.listener.read().count) })
        }
        _ = counts()
        bench.emit()
        #expect(counts() == ["kept": 1, "narrowed": 1, "expiring": 1])
        var other = narrowed
        other.upstreams = [UpstreamName("other")!]
        bench.keys.replace(with: [kept, other, expiring], at: bench.threads.instant)
        bench.stream.endRevoked()
        bench.emit()
        #expect(counts() == ["kept": 1, "narrowed": 0, "expiring": 1])
        bench.threads.advance(by: .seconds(3))
        bench.emit()
        #expect(counts() == ["kept": 1, "narrowed": 0, "expiring": 0])
        #expect(listeners.filter(\.listener.hasEnded).count == 2)
    }

    /// After its request was admitted.
    @Test func keyRevokedBeforeItsStreamBegins_getsNoEvents() {
        let bench = Bench()
        let expiry = bench.threads.time.now + .seconds(1)
        let kept = APIKey(name: "kept", sha256: KeyText.digest(of: "1"), scopes: [.read])
        let removed = APIKey(name: "removed", sha256: KeyText.digest(of: "2"), scopes: [.read])
        let expiring = APIKey(name: "expiring", sha256: KeyText.digest(of: "3"), scopes: [.read], expiresAt: expiry)
        bench.keys.replace(with: [kept, removed, expiring], at: bench.threads.instant)
        let callers = bench.keys.all
        bench.keys.replace(with: [kept, expiring], at: bench.threads.instant)
        bench.stream.endRevoked()
        bench.threads.advance(by: .seconds(2))
        let listeners = callers.map { bench.listen(as: $0) } + [bench.listen()]
        bench.emit()
        let counts = listeners.map { $0.read().count }
        #expect(callers.map(\.key.name) == ["expiring", "kept", "removed"])
        #expect(counts == [0, 1, 0, 0])
        #expect(listeners.map(\.hasEnded) == [true, false, true, true])
        #expect(bench.stream.listenerCount == 1)
    }
}
