import PosternStore
import Testing

@testable import PosternAPI

@Suite struct ReadinessTests {
    private static let full = StoreError.full(detail: "no space left")

    @Test func fullDisk_leavesTheGatewayReady_whenEveryQueueDropsItsOldest() {
        let readiness = ReadinessReport(isDraining: false, failure: Self.full, makesRoom: true, stalledWorkers: [])
        #expect(readiness.isReady)
        #expect(
            readiness.json
                == #"{"status":"ready","notes":["the disk is full; the oldest messages are dropped for new ones"]}"#)
    }

    @Test func fullDisk_makesTheGatewayUnready_whenAQueueRejectsMessages() {
        let readiness = ReadinessReport(isDraining: false, failure: Self.full, makesRoom: false, stalledWorkers: [])
        #expect(readiness.reasons == ["store: no room to store more: no space left"])
    }

    @Test func otherFailure_makesTheGatewayUnready_whateverQueuesDrop() {
        let failure = StoreError.failed(detail: "x")
        #expect(!ReadinessReport(isDraining: false, failure: failure, makesRoom: true, stalledWorkers: []).isReady)
    }

    @Test func everyReason_isNamed() {
        let readiness = ReadinessReport(isDraining: true, failure: Self.full, makesRoom: true, stalledWorkers: ["seer"])
        #expect(readiness.reasons == ["draining", "worker seer is stalled"])
        #expect(readiness.notes.count == 1)
    }

    @Test func nothingWrong_isReadyWithoutANote() {
        let readiness = ReadinessReport(isDraining: false, failure: nil, makesRoom: false, stalledWorkers: [])
        #expect(readiness.json == #"{"status":"ready"}"#)
    }
}
