import PosternTestKit
import Synchronization

/// Posts several scripts concurrently, a step of each in turn. If it gets no response, it waits for the next gateway
/// and posts the step again.
final class PatientWriter: Sendable {
    struct Step: Sendable {
        var method = "POST"
        let path: String
        let body: String
    }

    let posted = Atomic<Int>(0)
    /// Responses that are neither a success nor temporary.
    let problems = Mutex<[String]>([])
    private let scripts: [[Step]]
    private let port: Mutex<UInt16>

    init(_ scripts: [[Step]], port: UInt16) {
        self.scripts = scripts
        self.port = Mutex(port)
    }

    func turn(to port: UInt16) { self.port.withLock { $0 = port } }

    func run() {
        var client = try? HTTPClient(port: port.withLock { $0 })
        for index in 0..<(scripts.map(\.count).max() ?? 0) {
            for script in scripts where index < script.count {
                post(script[index], through: &client)
                posted.wrappingAdd(1, ordering: .relaxed)
            }
        }
    }

    private func post(_ step: Step, through client: inout HTTPClient?) {
        var isRepeated = false
        while true {
            if let answer = try? client?.ask(step.method, step.path, Array(step.body.utf8)) {
                // The first attempt may have been stored although its response was lost.
                if (200..<300).contains(answer.status) || isRepeated && answer.status == 409 { return }
                guard answer.status == 503 else {
                    return problems.withLock { $0.append("\(step.path): \(answer.status) \(answer.text)") }
                }
            }
            isRepeated = true
            _ = eventually(every: .milliseconds(20)) {
                client = try? HTTPClient(port: port.withLock { $0 })
                return client != nil
            }
        }
    }
}
