import Foundation
import PosternHTTP
import PosternTestKit
import Testing

extension EndToEnd {
    /// The name of an upstream leads to another address, while what listens at the former one still answers.
    @Suite struct MovedName {
        private static let name = "moving.test"
        private static let addresses = ["127.0.0.2", "127.0.0.3"]

        /// The command that gives a process a file of its own as /etc/hosts.
        private static func program(withHosts file: String) -> [String] {
            let script = "mount --bind \"$0\" /etc/hosts && exec \"$@\""
            return ["/usr/bin/unshare", "--map-root-user", "--mount", "/bin/sh", "-c", script, file]
        }

        static let isAvailable: Bool = {
            let folder = ScratchFolder()
            let file = folder.file("hosts")
            return FileManager.default.createFile(atPath: file, contents: nil)
                && ChildProcess.succeeds(program(withHosts: file) + ["/bin/true"])
        }()

        /// A receiver at each address, with the same port, and a gateway that knows their name.
        private final class Setting {
            let receivers = addresses.map { _ in Receiver() }
            let directory: GatewayDirectory
            let gateway: GatewayProcess
            private var servers: [HTTPServer] = []
            private let hosts: String

            init(connectionMaxAge: Int) async throws {
                var port = 0
                for (address, receiver) in zip(addresses, receivers) {
                    let serving = try receiver.serve(host: address, port: port)
                    port = serving.port
                    servers.append(serving.server)
                }
                var settings = Settings()
                settings.delivery["connectionMaxAgeSeconds"] = connectionMaxAge
                settings.upstreams = ["hook": ["type": "webhook", "url": "http://\(name):\(port)/"]]
                directory = try GatewayDirectory(settings)
                hosts = directory.folder.file("hosts")
                try Data("\(addresses[0]) \(name)\n".utf8).write(to: URL(filePath: hosts))
                gateway = try await directory.start(program: program(withHosts: hosts))
            }

            deinit { for server in servers { server.stopAndWait(grace: .zero) } }

            /// Makes the name lead to that address. The file keeps its inode, and is never half-written.
            func move(to index: Int) throws {
                let file = try FileHandle(forWritingTo: URL(filePath: hosts))
                try file.write(contentsOf: Data("\(addresses[index]) \(name)\n".utf8))
                try file.close()
            }

            /// Sends one message. Returns which receiver got it.
            func deliver() throws -> Int? {
                let before = receivers.map(\.requests)
                let answer = try gateway.client().post("/v1/hook/event", "{}", headers: [("Prefer", "wait=60")])
                #expect(answer.status == 200, "\(answer.text)")
                return receivers.indices.first { receivers[$0].requests > before[$0] }
            }
        }

        fileprivate enum Action: CaseIterable { case reload, resume, flush }

        /// The connections, which could be used for an hour, and the address with them, are given up at once.
        @Test(.timeLimit(.minutes(10)), .enabled(if: isAvailable), arguments: Action.allCases)
        fileprivate func requests_goToTheNewAddress_afterAnOperatorsAction(_ action: Action) async throws {
            let setting = try await Setting(connectionMaxAge: 3600)
            let gateway = setting.gateway
            #expect(try setting.deliver() == 0)
            try setting.move(to: 1)
            #expect(try setting.deliver() == 0, "nothing has told the gateway")
            switch action {
            case .reload:
                gateway.process.signal(SIGHUP)
                _ = try await gateway.process.line(of: .errors) { $0.contains("configuration reloaded") }
            case .resume: #expect(try gateway.client().post("/v1/upstreams/hook/resume").status == 202)
            case .flush: #expect(try gateway.client().post("/v1/upstreams/hook/flush").status == 202)
            }
            for _ in 1...3 { #expect(try setting.deliver() == 1) }
            try await gateway.stop()
        }

        @Test(.timeLimit(.minutes(10)), .enabled(if: isAvailable))
        func requests_goToTheNewAddress_onceTheConnectionIsTooOld() async throws {
            let setting = try await Setting(connectionMaxAge: 1)
            #expect(try setting.deliver() == 0)
            try setting.move(to: 1)
            #expect(try eventually { try setting.deliver() == 1 })
            let former = setting.receivers[0].requests
            for _ in 1...10 { #expect(try setting.deliver() == 1) }
            #expect(setting.receivers[0].requests == former)
            try await setting.gateway.stop()
        }
    }
}
