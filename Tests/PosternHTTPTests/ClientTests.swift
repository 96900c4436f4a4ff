import Glibc
import PosternCore
import PosternTestKit
import PosternThreads
import Synchronization
import Testing

/// The client that nearly all suites share has to be right itself.
@Suite struct ClientTests {
    /// Descriptors are shared by the whole process. A second `close` of one takes away what another thread has opened
    /// under its number since: two connections then share a number, and their answers change places.
    @Test func refusedClient_closesNoDescriptorButItsOwn() async {
        let stolen = await withRefusingPort { port in
            let isOver = Atomic<Bool>(false)
            let knocking = try! DedicatedThread(name: "knocking") {
                for _ in 0..<20_000 { _ = try? HTTPClient(port: port) }
                isOver.store(true, ordering: .releasing)
            }
            var stolen = 0
            while !isOver.load(ordering: .acquiring) {
                let mine = open("/dev/null", O_RDONLY | O_CLOEXEC)
                if close(mine) != 0 { stolen += 1 }
            }
            knocking.join()
            return stolen
        }
        #expect(stolen == 0)
    }
}
