import PosternCore
import PosternUpstream
import Testing

@Suite struct BatchRoomTests {
    private func taken(_ sizes: [Int], _ limits: BatchLimits) -> Int {
        var room = BatchRoom(limits)
        for size in sizes {
            guard room.fits(size) else { break }
            room.take(size)
        }
        return room.count
    }

    @Test func room_endsWithTheMessages() {
        #expect(taken([1, 1, 1], BatchLimits(maxMessages: 2, maxBytes: 100)) == 2)
    }

    /// 17 of overhead, 40, a comma, 42: 100.
    @Test func room_countsOverheadAndCommas() {
        #expect(taken([40, 42], BatchLimits(maxMessages: 9, maxBytes: 100, overhead: 17)) == 2)
        #expect(taken([40, 43], BatchLimits(maxMessages: 9, maxBytes: 100, overhead: 17)) == 1)
    }

    @Test func largeMessage_isSentAlone() {
        #expect(taken([1000, 1], BatchLimits(maxMessages: 9, maxBytes: 100)) == 1)
        #expect(taken([1, 1000], BatchLimits(maxMessages: 9, maxBytes: 100)) == 1)
    }
}
