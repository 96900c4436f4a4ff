import PosternCore
import PosternMetrics
import Synchronization

/// Counts and times the responses of one route. Its series are looked up by label once, not for each request.
final class RouteMetrics: Sendable {
    private struct Known {
        var duration: Histogram?
        var counters: [(status: Int, counter: Counter)] = []
    }
    /// The path template, or `unknown`.
    let route: String
    private let metrics: Metrics
    private let known = Mutex(Known())

    init(_ route: String, metrics: Metrics) {
        self.route = route
        self.metrics = metrics
    }

    /// `duration` is nil for requests that were refused before there was anything to time.
    func count(_ status: Int, took duration: Duration? = nil) {
        let series = known.withLock { known in
            (counter(of: status, in: &known), duration == nil ? nil : histogram(in: &known))
        }
        series.0.add()
        if let duration { series.1?.observe(duration.inSeconds) }
    }

    private func counter(of status: Int, in known: inout Known) -> Counter {
        for entry in known.counters where entry.status == status { return entry.counter }
        let counter = metrics.requests(route, String(status))
        known.counters.append((status, counter))
        return counter
    }

    private func histogram(in known: inout Known) -> Histogram {
        if let duration = known.duration { return duration }
        let histogram = metrics.requestDuration(route)
        known.duration = histogram
        return histogram
    }
}
