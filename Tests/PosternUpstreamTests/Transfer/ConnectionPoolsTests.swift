import PosternCore
import PosternUpstream
import Testing

@Suite struct ConnectionPoolsTests {
    private final class Pool {}

    private var pools = ConnectionPools<Pool>()
    private static func at(_ seconds: Int64) -> MonotonicInstant { .distantPast + .seconds(1000 + seconds) }

    private mutating func pool(
        at seconds: Int64, of name: String = "a", renewedAt: Int64? = nil, age: Duration = .seconds(120)
    ) throws -> Pool {
        var options = TransferOptions(connectionMaxAge: age)
        options.connections.name = name
        options.connections.renewedAt = renewedAt.map(Self.at)
        return try #require(pools.pool(for: options, at: Self.at(seconds)) { Pool() })
    }

    @Test mutating func pool_isUsed_untilItsAge() throws {
        let first = try pool(at: 0)
        #expect(try pool(at: 119) === first)
        #expect(try pool(at: 120) !== first)
    }

    @Test mutating func pool_isAnother_forAnotherGroup() throws {
        #expect(try pool(at: 0) !== pool(at: 0, of: "b"))
    }

    @Test mutating func pool_isReplacedOnce_whenItsGroupWasRenewed() throws {
        let first = try pool(at: 5)
        #expect(try pool(at: 6, renewedAt: 4) === first)
        // In the same instant, it may be older.
        let second = try pool(at: 6, renewedAt: 5)
        #expect(second !== first)
        #expect(try pool(at: 6, renewedAt: 5) === second)
        // A caller that has not heard of it yet uses the new ones, too.
        #expect(try pool(at: 6) === second)
        // The caller's clock is ahead.
        let third = try pool(at: 7, renewedAt: 8)
        #expect(try pool(at: 7, renewedAt: 8) === third)
    }

    @Test mutating func pool_isReplaced_onceItIsRetired() throws {
        let (first, other) = (try pool(at: 0), try pool(at: 0, of: "b"))
        pools.retire(first)
        #expect(try pool(at: 1) !== first)
        #expect(try pool(at: 1, of: "b") === other)
        // A transfer of the former pool times out, too.
        let second = try pool(at: 1)
        pools.retire(first)
        #expect(try pool(at: 1) === second)
    }

    @Test mutating func pools_areReleased_onceTheyAreTooOld() throws {
        weak let first = try pool(at: 0, age: .seconds(10))
        weak let second = try pool(at: 5, of: "b", age: .seconds(10))
        #expect(pools.retireExpired(at: Self.at(9)) == Self.at(10))
        #expect(first != nil && second != nil)
        #expect(pools.retireExpired(at: Self.at(10)) == Self.at(15))
        #expect(first == nil && second != nil)
        #expect(pools.retireExpired(at: Self.at(15)) == nil)
        #expect(second == nil)
    }
}
