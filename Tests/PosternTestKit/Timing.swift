import Foundation
import Glibc

/// Tests that measure how long something takes. `make test` leaves them out; `make timing` runs the suites with `Timing` in
/// their names. None compares with a fixed time: each has a measurement next to it that a slow or busy machine slows down
/// as well.
public enum Timing {
    public static let isMeasured = ProcessInfo.processInfo.environment["POSTERN_TIMING"] != nil

    /// The processor time that `work` takes on this thread.
    public static func processorTime(_ work: () throws -> Void) rethrows -> Duration {
        let start = threadTime()
        try work()
        return threadTime() - start
    }

    /// How many times as long as on the machine for which times are promised the processor takes now: at least 1.
    ///
    /// Measured with what reading a body mostly consists of: fresh memory with a look at each of its bytes, and numbers, which
    /// take many short decisions. Processors differ in how much slower they are at the one and at the other. The functions are
    /// the C library's, so a debug build of the tests measures the same.
    public static func slowness() -> Double {
        // What they take on an idle core of the machine for which times are promised (design, section 9). The second figure is
        // an estimate: where numbers take 11.3 ms, bodies of which no more is known than that they keep the promise there
        // exceed it by a third.
        max(1, timeForMemory() / .milliseconds(25), timeForNumbers() / .milliseconds(8))
    }

    private static func timeForMemory() -> Duration {
        let size = 4 << 20
        return processorTime {
            for _ in 0..<6 {
                let memory = mmap(nil, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)!
                memset(memory, 97, size - 1)
                let text = memory.assumingMemoryBound(to: CChar.self)
                for _ in 0..<2 { precondition(strspn(text, "abcdefghijklmnopqrstuvwxyz") == size - 1) }
                munmap(memory, size)
            }
        }
    }

    private static func timeForNumbers() -> Duration {
        let text = String(repeating: "0.1,", count: 200_000)
        return text.withCString { text in
            processorTime {
                var position = text
                for _ in 0..<200_000 {
                    var end: UnsafeMutablePointer<CChar>?
                    precondition(strtod(position, &end) > 0)
                    position += 4
                }
            }
        }
    }

    private static func threadTime() -> Duration {
        var time = timespec()
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
        return .seconds(time.tv_sec) + .nanoseconds(time.tv_nsec)
    }
}
