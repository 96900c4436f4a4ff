import Logging
import PosternAPI
import PosternCore
import PosternThreads
import PosternTransport
import PosternUpstream

/// The environment of the gateway: time, scheduling of threads, randomness, and both networks.
///
/// The defaults are the machine's. A test that replaces all of them runs the whole gateway on one thread, in virtual
/// time, and repeatably.
struct Environment: Sendable {
    var time: any TimeSource = SystemTime()
    var threads: any Threads = DedicatedThreads()
    /// The source of jitter, and of values that upstreams fill in.
    var random: @Sendable () -> UInt64 = { .random(in: .min ... .max) }
    /// Gets whether requests may be sent; nil means always.
    var makeTransport: @Sendable ((@Sendable () -> Bool)?) throws(AppError) -> any OwnedTransport = {
        mayStillSend throws(AppError) in
        do throws(CurlLoop.StartFailure) {
            return try CurlLoop(.init(version: PosternVersion.current, mayStillSend: mayStillSend))
        } catch {
            throw .system("\(error).")
        }
    }
    var makeListeners: @Sendable (GatewayConfiguration.Server, ByteBudget, GatewayHandler, Logger) -> any Listeners = {
        HTTPListeners($0, memory: $1, handler: $2, admin: $2.admin, logger: $3)
    }
}

/// A transport that its owner stops.
protocol OwnedTransport: Transport {
    /// Cancels what is in flight. Returns when every transfer has completed.
    func stop()
}

extension CurlLoop: OwnedTransport {}
