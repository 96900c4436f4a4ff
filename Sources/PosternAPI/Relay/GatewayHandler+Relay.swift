import PosternCore
import PosternHTTP
import PosternStore
import PosternThreads

// Several gateways share a store. What needs the one that works on a queue, or that keeps the store, is answered there,
// whichever gateway received it.

extension MeteredResponder {
    /// Has the owner of a queue answer the request; nil: the keeper of the store.
    func relay(_ body: [UInt8], to queue: UpstreamNumber?) {
        let context = request.handler.context
        let call = RelayedCall(request, body).bytes
        // Until the response arrives. The reservation of the server ends before.
        let memory = MemoryLease(call.count, of: context.memory)
        context.outbox.relay(call, to: queue) { [self] result in
            withExtendedLifetime(memory) {}
            switch result.map({ HTTPResponse(stored: $0) }) {
            case .success(let response?): send(response)
            case .success(nil): send(Problem(.failed(detail: "the response of the owner cannot be read")))
            case .failure(.unresolved): send(.unansweredByOwner)
            case .failure(let error): send(Problem(error))
            }
        }
    }
}

extension GatewayHandler {
    /// Answers what other nodes relay.
    public func answerRelayed() {
        context.outbox.answerRelayed { [self] relayed in
            let memory = MemoryLease(8 * (relayed.bytes?.count ?? 0), of: context.memory)
            context.readers.run { [self] in
                answer(relayed)
                withExtendedLifetime(memory) {}
            }
        }
    }

    private func answer(_ relayed: RelayedRequest) {
        guard let call = relayed.bytes.flatMap({ RelayedCall($0) }),
            let head = RequestHead(serialized: call.head, peer: call.peer)
        else {
            return relayed.respond(nil)
        }
        let responder = Responder(to: head) { response in
            let response = response ?? self.response(to: Problem(.closed), path: head.path, requestID: head.requestID)
            // Nothing is sent, so the other node closes the connection, too.
            relayed.respond(response.isDropped ? nil : response.stored)
        }
        do throws(Problem) {
            let match: RouteMatch
            do throws(RoutingProblem) {
                match = try relayedRouter.match(head.method, head.path).get()
            } catch {
                throw error.problem(in: context, for: nil)
            }
            let caller = try gatekeeper.caller(named: call.key, head, match)
            try APIRequest(head, match, caller, self, at: context.time.instant, isRelayed: true)
                .answer(call.body, responder)
        } catch {
            responder.respond(response(to: error, path: head.path, requestID: head.requestID))
        }
    }
}
