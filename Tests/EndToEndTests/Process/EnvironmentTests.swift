import Foundation
import Glibc
import PosternConformance
import PosternStore
import PosternTestKit
import Testing

extension EndToEnd {
    /// How the gateway copes with limits of the machine or container that it runs in.
    @Suite struct EnvironmentTests {
        /// Clients open more connections than there are descriptors: those that come later wait, and deliveries go on.
        @Test(.timeLimit(.minutes(10)))
        func exhaustedDescriptors_delayClientsOnly_andAreLoggedOnce() async throws {
            let samsara = try HostedSimulator()
            let directory = try GatewayDirectory(Settings(upstreamURL: samsara.url))
            let gateway = try await directory.start(program: ["/bin/bash", "-c", #"ulimit -n 64; exec "$0" "$@""#])
            var clients = try (0..<100).map { _ in try gateway.client() }
            _ = try await gateway.process.line(of: .errors) { $0.contains("cannot accept connections") }
            #expect(try clients[0].post(eventPath, event(0)).status == 202)
            #expect(try eventually { try samsara.received["events"].int == 1 })
            let start = ContinuousClock.now
            #expect(eventually { ContinuousClock.now - start > .seconds(1) })
            clients = [clients[0]]
            #expect(try clients[0].post(eventPath, event(1)).status == 202)
            try gateway.waitUntilDelivered()
            #expect(try samsara.values(of: "seq").map(\.value) == ["0", "1"])
            let ended = try await gateway.stop()
            #expect(ended.errors.components(separatedBy: "cannot accept connections").count == 2)
            #expect(try directory.audit().isBalanced)
        }

        /// Stopped while the upstream processes a request, and continued when its time is long over.
        @Test(.timeLimit(.minutes(10))) func suspendedProcess_continues_andLosesNothing() async throws {
            let samsara = try HostedSimulator(faults: "delay=1000ms")
            var settings = Settings(upstreamURL: samsara.url)
            settings.delivery["requestTimeoutSeconds"] = 2
            let directory = try GatewayDirectory(settings)
            let gateway = try await directory.start()
            #expect(try gateway.client().post(eventPath, events(0..<3)).status == 202)
            #expect(try eventually(every: .milliseconds(1)) { try samsara.received["requests"].int ?? 0 > 0 })
            gateway.process.signal(SIGSTOP)
            let stoppedAt = ContinuousClock.now
            #expect(eventually { ContinuousClock.now - stoppedAt > .seconds(3) })
            #expect(try eventually { try samsara.received["events"].int ?? 0 >= 3 })
            try samsara.play("")
            gateway.process.signal(SIGCONT)
            try gateway.waitUntilDelivered()
            settings.delivery["requestTimeoutSeconds"] = nil
            try directory.configure(settings)
            gateway.process.signal(SIGHUP)
            _ = try await gateway.process.line(of: .errors) { $0.contains("configuration reloaded") }
            #expect(try gateway.client().post(eventPath, event(3)).status == 202)
            try gateway.waitUntilDelivered()
            #expect(try gateway.client().get("/readyz").status == 200)
            // Whether the answer counts that waited in the socket is libcurl's choice; repeats keep the order.
            let arrived = try samsara.values(of: "seq").map(\.value)
            #expect(
                Array(arrived.prefix(3)) == ["0", "1", "2"] && arrived.suffix(4) == ["0", "1", "2", "3"], "\(arrived)")
            try await gateway.stop()
            #expect(try directory.audit().isBalanced)
            #expect(try directory.audit().accounts.map(\.ledger.delivered) == [4])
        }

        /// libmicrohttpd takes 128 sockets that are ready at once, and asks whether there are more.
        @Test(.timeLimit(.minutes(10)), arguments: [127, 128, 129, 256])
        func requests_areAllAnswered_ifManyArriveAtOnce(count: Int) async throws {
            let gateway = try await GatewayDirectory(Settings(server: ["port": 0, "workerThreads": 1])).start()
            let clients = try (0..<count).map { _ in try gateway.client() }
            for client in clients { #expect(try client.get("/livez").status == 200) }
            // They arrive while its thread cannot run.
            gateway.process.signal(SIGSTOP)
            let status = "/proc/\(gateway.process.pid)/status"
            #expect(try eventually { try String(contentsOfFile: status, encoding: .utf8).contains("State:\tT") })
            for client in clients { client.sendRequest("GET", "/livez") }
            gateway.process.signal(SIGCONT)
            for client in clients { #expect(try client.answer().status == 200) }
            try await gateway.stop()
        }

        /// Only the folder of the store can be written, there is nothing for temporary files, and the user is one that
        /// the system does not know.
        @Test(.timeLimit(.minutes(10)), .enabled(if: BareContainer.isAllowed))
        func readOnlyRoot_unknownUser_andEmptyEnvironment_areEnough() async throws {
            let samsara = try HostedSimulator()
            let directory = try GatewayDirectory(Settings(upstreamURL: samsara.url))
            let gateway = try await directory.start(program: BareContainer.program(for: directory.folder.file("data")))
            let client = try gateway.client()
            let filler = String(repeating: "x", count: 600)
            for round in 0..<6 {
                let body = (round * 900..<round * 900 + 900).map { number in
                    #"{"timestamp":1,"sourceId":"d\#(number % 7)","eventName":"e","seq":\#(number),"x":"\#(filler)"}"#
                }
                #expect(try client.post(eventPath, "[\(body.joined(separator: ","))]").status == 202)
            }
            try gateway.waitUntilDelivered()
            #expect(try samsara.received["events"].int == 5400)
            let ended = try await gateway.stop()
            #expect(!ended.errors.contains(" error "), "\(ended.errors)")
        }
    }

    private enum BareContainer {
        /// Runs a program as user 54321 where only `folder` can be written. What a sanitizer preloads stays.
        static func program(for folder: String) -> [String] {
            let script = """
                mkdir -p "$0" && chown 54321:54321 "$0" && mount --bind "$0" "$0" && mount -o remount,bind,ro / && \
                cd /proc && exec setpriv --reuid 54321 --regid 54321 --clear-groups \
                env -i ${LD_PRELOAD:+"LD_PRELOAD=$LD_PRELOAD"} LC_ALL=C TZ=Asia/Kathmandu "$@"
                """
            return ["/usr/bin/unshare", "--mount", "/bin/sh", "-c", script, folder]
        }

        static let isAllowed: Bool = {
            guard geteuid() == 0 else { return false }
            let scratch = ScratchFolder()
            return ChildProcess.succeeds(program(for: scratch.file("data")) + ["/usr/bin/test", "!", "-w", "/var/tmp"])
        }()
    }
}
