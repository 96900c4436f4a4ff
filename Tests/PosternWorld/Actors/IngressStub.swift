import Logging
import PosternAPI
import PosternCore

@testable import PosternGateway
@testable import PosternHTTP

/// Where callers come in, in place of the gateway's HTTP servers: bytes in, a response out. Everything but the sockets
/// is the gateway's own: the strict reading of the request, admission, and the answer.
final class IngressStub: Listeners, @unchecked Sendable {
    // @unchecked: for the thread of the world only.
    private let handler: GatewayHandler
    /// What requests reserve.
    let memory: ByteBudget
    /// The API key of those that give none; nil if none is required.
    var key: String?
    /// Called before a response is passed on.
    var willAnswer: (() -> Void)?
    /// In the order of their arrival.
    fileprivate var open: [Exchange] = []
    private var isAccepting = true

    init(_ handler: GatewayHandler, _ memory: ByteBudget) { (self.handler, self.memory) = (handler, memory) }

    /// One request and its response.
    final class Exchange: ResponseTarget, @unchecked Sendable {
        fileprivate let head: RequestHead?
        fileprivate unowned let ingress: IngressStub
        private var completion: ((HTTPResponse?) -> Void)?
        private var hangUpAction: (@Sendable () -> Void)?

        fileprivate init(_ head: RequestHead?, _ ingress: IngressStub, _ completion: @escaping (HTTPResponse?) -> Void)
        {
            (self.head, self.ingress, self.completion) = (head, ingress, completion)
        }

        func settle(_ action: ResponseAction, requestNumber: UInt64) {
            // The stub may be gone.
            guard completion != nil else { return }
            ingress.willAnswer?()
            switch action {
            case .response(let response): end(response.isDropped ? nil : response)
            case .rendered(let render): end(render())
            case .problem(let problem): end(head.map { problem.response(to: $0) })
            case .hangUp, .detached, .stream: end(nil)
            }
        }

        // No caller listens to a stream.
        func wake(requestNumber: UInt64) {}
        func cut(requestNumber: UInt64?) {}

        func onHangUp(requestNumber: UInt64, _ action: @escaping @Sendable () -> Void) { hangUpAction = action }

        /// Nil: the connection broke.
        fileprivate func end(_ response: HTTPResponse?) {
            guard let completion else { return }
            self.completion = nil
            ingress.open.removeAll { $0 === self }
            completion(response)
        }

        fileprivate func abandon() { completion = nil }

        /// The client leaves; the gateway notices if it has asked to.
        func hangUp() {
            let action = hangUpAction
            end(nil)
            action?()
        }
    }

    /// - Parameters:
    ///   - caller: The caller's API key; nil for that of the operator.
    ///   - completion: Nil for a connection that was refused, or broke.
    @discardableResult func send(
        _ request: [UInt8], as caller: String? = nil, completion: @escaping (HTTPResponse?) -> Void
    ) -> Exchange? {
        var request = request
        if let key, let end = request.firstIndex(of: UInt8(ascii: "\n")) {
            request.insert(contentsOf: "Authorization: Bearer \(caller ?? key)\r\n".utf8, at: end + 1)
        }
        return receive(request, completion: completion)
    }

    /// The same for a request as it is, with credentials of its own.
    @discardableResult func receive(_ request: [UInt8], completion: @escaping (HTTPResponse?) -> Void) -> Exchange? {
        guard isAccepting else {
            completion(nil)
            return nil
        }
        var reader = RequestReader()
        var position = 0
        var admittance: HeaderDecision?
        var head: RequestHead?
        let step = request.withUnsafeBufferPointer { bytes in
            reader.read(bytes, from: &position) { parsed in
                let found = RequestHead(parsed, peer: PeerAddress(text: "127.0.0.1"))
                head = found
                let decision = handler.admit(found)
                admittance = decision
                if case .accept(let limit, _) = decision { return .accept(limit: limit) }
                return .discard(limit: HTTPServerSettings.discardedBodyBytes)
            }
        }
        let exchange = Exchange(head, self, completion)
        open.append(exchange)
        switch (step, admittance) {
        case (.complete, .accept(_, let request)):
            request.answer(reader.takeBody(), Responder(exchange, requestNumber: 0))
        case (_, .refuse(let response)): exchange.end(response)
        default: exchange.end(nil)
        }
        return exchange
    }

    /// The gateway is gone.
    func cutOff() {
        isAccepting = false
        willAnswer = nil
        for exchange in open { exchange.end(nil) }
    }

    /// No caller gets what the gateway still answers.
    func abandon() {
        for exchange in open { exchange.abandon() }
        open = []
        cutOff()
    }

    // MARK: Listeners

    func start() -> (main: UInt16, admin: UInt16?) { (80, nil) }
    func stopAccepting() { isAccepting = false }
    var runningRequests: Int { open.count }
    func stop() { cutOff() }
    var certificateExpiry: Timestamp? { nil }
    func renewCertificates() -> (isRenewed: Bool, failure: HTTPServerError?) { (false, nil) }
}
