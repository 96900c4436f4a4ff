import Glibc
import PosternCore
import Synchronization
import Testing

@testable import PosternHTTP

@Suite struct HTTPWorkerTests {
    /// libmicrohttpd reports such a connection as started and as closed, and that it was not added.
    @Test func connectionThatCannotBeWatched_isReleasedOnce() throws {
        let core = ServerCore(
            HTTPServerSettings(), memory: ByteBudget(.max), handler: TestHandler(), logger: testLogger)
        let worker = HTTPWorker(core, name: "worker")
        try worker.start(nil)
        let peer = PeerAddress(text: "0.0.0.0")
        for _ in 0..<2 { #expect(core.limiter.admit(peer)) }
        var address = sockaddr_storage()
        address.ss_family = sa_family_t(AF_INET)
        // A device that epoll rejects.
        let device = open("/dev/null", O_RDWR | O_CLOEXEC)
        worker.add(
            HTTPWorker.NewConnection(
                socket: device, address: address, size: socklen_t(MemoryLayout<sockaddr_in>.size), peer: peer))
        worker.stop()
        #expect(core.limiter.connections == 1)
        let living = core.living.load(ordering: .acquiring)
        #expect(living == 0)
    }
}
