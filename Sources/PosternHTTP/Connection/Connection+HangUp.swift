import Glibc
import PosternCore
import Synchronization

// Clients that hang up while their request is being answered. Called by the reaper's thread, except `onHangUp`.
extension Connection {
    /// Calls `action` if the client hangs up before the response to request `requestNumber` is sent. Any thread may
    /// call this.
    func onHangUp(requestNumber: UInt64, _ action: @escaping @Sendable () -> Void) {
        stage.withLock { stage in
            if requestNumber == self.requestNumber, isWaitedFor(stage) { hangUpAction = action }
        }
    }

    /// The number of the request that the connection is suspended for; nil if it is not.
    var suspendedRequestNumber: UInt64? {
        stage.withLock { stage in
            switch stage {
            case .suspended, .streaming(isSuspended: true): requestNumber
            case .receiving, .answering, .detached, .settled, .sending, .streaming, .closed: nil
            }
        }
    }

    /// The client has hung up: the connection is closed, and the handler's action is called.
    func endHungUp(requestNumber: UInt64) {
        cut(requestNumber: requestNumber)
        let action = resumeIfSuspended { stage in
            guard requestNumber == self.requestNumber, case .suspended = stage else { return false }
            return settle(&stage, .hangUp)
        }
        action?()
    }

    /// What is known about a client that has closed its sending side.
    enum HalfClosed {
        /// Data was sent to it. If it has closed its receiving side as well, its system responds with a reset.
        case asked
        case hungUp
        /// It cannot be probed.
        case unknown
    }

    /// Finds out whether a client that has closed its sending side still reads, by an interim response. Every client of
    /// HTTP/1.1 accepts a `100 Continue`, and discards it if it did not ask for one (RFC 9110, section 15.2.1). A
    /// client of HTTP/1.0 does not know it, and TLS would have to encrypt it: such a client counts as gone if the
    /// handler has registered for hang-ups, as it does for a long wait.
    func examineHalfClosed(requestNumber: UInt64) -> HalfClosed {
        stage.withLock { stage in
            // In the middle of a stream, there is no place for an interim response. Listeners do not close their side.
            if requestNumber == self.requestNumber, case .streaming(isSuspended: true) = stage { return .hungUp }
            // Under the lock the request cannot be settled, so libmicrohttpd does not write.
            guard requestNumber == self.requestNumber, case .suspended = stage else { return .unknown }
            guard !core.settings.tls.isOn, head?.version == .http11 else {
                return hangUpAction == nil ? .unknown : .hungUp
            }
            let interim = Array("HTTP/1.1 100 Continue\r\n\r\n".utf8)
            let sent = Glibc.send(socket, interim, interim.count, Int32(MSG_NOSIGNAL | MSG_DONTWAIT))
            if sent == interim.count { return .asked }
            // Half an interim response would corrupt what follows.
            return sent < 0 && (errno == EAGAIN || errno == EINTR) ? .unknown : .hungUp
        }
    }
}
