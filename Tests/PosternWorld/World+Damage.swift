import Glibc
import PosternCore
import PosternSimulatedDisk
import PosternStory
import PosternTestKit

/// A store in which a bit has flipped. The gateway may refuse it, or work on without an answer that can be relied on, until
/// the operator begins a new one. What it may not do is to pass the damage on.
extension World {
    private static let longestDamage = Duration.seconds(1800)

    var isDamaged: Bool { damagedUntil != nil }

    func damage(_ dice: Dice) {
        die()
        let file = dice.chance(0.5) ? "postern.sqlite" : "postern.sqlite-wal"
        guard let place = disk.flipBit(in: file) ?? disk.flipBit(in: "postern.sqlite") else { return }
        history.note("a bit flips: \(place)")
        promises.lossHappened()
        damagedUntil = time.instant + Self.longestDamage
    }

    /// The operator sets the store aside.
    func endDamage() {
        history.note("the operator begins a new store")
        die()
        for end in ["", "-wal", "-shm"] { unlink(path + end) }
        promises.lossHappened()
        damagedUntil = nil
    }
}
