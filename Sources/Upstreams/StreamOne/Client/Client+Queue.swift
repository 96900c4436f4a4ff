package import PosternUpstream

/// Queued calls are sent without the client. What they show concerns calls that are answered at once, too.
extension Client {
    /// The stored responses that are to be removed with the settlement of a queued call.
    package func staleCopies(after answer: Answer?, to call: StreamOneCall) -> [StateChange] {
        guard policy.usesStore else { return [] }
        return switch answer?.status.meaning {
        case .ok, .fault, .settledBefore, nil: CacheCipher.removal(of: [call.command])
        case .denied: CacheCipher.removal(of: ActionCatalog.commandsAboutRights)
        default: []
        }
    }

    /// A queued call was settled with these changes. Returns further ones.
    package func settled(
        _ answer: Answer?, to call: StreamOneCall, with changes: [StateChange]
    ) -> [StateChange] {
        let copies: [StateChange] =
            switch answer?.status.meaning {
            case .ok, .fault, .settledBefore, nil: cache.invalidate(call.command, call.scope)
            case .denied: cache.forgetRights(of: nil)
            default: []
            }
        if answer?.isSuccess ?? false { backoff.end(.actor) }
        for case .set(Pause.key, let value, _) in changes {
            guard let pause = Pause(stored: value), pause.holdsActor else { continue }
            backoff.begin(.actor, as: pause)
        }
        // The settlement has removed all that was stored until then. This is for reads that ended since.
        return cache.needsLoading ? [] : copies
    }
}
