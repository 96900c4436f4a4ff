import Glibc
import PosternCore
import PosternSimulatedDisk
import PosternScenarios
import PosternTestKit

@testable import PosternGateway
@testable import PosternStore

/// A store in which a bit has flipped. The gateway may refuse it, or work on without an answer that can be relied on, until
/// the operator begins a new one. What it may not do is to pass the damage on.
extension World {
    private static let longestDamage = Duration.seconds(1800)

    var isDamaged: Bool { damagedUntil != nil }

    func damage(_ random: SeededRandom) {
        die()
        let file = random.chance(0.5) ? "postern.sqlite" : "postern.sqlite-wal"
        guard let place = disk.flipBit(in: file) ?? disk.flipBit(in: "postern.sqlite") else { return }
        history.record("a bit flips: \(place)")
        promises.lossHappened()
        damagedUntil = time.instant + Self.longestDamage
    }

    /// The disk has lost something that syncs had promised: nothing can be said any more of what was before, nor of a
    /// gateway that does not know.
    func noticeLoss() {
        guard disk.losses != knownLosses else { return }
        knownLosses = disk.losses
        // It may have lost something as well.
        backup = nil
        history.record("the disk has lost what it had promised")
        promises.lossHappened()
        if run == nil { hasLost = true } else { damagedUntil = time.instant + Self.longestDamage }
    }

    /// What was lost may be any page, also one that a start does not read. An operator who knows of it examines the
    /// store, and keeps only one in which all fits together.
    func examineAfterLoss(_ run: Run) {
        guard hasLost else { return }
        hasLost = false
        let isSound = weather.quietly {
            (try? run.gateway.outbox.audit())?.isBalanced == true
                && (try? run.gateway.outbox.read { try $0.value("PRAGMA integrity_check", as: String.self) }) == "ok"
        }
        if !isSound { damagedUntil = time.instant }
    }

    /// The operator sets the store aside, for a backup if there is one.
    func endDamage() {
        die()
        (damagedUntil, hasLost) = (nil, false)
        if let backup { restore(backup, SeededRandom(seed: plan.seed, for: "repair")) }
        // There was none, or the disk has lost it meanwhile.
        if backup == nil {
            history.record("the operator begins a new store")
            deleteStore()
        }
        promises.lossHappened()
    }

    func deleteStore() {
        weather.quietly { for end in ["", "-wal", "-shm"] { unlink(path + end) } }
    }
}
