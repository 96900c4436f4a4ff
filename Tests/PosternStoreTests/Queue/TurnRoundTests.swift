import Testing

@testable import PosternStore

/// The way of a scan around the turns, and where the next one goes on.
@Suite struct TurnRoundTests {
    /// Visits the turns until all are done, but not more than 100. Takes one row at a time of those that `rows` has.
    private func visits(
        _ rows: [Int64: Int], _ round: inout TurnRound, ending: TurnRound.VisitEnd = .exhausted
    ) -> [Int64] {
        var rows = rows
        var visits: [Int64] = []
        while round.visits < 100 {
            guard let turn = rows.keys.filter({ $0 > round.turn }).min() else {
                guard round.wrap() else { return visits }
                continue
            }
            guard round.visit(turn) else { continue }
            visits.append(turn)
            let isLast = rows[turn] == 1
            rows[turn]? -= isLast ? 0 : 1
            round.endVisit(isLast ? ending : .spent, tookRows: !isLast || ending == .exhausted)
        }
        Issue.record("the scan does not end: \(visits)")
        return visits
    }

    @Test func turns_areVisitedInACircle_untilAllAreDone() {
        var round = TurnRound(after: 4)
        #expect(visits([-7: 1, 0: 1, 4: 2, 9: 3], &round) == [9, -7, 0, 4, 9, 4, 9])
        #expect(!round.leavesRows)
        #expect(round.blocked.isEmpty)
    }

    /// Turns are digests: half of them are negative.
    @Test func firstScan_beginsWithTheLeastTurn() {
        var round = TurnRound(after: Turns().last)
        #expect(visits([-7: 1, 3: 1], &round) == [-7, 3])
    }

    @Test func scanWithoutTurns_ends() {
        var round = TurnRound(after: 4)
        #expect(visits([:], &round) == [])
    }

    @Test func nextScan_goesOnBehindTheLastTurn() {
        var round = TurnRound(after: 0)
        _ = round.visit(3)
        round.endVisit(.cut, tookRows: true)
        #expect(round.leavesRows)
        #expect(round.last == 3)
    }

    @Test func nextScan_beginsWithTheFirstTurnThatHadAnotherKind() {
        var round = TurnRound(after: 0)
        #expect(visits([2: 1, 5: 1], &round, ending: .otherKind) == [2, 5])
        #expect(round.last == 1, "2 is next")
        #expect(round.leavesRows)
    }

    @Test func turnWhoseRowsWaitForTheirLanes_isNotVisitedAgain() {
        var round = TurnRound(after: 0)
        #expect(visits([2: 1, 5: 2], &round, ending: .blocked) == [2, 5, 5])
        #expect(round.blocked == [2, 5])
        #expect(!round.leavesRows)
    }
}
