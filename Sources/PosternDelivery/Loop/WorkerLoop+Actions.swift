import Logging
import PosternCore
import PosternEvents
import PosternMetrics
import PosternStore
import PosternThreads
import PosternUpstream

/// Carries out what the machine has decided.
extension WorkerLoop {
    func perform(_ actions: [DeliveryMachine.Action], for flight: InFlightBatch? = nil) {
        for action in actions {
            switch action {
            case .record(let settlement):
                guard let flight else { preconditionFailure("only batches are recorded") }
                record(settlement, of: flight)
            case .wakeHeld: queue.wakeHeld(at: time.now)
            case .makeDue(let isFlush): queue.makeDue(at: time.now) { [inbox] in if isFlush { inbox.put(.flushBegan) } }
            case .savePause(let isPaused):
                storePause()
                logger.notice(
                    isPaused ? "upstream paused" : "upstream resumed", metadata: ["upstream": "\(queue.name)"])
            case .saveFlush(let through): outbox.setFlushed(through: through, of: queue.number)
            case .finishFlush(let report): finishFlush(report)
            case .notify(let notice): log(notice)
            }
        }
    }

    private func storePause() {
        outbox.setPause(machine.pause, of: queue.number) { [inbox] in inbox.put(.pauseStored($0)) }
    }

    /// What an operator has asked for must outlast a restart: retry as long as the store is open.
    func pauseStored(_ result: Result<Void, StoreError>) {
        switch result {
        case .success: if unfinished.isEmpty { storeSucceeded(&recordRetry) }
        case .failure(.closed): break
        case .failure(let error):
            _ = storeFailed(&recordRetry, "cannot store whether the upstream is paused; retrying", error)
            unfinished.append { [unowned self] in storePause() }
        }
    }

    private func log(_ notice: DeliveryMachine.Notice) {
        let upstream: Logger.Metadata = ["upstream": "\(queue.name)"]
        func write(_ level: Logger.Level, _ message: Logger.Message, _ more: Logger.Metadata = [:]) {
            logger.log(level: level, message, metadata: upstream.merging(more) { $1 })
        }
        switch notice {
        case .isDown(let error, let until):
            // A hold is reported as one.
            if machine.health.hold == nil {
                write(.warning, "upstream is down", described(error).merging(["circuit.reopensAt": "\(until)"]) { $1 })
            }
            emit(.upstreamDown)
        case .isBack:
            write(.notice, "upstream is back")
            emit(.upstreamUp)
        case .waitEnded:
            write(.notice, "nothing is queued and the wait is over; the next message will probe the upstream")
            emit(.upstreamUp)
        case .endpointIsDown(let endpoint, let error, let until):
            let more: Logger.Metadata = ["endpoint": "\(endpoint)", "circuit.reopensAt": "\(until)"]
            guard machine.health.endpoints[endpoint]?.hold == nil else { return }
            write(.warning, "endpoint is down; others are delivered", described(error).merging(more) { $1 })
        case .endpointIsBack(let endpoint): write(.notice, "endpoint is back", ["endpoint": "\(endpoint)"])
        case .isHeld(let reason, let error, let endpoint):
            let more: Logger.Metadata = ["hold": "\(reason.rawValue)", "endpoint": "\(endpoint)"]
            write(
                .error,
                machine.health.hold == nil
                    ? "endpoint rejected our credentials or URL; its messages are held, others are delivered"
                    : "upstream rejected our credentials or URL; messages are held",
                described(error).merging(more) { $1 })
        case .isGuarded(let error, let endpoint):
            write(
                .error,
                "endpoint rejected most of its latest messages; the others are held, and one every 30 s probes it. If the rejections are right, resume the upstream",
                described(error).merging(["hold": "guard", "endpoint": "\(endpoint)"]) { $1 })
        case .guardEnded(let endpoint, let byOperator):
            write(
                .notice,
                byOperator
                    ? "endpoint is held no more; what it rejects fails again"
                    : "endpoint accepted a probe and is held no more", ["endpoint": "\(endpoint)"])
        case .said(let notice):
            let quote = settings.logsAnswers ? notice.quote.map { ": \($0)" } : nil
            write(.warning, "upstream response contains a notice", ["notice": "\(notice.text)\(quote ?? "")"])
        case .tokenFetched(let isFirst):
            write(.info, "token fetched")
            reportFetch("fetched")
            emit(.tokenRefreshed, isFirst: isFirst)
            if isFirst { log(.ready) }
        case .tokenFailed(let failure):
            let isUrgent = failure.credentialsRefused && failure.holdsMessages
            let delay: Logger.Metadata = ["retry.delayMs": .stringConvertible(failure.delay.wholeMilliseconds)]
            write(
                !failure.isNew ? .info : isUrgent ? .error : .warning,
                failure.holdsMessages
                    ? "token fetch failed; messages wait for a token" : "token fetch failed; no message waits for it",
                // A type words it itself, and a token request carries no payload.
                ["error": "\(failure.error)", "error.class": "\(failure.error.errorClass)"].merging(delay) { $1 })
            reportFetch(failure.credentialsRefused ? "refused" : "failed")
            emit(.tokenFailed)
        }
    }

    /// Tells the listeners of the stream what concerns the whole upstream.
    func emit(_ type: EventType, count: Int = 0, isFirst: Bool = false) {
        outbox.events.record(
            Event(type, queue.name, count: count, named: upstream.named(type, isFirst: isFirst)), isOrdered: true)
    }

    private func reportFetch(_ result: String) {
        metrics.tokenRefreshes(queue.name.description, result).add()
        log(.tokenFetched, ["outcome": "\(result)"])
    }

    // MARK: Tokens

    /// Starts a fetch if one is due, and something could be sent with the token or the credentials are to be checked.
    func fetchToken() {
        let now = time.now
        guard let source = upstream.tokenSource, let due = machine.tokens.nextFetch, due <= now else { return }
        let isCheck = checksToken
        guard isCheck || somethingWaits, let fetch = machine.fetchToken(isCheck: isCheck, now: now) else { return }
        client.transport.submit(source.tokenRequest, options: client.options) { [inbox] result in
            inbox.put(.tokenAnswered(result, fetch: fetch))
        }
    }

    func tokenAnswered(_ result: TransferResult, fetch: Int) {
        guard machine.tokens.fetchEnded(fetch), let source = upstream.tokenSource else { return }
        let now = time.now
        switch result {
        case .failure(let failure) where failure.reason == .cancelled: return
        case .failure:
            let error = AttemptResult(result, nil, at: now).error
            perform(
                machine.tokenFailed(
                    error, credentialsRefused: false, retryAfter: nil, holdsMessages: hasMessages, random: random()))
        case .success(let response):
            do throws(Token.Failure) {
                perform(machine.tokenFetched(try source.token(from: response, now: now), now: now))
            } catch {
                let failure = AttemptError(
                    error.credentialsRefused ? .unauthorized : .failing, status: response.status,
                    detail: error.detail, at: now)
                perform(
                    machine.tokenFailed(
                        failure, credentialsRefused: error.credentialsRefused,
                        retryAfter: response.retryAfter(now: now), holdsMessages: hasMessages, random: random()))
            }
        }
    }
}
