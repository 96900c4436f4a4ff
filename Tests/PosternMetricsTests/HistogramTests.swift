import Testing

@testable import PosternMetrics

@Suite struct HistogramTests {
    @Test func quantile_isInterpolated_amongTheObservationsOfASpan() {
        let histogram = Histogram(bounds: [1, 2, 4])
        for _ in 0..<90 { histogram.observe(0.5) }
        let before = histogram.counts
        #expect((histogram.counts - before).quantile(0.5) == nil)
        histogram.observe(1.5, times: 3)
        histogram.observe(3)
        let span = histogram.counts - before
        #expect(span.quantile(0.75) == 2)
        #expect(span.quantile(0.5).map { abs($0 - 5.0 / 3) < 1e-9 } == true)
        #expect(span.quantile(1) == 4)
        histogram.observe(100, times: 100)
        #expect(histogram.counts.quantile(0.99) == 4)
    }
}
