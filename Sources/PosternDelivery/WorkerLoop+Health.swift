import Logging
import PosternCore
import PosternMetrics
import PosternStore

/// How the upstream is, and whether it lets us in.
extension WorkerLoop {
    /// It answered as one that works, be it by refusing somebody.
    func worked(_ flight: Flight, at now: Timestamp, hasTaken: Bool) {
        if circuit.succeeded() { logger.notice("upstream is back", metadata: ["upstream": "\(queue.name)"]) }
        // While the circuit is open this is an answer from before.
        if circuit.state == .closed { hold = nil }
        lastSuspect = nil
        tokens.accepted(under: flight.generation)
        guard hasTaken else { return }
        latestTaken = max(latestTaken, flight.batch.id.number)
        lastSuccessAt = now
    }

    /// `atOnce` does not wait for more failures before it leaves the upstream alone.
    func failed(_ error: AttemptError, retryAt: Timestamp, atOnce: Bool) {
        lastError = error
        guard atOnce ? circuit.hold(until: retryAt) : circuit.failed(retryAt: retryAt) else { return }
        logger.notice(
            "upstream is down",
            metadata: [
                "upstream": "\(queue.name)", "error": "\(error)", "error.class": "\(error.errorClass)",
                "circuit.reopensAt": "\(retryAt)",
            ])
    }

    /// It failed, though perhaps by the fault of this batch. Where a batch is one lane's, the same one again is no further
    /// word about the upstream while nothing else is heard of it: else one stuck lane would shut out all the others.
    func suspected(_ flight: Flight, _ error: AttemptError, retryAt: Timestamp) {
        let suspect = flight.batch.messages[0].id
        defer { lastSuspect = suspect }
        if upstream.laneRule == .separate, lastSuspect == suspect, circuit.state == .closed {
            lastError = error
        } else {
            failed(error, retryAt: retryAt, atOnce: false)
        }
    }

    func holdUpstream(_ reason: HoldReason, _ error: AttemptError) {
        if hold != reason {
            logger.error(
                "upstream does not work for us; messages wait and it is probed slowly",
                metadata: ["upstream": "\(queue.name)", "hold": "\(reason.rawValue)", "error": "\(error)"])
        }
        hold = reason
        failed(error, retryAt: error.at + settings.retry.slowDelay(random: random()), atOnce: true)
    }

    func note(_ notice: String?) {
        guard let notice, notice != lastNotice else { return }
        lastNotice = notice
        logger.warning("upstream says", metadata: ["upstream": "\(queue.name)", "notice": "\(notice)"])
    }

    // MARK: Tokens

    /// Starts a fetch if one is due and somebody could go out under the token.
    func fetchToken() {
        let now = time.now
        guard let source = upstream.tokenSource, let due = tokens.nextFetch, due <= now else { return }
        if let reopensAt = circuit.reopensAt, reopensAt > now { return }
        guard somethingWaits else { return }
        let fetch = tokens.fetchBegan()
        transport.submit(source.tokenRequest, options: settings.transfer) { [inbox] result in
            inbox.put(.tokenAnswered(result, fetch: fetch))
        }
    }

    func tokenAnswered(_ result: TransferResult, fetch: Int) {
        guard tokens.fetchEnded(fetch), let source = upstream.tokenSource else { return }
        switch result {
        case .failure(let failure) where failure.reason == .cancelled: return
        case .failure(let failure):
            tokenFetchFailed(AttemptOutcome(failure, at: time.now).error, credentialsRefused: false, retryAfter: nil)
        case .success(let response):
            do throws(TokenRefusal) {
                tokens.fetched(try source.token(from: response, now: time.now), now: time.now)
                metrics.tokenRefreshes(queue.name.description, "fetched").add()
                logger.info("token fetched", metadata: ["upstream": "\(queue.name)"])
                tell(.tokenFetched, ["outcome": "fetched"])
                if !isReady { tell(.ready) }
                isReady = true
            } catch {
                let errorClass: AttemptError.Class = error.credentialsRefused ? .unauthorized : .failing
                tokenFetchFailed(
                    AttemptError(errorClass, status: response.status, detail: error.detail, at: time.now),
                    credentialsRefused: error.credentialsRefused, retryAfter: response.retryAfter(now: time.now))
            }
        }
    }

    private func tokenFetchFailed(_ error: AttemptError, credentialsRefused: Bool, retryAfter: Duration?) {
        let delay =
            credentialsRefused
            ? settings.retry.slowDelay(random: random())
            : settings.retry.delay(afterAttempt: tokens.failures + 1, retryAfter: retryAfter, random: random())
        let isNew = tokens.failures == 0 || credentialsRefused != tokens.credentialsRefused
        tokens.fetchFailed(credentialsRefused: credentialsRefused, retryAt: error.at + delay)
        lastError = AttemptError(
            error.errorClass, status: error.status, detail: "no token: \(error.detail)", at: error.at)
        metrics.tokenRefreshes(queue.name.description, credentialsRefused ? "refused" : "failed").add()
        tell(.tokenFetched, ["outcome": credentialsRefused ? "refused" : "failed"])
        logger.log(
            level: !isNew ? .info : credentialsRefused ? .error : .warning, "token fetch failed; messages wait for one",
            metadata: [
                "upstream": "\(queue.name)", "error": "\(error)", "retry.delayMs": "\(delay.wholeMilliseconds)",
            ])
    }

    func tokenRefused(_ flight: Flight, _ error: AttemptError) {
        lastError = error
        circuit.abandoned(now: error.at)
        switch tokens.refused(under: flight.generation) {
        case .sendAgain: break
        case .credentialsAreBad:
            isReady = false
            holdUpstream(.credentials, error)
        }
    }
}
