import Testing

@testable import PosternGateway

@Suite struct FreeMemoryTests {
    /// - Parameter figures: What is resident, and what of it is in use, in MiB, at each look.
    private func looks(_ memory: inout FreeMemory, _ figures: (resident: Int, inUse: Int)...) -> [Bool] {
        figures.map { memory.isWorthReleasing(resident: $0.resident << 20, inUse: $0.inUse << 20) }
    }

    @Test func memoryOfABurst_isReleased_whenItIsNoLongerInUse() {
        var memory = FreeMemory()
        // Connections are open at the second and third look, and closed at the last.
        let looks = looks(&memory, (20, 12), (60, 50), (60, 50), (60, 12))
        #expect(looks == [false, false, false, true])
    }

    @Test func memoryThatCannotBeReleased_isNotTriedAgain() {
        var memory = FreeMemory()
        let first = looks(&memory, (20, 12), (60, 12))
        #expect(first == [false, true])
        memory.wasReleased(resident: 40 << 20, inUse: 12 << 20)
        let second = looks(&memory, (41, 12), (46, 12))
        #expect(second == [false, true])
        // What was unavoidable is in use now, and then no longer.
        memory.wasReleased(resident: 46 << 20, inUse: 12 << 20)
        let third = looks(&memory, (46, 36), (46, 12))
        #expect(third == [false, true])
    }
}
