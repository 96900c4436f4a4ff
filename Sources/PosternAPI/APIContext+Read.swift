import Logging
import PosternCore
import PosternHTTP
import PosternStore
import PosternThreads

extension APIContext {
    /// Replies with what `body` makes of the store.
    func read(
        _ responder: MeteredResponder, isQuick: Bool = false,
        _ body: @escaping @Sendable () throws(StoreError) -> HTTPResponse
    ) {
        let work: @Sendable () -> Void = { [logger] in
            do throws(StoreError) {
                responder.send(try body())
            } catch {
                logger.error("cannot read the store", metadata: ["error": "\(error)"])
                responder.send(Problem(reading: error))
            }
        }
        if isQuick { readers.runSoon(work) } else { readers.run(work) }
    }
}
