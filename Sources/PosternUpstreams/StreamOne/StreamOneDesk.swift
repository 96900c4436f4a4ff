import PosternCore

/// Makes the calls that are answered at once: looks into the cache, sends, reads the answer, and draws what follows for
/// the session, the cache and the actor.
struct StreamOneDesk: Sendable {
    let platform: StreamOnePlatform
    let actions: StreamOneActions
    let cache: StreamOneCache
    let sessions: StreamOneSessions
    let gate: StreamOneGate
    /// How long answers are kept; zero: not at all.
    let lifetime: Duration

    enum Outcome: Sendable {
        /// What the platform says, be it a refusal. `age` is there when it was kept.
        case answer(StreamOneAnswer, age: Duration?)
        /// There is none.
        case problem(StreamOneTrouble)
    }

    /// What a call is made for.
    struct Order: Sendable {
        var call: StreamOneCall
        /// In a session, or as the actor itself.
        var session: StreamOneSession?
        /// For `hasToken` and the roles: kept with the session, cacheable or not (section 6).
        var isForRights = false
        let deadline: MonotonicInstant
    }

    /// An order under way.
    fileprivate struct Trip: Sendable {
        let order: Order
        let nature: StreamOneActions.Nature
        let tools: any ResourceTools
        let completion: @Sendable (Outcome) -> Void
        var flight: StreamOneCache.Flight?
        var tries = 0
        var wasSignedAnew = false
    }

    /// Tries of a read, the first included.
    private static let readTries = 3

    func fetch(
        _ order: Order, _ tools: any ResourceTools, completion: @escaping @Sendable (Outcome) -> Void
    ) {
        let nature = actions.nature(of: order.call)
        let trip = Trip(order: order, nature: nature, tools: tools, completion: completion)
        guard nature == .read else { return depart(trip) }
        let look = cache.look(
            key(of: order), session: order.session?.id, deadline: order.deadline, now: tools.time.instant
        ) { landing in
            switch landing {
            case .outcome(let outcome): completion(outcome)
            case .lead(let flight): depart(trip.leading(flight))
            }
        }
        switch look {
        case .hit(let answer, let age): completion(.answer(answer, age: age))
        case .follow: break
        case .lead(let flight): depart(trip.leading(flight))
        }
    }

    private func key(of order: Order) -> StreamOneCache.Key {
        guard order.isForRights else { return .init(order.call, by: platform.actor, user: order.session?.user) }
        var call = order.call
        // Roles say themselves where they hold; tokens are those of the scope.
        if call.action == "getmyroles" { call.scope = .none }
        return .init(
            call, by: platform.actor, user: order.session?.user, for: .rights(session: order.session?.id))
    }

    // MARK: Sending

    private func depart(_ trip: Trip) {
        guard platform.hasCredentials else { return land(trip, .problem(.noCredentials)) }
        let now = trip.tools.time.now
        for subject in Self.subjects(of: trip.order) {
            if let pause = gate.pause(of: subject, now: now) {
                return land(trip, .problem(.paused(pause, now)))
            }
        }
        send(trip)
    }

    /// Who authenticates by it.
    private static func subjects(of order: Order) -> [StreamOneGate.Subject] {
        if let session = order.session { return [.session(session.id)] }
        let address = order.call.command == "session" ? order.call.arguments.first { $0.name == "userip" } : nil
        return [.actor] + (address.map { [.address($0.value)] } ?? [])
    }

    private func send(_ trip: Trip) {
        var trip = trip
        trip.tries += 1
        let left = trip.order.deadline - trip.tools.time.instant
        guard left > .zero else { return runOut(trip) }
        let request = platform.request(
            for: trip.order.call, in: trip.order.session.map { ($0.id, $0.key) }, at: trip.tools.time.now)
        trip.tools.send(request, timeout: left) { [trip] result in received(result, trip) }
    }

    private func received(_ result: TransferResult, _ trip: Trip) {
        switch result {
        case .failure(let failure) where failure.reason == .timeout: runOut(trip)
        case .failure(let failure):
            guard failure.reason != .cancelled, mayTryAgain(trip) else {
                return fail(
                    trip, "The platform could not be asked: \(failure.detail).", isClear: !failure.mayHaveArrived)
            }
            send(trip)
        case .success(let response):
            if let answer = StreamOneAnswer(response) { return answered(answer, trip) }
            if mayTryAgain(trip) { return send(trip) }
            let what =
                (200...299).contains(response.status)
                ? "something that is no answer of its own" : "HTTP status \(response.status)"
            fail(trip, "The platform answered with \(what).", isClear: false)
        }
    }

    private func mayTryAgain(_ trip: Trip) -> Bool { trip.nature == .read && trip.tries < Self.readTries }

    // MARK: What follows

    private func answered(_ answer: StreamOneAnswer, _ trip: Trip) {
        let now = trip.tools.time.now
        let session = trip.order.session
        if let session, let timeout = answer.sessionTimeout {
            sessions.renew(session.id, until: now + .seconds(timeout.seconds), trip.tools)
        }
        switch answer.status.meaning {
        case .ok:
            gate.open(session.map { .session($0.id) } ?? .actor)
            if trip.nature == .write { invalidate(trip) }
        case .fault:
            if mayTryAgain(trip) { return send(trip) }
            if trip.nature == .write { invalidate(trip) }
        case .clock where !trip.wasSignedAnew: return send(trip.signedAnew)
        case .authentication where session == nil:
            // A login is not repeated: it would count as another bad one.
            guard trip.wasSignedAnew || trip.nature == .session else { return send(trip.signedAnew) }
            gate.close(.actor, .authentication, now: now)
        case .authentication, .sessionGone: if let session { forget(session, trip.tools) }
        case .rateLimited: rateLimited(trip, now)
        case .denied: cache.forgetRights(of: session?.user)
        case .clock, .readOnly, .permanent, .settledBefore, .needsHash, .loginRefused: break
        }
        if trip.nature == .session, trip.order.call.action == "delete", let session { forget(session, trip.tools) }
        land(trip, .answer(answer, age: nil))
    }

    /// The platform blocks the address of a login, a session, or the actor itself, which the queue has to know too. The
    /// second step of a login is blocked for its address as well, though only the first one names it.
    private func rateLimited(_ trip: Trip, _ now: Timestamp) {
        guard let subject = Self.subjects(of: trip.order).last, trip.nature != .session || subject != .actor else {
            return
        }
        let pause = gate.close(subject, .rateLimited, now: now)
        if subject == .actor { trip.tools.change([pause.change]) { _ in } }
    }

    func forget(
        _ session: StreamOneSession, _ tools: any ResourceTools, completion: @escaping @Sendable () -> Void = {}
    ) {
        cache.forget(session: session.id)
        sessions.forget(session.id, tools, completion: completion)
    }

    private func invalidate(_ trip: Trip) { cache.invalidate(trip.order.call.command, trip.order.call.scope) }

    /// No usable answer. Unless it is `isClear` that the platform has not seen it, a write may have taken effect.
    private func fail(_ trip: Trip, _ detail: String, isClear: Bool) {
        land(trip, .problem(.failed(detail + outlook(trip, isClear))))
    }

    private func outlook(_ trip: Trip, _ isClear: Bool) -> String {
        guard trip.nature == .write else { return "" }
        if isClear { return " It has not taken the call." }
        invalidate(trip)
        return " Whether it has carried out the call is not known."
    }

    /// The caller's time is over; those who wait for the same read may have more.
    private func runOut(_ trip: Trip) {
        let outcome = Outcome.problem(
            .late("The platform did not answer in time." + outlook(trip, trip.tries == 0)))
        if let flight = trip.flight {
            let (next, late) = cache.handOver(flight, now: trip.tools.time.instant)
            for follower in late { follower.resume(.outcome(outcome)) }
            next?.resume(.lead(flight))
        }
        trip.completion(outcome)
    }

    private func land(_ trip: Trip, _ outcome: Outcome) {
        if let flight = trip.flight {
            let followers = cache.land(
                flight, keeping: kept(outcome, trip), for: lifetime, now: trip.tools.time.instant)
            for follower in followers { follower.resume(.outcome(outcome)) }
        }
        trip.completion(outcome)
    }

    private func kept(_ outcome: Outcome, _ trip: Trip) -> StreamOneAnswer? {
        guard case .answer(let answer, _) = outcome, answer.isSuccess else { return nil }
        if trip.order.isForRights { return answer }
        return answer.isCacheable && actions.isKept(trip.order.call) ? answer : nil
    }
}

extension StreamOneDesk.Trip {
    fileprivate func leading(_ flight: StreamOneCache.Flight) -> Self {
        var trip = self
        trip.flight = flight
        return trip
    }

    fileprivate var signedAnew: Self {
        var trip = self
        trip.wasSignedAnew = true
        return trip
    }
}
