import Logging
import PosternCore
import PosternHTTP
import PosternStore

/// What can be asked of an upstream besides messages: `Upstream.resources`.
struct ResourceHandler: Sendable {
    private let gateway: Gateway

    init(_ gateway: Gateway) { self.gateway = gateway }

    func show(_ target: Target, place: Int, _ parameters: [String: String], _ reply: Reply) {
        let resource = target.upstream.resources[place]
        gateway.readers.run { [gateway] in
            do throws(StoreError) {
                let answer = try gateway.outbox.withState(of: target.queue.number) { resource.answer(parameters, $0) }
                switch answer {
                case .json(let text): reply.send(.json(200, text))
                case .notFound(let detail): reply.send(Problem(slug: .notFound, status: 404, detail: detail))
                }
            } catch {
                gateway.logger.error("cannot read the store", metadata: ["error": "\(error)"])
                reply.send(Problem(slug: .internal, status: 500, detail: "The store cannot be read; the log says why."))
            }
        }
    }
}
