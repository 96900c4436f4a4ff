import PosternCore
import Testing

@Suite struct ByteBudgetTests {
    @Test func bytes_areTaken_untilTheLimit() {
        let budget = ByteBudget(10)
        #expect(budget.take(6))
        #expect(!budget.take(5))
        #expect(budget.take(4))
        budget.give(6)
        #expect(budget.bytesInUse == 4)
        #expect(budget.take(6))
    }

    @Test func largerThanTheLimit_isTaken_onlyAlone() {
        let budget = ByteBudget(10)
        #expect(budget.take(8))
        #expect(budget.take(100, besides: 8))
        #expect(!budget.take(1))
        budget.give(100)
        #expect(!budget.take(100))
    }

    @Test func largeRequests_leaveAnEighth_toSmallOnes() {
        let budget = ByteBudget(80)
        #expect(budget.shareOfLarge == 70)
        #expect(budget.take(60, upTo: budget.shareOfLarge))
        #expect(!budget.take(11, upTo: budget.shareOfLarge))
        #expect(budget.take(20))
    }
}
